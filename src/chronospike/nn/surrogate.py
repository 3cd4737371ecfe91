"""The spike and its surrogate gradient.

Forward, a spike is a step (Eq. 11). Backward, the step is taken for the smooth curve

    f(d; α) = α d / (1 + α |d|),        d = u - V_th,

whose d-derivative is the paper's surrogate, α / (1 + α |d|)², and whose α-derivative, d / (1 + α |d|)²,
is how the slope learns: α does not occur in the forward pass, so it has no gradient of its own.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class _Spike(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, distance: Tensor, alpha: Tensor) -> Tensor:
        ctx.save_for_backward(distance, alpha)
        return (distance >= 0).to(distance.dtype)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor]:
        (grad,) = grads
        distance, alpha = ctx.saved_tensors
        grad = grad / (1 + alpha * distance.abs()).square()
        return grad * alpha, (grad * distance).sum_to_size(alpha.shape)


def spike(membrane: Tensor, threshold: Tensor, alpha: Tensor) -> Tensor:
    """1 where `membrane` has reached `threshold`, else 0, with the surrogate gradient for all three.

    Args:
        membrane: `[..., C]`.
        threshold, alpha: `[C]`.
    """
    result: Tensor = _Spike.apply(membrane - threshold, alpha)  # type: ignore[no-untyped-call]
    return result
