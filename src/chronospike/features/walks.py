"""The graph of random walks: the cumulative snapshot, with the edges of steps up to and including t.

Draws are counter-based (`chronospike.rng`), so that a walk is a function of (seed, step, epoch, pass, the start's id)
and not of the threads or the device that make it, nor of nodes that come later. `biased_walks.py` makes the walks, and
`gpu_walks.py` the same ones on a GPU.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from chronospike.compiled import njit
from chronospike.data.graph import DynamicGraph
from chronospike.errors import GraphError
from chronospike.rng import derive
from chronospike.threads import run_chunks


class Snapshot(NamedTuple):
    """The cumulative snapshot of one step, as the kernels want it.

    Attributes:
        indptr: `[N + 1]` where each row starts.
        degrees: `[N]` length of the row prefix that has been seen by this step.
        neighbours: `[E]` all rows, later steps included: only the prefixes are read.
        keys: `[N]` what the draws for a node are keyed by (see `DynamicGraph.node_keys`).
    """

    indptr: NDArray[np.int64]
    degrees: NDArray[np.int32]
    neighbours: NDArray[np.int32]
    keys: NDArray[np.int64]

    @property
    def rows(self) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int32]]:
        """(indptr, degrees, neighbours)."""
        return self.indptr, self.degrees, self.neighbours


def cumulative_snapshot(graph: DynamicGraph, step: int) -> Snapshot:
    """The edges of steps <= `step`. In a directed graph a row holds the sources, so walks run against the edges."""
    if not 0 <= step < graph.num_steps:
        raise GraphError(f"step {step} is outside 0..{graph.num_steps - 1}")
    history = graph.history
    return Snapshot(
        np.ascontiguousarray(history.indptr, dtype=np.int64),
        np.ascontiguousarray(history.step_offsets[:, step + 1], dtype=np.int32),
        np.ascontiguousarray(history.neighbours, dtype=np.int32),
        graph.node_keys,
    )


def sorted_rows(snapshot: Snapshot, threads: int | None = None) -> Snapshot:
    """The same snapshot without what comes later, and with ascending rows, in which a neighbour is quickly found."""
    indptr = np.zeros(len(snapshot.degrees) + 1, dtype=np.int64)
    np.cumsum(snapshot.degrees, out=indptr[1:])
    rows = np.empty(indptr[-1], dtype=np.int32)
    run_chunks(lambda low, high: _sort_rows(*snapshot.rows, indptr, rows, low, high), len(snapshot.degrees), threads)
    return snapshot._replace(indptr=indptr, neighbours=rows)


def derive_key(*parts: int) -> int:
    """The key of the stream below `parts`, such as (seed, step, epoch, pass)."""
    key = 0
    for part in parts:
        key = derive(key, part)
    return key


def walk_starts(snapshot: Snapshot, key: int) -> NDArray[np.int32]:
    """Every node that has a neighbour, once, in an order that `key` decides."""
    nodes = np.flatnonzero(snapshot.degrees).astype(np.int32)
    return np.random.Generator(np.random.Philox(key=key)).permutation(nodes)


@njit
def _sort_rows(indptr: Any, degrees: Any, neighbours: Any, starts: Any, rows: Any, low: Any, high: Any) -> None:
    for node in range(low, high):
        first = indptr[node]
        rows[starts[node] : starts[node + 1]] = np.sort(neighbours[first : first + degrees[node]])
