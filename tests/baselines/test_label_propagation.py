from __future__ import annotations

import math

import numpy as np
import pytest

from chronospike.baselines.label_propagation import label_propagation
from chronospike.errors import GraphError
from tests.path_of_four import path_of_four

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
