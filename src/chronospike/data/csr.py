"""Rows of neighbours sorted by step, so that any span of time is an index range.

Two of these hold a dynamic graph. In the *history* each neighbour of a node appears once, at the step
of its first edge, so that the neighbours known before step t are a prefix of the row. In the *snapshot*
a neighbour appears once per step it is active, so that the neighbours at step t are a slice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

IntArray = NDArray[np.integer[Any]]


def smallest_int(largest: int) -> type[np.signedinteger[Any]]:
    """The narrowest of int16, int32, int64 that holds `largest` (torch indexes with none of the unsigned ones)."""
    for kind in (np.int16, np.int32):
        if largest <= np.iinfo(kind).max:
            return kind
    return np.int64


@dataclass(frozen=True)
class TimeSlicedCSR:
    """Neighbours of every node in the order of their steps.

    Attributes:
        indptr: `[N + 1]` where each row starts in `neighbours`.
        step_offsets: `[N, T + 1]`; entry (v, t) counts the neighbours in row v whose step is before t.
        neighbours: `[E]` node indices, by (row, step, neighbour).
    """

    indptr: IntArray
    step_offsets: IntArray
    neighbours: IntArray

    @property
    def num_nodes(self) -> int:
        return int(self.step_offsets.shape[0])

    @property
    def num_steps(self) -> int:
        return int(self.step_offsets.shape[1]) - 1

    @property
    def nbytes(self) -> int:
        return self.indptr.nbytes + self.step_offsets.nbytes + self.neighbours.nbytes

    def flat(self) -> tuple[IntArray, IntArray, IntArray]:
        """Row starts, offsets laid flat and neighbours, as compiled functions take them."""
        return _read_only(self.indptr), _read_only(self.step_offsets.reshape(-1)), _read_only(self.neighbours)

    def before(self, node: int, step: int) -> IntArray:
        """The row prefix of steps earlier than `step`."""
        start = int(self.indptr[node])
        return self.neighbours[start : start + int(self.step_offsets[node, step])]

    def at(self, node: int, step: int) -> IntArray:
        """The row slice of exactly `step`."""
        start = int(self.indptr[node])
        first, last = self.step_offsets[node, step], self.step_offsets[node, step + 1]
        return self.neighbours[start + int(first) : start + int(last)]

    def degrees(self) -> IntArray:
        """`[N]` entries in each row."""
        return np.diff(self.indptr)

    def entries(self) -> tuple[IntArray, IntArray, IntArray]:
        """Every entry as (row, step, neighbour), in stored order: the inverse of building."""
        per_step = np.diff(self.step_offsets, axis=1).astype(np.int64)
        node_step = np.repeat(np.arange(per_step.size), per_step.reshape(-1))
        return node_step // self.num_steps, node_step % self.num_steps, np.asarray(self.neighbours)


def _read_only(array: IntArray) -> IntArray:
    # Numba compiles once more for arrays that cannot be written, as memory maps are: so none of ours can.
    flat = np.ascontiguousarray(array).view()
    flat.flags.writeable = False
    return flat


def history_and_snapshot(
    rows: IntArray, neighbours: IntArray, steps: IntArray, num_nodes: int, num_steps: int
) -> tuple[TimeSlicedCSR, TimeSlicedCSR]:
    """Both views of the directed entries `rows[i] <- neighbours[i] at steps[i]`; repeats are dropped.

    Args:
        rows, neighbours, steps: `[E]` each; any order, repeats allowed.

    Returns:
        The history, with each (row, neighbour) at its first step, and the snapshot, with each
        (row, step, neighbour) once.
    """
    rows, steps, neighbours = _sorted_unique(rows, steps, neighbours, num_steps, num_nodes)
    snapshot = _from_sorted(rows, steps, neighbours, num_nodes, num_steps)
    # There are fewer than 2^31 nodes. Within a pair the stable order keeps the steps ascending, so the first of each
    # run is the earliest.
    by_pair = np.argsort(rows.astype(np.int64) * num_nodes + neighbours, kind="stable")
    first = np.ones(len(rows), dtype=bool)
    first[1:] = (np.diff(rows[by_pair]) != 0) | (np.diff(neighbours[by_pair]) != 0)
    kept = np.sort(by_pair[first])
    history = _from_sorted(rows[kept], steps[kept], neighbours[kept], num_nodes, num_steps)
    return history, snapshot


def _sorted_unique(
    rows: IntArray, steps: IntArray, neighbours: IntArray, num_steps: int, num_nodes: int
) -> tuple[IntArray, IntArray, IntArray]:
    """Entries in the order of (row, step, neighbour), each once."""
    node = smallest_int(max(num_nodes - 1, 2**15))
    if num_nodes * num_steps * num_nodes < 2**63:
        key = (rows.astype(np.int64) * num_steps + steps) * num_nodes + neighbours
        # Sorted in place: np.unique hashes first, which is much slower on tens of millions of keys.
        key.sort()
        key = key[np.append(True, key[1:] != key[:-1])] if len(key) else key
        key, neighbour = np.divmod(key, num_nodes)
        row, step = np.divmod(key, num_steps)
        return row.astype(node), step.astype(np.int32), neighbour.astype(node)
    order = np.lexsort((neighbours, steps, rows))
    rows, steps, neighbours = rows[order], steps[order], neighbours[order]
    fresh = np.ones(len(rows), dtype=bool)
    fresh[1:] = (np.diff(rows) != 0) | (np.diff(steps) != 0) | (np.diff(neighbours) != 0)
    return rows[fresh].astype(node), steps[fresh].astype(np.int32), neighbours[fresh].astype(node)


def _from_sorted(
    rows: IntArray, steps: IntArray, neighbours: IntArray, num_nodes: int, num_steps: int
) -> TimeSlicedCSR:
    cells = rows.astype(np.int64) * num_steps + steps
    counts = np.bincount(cells, minlength=num_nodes * num_steps).reshape(num_nodes, num_steps)
    degrees = counts.sum(axis=1)
    indptr = np.zeros(num_nodes + 1, dtype=smallest_int(max(len(rows), 2**15)))
    np.cumsum(degrees, out=indptr[1:])
    offsets = np.zeros((num_nodes, num_steps + 1), dtype=smallest_int(int(degrees.max(initial=0))))
    np.cumsum(counts, axis=1, out=offsets[:, 1:])
    return TimeSlicedCSR(indptr, offsets, neighbours)
