from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from chronospike.config import Settings
from chronospike.data.splits import Split
from chronospike.errors import InputError
from chronospike.methods.majority import Majority
from chronospike.training.learner import Fitted
from chronospike.training.task import make_task
from tests.path_of_four import path_of_four
from tests.small_runs import CPU


def _fitted(train: list[int], validation: list[int]) -> Fitted:
    graph = path_of_four().with_labels(np.array([0, 0, 1, 1]), ("a", "b", "c"))
    split = Split(np.array(train), np.array(validation, dtype=np.int64), np.array([3]))
    return Majority(Settings()).fit(make_task(graph, Settings(), CPU, split, needs_features=False))


def test_every_node_gets_the_shares_of_the_known_nodes() -> None:
    probabilities: Any = _fitted([0, 1, 2], []).probabilities(np.array([3, 0]))
    np.testing.assert_allclose(probabilities, [[2 / 3, 1 / 3, 0]] * 2)


def test_validation_nodes_count_among_the_known_ones() -> None:
    fitted = _fitted([0, 1], [2])
    np.testing.assert_allclose(fitted.probabilities(np.array([3])), [[2 / 3, 1 / 3, 0]])
    held_out = fitted.held_out()
    assert held_out is not None
    np.testing.assert_allclose(held_out.probabilities(np.array([3])), [[1, 0, 0]])


def test_it_has_no_embeddings() -> None:
    with pytest.raises(InputError, match="majority has no embeddings"):
        _fitted([0, 1, 2], []).embeddings(np.array([0]))
