"""Stand-ins for the GPU kernels that take the memory they take and compute nothing: for estimates before a run.

Each makes the tensors of its namesake in `nn/kernels/`, in the same order and with the same lifetimes.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from chronospike.nn.fused import AttentionWeights
from chronospike.nn.rows import TreeRows


class _Attend(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: TreeRows, heads: int, saves: bool, values: Tensor, *weights: Tensor) -> Tensor:
        logits = torch.zeros(rows.steps, sum(rows.sizes) if saves else 0, heads)
        normaliser = torch.zeros(rows.steps, rows.targets if saves else 0, heads)
        ctx.save_for_backward(logits, normaliser, values, *weights)
        ctx.size = (rows.steps, sum(rows.sizes), rows.width)
        return torch.zeros(rows.steps, rows.targets, len(weights[0]))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        logits, normaliser, _, *weights = ctx.saved_tensors
        working = [torch.zeros_like(like) for like in (logits, logits, normaliser)]
        gradients = [torch.zeros_like(weight) for weight in weights]
        values = torch.zeros(ctx.size) if ctx.needs_input_grad[3] else None
        del working
        return None, None, None, values, *gradients


def attend(x: TreeRows, weights: AttentionWeights) -> Tensor:
    """Zeros in the shape of `aggregate_tree`."""
    w = weights
    result: Tensor = _Attend.apply(  # type: ignore[no-untyped-call]
        x, w.heads, torch.is_grad_enabled(), x.values,
        w.self_weight, w.self_bias, w.neighbour_weight, w.neighbour_bias, w.attend_self, w.attend_neighbour,
    )  # fmt: skip
    return result


class ShapesLIF(torch.autograd.Function):
    """Zeros in the shapes of `lif_sequence`."""

    @staticmethod
    def forward(
        ctx: Any, h: Tensor, tau: Tensor, threshold: Tensor, alpha: Tensor, keeps: bool
    ) -> tuple[Tensor, Tensor]:
        spikes = torch.zeros(h.shape)
        membranes = torch.zeros(h.shape if keeps else (0,))
        ctx.save_for_backward(membranes, tau, threshold, alpha)
        ctx.mark_non_differentiable(membranes)
        return spikes, membranes

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        membranes, *parameters = ctx.saved_tensors
        return torch.zeros_like(membranes), *(torch.zeros_like(value) for value in parameters), None
