"""Fixed points of a contraction, with gradients that do not store the iterations.

At a* = Φ(a*, θ) the implicit function theorem gives ∂L/∂θ = vᵀ ∂Φ/∂θ with v = g + Jᵀ v, where g = ∂L/∂a* and
J = ∂Φ/∂a*. The second equation is a fixed point of the same contraction and is solved in the same way, with products
of one application of Φ that is computed again for them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

Map = Callable[[Tensor], Tensor]
# Reading a residual makes the host wait for a GPU, so it is not read after every iteration.
CHECK_EVERY = 5
# Rounds of power iteration: a training step continues from the one before it, anything else begins afresh.
_ROUNDS_TRAINING, _ROUNDS = 3, 30


class Iteration(NamedTuple):
    """When to stop.

    Attributes:
        most: iterations at most.
        tolerance: largest change of an entry, as a share of the largest entry; 0 to do all iterations.
    """

    most: int = 30
    tolerance: float = 1e-4


def iterate(function: Map, start: Tensor, rule: Iteration) -> Tensor:
    """The last of x, f(x), f(f(x)), …; whether they still change is looked at every `CHECK_EVERY` iterations."""
    x = start
    for number in range(1, rule.most + 1):
        after = function(x)
        if rule.tolerance and number % CHECK_EVERY == 0 and bool(residual(after, x) <= rule.tolerance):
            return after
        x = after
    return x


def residual(after: Tensor, before: Tensor) -> Tensor:
    """The largest change of an entry, as a share of the largest entry; a number on the device."""
    change = torch.linalg.vector_norm(after - before, ord=torch.inf)
    size = torch.linalg.vector_norm(after, ord=torch.inf)
    found: Tensor = change / size.clamp(min=torch.finfo(after.dtype).tiny)
    return found


class _Equilibrium(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, bind: Callable[..., Any], solve: Callable[..., Tensor], rule: Iteration, *inputs: Any) -> Any:
        state = solve(bind(*inputs))
        ctx.save_for_backward(state, *inputs)
        ctx.bind, ctx.rule = bind, rule
        return state

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (gradient,), (state, *inputs) = gradients, ctx.saved_tensors
        needed = ctx.needs_input_grad[3:]
        state = state.detach().requires_grad_()
        inputs = [None if x is None else x.detach().requires_grad_(n) for x, n in zip(inputs, needed, strict=True)]
        with torch.enable_grad():
            after = ctx.bind(*inputs)(state)

        def add_feedback(v: Tensor) -> Tensor:
            found: Tensor = gradient + torch.autograd.grad(after, state, v, retain_graph=True)[0]
            return found

        v = iterate(add_feedback, gradient, ctx.rule)
        wanted = [x for x, n in zip(inputs, needed, strict=True) if n]
        found = iter(torch.autograd.grad(after, wanted, v, allow_unused=True))
        return None, None, None, *(next(found) if n else None for n in needed)


def equilibrium(
    bind: Callable[..., Any], solve: Callable[[Any], Tensor], rule: Iteration, *inputs: Tensor | None
) -> Tensor:
    """`solve(bind(*inputs))`, a state that solves a = Φ(a), with the gradient of that equation.

    What is kept for the gradient is the state and the inputs, however many iterations there were.

    Args:
        bind: gives Φ, a contraction, for the inputs, and computes whatever does not depend on the state. It is called
            again for the gradient and must give the same.
        solve: finds the state, without gradient.
        rule: of the iterations of the gradient.
        inputs: what the gradient reaches.
    """
    return cast(Tensor, _Equilibrium.apply(bind, solve, rule, *inputs))  # type: ignore[no-untyped-call]


class _Rate(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, drive: Tensor) -> Tensor:
        ctx.save_for_backward((drive >= 0) & (drive <= 1))
        return drive.clamp(0, 1)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        (mask,) = ctx.saved_tensors
        found: Tensor = gradients[0] * mask
        return found


def rate(drive: Tensor) -> Tensor:
    """The firing rate under a drive in units of the threshold: `drive` between 0 and 1.

    The gradient is that of `clamp`, of a mask that is kept: it is wanted many times.
    """
    if not drive.requires_grad:
        return drive.clamp(0, 1)
    return cast(Tensor, _Rate.apply(drive))  # type: ignore[no-untyped-call]


class SpectralNorm(nn.Module):
    """The largest singular value of a matrix, by power iteration.

    Its vectors are buffers: a training step continues from those of the step before it, and a resumed run from those of
    its checkpoint. The gradient is that of uᵀ W v with u and v held fixed.
    """

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.left: Tensor
        self.right: Tensor
        left, right = torch.randn(len(weight)), torch.randn(weight.shape[1])
        with torch.no_grad():
            left, right = _singular_vectors(weight, left, right, _ROUNDS)
        self.register_buffer("left", left)
        self.register_buffer("right", right)

    def forward(self, weight: Tensor) -> Tensor:
        """A number; `weight` may have changed a little since the last call in training, and in any way otherwise."""
        rounds = _ROUNDS_TRAINING if self.training else _ROUNDS
        with torch.no_grad():
            left, right = _singular_vectors(weight, self.left, self.right, rounds)
            if self.training:
                self.left.copy_(left)
                self.right.copy_(right)
        return left @ weight @ right


def _singular_vectors(weight: Tensor, left: Tensor, right: Tensor, rounds: int) -> tuple[Tensor, Tensor]:
    for _ in range(rounds):
        left = nn.functional.normalize(weight @ right, dim=0)
        right = nn.functional.normalize(weight.T @ left, dim=0)
    return left, right
