from __future__ import annotations

import math

import pytest
import torch

from chronospike.nn import losses
from chronospike.nn.losses import classification_loss, contrastive_loss, info_nce


def test_info_nce_on_three_vectors_by_hand() -> None:
    """Cosines to the second views: row 0: 1, 0, -1; row 1: 0, 1, 0; row 2: 0, 1, 0 (a mistake: its pair is e1 too)."""
    first = torch.tensor([[2.0, 0.0], [0.0, 3.0], [0.0, 1.0]])
    second = torch.tensor([[1.0, 0.0], [0.0, 5.0], [-4.0, 0.0]])
    e = math.exp
    rows = [
        -math.log(e(2) / (e(2) + e(0) + e(-2))),
        -math.log(e(2) / (e(0) + e(2) + e(0))),
        -math.log(e(0) / (e(0) + e(2) + e(0))),
    ]
    torch.testing.assert_close(info_nce(first, second, temperature=0.5), torch.tensor(sum(rows) / 3))


def test_two_views_differ_by_dropout() -> None:
    torch.manual_seed(0)
    z = torch.randn(8, 16)
    without = contrastive_loss(z, dropout=0.0)
    torch.testing.assert_close(without, info_nce(z, z))
    assert contrastive_loss(z, dropout=0.5) > without


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("weighted", [False, True])
def test_rows_that_are_not_valid_count_for_nothing(smoothing: float, weighted: bool) -> None:
    torch.manual_seed(2)
    logits, z = torch.randn(7, 4, requires_grad=True), torch.randn(7, 5, requires_grad=True)
    targets, valid = torch.tensor([0, 3, 1, 2, 0, 1, 1]), torch.arange(7) < 4
    weights = torch.tensor([1.0, 2.0, 0.5, 3.0]) if weighted else None
    padded = classification_loss(logits, targets, weights, smoothing, valid)
    torch.testing.assert_close(padded, classification_loss(logits[:4], targets[:4], weights, smoothing))
    one, other = z + 0.1, z - 0.2
    both = padded + info_nce(one, other, valid=valid)
    torch.testing.assert_close(info_nce(one, other, valid=valid), info_nce(one[:4], other[:4]))
    both.backward()
    for gradient in (logits.grad, z.grad):
        assert gradient is not None
        assert gradient[:4].abs().min() > 0
        assert gradient[4:].abs().max() == 0


def test_the_two_views_drop_different_channels(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[torch.Tensor] = []
    monkeypatch.setattr(losses, "info_nce", lambda first, second, *_: seen.extend((first, second)))
    torch.manual_seed(0)
    contrastive_loss(torch.ones(10, 40), dropout=0.25)
    assert {round(value, 4) for view in seen for value in view.unique().tolist()} == {0.0, round(4 / 3, 4)}
    kept = [view > 0 for view in seen]
    assert 0.3 < (kept[0] != kept[1]).float().mean() < 0.45


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_one_hot_probabilities_mean_what_classes_mean(smoothing: float, weighted: bool, masked: bool) -> None:
    torch.manual_seed(3)
    logits, targets = torch.randn(7, 4, requires_grad=True), torch.tensor([0, 3, 1, 2, 0, 1, 1])
    weights = torch.tensor([1.0, 2.0, 0.5, 3.0]) if weighted else None
    valid = torch.arange(7) < 4 if masked else None
    found = [classification_loss(logits, kind, weights, smoothing, valid) for kind in (targets, torch.eye(4)[targets])]
    torch.testing.assert_close(*found)
    torch.testing.assert_close(*(torch.autograd.grad(loss, logits)[0] for loss in found))


def test_cross_entropy_of_probabilities_by_hand() -> None:
    logits = torch.tensor([[0.75, 0.25], [0.5, 0.5]]).log()
    expected = -(0.6 * math.log(0.75) + 0.4 * math.log(0.25) + math.log(0.5)) / 2
    found = classification_loss(logits, torch.tensor([[0.6, 0.4], [0.1, 0.9]]))
    torch.testing.assert_close(found, torch.tensor(expected))
