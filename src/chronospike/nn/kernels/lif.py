"""The LIF sequence as one Triton kernel forward and one backward, the loop over the steps inside.

The equations are those of `chronospike.nn.lif`. Each lane follows one neuron through
all steps with its membrane in a register; the parameter gradients are summed over the steps in the lane, over the rows
of a program, and over the programs afterwards, in a fixed order, so that the result is the same in every run. Adaptive
thresholds, the surrogate and the kind of comparison are compiled in: without them nothing is kept, read or computed.

Import this module only where Triton is installed. With TRITON_INTERPRET=1 it runs on the CPU, for tests.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from chronospike.nn.dropout import limit, new_key, scale
from chronospike.nn.surrogate import Surrogate
from chronospike.triton_common import add_up, derive, on, trial_error

# Not specialised (see `chronospike.triton_common`); the size of a step is, for it decides how loads are put together.
_NUMBERS = ["steps", "drop"]
_BLOCK = 512
# Neurons a program of the backward pass follows: several rows, whose parameter gradients it adds up.
_LANES = 1024
# How the reset enters the backward pass: see `LIFParameters.reset_gradient`.
_MODES = {"detach": 0, "full": 1, "straight_through": 2}


@triton.jit
def kept(key, element, drop):  # type: ignore[no-untyped-def]
    """Whether `chronospike.nn.dropout.keep_mask` keeps an element of the flat tensor."""
    word = derive(key, element >> 2)
    bits = (word >> ((element & 3) * 16).to(tl.uint64)) & 0xFFFF
    return bits.to(tl.int32) >= drop


@triton.jit
def _fires(membrane, threshold, STRICT: tl.constexpr):  # type: ignore[no-untyped-def]
    return membrane > threshold if STRICT else membrane >= threshold


@triton.jit(do_not_specialize=_NUMBERS)
def _forward_kernel(  # type: ignore[no-untyped-def]
    h, tau, threshold, spikes, membranes, thresholds, key, drop, scale, u_reset, decay, jump, steps, size,
    CHANNELS: tl.constexpr, ADAPTS: tl.constexpr, STRICT: tl.constexpr, DROPOUT: tl.constexpr, KEEP: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    here = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = here < size
    channel = here % CHANNELS
    k = 1.0 / tl.load(tau + channel)
    limit = tl.load(threshold + channel)
    after = tl.zeros([BLOCK], dtype=tl.float32)
    if DROPOUT:
        word = tl.load(key).to(tl.uint64)
    for _ in range(steps):
        current = tl.load(h + here, mask=inside, other=0.0).to(tl.float32)
        before = after + k * (current - (after - u_reset))
        fired = _fires(before, limit, STRICT)
        after = tl.where(fired, u_reset, before)
        if KEEP:
            tl.store(membranes + here, before, mask=inside)
        value = fired.to(tl.float32)
        if ADAPTS:
            if KEEP:
                tl.store(thresholds + here, limit, mask=inside)
            limit = decay * limit + jump * value
        if DROPOUT:
            value = tl.where(kept(word, here, drop), value * scale, 0.0)
        tl.store(spikes + here, value, mask=inside)
        here += size


@triton.jit(do_not_specialize=_NUMBERS)
def _backward_kernel(  # type: ignore[no-untyped-def]
    membranes, thresholds, grad_spikes, tau, threshold, alpha, grad_h, sums, key, drop, scale,
    u_reset, decay, jump, steps, size,
    CHANNELS: tl.constexpr, MODE: tl.constexpr, ADAPTS: tl.constexpr, SIGMOID: tl.constexpr, STRICT: tl.constexpr,
    DROPOUT: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    channel = tl.arange(0, WIDTH)
    real = channel < CHANNELS
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    lane = row[:, None] * CHANNELS + channel[None, :]
    inside = (row * CHANNELS < size)[:, None] & real[None, :]
    time_constant = tl.load(tau + channel, mask=real, other=1.0)[None, :]
    k = 1.0 / time_constant
    limit = tl.load(threshold + channel, mask=real, other=0.0)[None, :]
    slope = tl.load(alpha + channel, mask=real, other=0.0)[None, :]
    later = tl.zeros([ROWS, WIDTH], dtype=tl.float32)
    sum_k = tl.zeros([ROWS, WIDTH], dtype=tl.float32)
    sum_threshold = tl.zeros([ROWS, WIDTH], dtype=tl.float32)
    sum_alpha = tl.zeros([ROWS, WIDTH], dtype=tl.float32)
    if DROPOUT:
        word = tl.load(key).to(tl.uint64)
    # Not (steps - 1) * size at once: that product may be too large for 32 bits.
    here = lane + (tl.zeros([ROWS, WIDTH], dtype=tl.int64) + (steps - 1)) * size
    before = tl.load(membranes + here, mask=inside, other=0.0)
    if ADAPTS:
        limit = tl.load(thresholds + here, mask=inside, other=0.0)
    for _ in range(steps):
        # The step before the first has a membrane of zero that never fired.
        earlier = inside & (here >= size)
        previous = tl.load(membranes + here - size, mask=earlier, other=0.0)
        previous_limit = tl.load(thresholds + here - size, mask=earlier, other=0.0) if ADAPTS else limit
        distance = before - limit
        if SIGMOID:
            # 1 / (σ (1 - σ)) = 2 + eˣ + e⁻ˣ.
            grown = tl.exp(slope * tl.abs(distance))
            bend = 2.0 + grown + 1.0 / grown
        else:
            bend = 1.0 + slope * tl.abs(distance)
            bend = bend * bend
        carried = (1.0 - k) * later
        grad = tl.load(grad_spikes + here, mask=inside, other=0.0).to(tl.float32)
        if DROPOUT:
            grad = tl.where(kept(word, here, drop), grad * scale, 0.0)
        if MODE == 1:
            grad += carried * (u_reset - before)
        if ADAPTS:
            # Here the gradient of the next threshold, after the first step that of the first.
            grad += jump * sum_threshold
            sum_threshold *= decay
        through = grad * slope / bend
        if MODE != 2:
            carried = tl.where(_fires(distance, 0.0, STRICT), 0.0, carried)
        later = through + carried
        rested = tl.where(earlier & _fires(previous, previous_limit, STRICT), u_reset, previous)
        tl.store(grad_h + here, k * later, mask=inside)
        # h_t - (u'_{t-1} - u_reset), from the equation of the membrane: the inputs need not be kept.
        sum_k += later * time_constant * (before - rested)
        sum_threshold -= through
        sum_alpha += grad * distance / bend
        before = previous
        if ADAPTS:
            limit = previous_limit
        here -= size
    place = sums + tl.program_id(0) * (3 * CHANNELS) + channel
    # ∂k/∂τ = -1/τ².
    squared = tl.load(tau + channel, mask=real, other=1.0)
    squared *= squared
    tl.store(place, -tl.sum(tl.where(inside, sum_k, 0.0), axis=0) / squared, mask=real)
    tl.store(place + CHANNELS, tl.sum(tl.where(inside, sum_threshold, 0.0), axis=0), mask=real)
    tl.store(place + 2 * CHANNELS, tl.sum(tl.where(inside, sum_alpha, 0.0), axis=0), mask=real)


class TritonLIF(torch.autograd.Function):
    """`[T, ..., C]` inputs to spikes, after dropout, and membranes, both float32."""

    @staticmethod
    def forward(
        ctx: Any,
        h: Tensor,
        tau: Tensor,
        threshold: Tensor,
        alpha: Tensor,
        u_reset: float,
        reset_gradient: str,
        dropout: float = 0.0,
        keeps: bool = True,
        decay: float = 1.0,
        jump: float = 0.0,
        surrogate: Surrogate = "rational",
        strict: bool = False,
    ) -> tuple[Tensor, Tensor]:
        h = h.contiguous()
        adapts = decay != 1 or jump != 0
        spikes = torch.empty(h.shape, dtype=torch.float32, device=h.device)
        membranes = torch.empty(h.shape if keeps else 0, dtype=torch.float32, device=h.device)
        thresholds = torch.empty_like(membranes) if adapts else membranes
        size = h[0].numel()
        values = [value.detach().float().contiguous() for value in (tau, threshold, alpha)]
        key = new_key(h.device) if dropout else values[0]
        if size and len(h):
            with on(h.device):
                _forward_kernel[(triton.cdiv(size, _BLOCK),)](
                    h, values[0], values[1], spikes, membranes, thresholds, key, limit(dropout), scale(dropout),
                    float(u_reset), float(decay), float(jump), len(h), size, CHANNELS=h.shape[-1], ADAPTS=adapts,
                    STRICT=strict, DROPOUT=dropout > 0, KEEP=keeps, BLOCK=_BLOCK,
                )  # fmt: skip
        ctx.save_for_backward(membranes, thresholds, key, *values)
        ctx.rule = {"ADAPTS": adapts, "SIGMOID": surrogate == "sigmoid", "STRICT": strict}
        ctx.decay, ctx.jump = float(decay), float(jump)
        ctx.u_reset, ctx.mode, ctx.dropout, ctx.dtype = u_reset, _MODES[reset_gradient], dropout, h.dtype
        ctx.mark_non_differentiable(membranes)
        # Or zeros in the shape of the membranes would be made for a gradient that nobody reads.
        ctx.set_materialize_grads(False)
        return spikes, membranes

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        if grads[0] is None:
            return (None,) * 12
        membranes, thresholds, key, tau, threshold, alpha = ctx.saved_tensors
        size, channels = membranes[0].numel(), membranes.shape[-1]
        grad_h = torch.empty(membranes.shape, dtype=ctx.dtype, device=membranes.device)
        width = triton.next_power_of_2(channels)
        rows = max(1, _LANES // width)
        programs = triton.cdiv(size, rows * channels)
        sums = torch.empty(programs, 3, channels, dtype=torch.float32, device=membranes.device)
        if size and len(membranes):
            with on(membranes.device):
                _backward_kernel[(programs,)](
                    membranes, thresholds, grads[0].contiguous(), tau, threshold, alpha, grad_h, sums,
                    key, limit(ctx.dropout), scale(ctx.dropout), float(ctx.u_reset), ctx.decay, ctx.jump,
                    len(membranes), size,
                    CHANNELS=channels, MODE=ctx.mode, DROPOUT=ctx.dropout > 0, ROWS=rows, WIDTH=width, **ctx.rule,
                )  # fmt: skip
        return grad_h, *add_up(sums), *(None,) * 8


@cache
def refusal(
    device: torch.device,
    channels: int,
    reset_gradient: str,
    has_dropout: bool,
    training: bool,
    adapts: bool = False,
    surrogate: Surrogate = "rational",
    strict: bool = False,
) -> str | None:
    """Why the kernels cannot be used on this device, or None; tried once for each kind."""

    def work() -> None:
        h = torch.zeros(3, 16, channels, device=device, requires_grad=training)
        values = [torch.ones(channels, device=device, requires_grad=training) for _ in range(3)]
        decay, dropout = 0.5 if adapts else 1.0, 0.5 if has_dropout else 0.0
        spikes, _ = TritonLIF.apply(  # type: ignore[no-untyped-call]
            h, *values, 0.0, reset_gradient, dropout, training, decay, 0.0, surrogate, strict
        )
        if training:
            spikes.sum().backward()

    return trial_error("the kernels of the neurons", device, work)
