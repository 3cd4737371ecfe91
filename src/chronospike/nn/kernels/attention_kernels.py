"""The Triton kernels of the neighbour attention; `attention.py` says what they do together and launches them.

In all of them a row of the trees is named by its position, step by step and hop by hop, and a target by its place among
the positions that have neighbours. Channels are held head by head, each head padded to a power of two.
"""

from __future__ import annotations

import os

import triton
import triton.language as tl

from chronospike.triton_common import product

# Not specialised: see `chronospike.triton_common`.
_NUMBERS = ["n", "rows", "columns", "targets", "own_start", "near_start", "count", "save", "shares", "first_share"]
# Triton's interpreter multiplies no matrices of bfloat16.
_INTERPRETED = tl.constexpr(os.environ.get("TRITON_INTERPRET") == "1")


@triton.jit
def _place(row, n, columns, own_start, near_start, fanout):  # type: ignore[no-untyped-def]
    """The step of each target of a hop, its own position in the trees and that of its first neighbour."""
    # Divided in 32 bits, which is much faster; `attention._Launch` sees to it that they are enough.
    step = row // n
    i = (row - step * n).to(tl.int64)
    step = step.to(tl.int64)
    return step, step * columns + own_start + i, step * columns + near_start + i * fanout


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
    return tl.dot(a.to(tl.float16), b.to(tl.float16)) if HALF else tl.dot(a, b, input_precision="ieee")


@triton.jit
def _dot_sum(a, b, HALF: tl.constexpr):  # type: ignore[no-untyped-def]
    """For sums over very many rows: what is rounded averages out, what is too small for half precision would not."""
    if HALF:
        a, b = a.to(tl.bfloat16), b.to(tl.bfloat16)
        if _INTERPRETED:
            a, b = a.to(tl.float32), b.to(tl.float32)
        result = tl.dot(a, b)
    else:
        result = tl.dot(a, b, input_precision="ieee")
    return result


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
def _targets(  # type: ignore[no-untyped-def]
    block, blocks, n, rows, columns, targets, own_start, near_start, count,
    FANOUT: tl.constexpr, GATHER: tl.constexpr, BM: tl.constexpr,
):  # fmt: skip
    """A block of targets: which are there, their positions and their first neighbours', their places among
    all targets, and where the table's block of their step begins."""
    r = block * BM + tl.arange(0, BM)
    inside = r < rows
    step, own, near = _place(r, n, columns, own_start, near_start, FANOUT)
    base = step
    if GATHER:
        base = tl.load(blocks + step, mask=inside, other=0) * count
    return inside, own, near, step * targets + (own - step * columns), base


@triton.jit
def _row(r, n, columns, targets, own_start, near_start, FANOUT: tl.constexpr, OWN: tl.constexpr):  # type: ignore[no-untyped-def]
    """The step, the position and the target of each row: a target's own, or one of its neighbours'."""
    index = r if OWN else r // FANOUT
    step, own, near = _place(index, n, columns, own_start, near_start, FANOUT)
    position = own if OWN else near + r % FANOUT
    return step, position, step * targets + (own - step * columns)


@triton.jit(do_not_specialize=_NUMBERS)
def forward_kernel(  # type: ignore[no-untyped-def]
    x, nodes, blocks, w_self, b_self, w_near, b_near, a_self, a_near, out, logits, normaliser,
    n, rows, columns, targets, own_start, near_start, count, save, slope,
    WIDTH: tl.constexpr, PART: tl.constexpr, HEADS: tl.constexpr, FANOUT: tl.constexpr, GATHER: tl.constexpr,
    HALF: tl.constexpr, BM: tl.constexpr, BD: tl.constexpr, HP: tl.constexpr, PP: tl.constexpr,
):  # fmt: skip
    d, h = tl.arange(0, BD), tl.arange(0, HP)
    channel, real = _channel(HEADS, PART, HP, PP)
    w_own = _by_head(channel, real, d, w_self, WIDTH)
    w = _by_head(channel, real, d, w_near, WIDTH)
    attend_own = tl.load(a_self + channel, mask=real, other=0.0)
    attend = tl.load(a_near + channel, mask=real, other=0.0)
    # The neighbours' bias: in every logit, and, as the weights add up to one, in the result as it is.
    bias_own = tl.load(b_self + channel, mask=real, other=0.0)
    bias = tl.load(b_near + channel, mask=real, other=0.0)
    by_bias = tl.sum(tl.reshape(bias * attend, [HP, PP]), axis=1)
    for block in range(tl.program_id(0), tl.cdiv(rows, BM), tl.num_programs(0)):
        inside, own, near, target, base = _targets(
            block, blocks, n, rows, columns, targets, own_start, near_start, count, FANOUT, GATHER, BM
        )
        x_own = _read(x, nodes, base, own, inside, d, WIDTH, GATHER)
        projected = _dot(x_own, w_own, HALF) + bias_own[None, :]
        by_self = tl.sum(tl.reshape(projected * attend_own[None, :], [BM, HP, PP]), axis=2) + by_bias[None, :]
        top = tl.full([BM, HP], float("-inf"), dtype=tl.float32)
        total = tl.zeros([BM, HP], dtype=tl.float32)
        mixed = tl.zeros([BM, HP, PP], dtype=tl.float32)
        # Not decided when the kernel is compiled: that takes longer than a mask.
        saved = inside[:, None] & (h < HEADS)[None, :] & (save + h[None, :] * 0 > 0)
        for s in range(FANOUT):
            x_near = _read(x, nodes, base, near + s, inside, d, WIDTH, GATHER)
            value = tl.reshape(_dot(x_near, w, HALF), [BM, HP, PP])
            logit = by_self + tl.sum(value * tl.reshape(attend, [1, HP, PP]), axis=2)
            tl.store(logits + (near + s)[:, None] * HEADS + h[None, :], logit, mask=saved)
            logit = tl.where(logit > 0, logit, slope * logit)
            higher = tl.maximum(top, logit)
            shrink, weight = tl.exp(top - higher), tl.exp(logit - higher)
            mixed = mixed * shrink[:, :, None] + weight[:, :, None] * value
            total = total * shrink + weight
            top = higher
        result = projected + tl.reshape(mixed / total[:, :, None], [BM, HP * PP]) + bias[None, :]
        place = out + target[:, None] * (HEADS * PART) + channel[None, :]
        tl.store(place, result, mask=inside[:, None] & real[None, :])
        tl.store(normaliser + target[:, None] * HEADS + h[None, :], top + tl.log(total), mask=saved)


@triton.jit(do_not_specialize=_NUMBERS)
def logits_kernel(  # type: ignore[no-untyped-def]
    x, nodes, blocks, w_near, logits, normaliser, grad_out, attention, near_change, own_change,
    n, rows, columns, targets, own_start, near_start, count, slope,
    WIDTH: tl.constexpr, PART: tl.constexpr, HEADS: tl.constexpr, FANOUT: tl.constexpr, GATHER: tl.constexpr,
    HALF: tl.constexpr, BM: tl.constexpr, BD: tl.constexpr, HP: tl.constexpr, PP: tl.constexpr,
):  # fmt: skip
    """The attention of each neighbour, and the gradients of the neighbours' and the target's shares of the logits."""
    d, h = tl.arange(0, BD), tl.arange(0, HP)
    channel, real = _channel(HEADS, PART, HP, PP)
    w = _by_head(channel, real, d, w_near, WIDTH)
    for block in range(tl.program_id(0), tl.cdiv(rows, BM), tl.num_programs(0)):
        inside, _own, near, target, base = _targets(
            block, blocks, n, rows, columns, targets, own_start, near_start, count, FANOUT, GATHER, BM
        )
        place = grad_out + target[:, None] * (HEADS * PART) + channel[None, :]
        grad = tl.load(place, mask=inside[:, None] & real[None, :], other=0.0)
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


@triton.jit(do_not_specialize=_NUMBERS)
def sums_kernel(  # type: ignore[no-untyped-def]
    x, nodes, blocks, grad_out, attend, attention, change, parts,
    n, rows, columns, targets, own_start, near_start, count, shares, first_share,
    WIDTH: tl.constexpr, PART: tl.constexpr, HEADS: tl.constexpr, FANOUT: tl.constexpr, GATHER: tl.constexpr,
    HALF: tl.constexpr, OWN: tl.constexpr,
    BM: tl.constexpr, BD: tl.constexpr, HP: tl.constexpr, PP: tl.constexpr, HE: tl.constexpr,
):  # fmt: skip
    """Sums over the blocks `program_id(0)`, + shares, … of targets: over their own rows, or over their neighbours'.

    Of each row its projection's gradient ⊗ itself, which is the gradient of the weight, and its logits' gradient ⊗
    itself, from which that of the attention vector follows. For the targets, both gradients alone, too.
    """
    d, h, k = tl.arange(0, BD), tl.arange(0, HP), tl.arange(0, PP)
    # Sixteen columns at least, as a product needs: the heads, then zeros.
    e = tl.arange(0, HE)
    channel = h[:, None] * PART + k[None, :]
    real = (h < HEADS)[:, None] & (k < PART)[None, :]
    a = tl.load(attend + channel, mask=real, other=0.0)
    sum_weight = tl.zeros([HP * PP, BD], dtype=tl.float32)
    sum_attend = tl.zeros([HE, BD], dtype=tl.float32)
    sum_grad = tl.zeros([HP, PP], dtype=tl.float32)
    sum_logit = tl.zeros([HP], dtype=tl.float32)
    for block in range(tl.program_id(0), tl.cdiv(rows, BM), shares):
        r = block * BM + tl.arange(0, BM)
        inside = r < rows
        step, own, near = _place(r, n, columns, own_start, near_start, FANOUT)
        target = step * targets + (own - step * columns)
        base = step
        if GATHER:
            base = tl.load(blocks + step, mask=inside, other=0) * count
        place = grad_out + target[:, None, None] * (HEADS * PART) + channel[None, :, :]
        grad = tl.load(place, mask=inside[:, None, None] & real[None, :, :], other=0.0)
        wanted = inside[:, None] & (h < HEADS)[None, :]
        for s in range(FANOUT):
            position = own if OWN else near + s
            row = target if OWN else position
            value = _read(x, nodes, base, position, inside, d, WIDTH, GATHER)
            by_logit = tl.load(change + row[:, None] * HEADS + h[None, :], mask=wanted, other=0.0)
            row_grad = by_logit[:, :, None] * a[None, :, :]
            if OWN:
                row_grad += grad
                sum_grad += tl.sum(grad, axis=0)
                sum_logit += tl.sum(by_logit, axis=0)
            else:
                weight = tl.load(attention + position[:, None] * HEADS + h[None, :], mask=wanted, other=0.0)
                row_grad += grad * weight[:, :, None]
            heads = inside[:, None] & (e < HEADS)[None, :]
            by_heads = tl.load(change + row[:, None] * HEADS + e[None, :], mask=heads, other=0.0)
            sum_weight += _dot_sum(tl.trans(tl.reshape(row_grad, [BM, HP * PP])), value, HALF)
            sum_attend += _dot_sum(tl.trans(by_heads), value, HALF)
    weights, by_row, grads, logits = _totals(parts, first_share + tl.program_id(0), WIDTH, PART, HEADS)
    c = tl.arange(0, HP * PP)
    head, i = c // PP, c % PP
    in_row = (d < WIDTH)[None, :]
    place = weights + (head * PART + i)[:, None] * WIDTH + d[None, :]
    tl.store(place, sum_weight, mask=((head < HEADS) & (i < PART))[:, None] & in_row)
    tl.store(by_row + e[:, None] * WIDTH + d[None, :], sum_attend, mask=(e < HEADS)[:, None] & in_row)
    tl.store(grads + channel, sum_grad, mask=real)
    tl.store(logits + h, sum_logit, mask=h < HEADS)


@triton.jit
def _totals(totals, number, WIDTH: tl.constexpr, PART: tl.constexpr, HEADS: tl.constexpr):  # type: ignore[no-untyped-def]
    """Where the sums of `sums_kernel` lie: `[C, D]`, `[H, D]`, `[C]`, `[H]`."""
    size: tl.constexpr = HEADS * PART * WIDTH + HEADS * WIDTH + HEADS * PART + HEADS
    weights = totals + number.to(tl.int64) * size
    by_row = weights + HEADS * PART * WIDTH
    return weights, by_row, by_row + HEADS * WIDTH, by_row + HEADS * WIDTH + HEADS * PART


@triton.jit
def _finish(  # type: ignore[no-untyped-def]
    totals, sum_grad, sum_logit, weight, bias, attend, by_bias, by_attend, head, k, d,
    WIDTH: tl.constexpr, PART: tl.constexpr, HEADS: tl.constexpr,
):  # fmt: skip
    """Of one projection and head; a logit is a · (W x + b)."""
    c = head * PART + k
    _weights, by_row, _grads, _logits = _totals(totals, head * 0, WIDTH, PART, HEADS)
    row = tl.load(by_row + head * WIDTH + d, mask=d < WIDTH, other=0.0)
    mask = (k < PART)[:, None] & (d < WIDTH)[None, :]
    w = tl.load(weight + c[:, None] * WIDTH + d[None, :], mask=mask, other=0.0)
    a, b = tl.load(attend + c, mask=k < PART, other=0.0), tl.load(bias + c, mask=k < PART, other=0.0)
    tl.store(by_attend + c, tl.sum(w * row[None, :], axis=1) + sum_logit * b, mask=k < PART)
    tl.store(by_bias + c, sum_grad + sum_logit * a, mask=k < PART)


@triton.jit
def finish_kernel(  # type: ignore[no-untyped-def]
    own, near, w_self, b_self, w_near, b_near, a_self, a_near, by_b_self, by_b_near, by_a_self, by_a_near,
    WIDTH: tl.constexpr, PART: tl.constexpr, HEADS: tl.constexpr, BD: tl.constexpr, PP: tl.constexpr,
):  # fmt: skip
    """The gradients of the biases and attention vectors of a head, from the sums over targets and neighbours.

    The weights of a neighbourhood add up to one, and its logits' gradients to that of the target's share, so that the
    sums of both over all rows are the same for both projections.
    """
    head = tl.program_id(0)
    d, k = tl.arange(0, BD), tl.arange(0, PP)
    _weights, _by_row, grads, logits = _totals(own, head * 0, WIDTH, PART, HEADS)
    grad, logit = tl.load(grads + head * PART + k, mask=k < PART, other=0.0), tl.load(logits + head)
    _finish(own, grad, logit, w_self, b_self, a_self, by_b_self, by_a_self, head, k, d, WIDTH, PART, HEADS)
    _finish(near, grad, logit, w_near, b_near, a_near, by_b_near, by_a_near, head, k, d, WIDTH, PART, HEADS)


@triton.jit
def _row_gradient(  # type: ignore[no-untyped-def]
    position, target, inside, grad_out, attend, attention, change,
    HEADS: tl.constexpr, PART: tl.constexpr, HP: tl.constexpr, PP: tl.constexpr, OWN: tl.constexpr,
):  # fmt: skip
    """`[rows, HP PP]`: the gradient of each row's projection."""
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
    return tl.reshape(grad, [position.shape[0], HP * PP])


@triton.jit(do_not_specialize=_NUMBERS)
def inputs_kernel(  # type: ignore[no-untyped-def]
    weight, grad_x, grad_out, attend, attention, change,
    n, rows, columns, targets, own_start, near_start,
    WIDTH: tl.constexpr, PART: tl.constexpr, HEADS: tl.constexpr, FANOUT: tl.constexpr, HALF: tl.constexpr,
    OWN: tl.constexpr, ADD: tl.constexpr, BM: tl.constexpr, BD: tl.constexpr, HP: tl.constexpr, PP: tl.constexpr,
):  # fmt: skip
    """The gradient of the targets' own rows, or of their neighbours' rows: one writer each."""
    r = tl.program_id(0) * BM + tl.arange(0, BM)
    inside = r < rows
    _step, position, target = _row(r, n, columns, targets, own_start, near_start, FANOUT, OWN)
    d = tl.arange(0, BD)
    channel, real = _channel(HEADS, PART, HP, PP)
    grad = _row_gradient(position, target, inside, grad_out, attend, attention, change, HEADS, PART, HP, PP, OWN)
    value = product(grad, tl.trans(_by_head(channel, real, d, weight, WIDTH)), HALF)
    place = grad_x + position[:, None] * WIDTH + d[None, :]
    wanted = inside[:, None] & (d < WIDTH)[None, :]
    if ADD:
        value += tl.load(place, mask=wanted, other=0.0)
    tl.store(place, value, mask=wanted)
