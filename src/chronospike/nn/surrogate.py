"""The spike and its surrogate gradient.

Forward, a spike is a step (Eq. 11). Backward, the step is taken for a smooth curve f(d; α) of d = u - θ. Its
d-derivative is the surrogate; its α-derivative is how the slope learns, since α does not occur in the forward pass.

    surrogate    ∂f/∂d                       f
    rational     α / (1 + α |d|)²            α d / (1 + α |d|)                          the paper's
    sigmoid      α σ(αd) (1 - σ(αd))         σ(αd)
    triangle     max(0, 1 - α |d|)           d - α d |d| / 2, flat where α |d| > 1
    arctan       1 / (1 + α d²)              atan(√α d) / √α
    superspike   1 / (1 + α |d|)²            d / (1 + α |d|)
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor

Surrogate = Literal["rational", "sigmoid", "triangle", "arctan", "superspike"]
# Those that the kernels of `lif_sequence` have.
COMPILED: tuple[Surrogate, ...] = ("rational", "sigmoid")


class _Spike(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, distance: Tensor, alpha: Tensor, surrogate: Surrogate, strict: bool) -> Tensor:
        ctx.save_for_backward(distance, alpha)
        ctx.surrogate = surrogate
        return (distance > 0 if strict else distance >= 0).to(distance.dtype)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None, None]:
        (grad,) = grads
        distance, alpha = ctx.saved_tensors
        by_distance, by_alpha = _through(ctx.surrogate, grad, distance, alpha)
        return by_distance, by_alpha.sum_to_size(alpha.shape), None, None


def _through(surrogate: Surrogate, grad: Tensor, d: Tensor, alpha: Tensor) -> tuple[Tensor, Tensor]:
    """`grad` times the derivatives of the curve by d and by α."""
    if surrogate == "rational":
        grad = grad / (1 + alpha * d.abs()).square()
        return grad * alpha, grad * d
    if surrogate == "sigmoid":
        share = torch.sigmoid(alpha * d)
        grad = grad * share * (1 - share)
        return grad * alpha, grad * d
    if surrogate == "superspike":
        grad = grad / (1 + alpha * d.abs()).square()
        return grad, -grad * d * d.abs()
    if surrogate == "triangle":
        reach = d.clamp(-1 / alpha, 1 / alpha)
        return grad * (1 - alpha * d.abs()).clamp(min=0), -grad * reach * reach.abs() / 2
    slope = 1 / (1 + alpha * d.square())
    root = alpha.sqrt()
    return grad * slope, grad * (d * slope - torch.atan(root * d) / root) / (2 * alpha)


def spike(
    membrane: Tensor, threshold: Tensor, alpha: Tensor, *, surrogate: Surrogate = "rational", strict: bool = False
) -> Tensor:
    """1 where `membrane` has reached `threshold`, else 0, with the surrogate gradient for all three.

    Args:
        membrane: `[..., C]`.
        threshold: `[C]` or `[..., C]`.
        alpha: `[C]`.
        strict: a spike only where the membrane is above the threshold.
    """
    result: Tensor = _Spike.apply(membrane - threshold, alpha, surrogate, strict)  # type: ignore[no-untyped-call]
    return result
