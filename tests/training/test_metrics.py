from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import confusion_matrix, f1_score

from chronospike.training.metrics import score_predictions


def test_f1_by_hand() -> None:
    """Truth 0 0 1 1 2, predicted 0 1 1 1 0: F1 of class 0 is 2/4, of class 1 is 4/5, of class 2 is 0."""
    result = score_predictions(torch.tensor([0, 0, 1, 1, 2]), torch.tensor([0, 1, 1, 1, 0]), 3)
    assert result.per_class == pytest.approx((0.5, 0.8, 0.0))
    assert result.macro_f1 == pytest.approx(1.3 / 3)
    assert result.micro_f1 == pytest.approx(3 / 5)
    assert result.confusion == ((1, 1, 0), (0, 2, 0), (1, 0, 0))


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=80))
def test_scores_are_scikit_learns(pairs: list[tuple[int, int]]) -> None:
    truth, predicted = (list(column) for column in zip(*pairs, strict=True))
    ours = score_predictions(torch.tensor(truth), torch.tensor(predicted), 5)
    assert ours.macro_f1 == pytest.approx(f1_score(truth, predicted, average="macro"))
    assert ours.micro_f1 == pytest.approx(f1_score(truth, predicted, average="micro"))
    assert np.array_equal(ours.confusion, confusion_matrix(truth, predicted, labels=range(5)))


def test_no_nodes_score_zero() -> None:
    empty = torch.zeros(0, dtype=torch.long)
    assert score_predictions(empty, empty, 3).micro_f1 == 0.0
