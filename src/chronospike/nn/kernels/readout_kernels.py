"""The Triton kernels from the spikes of all steps to logits and embeddings; `readout.py` launches them.

In order: `fold_kernel` makes the last step's query of every head and folds it into the key projection, `pool_kernel`
weighs and pools the steps, `read_kernel` does the rest of the Transformer layer, the readout and the classifier. Each
has its way back. All follow blocks of nodes but the pooling, where a program follows one node: its rows of all steps
fit the registers. Only what goes from one kernel to the next is kept for the way back; the rest is computed again.

Dropout is a number and not part of what is compiled: without it the same kernels drop nothing.

Channels, places in the feedforward layer, channels of a head, classes and steps are padded to powers of two, with
zeros. The numbers of steps and of classes are not part of what is compiled either.
"""

from __future__ import annotations

import triton
import triton.language as tl

from chronospike.nn.kernels.lif import kept
from chronospike.triton_common import product

# Not specialised: see `chronospike.triton_common`.
_NUMBERS = ["nodes", "steps", "classes", "programs", "size", "drop"]


@triton.jit
def _tile(pointer, row, column, ROWS, COLUMNS):  # type: ignore[no-untyped-def]
    """A `[ROWS, COLUMNS]` matrix at the given rows and columns, zero outside. Sizes may be known only at run time."""
    mask = (row < ROWS)[:, None] & (column < COLUMNS)[None, :]
    return tl.load(pointer + row[:, None] * COLUMNS + column[None, :], mask=mask, other=0.0)


@triton.jit
def _line(pointer, column, COLUMNS):  # type: ignore[no-untyped-def]
    return tl.load(pointer + column, mask=column < COLUMNS, other=0.0)


@triton.jit
def _linear(x, weight, bias, i, o, IN, OUT, HALF: tl.constexpr):  # type: ignore[no-untyped-def]
    """x Wᵀ + b for a weight `[OUT, IN]`."""
    return product(x, tl.trans(_tile(weight, o, i, OUT, IN)), HALF) + _line(bias, o, OUT)[None, :]


@triton.jit
def _rows(pointer, row, inside, column, COLUMNS):  # type: ignore[no-untyped-def]
    """The given rows of a tensor `[B, COLUMNS]`."""
    mask = inside[:, None] & (column < COLUMNS)[None, :]
    return tl.load(pointer + row.to(tl.int64)[:, None] * COLUMNS + column[None, :], mask=mask, other=0.0)


@triton.jit
def _store_rows(pointer, value, row, inside, column, COLUMNS):  # type: ignore[no-untyped-def]
    mask = inside[:, None] & (column < COLUMNS)[None, :]
    tl.store(pointer + row.to(tl.int64)[:, None] * COLUMNS + column[None, :], value, mask=mask)


@triton.jit
def _last(spikes, positions, row, inside, c, nodes, steps, CHANNELS: tl.constexpr):  # type: ignore[no-untyped-def]
    """`[rows, C]`: the last step with its position."""
    # Zero and more: the product of two 32-bit numbers may be larger than 32 bits.
    start = (row * 0).to(tl.int64) + (steps - 1)
    value = _rows(spikes, start * nodes + row, inside, c, CHANNELS)
    return value + _line(positions + (steps - 1) * CHANNELS, c, CHANNELS)[None, :]


@triton.jit
def _add(pointer, value, mask, done):  # type: ignore[no-untyped-def]
    """Add to this program's own sums, which hold nothing yet if nothing is `done`."""
    earlier = tl.load(pointer, mask=mask.to(tl.int32) * done > 0, other=0.0)
    tl.store(pointer, value + earlier, mask=mask)


@triton.jit
def _add_product(pointer, left, right, i, j, ROWS, COLUMNS, HALF: tl.constexpr, done):  # type: ignore[no-untyped-def]
    """Add leftᵀ right, the gradient of a weight `[ROWS, COLUMNS]`."""
    mask = (i < ROWS)[:, None] & (j < COLUMNS)[None, :]
    _add(pointer + i[:, None] * COLUMNS + j[None, :], product(tl.trans(left), right, HALF), mask, done)


@triton.jit
def _add_line(pointer, value, j, COLUMNS, done):  # type: ignore[no-untyped-def]
    """Add the sum over the rows, the gradient of a bias."""
    _add(pointer + j, tl.sum(value, axis=0), j < COLUMNS, done)


@triton.jit(do_not_specialize=_NUMBERS)
def fold_kernel(  # type: ignore[no-untyped-def]
    spikes, positions, in_weight, in_bias, queries, nodes, steps, rate,
    CHANNELS: tl.constexpr, HEADS: tl.constexpr, HALF: tl.constexpr, BM: tl.constexpr, BC: tl.constexpr,
    BH: tl.constexpr,
):  # fmt: skip
    """q · W_k x = (W_kᵀ q) · x: the queries `[B, H, C]` that read the rows themselves."""
    part: tl.constexpr = CHANNELS // HEADS
    row = tl.program_id(0) * BM + tl.arange(0, BM)
    inside = row < nodes
    c, k = tl.arange(0, BC), tl.arange(0, BH)
    last = _last(spikes, positions, row, inside, c, nodes, steps, CHANNELS)
    for head in range(HEADS):
        query = _linear(last, in_weight + head * part * CHANNELS, in_bias + head * part, c, k, CHANNELS, part, HALF)
        key = _tile(in_weight + (CHANNELS + head * part) * CHANNELS, k, c, part, CHANNELS)
        _store_rows(queries + head * CHANNELS, product(query * rate, key, HALF), row * HEADS, inside, c, CHANNELS)


@triton.jit(do_not_specialize=_NUMBERS)
def fold_back_kernel(  # type: ignore[no-untyped-def]
    spikes, positions, in_weight, in_bias, grad_queries, grad_last, grad_rows, parts,
    nodes, steps, programs, rate, size,
    CHANNELS: tl.constexpr, HEADS: tl.constexpr, HALF: tl.constexpr, BM: tl.constexpr, BC: tl.constexpr,
    BH: tl.constexpr,
):  # fmt: skip
    """Adds to the last step of `grad_rows [T, B, C]` what the queries and, in `grad_last`, the rest of the layer made
    of it, and writes the gradients of W_q, b_q and W_k of each program's nodes to `parts`."""
    part: tl.constexpr = CHANNELS // HEADS
    c, k = tl.arange(0, BC), tl.arange(0, BH)
    grad_weight = parts + tl.program_id(0).to(tl.int64) * size
    grad_bias = grad_weight + 3 * CHANNELS * CHANNELS
    for block in range(tl.program_id(0), tl.cdiv(nodes, BM), programs):
        done = block - tl.program_id(0)
        row = block * BM + tl.arange(0, BM)
        inside = row < nodes
        last = _last(spikes, positions, row, inside, c, nodes, steps, CHANNELS)
        grad = _rows(grad_last, row, inside, c, CHANNELS)
        for head in range(HEADS):
            own = in_weight + head * part * CHANNELS
            query = _linear(last, own, in_bias + head * part, c, k, CHANNELS, part, HALF) * rate
            key = _tile(in_weight + (CHANNELS + head * part) * CHANNELS, k, c, part, CHANNELS)
            grad_folded = _rows(grad_queries + head * CHANNELS, row * HEADS, inside, c, CHANNELS)
            grad_query = product(grad_folded, tl.trans(key), HALF) * rate
            place = grad_weight + (CHANNELS + head * part) * CHANNELS
            _add_product(place, query, grad_folded, k, c, part, CHANNELS, HALF, done)
            _add_product(grad_weight + head * part * CHANNELS, grad_query, last, k, c, part, CHANNELS, HALF, done)
            _add_line(grad_bias + head * part, grad_query, k, part, done)
            grad += product(grad_query, _tile(own, k, c, part, CHANNELS), HALF)
        start = (row * 0).to(tl.int64) + (steps - 1)
        earlier = _rows(grad_rows, start * nodes + row, inside, c, CHANNELS)
        _store_rows(grad_rows, earlier + grad, start * nodes + row, inside, c, CHANNELS)
    # The key's bias adds the same to every step's logit, and the softmax does not see it.
    tl.store(grad_bias + CHANNELS + c, tl.zeros([BC], dtype=tl.float32), mask=c < CHANNELS)


@triton.jit
def _steps(spikes, positions, node, nodes, steps, t, c, CHANNELS: tl.constexpr):  # type: ignore[no-untyped-def]
    """`[T, C]`: the node's spikes with the positions added."""
    mask = (t < steps)[:, None] & (c < CHANNELS)[None, :]
    place = (t.to(tl.int64) * nodes + node)[:, None] * CHANNELS + c[None, :]
    value = tl.load(spikes + place, mask=mask, other=0.0)
    return value + tl.load(positions + t[:, None] * CHANNELS + c[None, :], mask=mask, other=0.0), place, mask


@triton.jit
def _weights(x, f, t, steps):  # type: ignore[no-untyped-def]
    """`[T]`: the softmax over the steps of x · f."""
    logit = tl.where(t < steps, tl.sum(x * f[None, :], axis=1), float("-inf"))
    value = tl.exp(logit - tl.max(logit, axis=0))
    return value / tl.sum(value, axis=0)


@triton.jit
def _factor(key, drop, scale, t, node, nodes, head, HEADS: tl.constexpr):  # type: ignore[no-untyped-def]
    """`[T]`: what dropout multiplies the weights by; they are laid out `[T, B, H]`."""
    element = (t.to(tl.int64) * nodes + node) * HEADS + head
    return tl.where(kept(tl.load(key).to(tl.uint64), element, drop), scale, 0.0)


@triton.jit(do_not_specialize=_NUMBERS)
def pool_kernel(  # type: ignore[no-untyped-def]
    spikes, positions, queries, pooled, totals, key, drop, scale, nodes, steps,
    CHANNELS: tl.constexpr, HEADS: tl.constexpr, BT: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """The rows weighed by their softmax and added up `[B, H, C]`, and the sums of the weights `[B, H]`."""
    node = tl.program_id(0)
    t, c = tl.arange(0, BT), tl.arange(0, BC)
    x, _place, _mask = _steps(spikes, positions, node, nodes, steps, t, c, CHANNELS)
    for head in range(HEADS):
        place = (node * HEADS + head) * CHANNELS + c
        f = tl.load(queries + place, mask=c < CHANNELS, other=0.0)
        weight = _weights(x, f, t, steps) * _factor(key, drop, scale, t, node, nodes, head, HEADS)
        tl.store(pooled + place, tl.sum(weight[:, None] * x, axis=0), mask=c < CHANNELS)
        tl.store(totals + node * HEADS + head, tl.sum(weight, axis=0))


@triton.jit(do_not_specialize=_NUMBERS)
def pool_back_kernel(  # type: ignore[no-untyped-def]
    spikes, positions, queries, grad_pooled, grad_totals, grad_rows, grad_queries, key, drop, scale, nodes, steps,
    CHANNELS: tl.constexpr, HEADS: tl.constexpr, BT: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    node = tl.program_id(0)
    t, c = tl.arange(0, BT), tl.arange(0, BC)
    x, rows, mask = _steps(spikes, positions, node, nodes, steps, t, c, CHANNELS)
    grad_x = tl.zeros([BT, BC], dtype=tl.float32)
    for head in range(HEADS):
        place = (node * HEADS + head) * CHANNELS + c
        f = tl.load(queries + place, mask=c < CHANNELS, other=0.0)
        grad_pool = tl.load(grad_pooled + place, mask=c < CHANNELS, other=0.0)
        weight = _weights(x, f, t, steps)
        factor = _factor(key, drop, scale, t, node, nodes, head, HEADS)
        grad_weight = (tl.sum(x * grad_pool[None, :], axis=1) + tl.load(grad_totals + node * HEADS + head)) * factor
        grad_logit = weight * (grad_weight - tl.sum(weight * grad_weight, axis=0))
        grad_x += (weight * factor)[:, None] * grad_pool[None, :] + grad_logit[:, None] * f[None, :]
        tl.store(grad_queries + place, tl.sum(grad_logit[:, None] * x, axis=0), mask=c < CHANNELS)
    tl.store(grad_rows + rows, grad_x, mask=mask)


@triton.jit
def _normalise(x, gamma, beta, c, eps, CHANNELS: tl.constexpr):  # type: ignore[no-untyped-def]
    """Layer norm: the result, what gamma multiplies, and one over the deviation."""
    mean = tl.sum(x, axis=1) / CHANNELS
    centred = tl.where((c < CHANNELS)[None, :], x - mean[:, None], 0.0)
    rate = 1.0 / tl.sqrt(tl.sum(centred * centred, axis=1) / CHANNELS + eps)
    unit = centred * rate[:, None]
    return unit * _line(gamma, c, CHANNELS)[None, :] + _line(beta, c, CHANNELS)[None, :], unit, rate


@triton.jit
def _normalise_back(grad, unit, rate, gamma, c, CHANNELS: tl.constexpr):  # type: ignore[no-untyped-def]
    grad_unit = grad * _line(gamma, c, CHANNELS)[None, :]
    mean = tl.sum(grad_unit, axis=1) / CHANNELS
    radial = tl.sum(grad_unit * unit, axis=1) / CHANNELS
    return tl.where((c < CHANNELS)[None, :], rate[:, None] * (grad_unit - mean[:, None] - unit * radial[:, None]), 0.0)


@triton.jit
def _mask(key, row, column, drop, scale, COLUMNS: tl.constexpr):  # type: ignore[no-untyped-def]
    """`[rows, COLUMNS]`: what dropout multiplies by."""
    element = row.to(tl.int64)[:, None] * COLUMNS + column[None, :]
    return tl.where(kept(tl.load(key).to(tl.uint64), element, drop), scale, 0.0)


@triton.jit
def _tanh(x):  # type: ignore[no-untyped-def]
    return 1.0 - 2.0 / (tl.exp(2.0 * x) + 1.0)


@triton.jit
def _mixed(  # type: ignore[no-untyped-def]
    pooled, totals, in_weight, in_bias, head, row, inside, c, k,
    CHANNELS: tl.constexpr, HEADS: tl.constexpr, HALF: tl.constexpr,
):  # fmt: skip
    """A head's values `[rows, C / H]`, weighed; its pooled rows; the sum of its weights."""
    part: tl.constexpr = CHANNELS // HEADS
    x = _rows(pooled + head * CHANNELS, row * HEADS, inside, c, CHANNELS)
    total = tl.load(totals + row * HEADS + head, mask=inside, other=0.0)
    weight = _tile(in_weight + (2 * CHANNELS + head * part) * CHANNELS, k, c, part, CHANNELS)
    bias = _line(in_bias + 2 * CHANNELS + head * part, k, part)
    # Dropout leaves weights that no longer add up to one, so the bias is weighed too.
    return product(x, tl.trans(weight), HALF) + total[:, None] * bias[None, :], x, total, weight, bias


@triton.jit
def _head_columns(pointer, c, k, head, CHANNELS: tl.constexpr, HEADS: tl.constexpr):  # type: ignore[no-untyped-def]
    """`[C, C / H]`: a head's columns of a `[C, C]` matrix, and where they are."""
    part: tl.constexpr = CHANNELS // HEADS
    place = pointer + c[:, None] * CHANNELS + (head * part + k)[None, :]
    mask = (c < CHANNELS)[:, None] & (k < part)[None, :]
    return tl.load(place, mask=mask, other=0.0)


@triton.jit
def _through(  # type: ignore[no-untyped-def]
    spikes, positions, pooled, totals, in_weight, in_bias, out_weight, out_bias, gamma_1, beta_1, expand_weight,
    expand_bias, contract_weight, contract_bias, gamma_2, beta_2, first_weight, first_bias, second_weight, second_bias,
    keys, drop, scale, nodes, steps, eps, row, inside, c, f, k,
    CHANNELS: tl.constexpr, HEADS: tl.constexpr, WIDE: tl.constexpr, HALF: tl.constexpr,
):  # fmt: skip
    """The layer and the readout, with all that the way back needs."""
    attended = tl.zeros([row.shape[0], c.shape[0]], dtype=tl.float32) + _line(out_bias, c, CHANNELS)[None, :]
    for head in range(HEADS):
        mixed, _x, _total, _weight, _bias = _mixed(
            pooled, totals, in_weight, in_bias, head, row, inside, c, k, CHANNELS, HEADS, HALF
        )
        attended += product(mixed, tl.trans(_head_columns(out_weight, c, k, head, CHANNELS, HEADS)), HALF)
    mask_1 = _mask(keys + 1, row, c, drop, scale, CHANNELS)
    mask_2 = _mask(keys + 2, row, f, drop, scale, WIDE)
    mask_3 = _mask(keys + 3, row, c, drop, scale, CHANNELS)
    last = _last(spikes, positions, row, inside, c, nodes, steps, CHANNELS)
    y, unit_1, rate_1 = _normalise(last + attended * mask_1, gamma_1, beta_1, c, eps, CHANNELS)
    inner = tl.maximum(_linear(y, expand_weight, expand_bias, c, f, CHANNELS, WIDE, HALF), 0.0) * mask_2
    outer = _linear(inner, contract_weight, contract_bias, f, c, WIDE, CHANNELS, HALF) * mask_3
    o, unit_2, rate_2 = _normalise(y + outer, gamma_2, beta_2, c, eps, CHANNELS)
    hidden = _tanh(_linear(o, first_weight, first_bias, c, c, CHANNELS, CHANNELS, HALF))
    z = _linear(hidden, second_weight, second_bias, c, c, CHANNELS, CHANNELS, HALF)
    return mask_1, mask_2, mask_3, y, unit_1, rate_1, inner, o, unit_2, rate_2, hidden, z


@triton.jit(do_not_specialize=_NUMBERS)
def read_kernel(  # type: ignore[no-untyped-def]
    spikes, positions, pooled, totals, in_weight, in_bias, out_weight, out_bias, gamma_1, beta_1, expand_weight,
    expand_bias, contract_weight, contract_bias, gamma_2, beta_2, first_weight, first_bias, second_weight, second_bias,
    class_weight, class_bias, logits, embeddings, keys, drop, scale, nodes, steps, classes, eps,
    CHANNELS: tl.constexpr, HEADS: tl.constexpr, WIDE: tl.constexpr, HALF: tl.constexpr,
    BM: tl.constexpr, BC: tl.constexpr, BF: tl.constexpr, BH: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) * BM + tl.arange(0, BM)
    inside = row < nodes
    c, f, k, j = tl.arange(0, BC), tl.arange(0, BF), tl.arange(0, BH), tl.arange(0, BK)
    _m1, _m2, _m3, _y, _u1, _r1, _inner, _o, _u2, _r2, _hidden, z = _through(
        spikes, positions, pooled, totals, in_weight, in_bias, out_weight, out_bias, gamma_1, beta_1, expand_weight,
        expand_bias, contract_weight, contract_bias, gamma_2, beta_2, first_weight, first_bias, second_weight,
        second_bias, keys, drop, scale, nodes, steps, eps, row, inside, c, f, k, CHANNELS, HEADS, WIDE, HALF,
    )  # fmt: skip
    _store_rows(embeddings, z, row, inside, c, CHANNELS)
    value = _linear(z, class_weight, class_bias, c, j, CHANNELS, classes, HALF)
    _store_rows(logits, value, row, inside, j, classes)


@triton.jit(do_not_specialize=_NUMBERS)
def read_back_kernel(  # type: ignore[no-untyped-def]
    spikes, positions, pooled, totals, in_weight, in_bias, out_weight, out_bias, gamma_1, beta_1, expand_weight,
    expand_bias, contract_weight, contract_bias, gamma_2, beta_2, first_weight, first_bias, second_weight, second_bias,
    class_weight, class_bias, grad_logits, grad_embeddings, grad_pooled, grad_totals, grad_last, parts,
    keys, drop, scale, nodes, steps, classes, programs, eps, size,
    CHANNELS: tl.constexpr, HEADS: tl.constexpr, WIDE: tl.constexpr, HALF: tl.constexpr,
    BM: tl.constexpr, BC: tl.constexpr, BF: tl.constexpr, BH: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """Gradients of the pooled rows, of the sums of their weights and of the last step; those of the layers' weights,
    summed over each program's nodes, go to `parts` in the order of the arguments."""
    part: tl.constexpr = CHANNELS // HEADS
    c, f, k, j = tl.arange(0, BC), tl.arange(0, BF), tl.arange(0, BH), tl.arange(0, BK)
    grad_in = parts + tl.program_id(0).to(tl.int64) * size
    grad_in_bias = grad_in + 3 * CHANNELS * CHANNELS
    grad_out = grad_in_bias + 3 * CHANNELS
    grad_out_bias = grad_out + CHANNELS * CHANNELS
    grad_gamma_1 = grad_out_bias + CHANNELS
    grad_beta_1 = grad_gamma_1 + CHANNELS
    grad_expand = grad_beta_1 + CHANNELS
    grad_expand_bias = grad_expand + WIDE * CHANNELS
    grad_contract = grad_expand_bias + WIDE
    grad_contract_bias = grad_contract + CHANNELS * WIDE
    grad_gamma_2 = grad_contract_bias + CHANNELS
    grad_beta_2 = grad_gamma_2 + CHANNELS
    grad_first = grad_beta_2 + CHANNELS
    grad_first_bias = grad_first + CHANNELS * CHANNELS
    grad_second = grad_first_bias + CHANNELS
    grad_second_bias = grad_second + CHANNELS * CHANNELS
    grad_class = grad_second_bias + CHANNELS
    grad_class_bias = grad_class + classes * CHANNELS
    for block in range(tl.program_id(0), tl.cdiv(nodes, BM), programs):
        done = block - tl.program_id(0)
        row = block * BM + tl.arange(0, BM)
        inside = row < nodes
        mask_1, mask_2, mask_3, y, unit_1, rate_1, inner, o, unit_2, rate_2, hidden, z = _through(
            spikes, positions, pooled, totals, in_weight, in_bias, out_weight, out_bias, gamma_1, beta_1, expand_weight,
            expand_bias, contract_weight, contract_bias, gamma_2, beta_2, first_weight, first_bias, second_weight,
            second_bias, keys, drop, scale, nodes, steps, eps, row, inside, c, f, k, CHANNELS, HEADS, WIDE, HALF,
        )  # fmt: skip
        # The classifier and the readout.
        grad = _rows(grad_logits, row, inside, j, classes)
        _add_product(grad_class, grad, z, j, c, classes, CHANNELS, HALF, done)
        _add_line(grad_class_bias, grad, j, classes, done)
        grad = product(grad, _tile(class_weight, j, c, classes, CHANNELS), HALF)
        grad += _rows(grad_embeddings, row, inside, c, CHANNELS)
        _add_product(grad_second, grad, hidden, c, c, CHANNELS, CHANNELS, HALF, done)
        _add_line(grad_second_bias, grad, c, CHANNELS, done)
        grad = product(grad, _tile(second_weight, c, c, CHANNELS, CHANNELS), HALF) * (1.0 - hidden * hidden)
        _add_product(grad_first, grad, o, c, c, CHANNELS, CHANNELS, HALF, done)
        _add_line(grad_first_bias, grad, c, CHANNELS, done)
        grad = product(grad, _tile(first_weight, c, c, CHANNELS, CHANNELS), HALF)
        # The feedforward half of the layer.
        _add_line(grad_gamma_2, grad * unit_2, c, CHANNELS, done)
        _add_line(grad_beta_2, grad, c, CHANNELS, done)
        grad = _normalise_back(grad, unit_2, rate_2, gamma_2, c, CHANNELS)
        outer = grad * mask_3
        _add_product(grad_contract, outer, inner, c, f, CHANNELS, WIDE, HALF, done)
        _add_line(grad_contract_bias, outer, c, CHANNELS, done)
        within = product(outer, _tile(contract_weight, c, f, CHANNELS, WIDE), HALF)
        within = tl.where(inner > 0, within * mask_2, 0.0)
        _add_product(grad_expand, within, y, f, c, WIDE, CHANNELS, HALF, done)
        _add_line(grad_expand_bias, within, f, WIDE, done)
        grad += product(within, _tile(expand_weight, f, c, WIDE, CHANNELS), HALF)
        # The attentive half.
        _add_line(grad_gamma_1, grad * unit_1, c, CHANNELS, done)
        _add_line(grad_beta_1, grad, c, CHANNELS, done)
        grad = _normalise_back(grad, unit_1, rate_1, gamma_1, c, CHANNELS)
        _store_rows(grad_last, grad, row, inside, c, CHANNELS)
        grad *= mask_1
        _add_line(grad_out_bias, grad, c, CHANNELS, done)
        for head in range(HEADS):
            mixed, x, total, weight, bias = _mixed(
                pooled, totals, in_weight, in_bias, head, row, inside, c, k, CHANNELS, HEADS, HALF
            )
            columns = grad_out + c[:, None] * CHANNELS + (head * part + k)[None, :]
            _add(columns, product(tl.trans(grad), mixed, HALF), (c < CHANNELS)[:, None] & (k < part)[None, :], done)
            grad_mixed = product(grad, _head_columns(out_weight, c, k, head, CHANNELS, HEADS), HALF)
            place = grad_in + (2 * CHANNELS + head * part) * CHANNELS
            _add_product(place, grad_mixed, x, k, c, part, CHANNELS, HALF, done)
            _add_line(grad_in_bias + 2 * CHANNELS + head * part, grad_mixed * total[:, None], k, part, done)
            _store_rows(
                grad_pooled + head * CHANNELS, product(grad_mixed, weight, HALF), row * HEADS, inside, c, CHANNELS
            )
            grad_total = tl.sum(grad_mixed * bias[None, :], axis=1)
            tl.store(grad_totals + row * HEADS + head, grad_total, mask=inside)
