"""Neighbour attention as Triton kernels: gather, project, attend and aggregate in one, forward and backward.

The meaning is that of `chronospike.nn.aggregate.AttentiveAggregator`. A program takes a block of targets, reads each
neighbour once from the table of features (or from the spikes of the layer below) and keeps a running softmax and the
weighted sum of all heads in registers. Unlike elsewhere the neighbours are projected before they are added up: on
tensor cores that costs less than reading each neighbour once per head. Neither the neighbours nor their projections
are written to memory.

The backward pass gathers again. First, per neighbour and head, what the loss gains by its weight; then every row's
gradient after the projection is known, and the weights' gradients are products over all rows, added up by a fixed
number of programs, each over its own blocks, and then over the programs, so that two runs agree to the bit. Gradients
of the inputs, where there are any, have one writer each.

Import this module only where Triton is installed. With TRITON_INTERPRET=1 it runs on the CPU, for tests.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from chronospike.errors import InputError
from chronospike.nn.fused import AttentionWeights
from chronospike.nn.kernels.sums import add_up, on
from chronospike.nn.rows import TreeRows

# Rows a program takes at a time, and its warps, for each kernel.
_FORWARD, _LOGITS, _SUMS, _INPUTS = (64, 4), (64, 4), (64, 8), (32, 4)
# Programs that share the sums over all rows.
_SHARES = 396

# Triton's interpreter multiplies no matrices of bfloat16.
_INTERPRETED = tl.constexpr(os.environ.get("TRITON_INTERPRET") == "1")


@triton.jit
def _place(row, n, columns, own_start, near_start, FANOUT: tl.constexpr):  # type: ignore[no-untyped-def]
    """The step of each target of a hop, its own position in the trees and that of its first neighbour."""
    # Divided in 32 bits, which is much faster; `_Launch` sees to it that they are enough.
    step = row // n
    i = (row - step * n).to(tl.int64)
    step = step.to(tl.int64)
    return step, step * columns + own_start + i, step * columns + near_start + i * FANOUT


@triton.jit
def _read(x, nodes, base, position, inside, d, WIDTH: tl.constexpr, GATHER: tl.constexpr):  # type: ignore[no-untyped-def]
    """`[targets, D]` features at the given positions, in single precision."""
    row = position
    if GATHER:
        row = base + tl.load(nodes + position, mask=inside, other=0).to(tl.int64)
    mask = inside[:, None] & (d < WIDTH)[None, :]
    return tl.load(x + row[:, None] * WIDTH + d[None, :], mask=mask, other=0.0).to(tl.float32)


@triton.jit
def _dot(a, b, HALF: tl.constexpr):  # type: ignore[no-untyped-def]
    """For values, all of moderate size: half precision keeps as many digits as TF32."""
    if HALF:
        return tl.dot(a.to(tl.float16), b.to(tl.float16))
    return tl.dot(a, b, input_precision="ieee")


@triton.jit
def _dot_sum(a, b, HALF: tl.constexpr):  # type: ignore[no-untyped-def]
    """For sums over very many rows: what is rounded averages out, what is too small for half precision would not."""
    if HALF:
        a, b = a.to(tl.bfloat16), b.to(tl.bfloat16)
        if _INTERPRETED:
            a, b = a.to(tl.float32), b.to(tl.float32)
        return tl.dot(a, b)
    return tl.dot(a, b, input_precision="ieee")


@triton.jit
def _dot_gradient(a, b, HALF: tl.constexpr):  # type: ignore[no-untyped-def]
    """For gradients, which may be too small for half precision."""
    if HALF:
        return tl.dot(a, b, input_precision="tf32")
    return tl.dot(a, b, input_precision="ieee")


@triton.jit
def _channel(HEADS: tl.constexpr, PART: tl.constexpr, HP: tl.constexpr, PP: tl.constexpr):  # type: ignore[no-untyped-def]
    """Channels in blocks of PP for each of HP heads, both powers of two: which channel a place stands for, if any."""
    c = tl.arange(0, HP * PP)
    head, k = c // PP, c % PP
    return head * PART + k, (head < HEADS) & (k < PART)


@triton.jit
def _by_head(channel, real, d, weight, WIDTH: tl.constexpr):  # type: ignore[no-untyped-def]
    """`[D, HP PP]`: a `[C, D]` weight, transposed."""
    mask = (d < WIDTH)[:, None] & real[None, :]
    return tl.load(weight + channel[None, :] * WIDTH + d[:, None], mask=mask, other=0.0)


@triton.jit
def _forward_kernel(  # type: ignore[no-untyped-def]
    x, nodes, blocks, w_self, b_self, w_near, b_near, a_self, a_near, out, logits, normaliser,
    n, rows, columns, targets, own_start, near_start, count, slope,
    WIDTH: tl.constexpr, PART: tl.constexpr, HEADS: tl.constexpr, FANOUT: tl.constexpr, GATHER: tl.constexpr,
    HALF: tl.constexpr, SAVE: tl.constexpr, BM: tl.constexpr, BD: tl.constexpr, HP: tl.constexpr, PP: tl.constexpr,
):  # fmt: skip
    r = tl.program_id(0) * BM + tl.arange(0, BM)
    inside = r < rows
    step, own, near = _place(r, n, columns, own_start, near_start, FANOUT)
    base = step
    if GATHER:
        base = tl.load(blocks + step, mask=inside, other=0) * count
    d, h = tl.arange(0, BD), tl.arange(0, HP)
    channel, real = _channel(HEADS, PART, HP, PP)
    x_own = _read(x, nodes, base, own, inside, d, WIDTH, GATHER)
    projected = _dot(x_own, _by_head(channel, real, d, w_self, WIDTH), HALF)
    projected += tl.load(b_self + channel, mask=real, other=0.0)[None, :]
    attend = tl.load(a_self + channel, mask=real, other=0.0)
    by_self = tl.sum(tl.reshape(projected * attend[None, :], [BM, HP, PP]), axis=2)
    # The neighbours' bias: in every logit, and, as the weights add up to one, in the result as it is.
    attend = tl.load(a_near + channel, mask=real, other=0.0)
    bias = tl.load(b_near + channel, mask=real, other=0.0)
    by_self += tl.sum(tl.reshape(bias * attend, [HP, PP]), axis=1)[None, :]
    w = _by_head(channel, real, d, w_near, WIDTH)
    top = tl.full([BM, HP], float("-inf"), dtype=tl.float32)
    total = tl.zeros([BM, HP], dtype=tl.float32)
    mixed = tl.zeros([BM, HP, PP], dtype=tl.float32)
    saved = inside[:, None] & (h < HEADS)[None, :]
    for s in range(FANOUT):
        x_near = _read(x, nodes, base, near + s, inside, d, WIDTH, GATHER)
        value = tl.reshape(_dot(x_near, w, HALF), [BM, HP, PP])
        logit = by_self + tl.sum(value * tl.reshape(attend, [1, HP, PP]), axis=2)
        if SAVE:
            tl.store(logits + (near + s)[:, None] * HEADS + h[None, :], logit, mask=saved)
        logit = tl.where(logit > 0, logit, slope * logit)
        higher = tl.maximum(top, logit)
        shrink, weight = tl.exp(top - higher), tl.exp(logit - higher)
        mixed = mixed * shrink[:, :, None] + weight[:, :, None] * value
        total = total * shrink + weight
        top = higher
    result = projected + tl.reshape(mixed / total[:, :, None], [BM, HP * PP]) + bias[None, :]
    target = step * targets + (own - step * columns)
    place = out + target[:, None] * (HEADS * PART) + channel[None, :]
    tl.store(place, result, mask=inside[:, None] & real[None, :])
    if SAVE:
        tl.store(normaliser + target[:, None] * HEADS + h[None, :], top + tl.log(total), mask=saved)


@triton.jit
def _logits_kernel(  # type: ignore[no-untyped-def]
    x, nodes, blocks, w_near, logits, normaliser, grad_out, attention, near_change, own_change,
    n, rows, columns, targets, own_start, near_start, count, slope,
    WIDTH: tl.constexpr, PART: tl.constexpr, HEADS: tl.constexpr, FANOUT: tl.constexpr, GATHER: tl.constexpr,
    HALF: tl.constexpr, BM: tl.constexpr, BD: tl.constexpr, HP: tl.constexpr, PP: tl.constexpr,
):  # fmt: skip
    """The attention of each neighbour, and the gradients of the neighbours' and the target's shares of the logits."""
    r = tl.program_id(0) * BM + tl.arange(0, BM)
    inside = r < rows
    step, own, near = _place(r, n, columns, own_start, near_start, FANOUT)
    base = step
    if GATHER:
        base = tl.load(blocks + step, mask=inside, other=0) * count
    d, h = tl.arange(0, BD), tl.arange(0, HP)
    channel, real = _channel(HEADS, PART, HP, PP)
    target = step * targets + (own - step * columns)
    place = grad_out + target[:, None] * (HEADS * PART) + channel[None, :]
    grad = tl.load(place, mask=inside[:, None] & real[None, :], other=0.0)
    w = _by_head(channel, real, d, w_near, WIDTH)
    wanted = inside[:, None] & (h < HEADS)[None, :]
    norm = tl.load(normaliser + target[:, None] * HEADS + h[None, :], mask=wanted, other=float("inf"))
    mean = tl.zeros([BM, HP], dtype=tl.float32)
    for s in range(FANOUT):
        x_near = _read(x, nodes, base, near + s, inside, d, WIDTH, GATHER)
        # What the loss gains by this neighbour's weight.
        gain = tl.sum(tl.reshape(_dot(x_near, w, HALF) * grad, [BM, HP, PP]), axis=2)
        position = (near + s)[:, None] * HEADS + h[None, :]
        logit = tl.load(logits + position, mask=wanted, other=0.0)
        weight = tl.exp(tl.where(logit > 0, logit, slope * logit) - norm)
        mean += weight * gain
        tl.store(attention + position, weight, mask=wanted)
        tl.store(near_change + position, gain, mask=wanted)
    # Each thread may read what another has written.
    tl.debug_barrier()
    total = tl.zeros([BM, HP], dtype=tl.float32)
    for s in range(FANOUT):
        position = (near + s)[:, None] * HEADS + h[None, :]
        logit = tl.load(logits + position, mask=wanted, other=0.0)
        weight = tl.exp(tl.where(logit > 0, logit, slope * logit) - norm)
        change = weight * (tl.load(near_change + position, mask=wanted, other=0.0) - mean)
        change = tl.where(logit > 0, change, slope * change)
        tl.store(near_change + position, change, mask=wanted)
        total += change
    tl.store(own_change + target[:, None] * HEADS + h[None, :], total, mask=wanted)


@triton.jit
def _row_gradient(  # type: ignore[no-untyped-def]
    position, target, inside, grad_out, attend, attention, change,
    HEADS: tl.constexpr, PART: tl.constexpr, HP: tl.constexpr, PP: tl.constexpr, OWN: tl.constexpr,
):  # fmt: skip
    """The gradient `[rows, HP PP]` of each row's projection, and `[rows, HP]` of its share of the logits."""
    h, k = tl.arange(0, HP), tl.arange(0, PP)
    wanted = inside[:, None] & (h < HEADS)[None, :]
    channel = h[:, None] * PART + k[None, :]
    real = (h < HEADS)[:, None] & (k < PART)[None, :]
    place = grad_out + target[:, None, None] * (HEADS * PART) + channel[None, :, :]
    grad = tl.load(place, mask=inside[:, None, None] & real[None, :, :], other=0.0)
    a = tl.load(attend + channel, mask=real, other=0.0)
    row = target if OWN else position
    by_logit = tl.load(change + row[:, None] * HEADS + h[None, :], mask=wanted, other=0.0)
    if not OWN:
        weight = tl.load(attention + position[:, None] * HEADS + h[None, :], mask=wanted, other=0.0)
        grad = grad * weight[:, :, None]
    grad += by_logit[:, :, None] * a[None, :, :]
    return tl.reshape(grad, [position.shape[0], HP * PP]), by_logit


@triton.jit
def _sums_kernel(  # type: ignore[no-untyped-def]
    x, nodes, blocks, grad_out, attend, attention, change,
    part_weight, part_bias, part_logit, part_attend,
    n, rows, columns, targets, own_start, near_start, count, shares, first_share,
    WIDTH: tl.constexpr, PART: tl.constexpr, HEADS: tl.constexpr, FANOUT: tl.constexpr, GATHER: tl.constexpr,
    HALF: tl.constexpr, OWN: tl.constexpr,
    BM: tl.constexpr, BD: tl.constexpr, HP: tl.constexpr, PP: tl.constexpr, HE: tl.constexpr,
):  # fmt: skip
    """Gradients of one projection's weight and bias, summed over the blocks `program_id(0)`, + shares, …

    `part_attend` sums logit gradient ⊗ row, from which that of the attention vector follows.
    """
    d, e = tl.arange(0, BD), tl.arange(0, HE)
    channel, real = _channel(HEADS, PART, HP, PP)
    sum_weight = tl.zeros([HP * PP, BD], dtype=tl.float32)
    sum_attend = tl.zeros([HE, BD], dtype=tl.float32)
    sum_bias = tl.zeros([BM, HP * PP], dtype=tl.float32)
    sum_logit = tl.zeros([BM, HP], dtype=tl.float32)
    for block in range(tl.program_id(0), tl.cdiv(rows, BM), shares):
        r = block * BM + tl.arange(0, BM)
        inside = r < rows
        if OWN:
            step, position, _near = _place(r, n, columns, own_start, near_start, FANOUT)
            target = step * targets + (position - step * columns)
            row = target
        else:
            step, own, near = _place(r // FANOUT, n, columns, own_start, near_start, FANOUT)
            position = near + r % FANOUT
            target = step * targets + (own - step * columns)
            row = position
        base = step
        if GATHER:
            base = tl.load(blocks + step, mask=inside, other=0) * count
        value = _read(x, nodes, base, position, inside, d, WIDTH, GATHER)
        grad, by_logit = _row_gradient(
            position, target, inside, grad_out, attend, attention, change, HEADS, PART, HP, PP, OWN
        )
        # Sixteen columns at least, as a product needs: the heads, then zeros.
        mask = inside[:, None] & (e < HEADS)[None, :]
        wide = tl.load(change + row[:, None] * HEADS + e[None, :], mask=mask, other=0.0)
        sum_weight += _dot_sum(tl.trans(grad), value, HALF)
        sum_attend += _dot_sum(tl.trans(wide), value, HALF)
        sum_bias += grad
        sum_logit += by_logit
    share = first_share + tl.program_id(0)
    in_row = (d < WIDTH)[None, :]
    place = part_weight + (share * (HEADS * PART) + channel)[:, None] * WIDTH + d[None, :]
    tl.store(place, sum_weight, mask=real[:, None] & in_row)
    place = part_attend + (share * HEADS + e)[:, None] * WIDTH + d[None, :]
    tl.store(place, sum_attend, mask=(e < HEADS)[:, None] & in_row)
    tl.store(part_bias + share * (HEADS * PART) + channel, tl.sum(sum_bias, axis=0), mask=real)
    h = tl.arange(0, HP)
    tl.store(part_logit + share * HEADS + h, tl.sum(sum_logit, axis=0), mask=h < HEADS)


@triton.jit
def _inputs_kernel(  # type: ignore[no-untyped-def]
    weight, grad_x, grad_out, attend, attention, change,
    n, rows, columns, targets, own_start, near_start,
    WIDTH: tl.constexpr, PART: tl.constexpr, HEADS: tl.constexpr, FANOUT: tl.constexpr, HALF: tl.constexpr,
    OWN: tl.constexpr, ADD: tl.constexpr, BM: tl.constexpr, BD: tl.constexpr, HP: tl.constexpr, PP: tl.constexpr,
):  # fmt: skip
    """The gradient of the targets' own rows, or of their neighbours' rows: one writer each."""
    r = tl.program_id(0) * BM + tl.arange(0, BM)
    inside = r < rows
    if OWN:
        step, position, _near = _place(r, n, columns, own_start, near_start, FANOUT)
        target = step * targets + (position - step * columns)
    else:
        step, own, near = _place(r // FANOUT, n, columns, own_start, near_start, FANOUT)
        position = near + r % FANOUT
        target = step * targets + (own - step * columns)
    d = tl.arange(0, BD)
    channel, real = _channel(HEADS, PART, HP, PP)
    grad, _by_logit = _row_gradient(
        position, target, inside, grad_out, attend, attention, change, HEADS, PART, HP, PP, OWN
    )
    value = _dot_gradient(grad, tl.trans(_by_head(channel, real, d, weight, WIDTH)), HALF)
    place = grad_x + position[:, None] * WIDTH + d[None, :]
    wanted = inside[:, None] & (d < WIDTH)[None, :]
    if ADD:
        value += tl.load(place, mask=wanted, other=0.0)
    tl.store(place, value, mask=wanted)


_Span = tuple[int, int, int, int]


class _Launch:
    """What the launches of one call have in common."""

    def __init__(self, rows: TreeRows, heads: int, part: int, half: bool) -> None:
        self.rows, self.heads, self.part, self.half = rows, heads, part, half
        sizes = rows.sizes
        spans = zip(rows.spans(), sizes, sizes[1:], strict=False)
        # (first target, targets, first neighbour, fan-out) of each hop that is not empty.
        self.spans = [(*span, following // size) for span, size, following in spans if size and rows.steps]
        if rows.steps * sum(sizes) >= 2**31:
            raise InputError(f"{rows.steps} steps of {sum(sizes)} rows are too many for one batch: lower batch_size")
        values = rows.values.detach()
        # Where there is nothing to gather the last two are never read.
        self.source = (
            values,
            values if rows.nodes is None else rows.nodes,
            values if rows.blocks is None else rows.blocks,
        )

    def place(self, span: _Span, rows_per_target: int = 1) -> tuple[int, ...]:
        """n, rows, columns, targets, own_start, near_start."""
        own, n, near, _ = span
        return n, self.rows.steps * n * rows_per_target, sum(self.rows.sizes), self.rows.targets, own, near

    def constants(self, fanout: int, size: tuple[int, int]) -> dict[str, Any]:
        heads = triton.next_power_of_2(self.heads)
        # A product takes at least sixteen columns.
        part = max(triton.next_power_of_2(self.part), 16 // heads)
        width = max(16, triton.next_power_of_2(self.rows.width))
        return {
            "WIDTH": self.rows.width, "PART": self.part, "HEADS": self.heads, "FANOUT": fanout, "HALF": self.half,
            "BM": size[0], "BD": width, "HP": heads, "PP": part, "num_warps": size[1],
        }  # fmt: skip

    @property
    def gather(self) -> dict[str, bool]:
        return {"GATHER": self.rows.nodes is not None}

    @property
    def count(self) -> int:
        return self.rows.values.shape[1]


class _Attend(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, launch: _Launch, slope: float, save: bool, values: Tensor, *weights: Tensor) -> Tensor:
        w_self, b_self, w_near, b_near, a_self, a_near = (weight.detach().contiguous() for weight in weights)
        rows, heads = launch.rows, launch.heads
        out = _empty(values, rows.steps, rows.targets, heads * launch.part)
        logits = _empty(values, rows.steps, sum(rows.sizes) if save else 0, heads)
        normaliser = _empty(values, rows.steps, rows.targets if save else 0, heads)
        with on(values):
            for span in launch.spans:
                place = launch.place(span)
                _forward_kernel[(triton.cdiv(place[1], _FORWARD[0]),)](
                    *launch.source, w_self, b_self, w_near, b_near, a_self, a_near, out, logits, normaliser,
                    *place, launch.count, slope, **launch.constants(span[3], _FORWARD), **launch.gather, SAVE=save,
                )  # fmt: skip
        ctx.save_for_backward(values, w_self, b_self, w_near, b_near, a_self, a_near, logits, normaliser)
        ctx.launch, ctx.slope = launch, slope
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        values, w_self, b_self, w_near, b_near, a_self, a_near, logits, normaliser = ctx.saved_tensors
        launch = ctx.launch
        grad_out = grads[0].contiguous()
        attention, near_change, own_change = (torch.empty_like(like) for like in (logits, logits, normaliser))
        with on(values):
            for span in launch.spans:
                place = launch.place(span)
                _logits_kernel[(triton.cdiv(place[1], _LOGITS[0]),)](
                    *launch.source, w_near, logits, normaliser, grad_out, attention, near_change, own_change,
                    *place, launch.count, ctx.slope, **launch.constants(span[3], _LOGITS), **launch.gather,
                )  # fmt: skip
        own = _Side(True, w_self, b_self, a_self, attention, own_change)
        near = _Side(False, w_near, b_near, a_near, attention, near_change)
        by_self, by_near = _sums(launch, grad_out, own), _sums(launch, grad_out, near)
        grad_values = _input_gradients(launch, grad_out, own, near) if ctx.needs_input_grad[3] else None
        return None, None, None, grad_values, *by_self[:2], *by_near[:2], by_self[2], by_near[2]


@dataclass(frozen=True)
class _Side:
    """One of the two projections, of the targets or of their neighbours, and what is known of its rows."""

    is_own: bool
    weight: Tensor
    bias: Tensor
    attend: Tensor
    attention: Tensor
    change: Tensor

    def spans(self, launch: _Launch) -> list[_Span]:
        """The targets of all hops lie side by side; the neighbours do so hop by hop."""
        if self.is_own and launch.spans:
            return [(0, launch.rows.targets, 0, 1)]
        return launch.spans


def _sums(launch: _Launch, grad_out: Tensor, side: _Side) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of a projection's weight and bias and of its attention vector."""
    heads, part, width = launch.heads, launch.part, launch.rows.width
    spans = side.spans(launch)
    places = [launch.place(span, 1 if side.is_own else span[3]) for span in spans]
    rows = sum(place[1] for place in places)
    # As many programs in all, each with about as many rows.
    programs = [min(-(-_SHARES * place[1] // rows), triton.cdiv(place[1], _SUMS[0])) for place in places]
    shares = sum(programs)
    part_weight, part_bias = _empty(grad_out, shares, heads * part, width), _empty(grad_out, shares, heads * part)
    part_logit, part_attend = _empty(grad_out, shares, heads), _empty(grad_out, shares, heads, width)
    first = 0
    with on(grad_out):
        for span, place, count in zip(spans, places, programs, strict=True):
            constants = launch.constants(span[3], _SUMS)
            _sums_kernel[(count,)](
                *launch.source, grad_out, side.attend, side.attention, side.change,
                part_weight, part_bias, part_logit, part_attend, *place, launch.count, count, first,
                **constants, **launch.gather, OWN=side.is_own, HE=max(16, constants["HP"]),
            )  # fmt: skip
            first += count
    # The logit of a row is a · (W x + b).
    by_logit = add_up(part_logit).unsqueeze(1)
    by_row = add_up(part_attend).unsqueeze(2)
    by_attend = (side.weight.unflatten(0, (heads, -1)) @ by_row).squeeze(2)
    by_attend += by_logit * side.bias.unflatten(0, (heads, -1))
    return add_up(part_weight), add_up(part_bias), by_attend


def _input_gradients(launch: _Launch, grad_out: Tensor, own: _Side, near: _Side) -> Tensor:
    """`[T, M, D]`. A row of a middle hop is a neighbour first and a target then."""
    grad = _empty(grad_out, launch.rows.steps, sum(launch.rows.sizes), launch.rows.width)
    with on(grad):
        for number, span in enumerate(launch.spans):
            for side in (own, near):
                place = launch.place(span, 1 if side.is_own else span[3])
                _inputs_kernel[(triton.cdiv(place[1], _INPUTS[0]),)](
                    side.weight, grad, grad_out, side.attend, side.attention, side.change, *place,
                    **launch.constants(span[3], _INPUTS), OWN=side.is_own, ADD=side.is_own and number > 0,
                )  # fmt: skip
    return grad


def _empty(like: Tensor, *shape: int) -> Tensor:
    return torch.empty(shape, dtype=torch.float32, device=like.device)


def attend(x: TreeRows, weights: AttentionWeights, half: bool) -> Tensor:
    """`[T, n, C]`: what `aggregate_tree` returns, with products of half-precision operands if `half`."""
    w = weights
    if x.nodes is None:
        x = TreeRows(x.values.contiguous(), x.sizes)
    result: Tensor = _Attend.apply(  # type: ignore[no-untyped-call]
        _Launch(x, w.heads, w.channels // w.heads, half), w.slope, torch.is_grad_enabled(), x.values,
        w.self_weight, w.self_bias, w.neighbour_weight, w.neighbour_bias, w.attend_self, w.attend_neighbour,
    )  # fmt: skip
    return result
