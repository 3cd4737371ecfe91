"""The graphs of the steps that a method embeds, selected from those of a dynamic graph, and their edges."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from chronospike.compiled import kernel_array, njit
from chronospike.data.csr import IntArray, TimeSlicedCSR, history_and_snapshot
from chronospike.data.graph import DynamicGraph
from chronospike.threads import run_chunks

Kind = Literal["evolving", "cumulative"]


class StepGraphs(NamedTuple):
    """The undirected graphs of T steps, as the kernels want them.

    Attributes:
        indptr: `[N + 1]` where each row starts.
        offsets: `[N, T + 1]` the neighbours of v at step t are from `offsets[v, t]` to `offsets[v, t + 1]` of its row.
        neighbours: `[E]` ascending within a step.
        weights: `[E]` of the edges; empty if all are 1.
    """

    indptr: NDArray[np.int64]
    offsets: NDArray[np.int32]
    neighbours: NDArray[np.int32]
    weights: NDArray[np.float32]

    @property
    def num_nodes(self) -> int:
        return len(self.offsets)

    @property
    def num_steps(self) -> int:
        return int(self.offsets.shape[1]) - 1


class Edges(NamedTuple):
    """P edges, each once, in the order of their steps.

    Attributes:
        steps, first, second: `[P]` step and ends, `first < second`.
        weights: `[P]`.
    """

    steps: NDArray[np.int32]
    first: NDArray[np.int32]
    second: NDArray[np.int32]
    weights: NDArray[np.float32]

    @property
    def size(self) -> int:
        return len(self.steps)

    def part(self, some: Any) -> Edges:
        """Those of a slice, of a mask or of indices, which must ascend."""
        return Edges(self.steps[some], self.first[some], self.second[some], self.weights[some])


def step_graphs(
    graph: DynamicGraph, last_step: int, kind: Kind = "evolving", window: int = 1, stride: int = 1,
    count_events: bool = False,
) -> StepGraphs:  # fmt: skip
    """The graphs of every `stride`-th step up to `last_step`, that one included; the direction of edges is left out.

    Args:
        kind: 'evolving': the edges of the step itself; 'cumulative': those of all steps so far.
        window: of 'evolving', the edges of this many steps up to the step itself; at least `stride`.
        count_events: weigh an edge by how many events it stands for; the graph must have its events.
    """
    spans = _Spans(last_step, last_step + 1 if kind == "cumulative" else max(window, stride), stride)
    plain = spans.window == stride == 1 and not graph.directed
    source = graph.snapshot if plain else _union(graph, spans)
    found = StepGraphs(
        kernel_array(source.indptr, np.int64),
        kernel_array(source.step_offsets[:, : spans.num_steps + 1], np.int32),
        kernel_array(source.neighbours, np.int32),
        kernel_array(np.zeros(0), np.float32),
    )
    return found._replace(weights=_event_counts(graph, found, spans)) if count_events else found


def holders(last_step: int, stride: int) -> IntArray:
    """`[last_step + 1]` which of our steps holds each step of the graph."""
    return _Spans(last_step, stride, stride).of(np.arange(last_step + 1))[0]


class _Spans(NamedTuple):
    """Which of the graph's steps belong to which of ours."""

    last_step: int
    window: int
    stride: int

    @property
    def num_steps(self) -> int:
        """How many steps we have."""
        return self.last_step // self.stride + 1

    def of(self, steps: IntArray) -> tuple[IntArray, IntArray]:
        """`[E]` the first of ours that holds each of these steps of the graph, and how many do."""
        # The last is one of ours, and so are those that lie whole strides before it.
        begin = self.last_step % self.stride
        first = np.maximum(-((begin - steps) // self.stride), 0)
        last = np.minimum((steps + self.window - 1 - begin) // self.stride, self.num_steps - 1)
        return first, np.maximum(last - first + 1, 0)


def all_edges(graphs: StepGraphs) -> Edges:
    """Every edge of every step, by (step, first, second)."""
    ends = np.zeros(graphs.num_steps + 1, dtype=np.int64)
    _count_edges(*graphs[:3], ends)
    np.cumsum(ends, out=ends)
    steps, first, second = (np.empty(int(ends[-1]), dtype=np.int32) for _ in range(3))
    edges = Edges(steps, first, second, np.ones(len(steps), dtype=np.float32))
    _list_edges(*graphs, ends[:-1].copy(), *edges)
    return edges


def _union(graph: DynamicGraph, spans: _Spans) -> TimeSlicedCSR:
    """Of each of our steps the edges of its window, in both directions."""
    # Where a window has no end, the first time of an edge is enough.
    source = graph.history if spans.window > spans.last_step else graph.snapshot
    if graph.directed:
        rows, steps, neighbours = source.entries()
        ends = np.append(rows, neighbours), np.append(neighbours, rows), np.append(steps, steps)
        source = history_and_snapshot(*ends, graph.num_nodes, graph.num_steps)[1]
    last = spans.last_step - spans.stride * np.arange(spans.num_steps)[::-1]
    given = (
        kernel_array(source.indptr, np.int64),
        kernel_array(source.step_offsets, np.int32),
        kernel_array(source.neighbours, np.int32),
        np.maximum(last + 1 - spans.window, 0),
        last + 1,
    )
    offsets = np.zeros((graph.num_nodes, spans.num_steps + 1), dtype=np.int32)
    indptr, neighbours = np.zeros(graph.num_nodes + 1, dtype=np.int64), np.empty(0, dtype=np.int32)

    def work(low: int, high: int) -> None:
        _merge_rows(*given, indptr, offsets, neighbours, low, high)

    run_chunks(work, graph.num_nodes)
    np.cumsum(offsets[:, -1], out=indptr[1:])
    neighbours = np.empty(int(indptr[-1]), dtype=np.int32)
    run_chunks(work, graph.num_nodes)
    return TimeSlicedCSR(indptr, offsets, neighbours)


def _event_counts(graph: DynamicGraph, graphs: StepGraphs, spans: _Spans) -> NDArray[np.float32]:
    """`[E]` how many events each entry stands for."""
    events = graph.require(events=True).events
    assert events is not None
    events = events.until(spans.last_step)
    counts = np.zeros(len(graphs.neighbours), dtype=np.float32)
    ends = kernel_array(events.source, np.int32), kernel_array(events.target, np.int32)
    _count_events(*graphs[:3], *ends, *spans.of(events.step.astype(np.int64)), counts)
    return kernel_array(counts, np.float32)


@njit
def _merge_rows(
    indptr: Any, offsets: Any, neighbours: Any, first: Any, last: Any, out_indptr: Any, out_offsets: Any,
    out_neighbours: Any, low: Any, high: Any,
) -> None:  # fmt: skip
    """Offsets of our steps, each the steps from `first` up to before `last`; and neighbours, once there is room."""
    fills = len(out_neighbours) > 0
    for node in range(low, high):
        total, start = 0, indptr[node]
        for k in range(len(first)):
            some = np.sort(neighbours[start + offsets[node, first[k]] : start + offsets[node, last[k]]])
            for i in range(len(some)):
                if i > 0 and some[i] == some[i - 1]:
                    continue
                if fills:
                    out_neighbours[out_indptr[node] + total] = some[i]
                total += 1
            out_offsets[node, k + 1] = total


@njit
def _count_edges(indptr: Any, offsets: Any, neighbours: Any, counts: Any) -> None:
    """Add the edges of step t to `counts[t + 1]`, each from its lower end."""
    for node in range(len(offsets)):
        for step in range(offsets.shape[1] - 1):
            for entry in range(indptr[node] + offsets[node, step], indptr[node] + offsets[node, step + 1]):
                counts[step + 1] += neighbours[entry] > node


@njit
def _list_edges(
    indptr: Any, offsets: Any, neighbours: Any, weights: Any, places: Any, steps: Any, first: Any, second: Any,
    out_weights: Any,
) -> None:  # fmt: skip
    """`places [T]` is where the next edge of each step goes."""
    for node in range(len(offsets)):
        for step in range(offsets.shape[1] - 1):
            for entry in range(indptr[node] + offsets[node, step], indptr[node] + offsets[node, step + 1]):
                if neighbours[entry] > node:
                    place = places[step]
                    places[step] += 1
                    steps[place], first[place], second[place] = step, node, neighbours[entry]
                    if len(weights) > 0:
                        out_weights[place] = weights[entry]


@njit
def find_entry(indptr: Any, offsets: Any, neighbours: Any, step: Any, node: Any, other: Any) -> Any:
    """The entry of `other` in the row of `node` at `step`; -1 if they are not adjacent then."""
    start = indptr[node]
    low, end = start + offsets[node, step], start + offsets[node, step + 1]
    high = end
    while low < high:
        middle = (low + high) // 2
        if neighbours[middle] < other:
            low = middle + 1
        else:
            high = middle
    return low if low < end and neighbours[low] == other else np.int64(-1)


@njit
def degree_at(offsets: Any, step: Any, node: Any) -> Any:
    return offsets[node, step + 1] - offsets[node, step]


@njit
def _count_events(
    indptr: Any, offsets: Any, neighbours: Any, sources: Any, targets: Any, first: Any, times: Any, counts: Any
) -> None:
    for event in range(len(sources)):
        source, target = sources[event], targets[event]
        for step in range(first[event], first[event] + times[event]):
            counts[find_entry(indptr, offsets, neighbours, step, source, target)] += np.float32(1)
            counts[find_entry(indptr, offsets, neighbours, step, target, source)] += np.float32(1)
