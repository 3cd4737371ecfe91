"""The LIF sequence as one compiled pass forward and one backward, the loop over the steps inside.

The equations, and the recursion backward, are those of `chronospike.nn.lif`. A kernel takes about a thousand neurons
through all steps at a time, so that their membranes stay in the first-level cache and every tensor is read or
written once. The inputs h are not kept for the backward pass: h_t - (u'_{t-1} - u_reset) = τ (u_t - u'_{t-1}).
Nor are adaptive thresholds: the membranes say who fired, and the backward pass first goes through them once more.
Solved for θ_t and run backwards, their recursion would grow its rounding errors.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from chronospike.compiled import njit
from chronospike.nn import dropout as hashed
from chronospike.nn.surrogate import Surrogate
from chronospike.rng_kernels import derive_numba
from chronospike.threads import run_chunks

# How the reset enters the backward pass: see `LIFParameters.reset_gradient`.
_DETACH, _FULL, _STRAIGHT_THROUGH = 0, 1, 2
_MODES = {"detach": _DETACH, "full": _FULL, "straight_through": _STRAIGHT_THROUGH}
# Neurons taken through the steps together, about: their state and what a step reads of them fit the L1 cache.
_LANE = 2048
# The parameter gradients are summed in this many parts whatever the threads, so that threads do not change bits.
_PARTS = 64


class NumbaLIF(torch.autograd.Function):
    """Inputs `[T, ..., C]` float32 on the CPU to spikes, after dropout, and membranes before the reset.

    Without `keeps_membranes`, which a backward pass needs, an empty tensor comes in their place.
    """

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
        keeps_membranes: bool = True,
        decay: float = 1.0,
        jump: float = 0.0,
        surrogate: Surrogate = "rational",
        strict: bool = False,
    ) -> tuple[Tensor, Tensor]:
        h = h.contiguous()
        adapts = decay != 1 or jump != 0
        spikes, membranes = torch.empty_like(h), torch.empty_like(h) if keeps_membranes else h.new_empty(0)
        key = hashed.new_key(h.device) if dropout > 0 else None
        ctx.save_for_backward(membranes, tau, threshold, alpha)
        ctx.u_reset, ctx.mode, ctx.dropout, ctx.key = u_reset, _MODES[reset_gradient], dropout, key
        ctx.rule = np.float32(decay), np.float32(jump), adapts, strict or None
        ctx.sigmoid = surrogate == "sigmoid"
        ctx.mark_non_differentiable(membranes)
        # Nothing flows back from the membranes; without this, zeros of their size would be made for it.
        ctx.set_materialize_grads(False)
        inputs, outputs = _by_step(h), _by_step(spikes)
        kept = _by_step(membranes) if keeps_membranes else np.empty((0, 0), np.float32)
        k, initial, reset, drop = _per_lane(1 / tau), _per_lane(threshold), np.float32(u_reset), _dropout(key, dropout)

        def work(first: int, last: int) -> None:
            _forward(inputs, outputs, kept, k, initial, h.shape[-1], reset, *ctx.rule, *drop, first, last)

        run_chunks(work, _PARTS)
        return spikes, membranes

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        membranes, tau, threshold, alpha = ctx.saved_tensors
        if grads[0] is None:
            return (None,) * 12
        grad_h = torch.empty_like(membranes)
        channels = membranes.shape[-1]
        sums = np.zeros((_PARTS, 3, channels))
        kept, grad_in, grad_out = _by_step(membranes), _by_step(grads[0].contiguous()), _by_step(grad_h)
        k, initial, slope = _per_lane(1 / tau), _per_lane(threshold), _per_lane(alpha)
        how = np.float32(ctx.u_reset), ctx.mode, ctx.sigmoid, *ctx.rule, *_dropout(ctx.key, ctx.dropout)

        def work(first: int, last: int) -> None:
            _backward(kept, grad_in, grad_out, k, initial, slope, channels, *how, sums, first, last)

        run_chunks(work, _PARTS)
        grad_rise, grad_threshold, grad_alpha = torch.from_numpy(sums.sum(axis=0)).to(tau.dtype)
        # Σ λ (h - …) is τ times the kernel's Σ λ (u_t - u'_{t-1}), and ∂k/∂τ = -1/τ².
        return grad_h, -grad_rise / tau, grad_threshold, grad_alpha, *(None,) * 8


def _by_step(value: Tensor) -> NDArray[np.float32]:
    """`[T, n]` with every neuron of a step in one row."""
    array: NDArray[np.float32] = value.detach().numpy()
    return array.reshape(len(array), -1)


def _per_lane(value: Tensor) -> NDArray[np.float32]:
    """Channels `[C]` repeated to about `_LANE`: whole rows of neurons."""
    array = value.detach().float().numpy()
    return np.tile(array, max(1, _LANE // len(array)))


def _dropout(key: Tensor | None, dropout: float) -> tuple[np.uint64, np.int32, np.float32]:
    """What the kernels need to know of it: its key, the limit of the random bits, and the scale of what is kept."""
    if key is None:
        return np.uint64(0), np.int32(0), np.float32(1)
    return np.uint64(key.item()), np.int32(hashed.limit(dropout)), np.float32(hashed.scale(dropout))


@njit
def _draw(key: Any, start: int, limit: Any, scale: Any, words: Any, gains: Any) -> None:
    """What the elements `start` … of the flat tensor are multiplied by: see `chronospike.nn.dropout`."""
    first = start // 4
    skip = start - 4 * first
    for i in range(len(words)):
        words[i] = derive_numba(key, np.uint64(first + i))
    random_bits = words.view(np.uint16)[skip:]
    for i in range(len(gains)):
        gains[i] = scale if np.int32(random_bits[i]) >= limit else np.float32(0)


@njit
def _fires(membrane: Any, threshold: Any, strict: Any) -> Any:
    """`strict` is True or None, which to numba are types: the comparison is compiled in."""
    if strict is None:
        return membrane >= threshold
    return membrane > threshold


@njit
def _adapted(threshold: Any, membrane: Any, decay: Any, jump: Any, strict: Any) -> Any:
    return decay * threshold + (jump if _fires(membrane, threshold, strict) else np.float32(0))


@njit
def _forward(
    h: Any, spikes: Any, membranes: Any, k: Any, initial: Any, channels: int, u_reset: Any,
    decay: Any, jump: Any, adapts: bool, strict: Any, key: Any, limit: Any, scale: Any, first: int, last: int,
) -> None:  # fmt: skip
    steps, size = h.shape
    lane, rows = len(k), size // channels
    begin, end = rows * first // _PARTS * channels, rows * last // _PARTS * channels
    after, gains, scratch = np.empty(lane, np.float32), np.ones(lane, np.float32), np.empty(lane, np.float32)
    threshold, words = np.empty(lane, np.float32), np.empty(lane // 4 + 2, dtype=np.uint64)
    for low in range(begin, end, lane):
        length = min(lane, end - low)
        after[:], threshold[:] = 0, initial
        for t in range(steps):
            current, fired = h[t, low:], spikes[t, low:]
            before = membranes[t, low:] if len(membranes) else scratch
            if limit > 0:
                _draw(key, t * size + low, limit, scale, words, gains)
            for i in range(length):
                u = after[i] + k[i] * (current[i] - (after[i] - u_reset))
                before[i] = u
                after[i] = u_reset if _fires(u, threshold[i], strict) else u
            for i in range(length):
                fired[i] = gains[i] if _fires(before[i], threshold[i], strict) else np.float32(0)
            if adapts:
                for i in range(length):
                    threshold[i] = _adapted(threshold[i], before[i], decay, jump, strict)


# Each loop below writes one array: with more, LLVM finds too many pairs that might overlap and does not vectorise;
# nor would it with a division that checks for zero.
@njit(error_model="numpy")
def _backward(
    membranes: Any, grad_spikes: Any, grad_h: Any, k: Any, initial: Any, alpha: Any, channels: int,
    u_reset: Any, mode: int, sigmoid: bool, decay: Any, jump: Any, adapts: bool, strict: Any,
    key: Any, limit: Any, scale: Any, sums: Any, first: int, last: int,
) -> None:  # fmt: skip
    steps, size = membranes.shape
    lane, rows = len(k), size // channels
    grad, grad_curve, later = np.empty(lane, np.float32), np.empty(lane, np.float32), np.empty(lane, np.float32)
    grad_rise, grad_initial = np.empty(lane, np.float32), np.empty(lane, np.float32)
    grad_alpha, grad_threshold = np.empty(lane, np.float32), np.empty(lane, np.float32)
    thresholds = np.empty((steps if adapts else 0, lane), np.float32)
    gains, words = np.ones(lane, np.float32), np.empty(lane // 4 + 2, np.uint64)
    # A bare 1 would lift the arithmetic to double precision.
    one, two = np.float32(1), np.float32(2)
    for part in range(first, last):
        begin, end = rows * part // _PARTS * channels, rows * (part + 1) // _PARTS * channels
        grad_rise[:], grad_initial[:], grad_alpha[:] = 0, 0, 0
        for low in range(begin, end, lane):
            length = min(lane, end - low)
            later[:], grad_threshold[:] = 0, 0
            if adapts:
                thresholds[0] = initial
                for t in range(1, steps):
                    previous, earlier, threshold = membranes[t - 1, low:], thresholds[t - 1], thresholds[t]
                    for i in range(length):
                        threshold[i] = _adapted(earlier[i], previous[i], decay, jump, strict)
            for t in range(steps - 1, -1, -1):
                before, out, grad_spikes_t = membranes[t, low:], grad_h[t, low:], grad_spikes[t, low:]
                threshold = thresholds[t] if adapts else initial
                if limit > 0:
                    _draw(key, t * size + low, limit, scale, words, gains)
                for i in range(length):
                    grad[i] = grad_spikes_t[i] * gains[i]
                if mode == _FULL:
                    for i in range(length):
                        grad[i] += (one - k[i]) * later[i] * (u_reset - before[i])
                if adapts:
                    # Gradients of thresholds are without their factor α, the same at all steps, until the end.
                    for i in range(length):
                        grad[i] += jump * alpha[i] * grad_threshold[i]
                if sigmoid:
                    # 1 / (σ (1 - σ)) = 2 + eˣ + e⁻ˣ.
                    for i in range(length):
                        grown = np.exp(alpha[i] * abs(before[i] - threshold[i]))
                        grad_curve[i] = grad[i] / (two + grown + one / grown)
                else:
                    for i in range(length):
                        bend = one + alpha[i] * abs(before[i] - threshold[i])
                        grad_curve[i] = grad[i] / (bend * bend)
                if mode == _STRAIGHT_THROUGH:
                    for i in range(length):
                        later[i] = alpha[i] * grad_curve[i] + (one - k[i]) * later[i]
                else:
                    for i in range(length):
                        fired = _fires(before[i], threshold[i], strict)
                        carried = np.float32(0) if fired else (one - k[i]) * later[i]
                        later[i] = alpha[i] * grad_curve[i] + carried
                for i in range(length):
                    out[i] = k[i] * later[i]
                if adapts:
                    for i in range(length):
                        grad_threshold[i] = decay * grad_threshold[i] - grad_curve[i]
                else:
                    for i in range(length):
                        grad_initial[i] -= grad_curve[i]
                for i in range(length):
                    grad_alpha[i] += grad_curve[i] * (before[i] - threshold[i])
                if t:
                    previous = membranes[t - 1, low:]
                    threshold = thresholds[t - 1] if adapts else initial
                    for i in range(length):
                        rested = u_reset if _fires(previous[i], threshold[i], strict) else previous[i]
                        grad_rise[i] += later[i] * (before[i] - rested)
                else:
                    for i in range(length):
                        grad_rise[i] += later[i] * before[i]
            if adapts:
                for i in range(length):
                    grad_initial[i] += grad_threshold[i]
        for i in range(min(lane, end - begin)):
            sums[part, 0, i % channels] += grad_rise[i]
            sums[part, 1, i % channels] += grad_initial[i] * alpha[i]
            sums[part, 2, i % channels] += grad_alpha[i]
