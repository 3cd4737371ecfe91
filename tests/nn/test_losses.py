from __future__ import annotations

import math

import torch

from chronospike.nn.losses import contrastive_loss, info_nce


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
