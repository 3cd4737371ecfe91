from __future__ import annotations

import math

import numpy as np
import pytest

from chronospike.data.label_propagation import recency_operator
from chronospike.training.smoothing import Strengths, choose_and_smooth, correct_and_smooth
from tests.path_of_four import path_of_four

LABELS = np.array([0, 0, 1, 1])
UNSURE = np.full((4, 2), 0.5)


def test_strength_zero_changes_nothing() -> None:
    operator = recency_operator(path_of_four())
    values = correct_and_smooth(operator, UNSURE, LABELS, np.array([0]), Strengths(0, 0, 3))
    np.testing.assert_allclose(values, UNSURE)


def test_correcting_a_path_of_four_by_hand() -> None:
    """One round from node 0's error (½, -½) reaches node 1 only, and is scaled back to a size of one."""
    operator = recency_operator(path_of_four())
    values = correct_and_smooth(operator, UNSURE, LABELS, np.array([0]), Strengths(0.5, 0, 0), rounds=1)
    np.testing.assert_allclose(values, [[1.0, 0.0], [1.0, 0.0], [0.5, 0.5], [0.5, 0.5]])


def test_smoothing_a_path_of_four_by_hand() -> None:
    """One round with α = ½ from (1, 0) at node 0 and (½, ½) elsewhere."""
    operator = recency_operator(path_of_four())
    values = correct_and_smooth(operator, UNSURE, LABELS, np.array([0]), Strengths(0, 0.5, 0), rounds=1)
    a = 0.25 + 0.5 * (1 / math.sqrt(2) + 0.25)
    b = 0.25 + 0.5 * 0.25
    np.testing.assert_allclose(values[1], [a / (a + b), b / (a + b)])


def test_smoothing_mends_a_wrong_guess_between_known_nodes() -> None:
    graph = path_of_four().with_labels(LABELS, ("a", "b"))
    guess = np.array([[0.9, 0.1], [0.45, 0.55], [0.2, 0.8], [0.1, 0.9]])
    values, chosen = choose_and_smooth(graph, guess, np.array([0, 3]), np.array([1]))
    assert values.argmax(axis=1).tolist() == [0, 0, 1, 1]
    assert chosen["validation_micro_f1"] == 1.0


def test_without_a_gain_on_validation_nothing_is_changed() -> None:
    graph = path_of_four().with_labels(LABELS, ("a", "b"))
    good = np.array([[0.9, 0.1], [0.8, 0.2], [0.2, 0.8], [0.1, 0.9]])
    values, chosen = choose_and_smooth(graph, good, np.array([0, 3]), np.array([1, 2]))
    np.testing.assert_allclose(values, good)
    assert (chosen["correct"], chosen["smooth"]) == (0.0, 0.0)


@pytest.mark.parametrize("strengths", [Strengths(0.8, 0.8, 3), Strengths(0.5, 0.9, 0)])
def test_rows_add_up_to_one(strengths: Strengths) -> None:
    operator = recency_operator(path_of_four((0, 1, 1), 2), strengths.recency)
    values = correct_and_smooth(operator, UNSURE, LABELS, np.array([0, 3]), strengths)
    np.testing.assert_allclose(values.sum(axis=1), 1)
