"""Neighbour attention on a GPU, forward and backward.

The meaning is that of `chronospike.nn.aggregate.AttentiveAggregator`. Hop by hop, targets and neighbours are gathered
from the table of features (or read from the spikes of the layer below) and projected in one kernel; a second one keeps
a running softmax and the weighted sum of a neighbourhood in registers. What passes between the two are the projections,
in half precision where that is allowed: they are all that the backward pass needs. The neighbours themselves are never
written to memory.

Unlike elsewhere the neighbours are projected before they are added up: on tensor cores that costs less than handling
each of them once per head. Kernels that do both at once, and write not even the projections, were slower: with a
neighbour, its projection and the sums, a program fills the registers, and too few of them run at a time.

The backward pass makes the gradients of the projections from the projections, and then the weights' gradients, products
with the rows, which are gathered again. Those are summed by a fixed number of programs, each over its own blocks, and
then over the programs, so that two runs agree to the bit. Gradients of the inputs, where there are any, have one writer
each. Gradients may be of any size: in half precision they are multiplied by a power of two, one for each block.

Import this module only where Triton is installed. With TRITON_INTERPRET=1 it runs on the CPU, for tests.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor

from chronospike.errors import InputError
from chronospike.nn.aggregate import AttentionWeights
from chronospike.nn.kernels import attention_kernels as kernels
from chronospike.nn.tree_features import Span, TreeFeatures
from chronospike.sampling.tree import widths
from chronospike.triton_common import add_up, on, padded, single, trial_error


class _Shape(NamedTuple):
    """How a kernel's work is cut up: rows that a program takes at a time, its warps, how many programs go through all
    blocks in turns (0: each takes one), and how many blocks ahead they read."""

    rows: int
    warps: int
    programs: int
    stages: int


# All found by trying on an H200. In the backward pass a block of targets has one scale: two kernels take the same.
_BLOCK = 32
_PROJECT = _Shape(64, 4, 264, 5)
_MIX = _Shape(8, 4, 0, 1)
_MIX_BACK = _Shape(_BLOCK, 16, 132, 1)
_WEIGHTS = _Shape(_BLOCK, 8, 264, 5)
_INPUTS = _Shape(64, 4, 0, 1)
# Channels and features that a program takes at a time, and sums for the weights' gradients that it keeps.
_CHANNELS, _WIDTH, _SUMS = 128, 128, 64 * 128


class _Rows(NamedTuple):
    """Rows of a hop among those of all hops: how many a step has, how many in all steps, how many of all hops, and
    where they start."""

    n: int
    rows: int
    columns: int
    start: int


class _Launch:
    """What the launches of one call have in common."""

    def __init__(self, rows: TreeFeatures, heads: int, part: int, half: bool) -> None:
        self.rows, self.heads, self.part, self.half = rows, heads, part, half
        self.spans = [span for span in rows.spans() if span.targets and rows.steps]
        self.columns, self.width, self.channels = sum(rows.sizes), rows.width, heads * part
        if rows.steps * self.columns >= 2**31:
            raise InputError(f"{rows.steps} steps of {self.columns} rows are too many for one batch: lower batch_size")
        values = rows.values.detach()
        # Where there is nothing to gather the last two are never read.
        self.source = values, *(values if part is None else part for part in (rows.nodes, rows.blocks))
        self.reading = {"GATHER": rows.nodes is not None, "HALF": half}
        self.factors = torch.float16 if half else torch.float32

    def side(self, span: Span, is_own: bool) -> _Rows:
        """A hop's targets or their neighbours, among all positions."""
        n, start = (span.targets, span.start) if is_own else (span.targets * span.fanout, span.neighbours)
        return _Rows(n, self.rows.steps * n, self.columns, start)

    def targets(self, span: Span) -> _Rows:
        """A hop's targets, among the positions that have neighbours."""
        return _Rows(span.targets, self.rows.steps * span.targets, self.rows.targets, span.start)

    def heads_of(self) -> tuple[int, int]:
        """How many heads a program takes, and the channels of each, padded. A product takes sixteen columns."""
        heads = triton.next_power_of_2(self.heads)
        part = max(triton.next_power_of_2(self.part), 16 // heads)
        return max(1, min(heads, _CHANNELS // part)), part

    def groups(self) -> int:
        """Among how many programs the heads of a block are shared out."""
        return int(triton.cdiv(self.heads, self.heads_of()[0]))

    def options(self, shape: _Shape) -> dict[str, int]:
        # What is to be looked up first takes two stages; in single precision blocks take twice the room.
        stages = (shape.stages if self.rows.nodes is not None else min(3, shape.stages)) if self.half else 1
        return {"BM": shape.rows, "num_warps": shape.warps, "num_stages": stages}

    def by_head(self, shape: _Shape) -> dict[str, int]:
        heads, part = self.heads_of()
        return {"PART": self.part, "HEADS": self.heads, "HP": heads, "PP": part, **self.options(shape)}

    def features(self, most: int = _WIDTH) -> dict[str, int]:
        return {"WIDTH": self.width, "BD": min(most, padded(self.width))}

    def mix_back(self) -> _Shape:
        """As many threads as hold eight channels each, and as many programs as run at a time."""
        warps = max(1, min(_MIX_BACK.warps, _BLOCK * math.prod(self.heads_of()) // 256))
        return _MIX_BACK._replace(warps=warps, programs=_MIX_BACK.programs * (_MIX_BACK.warps // warps))

    def empty(self, rows: int) -> Tensor:
        return torch.empty(rows, self.channels, dtype=self.factors, device=self.rows.values.device)


def _programs(shape: _Shape, rows: int) -> int:
    blocks = int(triton.cdiv(rows, shape.rows))
    return min(shape.programs, blocks) if shape.programs else blocks


def _project(launch: _Launch, span: Span, is_own: bool, weight: Tensor) -> Tensor:
    """`[rows, C]`: the projections of a hop's targets or of their neighbours, without the bias."""
    place = launch.side(span, is_own)
    out = launch.empty(place.rows)
    columns = min(_CHANNELS, padded(launch.channels))
    kernels.project_kernel[(_programs(_PROJECT, place.rows), triton.cdiv(launch.channels, columns))](
        *launch.source, weight, out, *place, launch.rows.values.shape[1],
        CHANNELS=launch.channels, BC=columns, **launch.features(), **launch.reading, **launch.options(_PROJECT),
    )  # fmt: skip
    return out


class _Attend(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, launch: _Launch, slope: float, save: bool, values: Tensor, *weights: Tensor) -> Tensor:
        w_self, b_self, w_near, b_near, a_self, a_near = weights = tuple(w.detach().contiguous() for w in weights)
        out = single(values, launch.rows.steps, launch.rows.targets, launch.channels)
        projected = []
        with on(values.device):
            for span in launch.spans:
                own, near = _project(launch, span, True, w_self), _project(launch, span, False, w_near)
                place = launch.targets(span)
                kernels.mix_kernel[(_programs(_MIX, place.rows), launch.groups())](
                    own, near, b_self, b_near, a_self, a_near, out, *place, slope,
                    FANOUT=span.fanout, **launch.by_head(_MIX),
                )  # fmt: skip
                if save:
                    projected += [own, near]
        ctx.save_for_backward(values, *weights, *projected)
        ctx.launch, ctx.slope = launch, slope
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        _values, w_self, b_self, w_near, b_near, a_self, a_near, *projected = ctx.saved_tensors
        launch, grad_out, is_deep = ctx.launch, grads[0].contiguous(), ctx.needs_input_grad[3]
        small = (b_self, b_near, a_self, a_near)
        hops = list(zip(launch.spans, projected[::2], projected[1::2], strict=True))
        programs = [_programs(launch.mix_back(), len(own)) for _, own, _ in hops]
        parts = single(grad_out, sum(programs), 3 * launch.channels + launch.heads)
        sums = _WeightSums(launch, grad_out)
        grad_values = single(grad_out, launch.rows.steps, launch.columns, launch.width) if is_deep else None
        with on(grad_out.device):
            for number, (span, own, near) in enumerate(hops):
                gradients = _Gradients(launch, span, own, near)
                gradients.fill(grad_out, small, parts, sum(programs[:number]), programs[number], ctx.slope)
                for is_own, weight in ((False, w_near), (True, w_self)):
                    sums.add(gradients, is_own, number)
                    if grad_values is not None:
                        # A row of a middle hop was a neighbour before.
                        gradients.of_inputs(grad_values, is_own, weight, is_own and number > 0)
            grad_b_self, grad_b_near, *grad_attends = grad_small = [torch.empty_like(one) for one in small]
            kernels.finish_kernel[(triton.cdiv(launch.channels, _CHANNELS),)](
                add_up(parts), *small, *grad_small, PART=launch.part, HEADS=launch.heads, BC=_CHANNELS
            )
            grad_w_self, grad_w_near = add_up(sums.parts, 1)
        return None, None, None, grad_values, grad_w_self, grad_b_self, grad_w_near, grad_b_near, *grad_attends


class _Gradients:
    """The gradients of a hop's projections, of targets and of neighbours, with their scales."""

    def __init__(self, launch: _Launch, span: Span, own: Tensor, near: Tensor) -> None:
        self.launch, self.span = launch, span
        self.projected = own, near
        self.own, self.near = torch.empty_like(own), torch.empty_like(near)
        self.groups = launch.groups()
        self.scales = single(own, triton.cdiv(len(own), _BLOCK), self.groups)

    def fill(
        self, grad_out: Tensor, small: tuple[Tensor, ...], parts: Tensor, first: int, programs: int, slope: float
    ) -> None:
        launch, span = self.launch, self.span
        kernels.mix_back_kernel[(programs, self.groups)](
            *self.projected, grad_out, *small, self.own, self.near, self.scales, parts, *launch.targets(span), first,
            slope, FANOUT=span.fanout, HALF=launch.half, **launch.by_head(launch.mix_back()),
        )  # fmt: skip

    def of_inputs(self, grad_values: Tensor, is_own: bool, weight: Tensor, adds: bool) -> None:
        launch, place = self.launch, self.launch.side(self.span, is_own)
        features = launch.features()
        kernels.inputs_kernel[(_programs(_INPUTS, place.rows), triton.cdiv(launch.width, features["BD"]))](
            weight, self.own if is_own else self.near, self.scales, grad_values, *place,
            _BLOCK * (1 if is_own else self.span.fanout), int(adds), HALF=launch.half, GROUPS=self.groups,
            **features, **launch.by_head(_INPUTS),
        )  # fmt: skip


class _WeightSums:
    """The gradients of both weights, program by program, hop after hop."""

    def __init__(self, launch: _Launch, like: Tensor) -> None:
        self.launch = launch
        self.features = launch.features(max(16, _SUMS // math.prod(launch.heads_of())))
        self.tiles = int(triton.cdiv(launch.width, self.features["BD"]))
        rows = max((launch.side(span, False).rows for span in launch.spans), default=0)
        self.programs = int(triton.cdiv(_programs(_WEIGHTS, rows), self.tiles))
        self.parts = single(like, 2, self.programs, launch.channels, launch.width)

    def add(self, gradients: _Gradients, is_own: bool, number: int) -> None:
        launch, span = self.launch, gradients.span
        kernels.weights_kernel[(self.programs, gradients.groups, self.tiles)](
            *launch.source, gradients.own if is_own else gradients.near, gradients.scales, self.parts[int(not is_own)],
            *launch.side(span, is_own), launch.rows.values.shape[1], 1 if is_own else span.fanout, int(number > 0),
            **self.features, **launch.reading, **launch.by_head(_WEIGHTS),
        )  # fmt: skip


def attend(x: TreeFeatures, weights: AttentionWeights, half: bool) -> Tensor:
    """`[T, n, C]`: what `aggregate_tree` returns, with products of half-precision operands if `half`."""
    slope, *tensors = weights
    if x.nodes is None:
        x = TreeFeatures(x.values.contiguous(), x.sizes)
    launch = _Launch(x, weights.heads, weights.channels // weights.heads, half)
    result: Tensor = _Attend.apply(launch, slope, torch.is_grad_enabled(), x.values, *tensors)  # type: ignore[no-untyped-call]
    return result


@cache
def refusal(
    device: torch.device,
    dtype: torch.dtype,
    dense: bool,
    width: int,
    channels: int,
    heads: int,
    fanouts: tuple[int, ...],
    half: bool,
    training: bool,
) -> str | None:
    """Why the kernels cannot be used on this device, or None; tried once for each kind."""
    steps, roots = 2, 64
    sizes = tuple(roots * size for size in widths(fanouts))

    def zeros(*shape: int) -> Tensor:
        return torch.zeros(shape, device=device, requires_grad=training)

    def work() -> None:
        shapes = ((channels, width), (channels,), (channels, width), (channels,), *2 * ((heads, channels // heads),))
        values = torch.zeros(steps if dense else 1, sum(sizes), width, dtype=dtype, device=device)
        if dense:
            x = TreeFeatures(values.requires_grad_(training and dtype == torch.float32), sizes)
        else:
            nodes = torch.zeros(steps, sum(sizes), dtype=torch.int32, device=device)
            x = TreeFeatures(values, sizes, nodes, torch.zeros(steps, dtype=torch.int64, device=device))
        with torch.set_grad_enabled(training):
            out = attend(x, AttentionWeights(0.2, *(zeros(*shape) for shape in shapes)), half)
        if training:
            out.sum().backward()

    return trial_error("the kernels of the neighbour attention", device, work)
