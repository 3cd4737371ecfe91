"""A path of four nodes, 0-1-2-3, worked by hand; node 1 lies between a neighbour of class a and one of class b."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from chronospike.data.splits import Split
from chronospike.errors import InputError
from chronospike.methods.label_propagation import (
    LabelPropagation,
    LabelPropagationSettings,
    UnweightedLabelPropagation,
    UnweightedSettings,
)
from chronospike.training.task import Task, make_task
from tests.path_of_four import path_of_four
from tests.small_runs import CPU


def _task() -> Task:
    """Edge 0-1 at step 0, the others at step 1; nodes 0 (a) and 2 (b) are known."""
    graph = path_of_four((0, 1, 1), 2).with_labels(np.array([0, 0, 1, 1]), ("a", "b"))
    split = Split(np.array([0, 2]), np.arange(0), np.array([1, 3]))
    return make_task(graph, LabelPropagationSettings(), CPU, split, needs_features=False)


def _first_round(old: float, new: float) -> list[float]:
    """Shares of node 1 after a round over edges 0-1 and 1-2 with these weights."""
    a, b = old / math.sqrt(old * (old + new)), new / math.sqrt((old + new) * 2 * new)
    return [a / (a + b), b / (a + b)]


def test_one_round_with_recency_by_hand() -> None:
    settings = LabelPropagationSettings(recency=math.log(4), rounds=1)
    probabilities: Any = LabelPropagation(settings).fit(_task()).probabilities(np.array([1]))
    np.testing.assert_allclose(probabilities[0], _first_round(0.25, 1.0))


def test_one_round_without_recency_by_hand() -> None:
    fitted = UnweightedLabelPropagation(UnweightedSettings(rounds=1)).fit(_task())
    np.testing.assert_allclose(fitted.probabilities(np.array([1]))[0], _first_round(1.0, 1.0))


def test_alpha_says_how_much_of_its_own_label_a_node_keeps() -> None:
    """Node 1 holds α S₁₀ of a and α S₁₂ of b after a round; node 0 gets α S₀₁ of that, and 1 - α of its own label."""
    settings = UnweightedSettings(alpha=0.5, rounds=2)
    s01, s12 = 1 / math.sqrt(2), 0.5
    a, b = 0.5 + 0.5 * s01 * (0.5 * s01), 0.5 * s01 * (0.5 * s12)
    probabilities: Any = UnweightedLabelPropagation(settings).fit(_task()).probabilities(np.array([0]))
    np.testing.assert_allclose(probabilities[0], [a / (a + b), b / (a + b)])


def test_as_of_the_first_step_only_the_first_edge_is_there() -> None:
    """Node 1 has met node 0 alone. Node 2 has no edge yet, so its label is unknown, and node 3 gets the shares."""
    probabilities: Any = LabelPropagation(LabelPropagationSettings()).fit(_task()).until(0).probabilities(np.arange(4))
    np.testing.assert_allclose(probabilities, [[1, 0]] * 4)


def test_it_has_no_embeddings() -> None:
    with pytest.raises(InputError, match="label-propagation has no embeddings"):
        LabelPropagation(LabelPropagationSettings()).fit(_task()).embeddings(np.array([0]))
