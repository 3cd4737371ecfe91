"""The pooling kernels against their twin in torch; on the CPU through Triton's interpreter."""

from __future__ import annotations

import pytest
import torch

from chronospike.nn.dropout import keep_mask, new_key, scale
from chronospike.nn.temporal import pool_over_steps

pytest.importorskip("triton")
from chronospike.nn.kernels.temporal import TritonPool

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
# T, B, C, H
SHAPES = [(1, 1, 1, 1), (2, 3, 5, 2), (27, 4, 16, 4), (9, 7, 6, 3)]


def _inputs(shape: tuple[int, ...], seed: int) -> list[torch.Tensor]:
    steps, nodes, channels, heads = shape
    torch.manual_seed(seed)
    made = (torch.randn(steps, nodes, channels), torch.randn(steps, channels), torch.randn(nodes, heads, channels))
    return [value.to(DEVICE).requires_grad_() for value in made]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("seed", range(2))
def test_kernel_equals_its_twin_in_values_and_gradients(shape: tuple[int, ...], seed: int) -> None:
    spikes, positions, queries = inputs = _inputs(shape, seed)
    pooled, total = TritonPool.apply(*inputs, 0.0)  # type: ignore[no-untyped-call]
    twin, ones = pool_over_steps(spikes, positions, queries, kernels="plain")
    torch.testing.assert_close(pooled, twin, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(total, ones)
    weights, more = torch.randn_like(pooled), torch.randn_like(total)
    ours = torch.autograd.grad((weights * pooled).sum() + (more * total).sum(), inputs)
    for one, other in zip(ours, torch.autograd.grad((weights * twin).sum() + (more * ones).sum(), inputs), strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("shape", SHAPES[1:])
def test_dropout_is_the_mask_of_its_twin_in_values_and_gradients(shape: tuple[int, ...]) -> None:
    spikes, positions, queries = inputs = _inputs(shape, 5)
    torch.manual_seed(3)
    key = new_key(torch.device(DEVICE))
    torch.manual_seed(3)
    pooled, total = TritonPool.apply(*inputs, 0.4)  # type: ignore[no-untyped-call]
    x = spikes + positions.unsqueeze(1)
    attention = torch.einsum("tbc,bhc->tbh", x, queries).softmax(dim=0)
    attention = attention * keep_mask(key, attention.shape, 0.4) * scale(0.4)
    twin, twin_total = torch.einsum("tbh,tbc->bhc", attention, x), attention.sum(dim=0)
    torch.testing.assert_close(pooled, twin, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(total, twin_total)
    weights, more = torch.randn_like(pooled), torch.randn_like(total)
    ours = torch.autograd.grad((weights * pooled).sum() + (more * total).sum(), inputs)
    theirs = torch.autograd.grad((weights * twin).sum() + (more * twin_total).sum(), inputs)
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)


def test_no_nodes_give_no_rows() -> None:
    nothing = torch.zeros(3, 0, 4, device=DEVICE)
    pooled, total = TritonPool.apply(  # type: ignore[no-untyped-call]
        nothing, torch.zeros(3, 4, device=DEVICE), torch.zeros(0, 2, 4, device=DEVICE), 0.0
    )
    assert pooled.shape == (0, 2, 4)
    assert total.shape == (0, 2)
