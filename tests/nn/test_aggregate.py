from __future__ import annotations

import math

import pytest
import torch

from chronospike.nn.aggregate import AttentiveAggregator, MeanAggregator, SumAggregator


def test_attention_on_three_neighbours_by_hand() -> None:
    """One head, one channel: W_s = 2, W_n = 3, a_l = 1, a_r = 1, no bias; x_v = 1, x_u = 0, 1, -1.

    Logits: LeakyReLU(2 + 3 x_u) = 2, 5, LeakyReLU(-1) = -0.2. Then h = 2 + Σ α · 3 x_u.
    """
    layer = AttentiveAggregator(1, 1, heads=1)
    with torch.no_grad():
        layer.self_projection.weight.fill_(2)
        layer.neighbour_projection.weight.fill_(3)
        layer.attend_self.fill_(1)
        layer.attend_neighbour.fill_(1)
    weights = [math.exp(2), math.exp(5), math.exp(-0.2)]
    total = sum(weights)
    near = torch.tensor([[[0.0], [1.0], [-1.0]]])
    own = torch.tensor([[1.0]])
    attention = layer.weights(own, near)
    torch.testing.assert_close(attention[0, :, 0], torch.tensor([w / total for w in weights]))
    expected = 2 + 3 * (weights[1] - weights[2]) / total
    torch.testing.assert_close(layer(own, near), torch.tensor([[expected]]))


def test_mean_and_sum_by_hand() -> None:
    near = torch.tensor([[[1.0], [2.0], [6.0]]])
    own = torch.tensor([[10.0]])
    for layer, expected in ((MeanAggregator(1, 1), 2 * 10 + 3 * 3 + 0.5), (SumAggregator(1, 1), 2 * 10 + 3 * 9 + 1.5)):
        with torch.no_grad():
            layer.self_projection.weight.fill_(2)
            layer.neighbour_projection.weight.fill_(3)
            layer.neighbour_projection.bias.fill_(0.5)
        assert layer(own, near).item() == pytest.approx(expected)


def test_only_the_sum_tells_multiplicities_apart() -> None:
    own, once = torch.ones(1, 2), torch.rand(1, 3, 2, generator=torch.Generator().manual_seed(0))
    twice = torch.cat([once, once], dim=1)
    mean, total = MeanAggregator(2, 4), SumAggregator(2, 4)
    torch.testing.assert_close(mean(own, once), mean(own, twice))
    assert not torch.allclose(total(own, once), total(own, twice))


def test_heads_must_divide_the_channels() -> None:
    with pytest.raises(ValueError, match="10 channels cannot be split into 4 heads"):
        AttentiveAggregator(3, 10, heads=4)
