"""Neighbour attention on a GPU: gather, project, attend and aggregate in one kernel, forward and backward.

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

from dataclasses import dataclass
from functools import cache
from itertools import accumulate, pairwise
from typing import Any

import torch
import triton
from torch import Tensor

from chronospike.errors import InputError
from chronospike.nn.fused import AttentionWeights
from chronospike.nn.kernels import attention_kernels as kernels
from chronospike.nn.kernels.sums import add_up
from chronospike.nn.rows import TreeRows
from chronospike.triton_common import on, padded, single, tried

# Rows a program takes at a time, and its warps, for each kernel.
_FORWARD, _LOGITS, _SUMS, _INPUTS = (64, 8), (64, 4), (64, 8), (128, 4)
# Programs of the first two, which go through the blocks in turns and so read the weights once each.
_RESIDENT = 264
# Programs among which the sums over all rows are shared out.
_PROGRAMS = 264


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
        return {
            "WIDTH": self.rows.width, "PART": self.part, "HEADS": self.heads, "FANOUT": fanout, "HALF": self.half,
            "BM": size[0], "BD": padded(self.rows.width), "HP": heads, "PP": part, "num_warps": size[1],
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
        out = single(values, rows.steps, rows.targets, heads * launch.part)
        logits = single(values, rows.steps, sum(rows.sizes) if save else 0, heads)
        normaliser = single(values, rows.steps, rows.targets if save else 0, heads)
        own_half, near_half = (weight.half() if launch.half else weight for weight in (w_self, w_near))
        with on(values.device):
            for span in launch.spans:
                place = launch.place(span)
                kernels.forward_kernel[(min(_RESIDENT, triton.cdiv(place[1], _FORWARD[0])),)](
                    *launch.source, own_half, b_self, near_half, b_near, a_self, a_near, out, logits, normaliser,
                    *place, launch.count, int(save), slope, **launch.constants(span[3], _FORWARD), **launch.gather,
                )  # fmt: skip
        ctx.save_for_backward(values, w_self, b_self, w_near, b_near, a_self, a_near, near_half, logits, normaliser)
        ctx.launch, ctx.slope = launch, slope
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        values, w_self, b_self, w_near, b_near, a_self, a_near, near_half, logits, normaliser = ctx.saved_tensors
        launch = ctx.launch
        grad_out = grads[0].contiguous()
        attention, near_change, own_change = (torch.empty_like(like) for like in (logits, logits, normaliser))
        with on(values.device):
            for span in launch.spans:
                place = launch.place(span)
                kernels.logits_kernel[(min(_RESIDENT, triton.cdiv(place[1], _LOGITS[0])),)](
                    *launch.source, near_half, logits, normaliser, grad_out, attention, near_change, own_change,
                    *place, launch.count, ctx.slope, **launch.constants(span[3], _LOGITS), **launch.gather,
                )  # fmt: skip
        own = _Side(True, w_self, a_self, attention, own_change)
        near = _Side(False, w_near, a_near, attention, near_change)
        by_weights = _weight_gradients(launch, grad_out, own, near, b_self, b_near)
        grad_values = _input_gradients(launch, grad_out, own, near) if ctx.needs_input_grad[3] else None
        return None, None, None, grad_values, *by_weights


@dataclass(frozen=True)
class _Side:
    """One of the two projections, of the targets or of their neighbours, and what is known of its rows."""

    is_own: bool
    weight: Tensor
    attend: Tensor
    attention: Tensor
    change: Tensor


def _weight_gradients(
    launch: _Launch, grad_out: Tensor, own: _Side, near: _Side, b_self: Tensor, b_near: Tensor
) -> list[Tensor]:
    """Gradients of the six weights, in their order."""
    heads, part, width = launch.heads, launch.part, launch.rows.width
    biases = [single(grad_out, heads * part) for _ in range(2)]
    attends = [single(grad_out, heads, part) for _ in range(2)]
    own_sums, near_sums = (_sums(launch, grad_out, side) for side in (own, near))
    if launch.spans:
        with on(grad_out.device):
            kernels.finish_kernel[(heads,)](
                own_sums, near_sums, own.weight, b_self, near.weight, b_near, own.attend, near.attend,
                *biases, *attends, WIDTH=width, PART=part, HEADS=heads,
                BD=triton.next_power_of_2(width), PP=triton.next_power_of_2(part),
            )  # fmt: skip
    else:
        for value in (*biases, *attends):
            value.zero_()
    by_self, by_near = (sums[: heads * part * width].view(heads * part, width) for sums in (own_sums, near_sums))
    return [by_self, biases[0], by_near, biases[1], *attends]


def _sums(launch: _Launch, grad_out: Tensor, side: _Side) -> Tensor:
    """What `sums_kernel` adds up, over all rows of a projection."""
    heads, part, width = launch.heads, launch.part, launch.rows.width
    # The targets of all hops lie side by side; the neighbours do so hop by hop.
    spans = [(0, launch.rows.targets, 0, 1)] if side.is_own and launch.spans else launch.spans
    places = [launch.place(span) for span in spans]
    costs = [place[1] * span[3] for place, span in zip(places, spans, strict=True)]
    # As many programs in all, each with about as many rows.
    programs = [
        min(-(-_PROGRAMS * cost // sum(costs)), triton.cdiv(place[1], _SUMS[0]))
        for place, cost in zip(places, costs, strict=True)
    ]
    parts = single(grad_out, sum(programs), heads * part * width + heads * width + heads * part + heads)
    first = 0
    with on(grad_out.device):
        for span, place, count in zip(spans, places, programs, strict=True):
            constants = launch.constants(span[3], _SUMS)
            kernels.sums_kernel[(count,)](
                *launch.source, grad_out, side.attend, side.attention, side.change, parts, *place, launch.count,
                count, first, **constants, **launch.gather, OWN=side.is_own, HE=max(16, constants["HP"]),
            )  # fmt: skip
            first += count
    return add_up(parts)


def _input_gradients(launch: _Launch, grad_out: Tensor, own: _Side, near: _Side) -> Tensor:
    """`[T, M, D]`. A row of a middle hop is a neighbour first and a target then."""
    grad = single(grad_out, launch.rows.steps, sum(launch.rows.sizes), launch.rows.width)
    with on(grad.device):
        for number, span in enumerate(launch.spans):
            for side in (own, near):
                place = launch.place(span, 1 if side.is_own else span[3])
                kernels.inputs_kernel[(triton.cdiv(place[1], _INPUTS[0]),)](
                    side.weight, grad, grad_out, side.attend, side.attention, side.change, *place,
                    **launch.constants(span[3], _INPUTS), OWN=side.is_own, ADD=side.is_own and number > 0,
                )  # fmt: skip
    return grad


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


_Kind = tuple[torch.device, torch.dtype, bool, int, int, int, tuple[int, ...], bool]


def fits(x: TreeRows, weights: AttentionWeights, half: bool) -> bool:
    """Whether this device has the room for the kernels, in registers and shared memory; tried once for each kind."""
    w = weights
    fanouts = tuple(following // size for size, following in pairwise(x.sizes) if size)
    kind = (x.values.device, x.values.dtype, x.nodes is None, x.width, w.channels, w.heads, fanouts, half)
    return _try(kind)


@cache
def _try(kind: _Kind) -> bool:
    """Forward and backward on a batch for which Triton compiles what a real one needs: 1 and multiples of 16 differ."""
    device, dtype, is_dense, width, channels, heads, fanouts, half = kind
    steps, roots, table = 16, 64, 3
    sizes = tuple(accumulate(fanouts, lambda count, fanout: count * fanout, initial=roots))
    with torch.enable_grad():

        def made(*shape: int) -> Tensor:
            return torch.zeros(shape, device=device, requires_grad=True)

        weights = AttentionWeights(
            made(channels, width), made(channels), made(channels, width), made(channels),
            made(heads, channels // heads), made(heads, channels // heads), 0.2,
        )  # fmt: skip
        if is_dense:
            x = TreeRows(torch.zeros(steps, sum(sizes), width, dtype=dtype, device=device), sizes)
            x.values.requires_grad_(dtype == torch.float32)
        else:
            nodes = torch.zeros(steps, sum(sizes), dtype=torch.int32, device=device)
            blocks = torch.zeros(steps, dtype=torch.int64, device=device)
            x = TreeRows(torch.zeros(1, table, width, dtype=dtype, device=device), sizes, nodes, blocks)
        return tried("the kernels of the neighbour attention", lambda: attend(x, weights, half).sum().backward())
