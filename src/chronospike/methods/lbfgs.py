"""L-BFGS for smooth convex functions of one tensor, on any device.

Torch's own loads a compiler that takes seconds; those of scipy and scikit-learn run on the CPU and take long to import.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import torch
from torch import Tensor

_MEMORY = 10
# A step is taken if the value falls by at least this share of what the slope promises, else halved.
_SUFFICIENT, _HALVINGS = 1e-4, 30
# Near the end a fall is smaller than what single precision rounds off the value: by so much of it may rise.
_ROUNDING = 2e-7

Function = Callable[[Tensor], tuple[Tensor, Tensor]]


def minimise(function: Function, start: Tensor, iterations: int, tolerance: float) -> Tensor:
    """The point where no entry of the gradient exceeds `tolerance`, or what `iterations` came to.

    Args:
        function: value `[]` and gradient, of the shape of the point.
    """
    point = start
    value, gradient = function(point)
    pairs: deque[tuple[Tensor, Tensor]] = deque(maxlen=_MEMORY)
    for _ in range(iterations):
        if float(gradient.abs().max()) <= tolerance:
            break
        direction = -_inverse_hessian_times(gradient, pairs)
        slope = float((direction * gradient).sum())
        # Without curvature yet, a step as long as the gradient may be far too long.
        length = 1.0 if pairs else min(1.0, 1.0 / float(gradient.abs().sum()))
        for _ in range(_HALVINGS):
            other = point + length * direction
            other_value, other_gradient = function(other)
            if float(other_value) <= float(value) + _SUFFICIENT * length * slope + _ROUNDING * abs(float(value)):
                break
            length /= 2
        else:
            break
        moved, turned = other - point, other_gradient - gradient
        if float((moved * turned).sum()) > 1e-10 * float(turned.square().sum()):
            pairs.append((moved, turned))
        point, value, gradient = other, other_value, other_gradient
    return point


def _inverse_hessian_times(vector: Tensor, pairs: deque[tuple[Tensor, Tensor]]) -> Tensor:
    """The two-loop recursion over steps and changes of the gradient, oldest first."""
    result, shares = vector, []
    for moved, turned in reversed(pairs):
        share = (moved * result).sum() / (moved * turned).sum()
        result = result - share * turned
        shares.append(share)
    if pairs:
        moved, turned = pairs[-1]
        result = result * ((moved * turned).sum() / torch.clamp(turned.square().sum(), min=1e-30))
    for (moved, turned), share in zip(pairs, reversed(shares), strict=True):
        result = result + (share - (turned * result).sum() / (moved * turned).sum()) * moved
    return result
