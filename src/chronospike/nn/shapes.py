"""Stand-ins for the GPU kernels that take the memory they take and compute nothing: for estimates before a run.

Each makes the tensors of its namesake in `nn/kernels/`, in the same order and with the same lifetimes.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from chronospike.nn.dispatch import AttentionWeights, takes_half
from chronospike.nn.tree_features import TreeFeatures


class _Attend(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: TreeFeatures, saves: bool, values: Tensor, *weights: Tensor) -> Tensor:
        dtype, channels = torch.float16 if takes_half() else torch.float32, len(weights[0])
        out = torch.zeros(rows.steps, rows.targets, channels)
        projected = []
        for own, near in pairwise(rows.sizes):
            hop = [torch.zeros(rows.steps * n, channels, dtype=dtype) for n in (own, near)]
            projected += hop if saves else []
        ctx.save_for_backward(values, *weights, *projected)
        ctx.size, ctx.weights = (rows.steps, sum(rows.sizes), rows.width), len(weights)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        saved = ctx.saved_tensors[1:]
        weights, projected = saved[: ctx.weights], saved[ctx.weights :]
        values = torch.zeros(ctx.size) if ctx.needs_input_grad[2] else None
        for own, near in zip(projected[::2], projected[1::2], strict=True):
            hop = [torch.zeros_like(own), torch.zeros_like(near)]
            del hop
        gradients = [torch.zeros_like(weight) for weight in weights]
        return None, None, values, *gradients


def attend(x: TreeFeatures, weights: AttentionWeights) -> Tensor:
    """Zeros in the shape of `aggregate_tree`."""
    w = weights
    result: Tensor = _Attend.apply(  # type: ignore[no-untyped-call]
        x, torch.is_grad_enabled(), x.values,
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
