"""A path of four nodes, 0-1-2-3, worked by hand: S = D^-½ A D^-½ has 1/√2 at the ends and ½ in the middle."""

from __future__ import annotations

import math

import numpy as np
import pytest

from chronospike.data.label_propagation import diffuse, label_propagation, one_hot, recency_operator
from chronospike.errors import GraphError
from tests.path_of_four import path_of_four


def test_operator_of_a_path_by_hand() -> None:
    r = 1 / math.sqrt(2)
    expected = [[0, r, 0, 0], [r, 0, 0.5, 0], [0, 0.5, 0, r], [0, 0, r, 0]]
    np.testing.assert_allclose(recency_operator(path_of_four()).toarray(), expected)
    np.testing.assert_allclose(recency_operator(path_of_four(directed=True)).toarray(), expected)


def test_a_recent_edge_outweighs_an_old_one() -> None:
    """Edges 0-1 at step 0 and 1-2 at step 1 with recency ln 4: weights ¼ and 1, so S_01 = ¼ / √(¼ · 5/4)."""
    operator = recency_operator(path_of_four((0, 1, 1), 2), recency=math.log(4)).toarray()
    assert operator[0, 1] == pytest.approx(0.25 / math.sqrt(0.25 * 1.25))
    assert operator[1, 2] == pytest.approx(1 / math.sqrt(1.25 * 2))


def test_edges_after_the_last_step_asked_for_do_not_count() -> None:
    operator = recency_operator(path_of_four((0, 1, 1), 2), last_step=0).toarray()
    assert np.flatnonzero(operator.sum(axis=1)).tolist() == [0, 1]


def test_two_rounds_of_diffusion_by_hand() -> None:
    """From a one at node 0 with α = ½: round 1 gives ½ at 0 and 1/√8 at 1; round 2 is ½ S F + ½ F₀."""
    start = np.array([[1.0], [0.0], [0.0], [0.0]])
    values = diffuse(recency_operator(path_of_four()), start, alpha=0.5, rounds=2)
    expected = [0.5 + 0.5 * 0.25, 0.5 * 0.5 / math.sqrt(2), 0.5 * 0.5 / math.sqrt(8), 0.0]
    np.testing.assert_allclose(values[:, 0], expected)


def test_one_hot_marks_the_given_nodes_alone() -> None:
    assert one_hot(np.array([2]), np.array([0, 1, 1]), (3, 2)).tolist() == [[0, 0], [0, 0], [0, 1]]


LABELS = np.array([0, 0, 1, 1])


def test_labels_spread_along_a_path_of_four() -> None:
    graph = path_of_four().with_labels(LABELS, ("a", "b"))
    values = label_propagation(graph, np.array([0, 3]))
    assert values.argmax(axis=1).tolist() == [0, 0, 1, 1]
    np.testing.assert_allclose(values.sum(axis=1), 1)
    np.testing.assert_allclose(values[1], values[2][::-1])


def test_one_round_by_hand() -> None:
    """Round 1 with α = 0.9: node 1 holds 0.9/√2 of class a and nothing of b, node 0 holds 0.1 of a."""
    graph = path_of_four().with_labels(LABELS, ("a", "b"))
    values = label_propagation(graph, np.array([0, 3]), rounds=2)
    a = 0.9 * 0.1 / math.sqrt(2)
    b = 0.9 * 0.5 * 0.9 / math.sqrt(2)
    assert values[1, 0] == pytest.approx(a / (a + b))


def test_nodes_out_of_reach_get_the_class_shares() -> None:
    graph = path_of_four((0, 0, 1), 2).with_labels(LABELS, ("a", "b"))
    values = label_propagation(graph, np.array([0, 1, 2]), last_step=0)
    np.testing.assert_allclose(values[3], [2 / 3, 1 / 3])


def test_recency_decides_between_an_old_and_a_new_neighbour() -> None:
    graph = path_of_four((0, 1, 1), 2).with_labels(np.array([0, 0, 1, 1]), ("a", "b"))
    old_and_new = label_propagation(graph, np.array([0, 2]), recency=3.0)
    assert old_and_new[1].argmax() == 1


def test_no_training_nodes_is_an_error() -> None:
    graph = path_of_four().with_labels(LABELS, ("a", "b"))
    with pytest.raises(GraphError, match="at least one training node"):
        label_propagation(graph, np.array([], dtype=np.int64))
