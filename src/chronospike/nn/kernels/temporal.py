"""Attention of one query a node over its steps, as Triton kernels: weigh, drop and pool in one, forward and backward.

The meaning is that of `chronospike.nn.temporal.pool_over_steps`. A program follows one node: its rows of all steps fit
the registers, so nothing but the pooled rows is written, and the backward pass computes the weights again.

Import this module only where Triton is installed. With TRITON_INTERPRET=1 it runs on the CPU, for tests.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from chronospike.nn.dropout import limit, new_key, scale
from chronospike.nn.kernels.lif import kept
from chronospike.triton_common import on

MOST_VALUES = 1 << 15
"""Steps times channels, each up to its next power of two, that a program can hold."""


@triton.jit
def _rows(spikes, positions, node, nodes, steps, t, c, CHANNELS: tl.constexpr):  # type: ignore[no-untyped-def]
    """`[T, C]`: the node's spikes with the positions added."""
    mask = (t < steps)[:, None] & (c < CHANNELS)[None, :]
    place = (t.to(tl.int64) * nodes + node)[:, None] * CHANNELS + c[None, :]
    value = tl.load(spikes + place, mask=mask, other=0.0).to(tl.float32)
    return value + tl.load(positions + t[:, None] * CHANNELS + c[None, :], mask=mask, other=0.0), place, mask


@triton.jit
def _weights(x, f, t, steps):  # type: ignore[no-untyped-def]
    """`[T]`: the softmax over the steps of x · f."""
    logit = tl.where(t < steps, tl.sum(x * f[None, :], axis=1), float("-inf"))
    value = tl.exp(logit - tl.max(logit, axis=0))
    return value / tl.sum(value, axis=0)


@triton.jit
def _factor(key, drop, scale, t, node, nodes, head, HEADS: tl.constexpr, DROPOUT: tl.constexpr):  # type: ignore[no-untyped-def]
    """`[T]`: what dropout multiplies the weights by; they are laid out `[T, B, H]`."""
    if DROPOUT:
        element = (t.to(tl.int64) * nodes + node) * HEADS + head
        return tl.where(kept(tl.load(key).to(tl.uint64), element, drop), scale, 0.0)
    return t * 0.0 + 1.0


@triton.jit
def _forward_kernel(  # type: ignore[no-untyped-def]
    spikes, positions, queries, pooled, totals, key, drop, scale, nodes, steps,
    CHANNELS: tl.constexpr, HEADS: tl.constexpr, DROPOUT: tl.constexpr, BT: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    node = tl.program_id(0)
    t, c = tl.arange(0, BT), tl.arange(0, BC)
    x, _place, _mask = _rows(spikes, positions, node, nodes, steps, t, c, CHANNELS)
    for head in tl.static_range(HEADS):
        place = (node * HEADS + head) * CHANNELS + c
        f = tl.load(queries + place, mask=c < CHANNELS, other=0.0)
        weight = _weights(x, f, t, steps) * _factor(key, drop, scale, t, node, nodes, head, HEADS, DROPOUT)
        tl.store(pooled + place, tl.sum(weight[:, None] * x, axis=0), mask=c < CHANNELS)
        tl.store(totals + node * HEADS + head, tl.sum(weight, axis=0))


@triton.jit
def _backward_kernel(  # type: ignore[no-untyped-def]
    spikes, positions, queries, grad_pooled, grad_totals, grad_rows, grad_queries, key, drop, scale, nodes, steps,
    CHANNELS: tl.constexpr, HEADS: tl.constexpr, DROPOUT: tl.constexpr, BT: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    node = tl.program_id(0)
    t, c = tl.arange(0, BT), tl.arange(0, BC)
    x, rows, mask = _rows(spikes, positions, node, nodes, steps, t, c, CHANNELS)
    grad_x = tl.zeros([BT, BC], dtype=tl.float32)
    for head in tl.static_range(HEADS):
        place = (node * HEADS + head) * CHANNELS + c
        f = tl.load(queries + place, mask=c < CHANNELS, other=0.0)
        by_pooled = tl.load(grad_pooled + place, mask=c < CHANNELS, other=0.0)
        weight = _weights(x, f, t, steps)
        factor = _factor(key, drop, scale, t, node, nodes, head, HEADS, DROPOUT)
        by_weight = (tl.sum(x * by_pooled[None, :], axis=1) + tl.load(grad_totals + node * HEADS + head)) * factor
        by_logit = weight * (by_weight - tl.sum(weight * by_weight, axis=0))
        grad_x += (weight * factor)[:, None] * by_pooled[None, :] + by_logit[:, None] * f[None, :]
        tl.store(grad_queries + place, tl.sum(by_logit[:, None] * x, axis=0), mask=c < CHANNELS)
    tl.store(grad_rows + rows, grad_x, mask=mask)


class TritonPool(torch.autograd.Function):
    """Spikes `[T, B, C]`, positions `[T, C]` and queries `[B, H, C]` to pooled `[B, H, C]` and totals `[B, H]`."""

    @staticmethod
    def forward(ctx: Any, spikes: Tensor, positions: Tensor, queries: Tensor, dropout: float) -> tuple[Tensor, Tensor]:
        spikes, positions, queries = (value.detach().contiguous() for value in (spikes, positions, queries))
        pooled = torch.empty_like(queries)
        totals = torch.empty(queries.shape[:2], dtype=torch.float32, device=queries.device)
        key = new_key(spikes.device) if dropout else totals
        if len(queries):
            with on(spikes.device):
                _forward_kernel[(len(queries),)](
                    spikes, positions, queries, pooled, totals, key, limit(dropout), scale(dropout),
                    spikes.shape[1], len(spikes), **_constants(spikes, queries, dropout),
                )  # fmt: skip
        ctx.save_for_backward(spikes, positions, queries, key)
        ctx.dropout = dropout
        return pooled, totals

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        spikes, positions, queries, key = ctx.saved_tensors
        grad_rows, grad_queries = torch.empty_like(spikes), torch.empty_like(queries)
        if len(queries):
            with on(spikes.device):
                _backward_kernel[(len(queries),)](
                    spikes, positions, queries, grads[0].contiguous(), grads[1].contiguous(), grad_rows, grad_queries,
                    key, limit(ctx.dropout), scale(ctx.dropout), spikes.shape[1], len(spikes),
                    **_constants(spikes, queries, ctx.dropout),
                )  # fmt: skip
        return grad_rows, grad_rows.sum(dim=1), grad_queries, None


def _constants(spikes: Tensor, queries: Tensor, dropout: float) -> dict[str, Any]:
    steps, _, channels = spikes.shape
    return {
        "CHANNELS": channels, "HEADS": queries.shape[1], "DROPOUT": dropout > 0,
        "BT": triton.next_power_of_2(steps), "BC": triton.next_power_of_2(channels), "num_warps": 4,
    }  # fmt: skip
