"""The network on its fused kernels against the same network on the plain path."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from chronospike.nn.aggregate import AttentiveAggregator
from chronospike.nn.dispatch import fused_attention, half_products, takes_half
from chronospike.nn.model import Architecture, ChronoSpike, Record
from chronospike.nn.tree_features import TreeFeatures

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
# Steps, roots, fan-outs, inputs, hidden.
SHAPES: list[Any] = [
    (1, 1, (1,), 4, (8,)),
    (5, 3, (3, 2), 6, (12, 8)),
    (4, 9, (5, 2), 16, (32, 16)),
    (3, 2, (2, 2, 2), 5, (8, 8, 4)),
    (27, 40, (5, 2), 24, (32, 16)),
]


def _rows(steps: int, roots: int, fanouts: tuple[int, ...], inputs: int) -> TreeFeatures:
    sizes = [roots]
    for fanout in fanouts:
        sizes.append(sizes[-1] * fanout)
    table = 2 * torch.randn(steps, 50, inputs)
    nodes = torch.randint(50, (steps, sum(sizes)), dtype=torch.int32)
    return TreeFeatures(table.to(DEVICE), tuple(sizes), nodes.to(DEVICE), torch.arange(steps, device=DEVICE))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("seed", range(2))
def test_fused_network_equals_the_plain_one(shape: Any, seed: int) -> None:
    steps, roots, fanouts, inputs, hidden = shape
    torch.manual_seed(seed)
    rows = _rows(steps, roots, fanouts, inputs)
    model = ChronoSpike(Architecture(inputs, 3, hidden=hidden, dropout=0.0, temporal_dropout=0.0)).to(DEVICE)
    weights = torch.randn(roots, 3, device=DEVICE)
    found: dict[str, list[torch.Tensor]] = {}
    spikes: dict[str, list[torch.Tensor]] = {}
    for kernels in ("auto", "plain"):
        model.kernels = "plain" if kernels == "plain" else "auto"
        record = Record()
        logits, z = model(rows, record)
        gradients = torch.autograd.grad((weights * logits).sum(), list(model.parameters()), allow_unused=True)
        found[kernels] = [logits, z, *(gradient for gradient in gradients if gradient is not None)]
        spikes[kernels] = [layer.detach() for layer in record.spikes]
    flips = sum(int((a != b).sum()) for a, b in zip(spikes["auto"], spikes["plain"], strict=True))
    count = sum(layer.numel() for layer in spikes["auto"])
    assert 0 < sum(float(layer.sum()) for layer in spikes["auto"]) < count
    # A membrane within rounding of its threshold may fall on either side: rarer than one in ten thousand.
    assert flips <= 1e-4 * count
    if flips == 0:
        for one, other in zip(found["auto"], found["plain"], strict=True):
            size = max(1.0, other.abs().max().item())
            torch.testing.assert_close(one / size, other / size, atol=5e-5, rtol=1e-3)


def test_on_the_cpu_single_precision_is_fused_and_double_is_not() -> None:
    torch.manual_seed(0)
    rows = _rows(2, 2, (2,), 4)
    aggregator = AttentiveAggregator(4, 8, 2).to(DEVICE)
    assert fused_attention(rows, aggregator.attention_weights()) is not None
    double = TreeFeatures(rows.values.double(), rows.sizes, rows.nodes, rows.blocks)
    assert fused_attention(double, aggregator.double().attention_weights()) is None


def test_half_products_are_allowed_for_a_while() -> None:
    before = torch.get_float32_matmul_precision()
    with half_products(True):
        assert takes_half()
        with half_products(False):
            assert not takes_half()
        assert takes_half()
    assert torch.get_float32_matmul_precision() == before
