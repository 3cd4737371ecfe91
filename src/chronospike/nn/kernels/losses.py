"""The training objective on a GPU: cross-entropy and InfoNCE in three kernels, their gradients in one for both views.

The meaning is that of `chronospike.nn.losses`. The similarities of all pairs are never written to memory: each program
follows a block of rows and goes through the others, and on the way back computes them again.

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
from chronospike.nn.kernels.lif import kept
from chronospike.nn.losses import Objective
from chronospike.triton_common import add_up, on, padded, product, single, trial_error

# Not specialised: see `chronospike.triton_common`.
_NUMBERS = ["nodes", "count", "drop", "classes"]
# Rows of a program, and rows it compares them with at a time.
_ROWS, _OTHERS = 16, 128
# Wider ones do not fit the registers of a program, up to the next power of two.
_WIDEST = 256


@triton.jit
def _mask(key, row, c, view, nodes, drop, scale, CHANNELS: tl.constexpr, DROPOUT: tl.constexpr):  # type: ignore[no-untyped-def]
    """What dropout multiplies a view by; the views are laid out `[2, B, C]`."""
    element = (row + view * nodes).to(tl.int64)[:, None] * CHANNELS + c[None, :]
    if DROPOUT:
        return tl.where(kept(tl.load(key).to(tl.uint64), element, drop), scale, 0.0)
    return element * 0.0 + 1.0


@triton.jit
def _view(views, row, c, view, nodes, CHANNELS: tl.constexpr):  # type: ignore[no-untyped-def]
    mask = (row < nodes)[:, None] & (c < CHANNELS)[None, :]
    place = (row + view * nodes).to(tl.int64)[:, None] * CHANNELS + c[None, :]
    return tl.load(views + place, mask=mask, other=0.0)


@triton.jit(do_not_specialize=_NUMBERS)
def _views_kernel(  # type: ignore[no-untyped-def]
    z, views, norms, key, drop, scale, nodes,
    CHANNELS: tl.constexpr, DROPOUT: tl.constexpr, BM: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """Two dropout views of each row, of length one, and the lengths they had."""
    row, c, view = tl.program_id(0) * BM + tl.arange(0, BM), tl.arange(0, BC), tl.program_id(1)
    mask = (row < nodes)[:, None] & (c < CHANNELS)[None, :]
    value = tl.load(z + row.to(tl.int64)[:, None] * CHANNELS + c[None, :], mask=mask, other=0.0)
    value *= _mask(key, row, c, view, nodes, drop, scale, CHANNELS, DROPOUT)
    norm = tl.sqrt(tl.sum(value * value, axis=1))
    place = (row + view * nodes).to(tl.int64)
    tl.store(norms + place, norm, mask=row < nodes)
    tl.store(views + place[:, None] * CHANNELS + c[None, :], value / tl.maximum(norm, 1e-12)[:, None], mask=mask)


@triton.jit
def _similar(one, other, column, valid, nodes, rate, VALID: tl.constexpr, HALF: tl.constexpr):  # type: ignore[no-untyped-def]
    """Similarities of rows and others; -1e9 with others that do not count, minus infinity with those not there."""
    result = product(one, tl.trans(other), HALF) * rate
    there = column < nodes
    if VALID:
        counts = tl.load(valid + column, mask=there, other=1)
        result = tl.where((counts != 0)[None, :], result, -1e9)
    return tl.where(there[None, :], result, float("-inf"))


@triton.jit
def _counts(valid, row, nodes, VALID: tl.constexpr):  # type: ignore[no-untyped-def]
    """One for each row that counts, zero for the others."""
    result = (row < nodes).to(tl.float32)
    if VALID:
        result = tl.where(tl.load(valid + row, mask=row < nodes, other=0) != 0, result, 0.0)
    return result


@triton.jit
def _classes(logits, targets, class_weights, row, k, nodes, classes, WEIGHTED: tl.constexpr):  # type: ignore[no-untyped-def]
    """Log-probabilities, the class of each row as ones and zeros, the classes' weights, and which classes there are."""
    real = (k < classes)[None, :]
    there = (row < nodes)[:, None]
    value = tl.load(logits + row.to(tl.int64)[:, None] * classes + k[None, :], mask=there & real, other=0.0)
    value = tl.where(real, value, float("-inf"))
    value -= tl.max(value, axis=1)[:, None]
    value -= tl.log(tl.sum(tl.exp(value), axis=1))[:, None]
    target = tl.load(targets + row, mask=row < nodes, other=0)
    weight = (k < classes).to(tl.float32)
    if WEIGHTED:
        weight = tl.load(class_weights + k, mask=k < classes, other=0.0)
    return value, (k[None, :] == target[:, None]).to(tl.float32), weight, real


@triton.jit(do_not_specialize=_NUMBERS)
def _rows_kernel(  # type: ignore[no-untyped-def]
    logits, targets, class_weights, views, valid, normalisers, parts, nodes, classes, rate, smoothing,
    CHANNELS: tl.constexpr, WEIGHTED: tl.constexpr, VALID: tl.constexpr, PAIRS: tl.constexpr,
    HALF: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BC: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """Of a block of rows: the sums of both losses, of the weights and of the rows that count."""
    row, c, k = tl.program_id(0) * BM + tl.arange(0, BM), tl.arange(0, BC), tl.arange(0, BK)
    counts = _counts(valid, row, nodes, VALID)
    log_p, own_class, weight, real = _classes(logits, targets, class_weights, row, k, nodes, classes, WEIGHTED)
    own_weight = tl.sum(own_class * weight[None, :], axis=1) * counts
    one = tl.sum(tl.where(own_class > 0, log_p, 0.0), axis=1) * own_weight
    every = tl.sum(tl.where(real, log_p, 0.0) * weight[None, :], axis=1) * counts
    loss = -(1.0 - smoothing) * one - smoothing / classes * every
    contrast = tl.zeros([BM], dtype=tl.float32)
    if PAIRS:
        mine = _view(views, row, c, 0, nodes, CHANNELS)
        top = tl.full([BM], float("-inf"), dtype=tl.float32)
        total = tl.zeros([BM], dtype=tl.float32)
        for start in range(0, nodes, BN):
            column = start + tl.arange(0, BN)
            other = _view(views, column, c, 1, nodes, CHANNELS)
            value = _similar(mine, other, column, valid, nodes, rate, VALID, HALF)
            higher = tl.maximum(top, tl.max(value, axis=1))
            total = total * tl.exp(top - higher) + tl.sum(tl.exp(value - higher[:, None]), axis=1)
            top = higher
        normaliser = top + tl.log(total)
        tl.store(normalisers + row, normaliser, mask=row < nodes)
        own = tl.sum(mine * _view(views, row, c, 1, nodes, CHANNELS), axis=1) * rate
        contrast = (normaliser - own) * counts
    place = parts + tl.program_id(0) * 4
    tl.store(place, tl.sum(loss, axis=0))
    tl.store(place + 1, tl.sum(own_weight, axis=0))
    tl.store(place + 2, tl.sum(contrast, axis=0))
    tl.store(place + 3, tl.sum(counts, axis=0))


@triton.jit(do_not_specialize=_NUMBERS)
def _finish_kernel(parts, losses, sums, count, share, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """The three losses; the sums of weights and of rows are kept for the way back."""
    here = tl.arange(0, BLOCK)
    loss, weight = tl.zeros([BLOCK], dtype=tl.float32), tl.zeros([BLOCK], dtype=tl.float32)
    contrast, rows = tl.zeros([BLOCK], dtype=tl.float32), tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, count, BLOCK):
        place, inside = parts + (start + here) * 4, start + here < count
        loss += tl.load(place, mask=inside, other=0.0)
        weight += tl.load(place + 1, mask=inside, other=0.0)
        contrast += tl.load(place + 2, mask=inside, other=0.0)
        rows += tl.load(place + 3, mask=inside, other=0.0)
    sum_weight, sum_rows = tl.sum(weight, axis=0), tl.sum(rows, axis=0)
    first, second = tl.sum(loss, axis=0) / sum_weight, tl.sum(contrast, axis=0) / sum_rows
    tl.store(losses, first + share * second)
    tl.store(losses + 1, first)
    tl.store(losses + 2, second)
    tl.store(sums, sum_weight)
    tl.store(sums + 1, sum_rows)


@triton.jit
def _unit_back(grad, unit, norms, row, view, nodes):  # type: ignore[no-untyped-def]
    """Through the division by the length, which is 1e-12 at least."""
    norm = tl.load(norms + row + view * nodes, mask=row < nodes, other=1.0)
    radial = tl.where(norm > 1e-12, tl.sum(grad * unit, axis=1), 0.0)
    return (grad - unit * radial[:, None]) / tl.maximum(norm, 1e-12)[:, None]


@triton.jit(do_not_specialize=_NUMBERS)
def _back_kernel(  # type: ignore[no-untyped-def]
    logits, targets, class_weights, views, norms, valid, normalisers, sums, grads, grad_logits, grad_z,
    key, drop, scale, nodes, classes, rate, smoothing, share,
    CHANNELS: tl.constexpr, WEIGHTED: tl.constexpr, VALID: tl.constexpr, PAIRS: tl.constexpr,
    DROPOUT: tl.constexpr, HALF: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BC: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """The gradient of a block of logits, and of the embeddings by one of their two views."""
    view = tl.program_id(1)
    row, c, k = tl.program_id(0) * BM + tl.arange(0, BM), tl.arange(0, BC), tl.arange(0, BK)
    counts = _counts(valid, row, nodes, VALID)
    grad_total = tl.load(grads)
    if view == 0:
        log_p, own_class, weight, real = _classes(logits, targets, class_weights, row, k, nodes, classes, WEIGHTED)
        p = tl.where(real, tl.exp(log_p), 0.0)
        own_weight = tl.sum(own_class * weight[None, :], axis=1)
        grad = (1.0 - smoothing) * own_weight[:, None] * (p - own_class)
        grad += smoothing / classes * (p * tl.sum(weight, axis=0) - weight[None, :])
        grad *= (counts * (grad_total + tl.load(grads + 1)) / tl.load(sums))[:, None]
        place = grad_logits + row.to(tl.int64)[:, None] * classes + k[None, :]
        tl.store(place, grad, mask=(row < nodes)[:, None] & real)
    result = tl.zeros([BM, BC], dtype=tl.float32)
    if PAIRS:
        factor = (share * grad_total + tl.load(grads + 2)) / tl.load(sums + 1) * rate
        mine = _view(views, row, c, view, nodes, CHANNELS)
        normaliser = tl.load(normalisers + row, mask=row < nodes, other=0.0)
        # What each row gains by the others, or they by it; less what row and row gain by each other.
        gain = -_view(views, row, c, 1 - view, nodes, CHANNELS) * counts[:, None]
        for start in range(0, nodes, BN):
            column = start + tl.arange(0, BN)
            others = _view(views, column, c, 1 - view, nodes, CHANNELS)
            theirs = tl.load(normalisers + column, mask=column < nodes, other=0.0)
            # The share of a pair is that of the second view's row among all, for the first view's.
            value = product(mine, tl.trans(others), HALF) * rate
            value -= tl.where(view == 0, normaliser[:, None], theirs[None, :])
            both = (counts > 0)[:, None] & (_counts(valid, column, nodes, VALID) > 0)[None, :]
            gain += product(tl.where(both, tl.exp(value), 0.0), others, HALF)
        result = _unit_back(gain * factor, mine, norms, row, view, nodes)
        result *= _mask(key, row, c, view, nodes, drop, scale, CHANNELS, DROPOUT)
    place = grad_z + (view.to(tl.int64) * nodes + row)[:, None] * CHANNELS + c[None, :]
    tl.store(place, result, mask=(row < nodes)[:, None] & (c < CHANNELS)[None, :])


class TritonLosses(torch.autograd.Function):
    """Logits `[B, classes]` and embeddings `[B, C]` to the total, classification and contrastive loss `[3]`."""

    @staticmethod
    def forward(
        ctx: Any,
        o: Objective,
        half: bool,
        logits: Tensor,
        z: Tensor,
        targets: Tensor,
        class_weights: Tensor | None,
        valid: Tensor | None,
    ) -> Tensor:
        logits, z = logits.detach().contiguous(), z.detach().contiguous()
        nodes = len(z)
        pairs = o.contrastive > 0
        key = new_key(z.device) if pairs and o.view_dropout else targets
        views, norms = single(z, 2 * pairs, nodes, z.shape[1]), single(z, 2 * pairs, nodes)
        normalisers, losses, sums = single(z, nodes * pairs), single(z, 3), single(z, 2)
        programs = triton.cdiv(nodes, _ROWS)
        parts = single(z, programs, 4)
        # What is not there is never read.
        flags = targets if valid is None else valid.to(torch.int8)
        weights = logits if class_weights is None else class_weights.float()
        constants = {
            "CHANNELS": z.shape[1], "WEIGHTED": class_weights is not None, "VALID": valid is not None, "PAIRS": pairs,
            "HALF": half, "BM": _ROWS, "BN": _OTHERS, "BC": padded(z.shape[1]), "BK": padded(logits.shape[1]),
        }  # fmt: skip
        with on(z.device):
            if pairs:
                _views_kernel[(programs, 2)](
                    z, views, norms, key, limit(o.view_dropout), scale(o.view_dropout), nodes,
                    CHANNELS=z.shape[1], DROPOUT=o.view_dropout > 0, BM=_ROWS, BC=padded(z.shape[1]),
                )  # fmt: skip
            _rows_kernel[(programs,)](
                logits, targets, weights, views, flags, normalisers, parts, nodes, logits.shape[1], 1 / o.temperature,
                o.smoothing, **constants,
            )  # fmt: skip
            _finish_kernel[(1,)](parts, losses, sums, programs, o.contrastive, BLOCK=128)
        ctx.save_for_backward(logits, targets, weights, views, norms, flags, normalisers, sums, key)
        ctx.objective, ctx.constants, ctx.shape = o, constants, z.shape
        return losses

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        logits, targets, weights, views, norms, flags, normalisers, sums, key = ctx.saved_tensors
        o: Objective = ctx.objective
        nodes, num_views = len(logits), 2 if o.contrastive > 0 else 1
        grad_logits, grad_z = torch.empty_like(logits), single(logits, num_views, *ctx.shape)
        with on(logits.device):
            _back_kernel[(triton.cdiv(nodes, _ROWS), num_views)](
                logits, targets, weights, views, norms, flags, normalisers, sums, grads[0].contiguous(),
                grad_logits, grad_z, key, limit(o.view_dropout), scale(o.view_dropout), nodes, logits.shape[1],
                1 / o.temperature, o.smoothing, o.contrastive, **ctx.constants, DROPOUT=o.view_dropout > 0,
                num_stages=2,
            )  # fmt: skip
        return None, None, grad_logits, add_up(grad_z), None, None, None


def refusal(o: Objective, half: bool, device: torch.device, channels: int, classes: int) -> str | None:
    """Why the kernels cannot be used on this device, or None; tried once for each kind."""
    if max(channels, classes) > _WIDEST:
        return f"over {_WIDEST} channels or classes do not fit a GPU's registers"
    return _try(o.contrastive > 0, o.view_dropout > 0, half, device, channels, padded(classes))


@cache
def _try(pairs: bool, has_dropout: bool, half: bool, device: torch.device, channels: int, classes: int) -> str | None:
    o = Objective(0.1, float(pairs), 0.5 if has_dropout else 0.0)

    def work() -> None:
        logits = torch.zeros(32, classes, device=device, requires_grad=True)
        z = torch.zeros(32, channels, device=device, requires_grad=True)
        targets = torch.zeros(32, dtype=torch.int64, device=device)
        valid = torch.ones(32, dtype=torch.bool, device=device)
        losses: Tensor = TritonLosses.apply(o, half, logits, z, targets, None, valid)  # type: ignore[no-untyped-call]
        losses.sum().backward()

    return trial_error("the kernels of the losses", device, work)
