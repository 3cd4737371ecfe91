"""The update order of JODIE: t-batches, or one update of every active node in a step.

A *t-batch* holds events that have no node in common, so that all of them can be done at once: an event comes one batch
after the last of its two nodes' earlier ones. A hub makes as many t-batches as it has events. A *snapshot* is the
coarse way: in a step every active node is updated once, with the mean of its partners as they were before the step.

Both are cut into *spans*, at whose ends the optimiser steps and gradients stop. A span lies within a step of the graph.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from chronospike.compiled import kernel_array
from chronospike.data.csr import IntArray
from chronospike.data.events import EventLog
from chronospike.errors import InputError
from chronospike.methods.jodie_kernels import fill_batches, walk_batches, walk_steps

Longs = NDArray[np.int64]


@dataclass(frozen=True)
class Span:
    """A nodes that are active, and R updates of their states: one for each node and event, or for each node.

    What was before the first event of a node, or of its partner, is not known to the table of states: then the role of
    that node in its first event is given (0 source, 1 target), else -1.

    Attributes:
        step: of the graph.
        nodes, fresh: `[A]` active nodes, and the role of those that are new.
        ahead: `[A]` time from a node's last event in the span to its next one, or to the end.
        owner, role: `[R]` whose update it is, and its role in the event.
        gap: `[R]` time since the node's last event, or since the first of all.
        previous, previous_fresh: `[R]` the partner before this one (N for none); its role if it is new in this span.
    """

    step: int
    nodes: Tensor
    fresh: Tensor
    ahead: Tensor
    owner: Tensor
    role: Tensor
    gap: Tensor
    previous: Tensor
    previous_fresh: Tensor


@dataclass(frozen=True)
class BatchSpan(Span):
    """The t-batches of a span: in each of them the sources of its events, then their targets in the same order.

    States of a span are numbered: those after each update `[R]`, then those at the beginning `[A]`.

    Attributes:
        partner: `[R]` the other node of the event.
        reads: `[2, R]` number of the node's own state before the event, and of its partner's.
        last: `[A]` number of a node's state at the end of the span.
        batches: where each t-batch ends in R, with a 0 in front.
    """

    partner: Tensor
    reads: Tensor
    last: Tensor
    batches: tuple[int, ...]


@dataclass(frozen=True)
class StepSpan(Span):
    """A step in which every active node is updated once (R = A).

    Attributes:
        partners, offsets: those of node a are `partners[offsets[a] : offsets[a + 1]]`.
        partners_fresh: `[A, 2]` share of them that are new, by their roles.
    """

    partners: Tensor
    offsets: Tensor
    partners_fresh: Tensor


@dataclass(frozen=True)
class Schedule:
    """All spans in order, on a device.

    Attributes:
        final_gap, final_fresh: `[N]` time from a node's last event to the end; 0 for a node without any event, else -1.
        gap_mean, gap_std: over all updates.
    """

    spans: list[Span]
    final_gap: Tensor
    final_fresh: Tensor
    gap_mean: float
    gap_std: float


def assign_batches(source: IntArray, target: IntArray, span: IntArray, num_nodes: int) -> Longs:
    """`[E]` the t-batch of each event within its span, from 0."""
    found = np.empty(len(source), dtype=np.int64)
    fill_batches(
        kernel_array(source, np.int32), kernel_array(target, np.int32), kernel_array(span, np.int64), num_nodes, found
    )
    return found


def span_numbers(log: EventLog, spans: int) -> Longs:
    """`[E]` the span of each event, without gaps from 0: so many of equal duration, and cut where a step begins."""
    since = since_first(log.time)
    if not len(since) or not since[-1]:
        return np.zeros(len(since), dtype=np.int64)
    part = np.minimum(since / since[-1] * spans, spans - 1).astype(np.int64)
    is_new = (np.diff(part, prepend=part[0]) != 0) | (np.diff(log.step, prepend=log.step[0]) != 0)
    return np.cumsum(is_new, dtype=np.int64)


def count_batches(log: EventLog, num_nodes: int, spans: int) -> int:
    """How many t-batches there are in all spans."""
    span = span_numbers(log, spans)
    return int(_batches_per_span(span, assign_batches(log.source, log.target, span, num_nodes)).sum())


def since_first(time: NDArray[Any]) -> NDArray[np.float64]:
    """`[E]` ascending times counted from the first one, in their own unit."""
    if not len(time):
        return np.zeros(0)
    if time.dtype.kind == "f":
        with np.errstate(over="ignore"):
            since = time - time[0]
    else:
        # Integers and dates are counted without a sign, since the difference of two may need the 64th bit.
        ticks = time.astype(np.int64).view(np.uint64)
        since = (ticks - ticks[0]).astype(np.float64)
    if not np.isfinite(since[-1]):
        raise InputError("the times of the events are too far apart. Import the graph with other times")
    return np.asarray(since, dtype=np.float64)


def batch_schedule(log: EventLog, num_nodes: int, spans: int, device: torch.device) -> Schedule:
    """The t-batches of so many spans; time is that of the events."""
    span, time, events = span_numbers(log, spans), since_first(log.time), len(log)
    batch = assign_batches(log.source, log.target, span, num_nodes)
    per_span = _batches_per_span(span, batch)
    first_batch = np.append(0, np.cumsum(per_span))
    batch += first_batch[span]
    sizes = np.bincount(batch, minlength=int(first_batch[-1]))
    starts = np.append(0, np.cumsum(sizes))
    # A batch begins at twice its first event: the updates of its sources, then those of its targets.
    place = np.empty((events, 2), dtype=np.int64)
    order = np.argsort(batch, kind="stable")
    place[order, 0] = np.arange(events) + starts[batch[order]]
    place[:, 1] = place[:, 0] + sizes[batch]
    ends = np.append(0, np.cumsum(np.bincount(span, minlength=len(per_span))))
    found, active = _Arrays.empty(2 * events, num_nodes), np.zeros(len(per_span) + 1, dtype=np.int64)
    partner, reads, last = (np.empty(shape, dtype=np.int64) for shape in (2 * events, (2, 2 * events), 2 * events))
    walk_batches(
        kernel_array(log.source, np.int32), kernel_array(log.target, np.int32), time, span, place, ends, active, *found,
        partner, reads, last,
    )  # fmt: skip
    put = _Placed(found, int(active[-1]), 2 * events, device)
    more = put.tensor(partner), put.tensor(reads), put.tensor(last[: active[-1]])
    made: list[Span] = []
    for s in range(len(per_span)):
        some, own = slice(int(active[s]), int(active[s + 1])), slice(2 * int(ends[s]), 2 * int(ends[s + 1]))
        bounds = 2 * starts[first_batch[s] : first_batch[s + 1] + 1] - own.start
        common = put.span(int(log.step[ends[s]]), some, own)
        batches = tuple(bounds.tolist())
        made.append(
            BatchSpan(**common, partner=more[0][own], reads=more[1][:, own], last=more[2][some], batches=batches)
        )
    return put.schedule(made)


def step_schedule(log: EventLog, num_nodes: int, only_last: bool, device: torch.device) -> Schedule:
    """An update of every active node in each step, by all its partners or by the last alone; time is in steps."""
    steps, counts = np.unique(log.step, return_counts=True)
    ends = np.append(0, np.cumsum(counts))
    found, active = _Arrays.empty(2 * len(log), num_nodes), np.zeros(len(steps) + 1, dtype=np.int64)
    offsets, partners = np.zeros(2 * len(log) + 1, dtype=np.int64), np.empty(2 * len(log), dtype=np.int64)
    shares = np.zeros((2 * len(log), 2), dtype=np.float32)
    walk_steps(
        kernel_array(log.source, np.int32), kernel_array(log.target, np.int32), steps.astype(np.float64), ends,
        float(log.num_steps - 1), only_last, active, *found, partners, offsets, shares,
    )  # fmt: skip
    total = int(active[-1])
    put = _Placed(found, total, total, device)
    more = put.tensor(partners[: offsets[total]]), put.tensor(offsets[: total + 1]), put.tensor(shares[:total])
    made: list[Span] = []
    for s, step in enumerate(steps.tolist()):
        some = slice(int(active[s]), int(active[s + 1]))
        entries = slice(int(offsets[some.start]), int(offsets[some.stop]))
        rows = more[1][some.start : some.stop + 1] - entries.start
        common = put.span(step, some, some)
        made.append(StepSpan(**common, partners=more[0][entries], offsets=rows, partners_fresh=more[2][some]))
    return put.schedule(made)


def _batches_per_span(span: Longs, batch: Longs) -> Longs:
    """`[S]` how many t-batches each span has."""
    counts = np.zeros(int(span[-1]) + 1 if len(span) else 0, dtype=np.int64)
    np.maximum.at(counts, span, batch + 1)
    return counts


class _Arrays(NamedTuple):
    """What both walks fill: see `Span`, whose tensors are pieces of these, and `Schedule`."""

    nodes: Longs
    fresh: NDArray[np.int8]
    ahead: NDArray[np.float64]
    owner: Longs
    role: NDArray[np.int8]
    gap: NDArray[np.float64]
    previous: Longs
    previous_fresh: NDArray[np.int8]
    final_gap: NDArray[np.float64]
    final_fresh: NDArray[np.int8]

    @classmethod
    def empty(cls, most: int, num_nodes: int) -> _Arrays:
        kinds: Any = (np.int64, np.int8, np.float64, np.int64, np.int8, np.float64, np.int64, np.int8)
        made: Any = [np.empty(most, dtype=kind) for kind in kinds]
        made += [np.zeros(num_nodes), np.zeros(num_nodes, dtype=np.int8)]
        return cls(*made)


class _Placed:
    """Arrays on a device."""

    def __init__(self, arrays: _Arrays, active: int, updates: int, device: torch.device) -> None:
        self._device, self._gaps = device, arrays.gap[:updates]
        self._active = {name: self.tensor(getattr(arrays, name)[:active]) for name in arrays._fields[:3]}
        self._updates = {name: self.tensor(getattr(arrays, name)[:updates]) for name in arrays._fields[3:8]}
        self._final = self.tensor(arrays.final_gap), self.tensor(arrays.final_fresh)

    def tensor(self, array: NDArray[Any]) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(array)).to(self._device)

    def span(self, step: int, active: slice, updates: slice) -> dict[str, Any]:
        """The fields of a `Span`."""
        some = {name: x[active] for name, x in self._active.items()}
        return {"step": step, **some, **{name: x[updates] for name, x in self._updates.items()}}

    def schedule(self, spans: list[Span]) -> Schedule:
        gaps = self._gaps
        mean, std = (float(gaps.mean()), float(gaps.std())) if len(gaps) else (0.0, 0.0)
        return Schedule(spans, *self._final, mean, std or 1.0)
