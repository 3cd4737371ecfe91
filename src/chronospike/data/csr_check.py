"""Whether the two views of a graph are what samplers take for granted: one pass, before anything indexes with them.

Compiled kernels index without bounds checks, so that a wrong neighbour or offset would end the process. The pass reads
each entry once and takes one int32 per node and thread.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from chronospike.cache_hints import prefetch_item
from chronospike.data.csr import IntArray, TimeSlicedCSR
from chronospike.errors import GraphError
from chronospike.rng import derive_numba
from chronospike.threads import default_threads, run_chunks

# What the pass answers; 0 is "nothing wrong". A view's own faults come as FAULT + (0 history, 1 snapshot).
_ROW_STARTS, _OFFSETS, _SELF_LOOP, _ORDER, _DISAGREE = 2, 4, 6, 7, 8
_VIEWS = ("history", "snapshot")
# More would not be faster: memory is what limits the pass, and each thread has its marks.
_THREADS = 8
# Entries between asking for a mark and reading it: 56 million entries take 0.45 s instead of 0.75 on two cores.
_AHEAD = 24


def check_views(history: TimeSlicedCSR, snapshot: TimeSlicedCSR, directed: bool) -> None:
    """Raise `GraphError` naming the first fault of two views of one graph.

    Both: row starts ascend from 0 to the number of entries, step offsets from 0 to the length of the row, neighbours
    are nodes and no self-loops, and within a row and step they ascend. The history holds the first occurrence of each
    neighbour in the snapshot, in the same order, and nothing else. Undirected edges stand in both rows.
    """
    nodes, steps = _check_shapes(history, snapshot)
    for name, view in zip(_VIEWS, (history, snapshot), strict=True):
        if len(view.neighbours) and not 0 <= view.neighbours.min() <= view.neighbours.max() < nodes:
            raise GraphError(f"the {name} names a neighbour outside 0..{nodes - 1}")
        if view.indptr[0] != 0 or view.indptr[-1] != len(view.neighbours):
            raise GraphError(f"the row starts of the {name} do not ascend from 0 to {len(view.neighbours)}")
    found: list[tuple[int, int]] = []
    balance: list[int] = []
    views = _arrays(history), _arrays(snapshot)

    def work(start: int, stop: int) -> None:
        marks = np.full(nodes, -1, dtype=np.int32)
        fault, row, sums = _first_fault(*views, steps, start, stop, marks)
        if fault:
            found.append((row, fault))
        balance.append(int(sums))

    run_chunks(work, nodes, min(_THREADS, default_threads()))
    if found:
        row, fault = min(found)
        raise GraphError(_sentence(fault, row, history, snapshot))
    if not directed and sum(balance) % 2**64:
        raise GraphError("an edge of the undirected graph stands in the row of one end only")


def _check_shapes(history: TimeSlicedCSR, snapshot: TimeSlicedCSR) -> tuple[int, int]:
    """Nodes and steps of both views."""
    sizes = []
    for name, view in zip(_VIEWS, (history, snapshot), strict=True):
        for part, dimensions in (("indptr", 1), ("step_offsets", 2), ("neighbours", 1)):
            array = getattr(view, part)
            if array.ndim != dimensions or array.dtype.kind != "i" or not array.dtype.isnative:
                kind = f"{array.dtype} with {array.ndim} dimension(s)"
                raise GraphError(f"{part} of the {name} is {kind}; signed integers with {dimensions} are needed")
        if view.num_nodes < 1 or view.num_steps < 1 or len(view.indptr) != view.num_nodes + 1:
            raise GraphError(
                f"the {name} has {len(view.indptr)} row starts for {view.num_nodes} nodes and {view.num_steps} steps"
            )
        sizes.append((view.num_nodes, view.num_steps))
    (nodes, steps), (others, more) = sizes
    if (nodes, steps) != (others, more):
        raise GraphError(
            f"the history covers {nodes} nodes and {steps} steps, the snapshot {others} nodes and {more} steps"
        )
    if nodes >= 2**31:
        raise GraphError(f"{nodes:,} nodes; at most 2^31 - 1 are supported")
    return nodes, steps


def _arrays(view: TimeSlicedCSR) -> tuple[IntArray, IntArray, IntArray]:
    return _read_only(view.indptr), _read_only(view.step_offsets.reshape(-1)), _read_only(view.neighbours)


def _read_only(array: IntArray) -> IntArray:
    # Numba compiles once more for arrays that cannot be written, as memory maps are: so none of ours can.
    flat = np.ascontiguousarray(array).view()
    flat.flags.writeable = False
    return flat


def _sentence(fault: int, row: int, history: TimeSlicedCSR, snapshot: TimeSlicedCSR) -> str:
    if fault < _SELF_LOOP:
        name, view = _VIEWS[fault % 2], (history, snapshot)[fault % 2]
        if fault - fault % 2 == _ROW_STARTS:
            return f"the row starts of the {name} do not ascend from 0 to {len(view.neighbours)} (row {row})"
        return f"the step offsets of the {name} do not ascend from 0 to the row length (row {row})"
    return {
        _SELF_LOOP: f"row {row} of the snapshot holds the node itself",
        _ORDER: f"the neighbours in row {row} of the snapshot do not ascend within each step",
        _DISAGREE: f"row {row} of the history is not what the snapshot says: each neighbour once, at its first step",
    }[fault]


@njit(nogil=True, cache=True)
def _offsets_fault(starts: Any, offsets: Any, entries: int, steps: int, row: int) -> int:
    """_ROW_STARTS or _OFFSETS for the history's codes, or 0."""
    start, stop = np.int64(starts[row]), np.int64(starts[row + 1])
    if start < 0 or stop < start or stop > entries:
        return _ROW_STARTS
    cell = np.int64(row) * (steps + 1)
    before = np.int64(offsets[cell])
    if before != 0:
        return _OFFSETS
    for step in range(1, steps + 1):
        here = np.int64(offsets[cell + step])
        if here < before:
            return _OFFSETS
        before = here
    return 0 if before == stop - start else _OFFSETS


@njit(nogil=True, cache=True)
def _first_fault(history: Any, snapshot: Any, steps: int, first: int, last: int, marks: Any) -> Any:
    """(fault, row, balance) of the rows first..last-1; `marks [N]` begins with -1.

    An edge (v, u, t) is worth a word of its own, counted as plus in the row of its smaller end and as minus in the
    other, so that the balance over all rows is 0 (modulo 2^64) where both rows hold it; else as good as never.
    """
    history_starts, history_offsets, history_neighbours = history
    starts, offsets, neighbours = snapshot
    balance, final = np.uint64(0), len(neighbours) - 1
    for row in range(first, last):
        fault = _offsets_fault(history_starts, history_offsets, len(history_neighbours), steps, row)
        if fault:
            return fault, row, balance
        fault = _offsets_fault(starts, offsets, len(neighbours), steps, row)
        if fault:
            return fault + 1, row, balance
        cell = np.int64(row) * (steps + 1)
        start, known = np.int64(starts[row]), np.int64(history_starts[row])
        history_start, history_stop = known, np.int64(history_starts[row + 1])
        for step in range(steps):
            earlier = np.int64(-1)
            for entry in range(start + offsets[cell + step], start + offsets[cell + step + 1]):
                node = np.int64(neighbours[entry])
                prefetch_item(marks, np.int64(neighbours[min(entry + _AHEAD, final)]))
                if node == row:
                    return _SELF_LOOP, row, balance
                if node <= earlier:
                    return _ORDER, row, balance
                earlier = node
                if marks[node] != row:
                    marks[node] = row
                    if known == history_stop or history_neighbours[known] != node:
                        return _DISAGREE, row, balance
                    known += 1
                if row < node:
                    balance += derive_numba(derive_numba(np.uint64(row), node), step)
                else:
                    balance -= derive_numba(derive_numba(np.uint64(node), row), step)
            if known - history_start != history_offsets[cell + step + 1]:
                return _DISAGREE, row, balance
    return 0, np.int64(0), balance
