"""The Triton kernels of the neighbour attention; `attention.py` says what they do together and launches them.

They work hop by hop. The rows of a hop, its targets or all their neighbours, are numbered step by step; a row's
position is its place in the trees. Channels are held head by head, each head padded to a power of two. Programs are
numbered by blocks of rows first, of which there may be many, then by groups of heads or blocks of channels.
"""

from __future__ import annotations

import triton
import triton.language as tl

# Not specialised: see `chronospike.triton_common`.
_NUMBERS = ["n", "rows", "columns", "targets", "start", "count", "first_part", "per_scale", "adds"]


@triton.jit
def _at(row, size: tl.constexpr, i):  # type: ignore[no-untyped-def]
    """Where the entries `i` of the rows of a `[rows, size]` array lie. Rows are counted in 32 bits, entries in 64."""
    return row.to(tl.int64)[:, None] * size + i[None, :]


@triton.jit
def _position(r, n, columns, start):  # type: ignore[no-untyped-def]
    """The step and the position of each row, of which a step has `n`, from `start` on."""
    step = r // n
    return step, step * columns + start + (r - step * n)


@triton.jit
def _source(r, inside, nodes, blocks, n, columns, start, count, GATHER: tl.constexpr):  # type: ignore[no-untyped-def]
    """Which row of the inputs, taken as one long list, is read for each row."""
    step, position = _position(r, n, columns, start)
    source = position.to(tl.int64)
    if GATHER:
        block = tl.load(blocks + step, mask=inside, other=0)
        source = block * count + tl.load(nodes + position, mask=inside, other=0)
    return source


@triton.jit
def _factor(x, HALF: tl.constexpr):  # type: ignore[no-untyped-def]
    """As a factor of `_dot`; what is stored in half precision goes to the tensor cores as it is."""
    return x.to(tl.float16) if HALF else x.to(tl.float32)


@triton.jit
def _dot(a, b, total, HALF: tl.constexpr):  # type: ignore[no-untyped-def]
    """`total` + a product of two factors. Half precision keeps as many digits as TF32."""
    return tl.dot(a, b, total) if HALF else tl.dot(a, b, total, input_precision="ieee")


@triton.jit
def _flat(group, HEADS: tl.constexpr, PART: tl.constexpr, HP: tl.constexpr, PP: tl.constexpr):  # type: ignore[no-untyped-def]
    """`[HP PP]`: which channel each place of a group of heads stands for, if any."""
    c = tl.arange(0, HP * PP)
    head, k = group * HP + c // PP, c % PP
    return head * PART + k, (head < HEADS) & (k < PART)


@triton.jit
def _pairs(group, HEADS: tl.constexpr, PART: tl.constexpr, BM: tl.constexpr, HP: tl.constexpr, PP: tl.constexpr):  # type: ignore[no-untyped-def]
    """A block's targets with each head of a group: `[BM HP]` targets, and `[BM HP, PP]` channels of them, if real."""
    pair, k = tl.arange(0, BM * HP), tl.arange(0, PP)
    head = group * HP + pair % HP
    return pair // HP, head[:, None] * PART + k[None, :], (head < HEADS)[:, None] & (k < PART)[None, :]


@triton.jit
def _entries(row, size: tl.constexpr, channel):  # type: ignore[no-untyped-def]
    """Where the channels of the rows of a `[rows, size]` array lie, for each pair of a target and a head."""
    return row.to(tl.int64)[:, None] * size + channel


@triton.jit(do_not_specialize=_NUMBERS)
def project_kernel(  # type: ignore[no-untyped-def]
    x, nodes, blocks, weight, out, n, rows, columns, start, count,
    WIDTH: tl.constexpr, CHANNELS: tl.constexpr, GATHER: tl.constexpr, HALF: tl.constexpr,
    BM: tl.constexpr, BC: tl.constexpr, BD: tl.constexpr,
):  # fmt: skip
    """`out [rows, C]`: W x of the blocks `program_id(0)`, + the number of programs, … of rows."""
    c, d = tl.program_id(1) * BC + tl.arange(0, BC), tl.arange(0, BD)
    place = weight + c[None, :] * WIDTH + d[:, None]
    w = _factor(tl.load(place, mask=(d < WIDTH)[:, None] & (c < CHANNELS)[None, :], other=0.0), HALF)
    for block in range(tl.program_id(0), tl.cdiv(rows, BM), tl.num_programs(0)):
        r = block * BM + tl.arange(0, BM)
        inside = r < rows
        row = _source(r, inside, nodes, blocks, n, columns, start, count, GATHER)
        values = tl.load(x + _at(row, WIDTH, d), mask=inside[:, None] & (d < WIDTH)[None, :], other=0.0)
        total = _dot(_factor(values, HALF), w, tl.zeros([BM, BC], dtype=tl.float32), HALF)
        # Wide features, piece by piece; the weight's first piece stays where it is.
        for first in range(BD, WIDTH, BD):
            there = first + d < WIDTH
            values = tl.load(x + _at(row, WIDTH, first + d), mask=inside[:, None] & there[None, :], other=0.0)
            more = tl.load(place + first, mask=there[:, None] & (c < CHANNELS)[None, :], other=0.0)
            total = _dot(_factor(values, HALF), _factor(more, HALF), total, HALF)
        if HALF:
            # Farther out than half precision goes neurons are saturated.
            total = tl.clamp(total, -65504.0, 65504.0, propagate_nan=tl.PropagateNan.ALL)
        tl.store(out + _at(r, CHANNELS, c), total, mask=inside[:, None] & (c < CHANNELS)[None, :])


@triton.jit
def _leaky(logit, slope):  # type: ignore[no-untyped-def]
    return tl.where(logit > 0, logit, slope * logit)


@triton.jit(do_not_specialize=_NUMBERS)
def mix_kernel(  # type: ignore[no-untyped-def]
    own, near, b_self, b_near, a_self, a_near, out, n, rows, targets, start, slope,
    PART: tl.constexpr, HEADS: tl.constexpr, FANOUT: tl.constexpr,
    BM: tl.constexpr, HP: tl.constexpr, PP: tl.constexpr,
):  # fmt: skip
    """The targets' own projection plus the weighted sum of their neighbours', with a running softmax."""
    i, channel, real = _pairs(tl.program_id(1), HEADS, PART, BM, HP, PP)
    attend = tl.load(a_near + channel, mask=real, other=0.0)
    attend_own = tl.load(a_self + channel, mask=real, other=0.0)
    # The neighbours' bias: in every logit, and, as the weights add up to one, in the result as it is.
    bias_own, bias = tl.load(b_self + channel, mask=real, other=0.0), tl.load(b_near + channel, mask=real, other=0.0)
    r = tl.program_id(0) * BM + i
    there = (r < rows)[:, None] & real
    own_value = tl.load(own + _entries(r, HEADS * PART, channel), mask=there, other=0.0).to(tl.float32) + bias_own
    own_logit = tl.sum(own_value * attend_own + bias * attend, axis=1)
    top = tl.full([BM * HP], float("-inf"), dtype=tl.float32)
    total = tl.zeros([BM * HP], dtype=tl.float32)
    mixed = tl.zeros([BM * HP, PP], dtype=tl.float32)
    for s in range(FANOUT):
        value = tl.load(near + _entries(r * FANOUT + s, HEADS * PART, channel), mask=there, other=0.0).to(tl.float32)
        logit = _leaky(own_logit + tl.sum(value * attend, axis=1), slope)
        higher = tl.maximum(top, logit)
        shrink, weight = tl.exp(top - higher), tl.exp(logit - higher)
        mixed = mixed * shrink[:, None] + value * weight[:, None]
        total = total * shrink + weight
        top = higher
    _step, target = _position(r, n, targets, start)
    result = own_value + bias + mixed * (1.0 / total)[:, None]
    tl.store(out + _entries(target, HEADS * PART, channel), result, mask=there)


@triton.jit
def _scale(limit):  # type: ignore[no-untyped-def]
    """The power of two that brings numbers of at most this size to the upper end of half precision."""
    return tl.exp2(14.0 - tl.ceil(tl.log2(tl.maximum(limit, 1e-30))))


@triton.jit(do_not_specialize=_NUMBERS)
def mix_back_kernel(  # type: ignore[no-untyped-def]
    own, near, grad_out, b_self, b_near, a_self, a_near, own_grad, near_grad, scales, parts,
    n, rows, targets, start, first_part, slope,
    PART: tl.constexpr, HEADS: tl.constexpr, FANOUT: tl.constexpr, HALF: tl.constexpr,
    BM: tl.constexpr, HP: tl.constexpr, PP: tl.constexpr,
):  # fmt: skip
    """The gradients of all projections, of targets and of neighbours; for the other parameters, the sums of

    the gradient, the neighbours' logits' gradients times their projections, the targets' too, and these alone:
    `parts [programs, 3 C + H]`. Half precision needs a scale, one for each block of targets and group of heads.
    """
    group = tl.program_id(1)
    i, channel, real = _pairs(group, HEADS, PART, BM, HP, PP)
    attend = tl.load(a_near + channel, mask=real, other=0.0)
    attend_own = tl.load(a_self + channel, mask=real, other=0.0)
    bias_own, bias = tl.load(b_self + channel, mask=real, other=0.0), tl.load(b_near + channel, mask=real, other=0.0)
    bias_logit = tl.sum(bias_own * attend_own + bias * attend, axis=1)
    steepest = tl.max(tl.maximum(tl.abs(attend), tl.abs(attend_own)), axis=1)
    sum_grad = tl.zeros([BM * HP, PP], dtype=tl.float32)
    sum_near = tl.zeros([BM * HP, PP], dtype=tl.float32)
    sum_own = tl.zeros([BM * HP, PP], dtype=tl.float32)
    sum_logit = tl.zeros([BM * HP], dtype=tl.float32)
    for block in range(tl.program_id(0), tl.cdiv(rows, BM), tl.num_programs(0)):
        r = block * BM + i
        there = (r < rows)[:, None] & real
        _step, target = _position(r, n, targets, start)
        grad = tl.load(grad_out + _entries(target, HEADS * PART, channel), mask=there, other=0.0)
        own_place = _entries(r, HEADS * PART, channel)
        own_value = tl.load(own + own_place, mask=there, other=0.0).to(tl.float32)
        own_logit = bias_logit + tl.sum(own_value * attend_own, axis=1)
        top = tl.full([BM * HP], float("-inf"), dtype=tl.float32)
        total = tl.zeros([BM * HP], dtype=tl.float32)
        mean = tl.zeros([BM * HP], dtype=tl.float32)
        largest = tl.zeros([BM * HP], dtype=tl.float32)
        for s in range(FANOUT):
            place = near + _entries(r * FANOUT + s, HEADS * PART, channel)
            value = tl.load(place, mask=there, other=0.0).to(tl.float32)
            logit = _leaky(own_logit + tl.sum(value * attend, axis=1), slope)
            # What the loss gains by this neighbour's weight, and what it gains by all of them.
            gain = tl.sum(value * grad, axis=1)
            higher = tl.maximum(top, logit)
            shrink, weight = tl.exp(top - higher), tl.exp(logit - higher)
            mean = mean * shrink + gain * weight
            total = total * shrink + weight
            top = higher
            largest = tl.maximum(largest, tl.abs(gain))
        mean = mean / total
        norm = top + tl.log(total)
        scale = 1.0
        if HALF:
            # No logit's gradient is more than twice the largest gain.
            scale = _scale(tl.max(tl.max(tl.abs(grad), axis=1) + 2 * largest * steepest, axis=0))
            tl.store(scales + block * tl.num_programs(1) + group, 1.0 / scale)
        own_change = tl.zeros([BM * HP], dtype=tl.float32)
        for s in range(FANOUT):
            place = _entries(r * FANOUT + s, HEADS * PART, channel)
            value = tl.load(near + place, mask=there, other=0.0).to(tl.float32)
            logit = own_logit + tl.sum(value * attend, axis=1)
            weight = tl.exp(_leaky(logit, slope) - norm)
            change = weight * (tl.sum(value * grad, axis=1) - mean)
            change = tl.where(logit > 0, change, slope * change)
            own_change += change
            sum_near += change[:, None] * value
            near_value = (weight * scale)[:, None] * grad + (change * scale)[:, None] * attend
            tl.store(near_grad + place, near_value, mask=there)
        own_total = grad * scale + (own_change * scale)[:, None] * attend_own
        tl.store(own_grad + own_place, own_total, mask=there)
        sum_grad += grad
        sum_own += own_change[:, None] * own_value
        sum_logit += own_change
    part = parts + (first_part + tl.program_id(0)).to(tl.int64) * (3 * HEADS * PART + HEADS)
    head, k = group * HP + tl.arange(0, HP), tl.arange(0, PP)
    place = part + head[:, None] * PART + k[None, :]
    real = (head < HEADS)[:, None] & (k < PART)[None, :]
    tl.store(place, tl.sum(tl.reshape(sum_grad, [BM, HP, PP]), axis=0), mask=real)
    tl.store(place + HEADS * PART, tl.sum(tl.reshape(sum_near, [BM, HP, PP]), axis=0), mask=real)
    tl.store(place + 2 * HEADS * PART, tl.sum(tl.reshape(sum_own, [BM, HP, PP]), axis=0), mask=real)
    tl.store(part + 3 * HEADS * PART + head, tl.sum(tl.reshape(sum_logit, [BM, HP]), axis=0), mask=head < HEADS)


@triton.jit
def finish_kernel(  # type: ignore[no-untyped-def]
    sums, b_self, b_near, a_self, a_near, grad_b_self, grad_b_near, grad_a_self, grad_a_near,
    PART: tl.constexpr, HEADS: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """The gradients of the biases and of the attention vectors from the sums over all targets.

    A logit is a · (W x + b) of the target plus that of the neighbour. The weights of a neighbourhood add up to one, and
    its logits' gradients to that of the target's share: two of the sums serve both projections.
    """
    c = tl.program_id(0) * BC + tl.arange(0, BC)
    mask = c < HEADS * PART
    grad = tl.load(sums + c, mask=mask)
    near, own = tl.load(sums + HEADS * PART + c, mask=mask), tl.load(sums + 2 * HEADS * PART + c, mask=mask)
    logit = tl.load(sums + 3 * HEADS * PART + c // PART, mask=mask)
    tl.store(grad_b_self + c, grad + logit * tl.load(a_self + c, mask=mask), mask=mask)
    tl.store(grad_b_near + c, grad + logit * tl.load(a_near + c, mask=mask), mask=mask)
    tl.store(grad_a_self + c, own + logit * tl.load(b_self + c, mask=mask), mask=mask)
    tl.store(grad_a_near + c, near + logit * tl.load(b_near + c, mask=mask), mask=mask)


@triton.jit
def _scale_of(scales, block, rows, per_scale, group, HALF: tl.constexpr, BM: tl.constexpr):  # type: ignore[no-untyped-def]
    """What a block of gradients is to be multiplied by, if there is such a block."""
    result = 1.0
    if HALF:
        place = scales + (block // per_scale) * tl.num_programs(1) + group
        result = tl.load(place, mask=block < tl.cdiv(rows, BM), other=0.0)
    return result


@triton.jit(do_not_specialize=_NUMBERS)
def weights_kernel(  # type: ignore[no-untyped-def]
    x, nodes, blocks, grad, scales, parts, n, rows, columns, start, count, per_scale, adds,
    WIDTH: tl.constexpr, PART: tl.constexpr, HEADS: tl.constexpr, GATHER: tl.constexpr,
    HALF: tl.constexpr, BM: tl.constexpr, BD: tl.constexpr, HP: tl.constexpr, PP: tl.constexpr,
):  # fmt: skip
    """`parts [programs, C, D]`: the projections' gradients ⊗ the rows, summed over the blocks `program_id(0)`, + the
    number of programs, … of rows, and to what is there if `adds`; `per_scale` blocks have one scale."""
    group = tl.program_id(1)
    channel, real = _flat(group, HEADS, PART, HP, PP)
    d = tl.program_id(2) * BD + tl.arange(0, BD)
    part = parts + tl.program_id(0).to(tl.int64) * (HEADS * PART * WIDTH) + channel[:, None] * WIDTH + d[None, :]
    wanted = real[:, None] & (d < WIDTH)[None, :]
    total = tl.zeros([HP * PP, BD], dtype=tl.float32)
    # Read a block ahead.
    scale = _scale_of(scales, tl.program_id(0), rows, per_scale, group, HALF, BM)
    for block in range(tl.program_id(0), tl.cdiv(rows, BM), tl.num_programs(0)):
        r = block * BM + tl.arange(0, BM)
        inside = r < rows
        row = _source(r, inside, nodes, blocks, n, columns, start, count, GATHER)
        values = tl.load(x + _at(row, WIDTH, d), mask=inside[:, None] & (d < WIDTH)[None, :], other=0.0)
        place = grad + _at(r, HEADS * PART, channel)
        left = tl.trans(tl.load(place, mask=inside[:, None] & real[None, :], other=0.0))
        following = _scale_of(scales, block + tl.num_programs(0), rows, per_scale, group, HALF, BM)
        total += _dot(left, _factor(values, HALF), tl.zeros([HP * PP, BD], dtype=tl.float32), HALF) * scale
        scale = following
    if adds > 0:
        total += tl.load(part, mask=wanted, other=0.0)
    tl.store(part, total, mask=wanted)


@triton.jit(do_not_specialize=_NUMBERS)
def inputs_kernel(  # type: ignore[no-untyped-def]
    weight, grad, scales, grad_x, n, rows, columns, start, per_scale, adds,
    WIDTH: tl.constexpr, PART: tl.constexpr, HEADS: tl.constexpr, HALF: tl.constexpr, GROUPS: tl.constexpr,
    BM: tl.constexpr, BD: tl.constexpr, HP: tl.constexpr, PP: tl.constexpr,
):  # fmt: skip
    """The gradients of the rows themselves: one writer each. `per_scale` rows have one scale."""
    d = tl.program_id(1) * BD + tl.arange(0, BD)
    r = tl.program_id(0) * BM + tl.arange(0, BM)
    inside = r < rows
    total = tl.zeros([BM, BD], dtype=tl.float32)
    for group in range(GROUPS):
        channel, real = _flat(group, HEADS, PART, HP, PP)
        left = tl.load(grad + _at(r, HEADS * PART, channel), mask=inside[:, None] & real[None, :], other=0.0)
        place = weight + channel[:, None] * WIDTH + d[None, :]
        w = _factor(tl.load(place, mask=real[:, None] & (d < WIDTH)[None, :], other=0.0), HALF)
        if HALF:
            scale = tl.load(scales + r // per_scale * GROUPS + group, mask=inside, other=0.0)
            total += tl.dot(left, w) * scale[:, None]
        else:
            total = _dot(left, w, total, HALF)
    _step, position = _position(r, n, columns, start)
    place = grad_x + _at(position, WIDTH, d)
    wanted = inside[:, None] & (d < WIDTH)[None, :]
    if adds > 0:
        total += tl.load(place, mask=wanted, other=0.0)
    tl.store(place, total, mask=wanted)
