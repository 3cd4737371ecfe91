"""The LIF sequence as one Triton kernel forward and one backward, the loop over the steps inside.

The equations are those of `chronospike.nn.lif`, whose `_FusedLIF` is the twin. Each lane follows one neuron through
all steps with its membrane in a register; the parameter gradients are summed over the steps in the lane, and over
the rows afterwards, in a fixed order, so that the result does not change from run to run.

Import this module only where Triton is installed. With TRITON_INTERPRET=1 it runs on the CPU, for tests.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

_BLOCK = 512
# How the reset enters the backward pass: see `LIFParameters.reset_gradient`.
_MODES = {"detach": 0, "full": 1, "straight_through": 2}


@triton.jit
def _forward_kernel(  # type: ignore[no-untyped-def]
    h, tau, threshold, spikes, membranes, u_reset, steps, size, CHANNELS: tl.constexpr, BLOCK: tl.constexpr
):
    lane = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = lane < size
    channel = lane % CHANNELS
    k = 1.0 / tl.load(tau + channel)
    limit = tl.load(threshold + channel)
    after = tl.zeros([BLOCK], dtype=tl.float32)
    for t in range(steps):
        here = t * size + lane
        current = tl.load(h + here, mask=inside, other=0.0).to(tl.float32)
        before = after + k * (current - (after - u_reset))
        fired = before >= limit
        tl.store(membranes + here, before, mask=inside)
        tl.store(spikes + here, fired.to(tl.float32), mask=inside)
        after = tl.where(fired, u_reset, before)


@triton.jit
def _backward_kernel(  # type: ignore[no-untyped-def]
    h, membranes, grad_spikes, tau, threshold, alpha, grad_h, grad_k, grad_threshold, grad_alpha, u_reset, steps, size,
    CHANNELS: tl.constexpr, MODE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    lane = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = lane < size
    channel = lane % CHANNELS
    k = 1.0 / tl.load(tau + channel)
    limit = tl.load(threshold + channel)
    slope = tl.load(alpha + channel)
    later = tl.zeros([BLOCK], dtype=tl.float32)
    sum_k = tl.zeros([BLOCK], dtype=tl.float32)
    sum_threshold = tl.zeros([BLOCK], dtype=tl.float32)
    sum_alpha = tl.zeros([BLOCK], dtype=tl.float32)
    here = (steps - 1) * size + lane
    before = tl.load(membranes + here, mask=inside, other=0.0)
    for back in range(steps):
        here = (steps - 1 - back) * size + lane
        # The step before the first has a membrane of zero that never fired.
        earlier = inside & (here >= size)
        previous = tl.load(membranes + here - size, mask=earlier, other=0.0)
        distance = before - limit
        bend = 1.0 + slope * tl.abs(distance)
        bend = bend * bend
        carried = (1.0 - k) * later
        grad = tl.load(grad_spikes + here, mask=inside, other=0.0).to(tl.float32)
        if MODE == 1:
            grad += carried * (u_reset - before)
        through = grad * slope / bend
        if MODE != 2:
            carried = tl.where(distance >= 0, 0.0, carried)
        later = through + carried
        rested = tl.where(earlier & (previous >= limit), u_reset, previous)
        current = tl.load(h + here, mask=inside, other=0.0).to(tl.float32)
        tl.store(grad_h + here, k * later, mask=inside)
        sum_k += later * (current - (rested - u_reset))
        sum_threshold -= through
        sum_alpha += grad * distance / bend
        before = previous
    tl.store(grad_k + lane, sum_k, mask=inside)
    tl.store(grad_threshold + lane, sum_threshold, mask=inside)
    tl.store(grad_alpha + lane, sum_alpha, mask=inside)


class TritonLIF(torch.autograd.Function):
    """`[T, ..., C]` inputs to spikes and membranes, both float32."""

    @staticmethod
    def forward(
        ctx: Any, h: Tensor, tau: Tensor, threshold: Tensor, alpha: Tensor, u_reset: float, reset_gradient: str
    ) -> tuple[Tensor, Tensor]:
        h = h.contiguous()
        spikes = torch.empty(h.shape, dtype=torch.float32, device=h.device)
        membranes = torch.empty_like(spikes)
        size = h[0].numel()
        values = [value.detach().float().contiguous() for value in (tau, threshold, alpha)]
        if size and len(h):
            with _on(h):
                _forward_kernel[(triton.cdiv(size, _BLOCK),)](
                    h, values[0], values[1], spikes, membranes, float(u_reset), len(h), size,
                    CHANNELS=h.shape[-1], BLOCK=_BLOCK,
                )  # fmt: skip
        ctx.save_for_backward(h, membranes, *values)
        ctx.u_reset, ctx.mode = u_reset, _MODES[reset_gradient]
        ctx.mark_non_differentiable(membranes)
        return spikes, membranes

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        h, membranes, tau, threshold, alpha = ctx.saved_tensors
        size, channels = h[0].numel(), h.shape[-1]
        grad_h = torch.empty_like(h)
        sums = torch.zeros(3, size, dtype=torch.float32, device=h.device)
        if size and len(h):
            with _on(h):
                _backward_kernel[(triton.cdiv(size, _BLOCK),)](
                    h, membranes, grads[0].contiguous(), tau, threshold, alpha, grad_h, sums[0], sums[1], sums[2],
                    float(ctx.u_reset), len(h), size, CHANNELS=channels, MODE=ctx.mode, BLOCK=_BLOCK,
                )  # fmt: skip
        by_k, by_threshold, by_alpha = sums.view(3, -1, channels).sum(dim=1)
        return grad_h, -by_k / tau.square(), by_threshold, by_alpha, None, None


def _on(tensor: Tensor) -> AbstractContextManager[Any]:
    """Triton launches on the current device, which need not be the tensor's."""
    return torch.cuda.device(tensor.device) if tensor.is_cuda else nullcontext()
