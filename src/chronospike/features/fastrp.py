"""FastRP: a very sparse random projection, smoothed over the neighbourhoods of a cumulative snapshot.

With S the adjacency, D its degrees and 2m their sum, the transition matrix is A = D⁻¹S and

    N₁ = A · diag((dⱼ/2m)^β) · R,   Nₖ = A · Nₖ₋₁,   features = Σₖ wₖ · Nₖ / ‖Nₖ‖ (row by row)

A row of the projection R is a function of (seed, node id), the same for every step, so that the steps are aligned and
later nodes change nothing. There is no training: it is for very large graphs and quick starts, and deterministic
whatever the number of threads.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from chronospike.cache_hints import prefetch
from chronospike.compiled import FAST, njit
from chronospike.data.feature_store import StepMaker
from chronospike.data.graph import DynamicGraph
from chronospike.features.options import FastRP, Progress
from chronospike.features.walks import Snapshot, cumulative_snapshot, derive_key
from chronospike.rng_kernels import below_numba, derive_numba
from chronospike.threads import run_chunks

Table = NDArray[np.float32]
_SPARSITY = 3
_AHEAD = 8


def sparse_projection(keys: NDArray[np.int64], dimension: int, seed: int, threads: int | None = None) -> Table:
    """`[N, d]` of ±√3 with probability 1/6 each, else zero: distances are kept in expectation.

    A row is a function of (seed, its node's key), see `DynamicGraph.node_keys`.
    """
    projection = np.empty((len(keys), dimension), dtype=np.float32)
    base = np.uint64(derive_key(seed))
    run_chunks(lambda low, high: _throw_dice(projection, keys, base, low, high), len(keys), threads)
    return projection


def propagate(
    snapshot: Snapshot, projection: Table, weights: tuple[float, ...], normalization: float, threads: int | None = None
) -> Table:
    """The weighted sum over the powers of the transition matrix, each row of each power scaled to length one."""
    degrees = snapshot.degrees
    # Powers of the nodes seen so far and no others: how an array is cut into vectors can change the last bit.
    seen = np.flatnonzero(degrees)
    share = degrees[seen] / max(1, int(degrees.sum(dtype=np.int64)))
    scale = np.zeros(len(degrees), dtype=np.float32)
    scale[seen] = share**normalization
    current = projection * scale[:, None]
    following = np.empty_like(current)
    total = np.zeros_like(current)
    for weight in weights:
        source, target, factor = current, following, np.float32(weight)

        def work(low: int, high: int, source: Table = source, target: Table = target, factor: Any = factor) -> None:
            _average(*snapshot.rows, source, target, total, factor, low, high)

        run_chunks(work, len(degrees), threads)
        current, following = following, current
    return total


@njit
def _throw_dice(projection: Any, keys: Any, base: Any, low: Any, high: Any) -> None:
    """A six-sided die for every cell of the rows low..high-1."""
    root = np.float32(np.sqrt(_SPARSITY))
    for node in range(low, high):
        own, row = derive_numba(base, keys[node]), projection[node]
        for d in range(len(row)):
            die = below_numba(derive_numba(own, d), 2 * _SPARSITY)
            row[d] = root if die == 0 else -root if die == 1 else np.float32(0)


@njit(fastmath=FAST)
def _average(
    indptr: Any, degrees: Any, neighbours: Any, source: Any, target: Any, total: Any, weight: Any, low: Any, high: Any
) -> None:
    """target = A · source, and total += weight · target with rows of length one."""
    for node in range(low, high):
        out, sums = target[node], total[node]
        for d in range(len(out)):
            out[d] = 0
        if degrees[node] == 0:
            continue
        for edge in range(indptr[node], indptr[node] + degrees[node]):
            # Past the end of this row stands the next one, which comes next.
            if edge + _AHEAD < len(neighbours):
                prefetch(source, neighbours[edge + _AHEAD])
            row = source[neighbours[edge]]
            for d in range(len(out)):
                out[d] += row[d]
        inverse = np.float32(1) / np.float32(degrees[node])
        squares = np.float32(0)
        for d in range(len(out)):
            out[d] *= inverse
            squares += out[d] * out[d]
        if squares > 0:
            factor = weight / np.sqrt(squares)
            for d in range(len(out)):
                sums[d] += factor * out[d]


class FastRPSteps(StepMaker):
    """Makes the steps of a graph with one projection."""

    def __init__(self, graph: DynamicGraph, options: FastRP, on_progress: Progress | None = None) -> None:
        self.graph, self.options, self.on_progress = graph, options, on_progress
        self.projection = sparse_projection(graph.node_keys, options.dimension, options.seed, options.threads)

    def make_step(self, step: int) -> Table:
        """`[N, d]` features of the cumulative snapshot at `step`; nodes without an edge so far are zero."""
        snapshot, o = cumulative_snapshot(self.graph, step), self.options
        table = propagate(snapshot, self.projection, o.weights, o.normalization, o.threads)
        if self.on_progress is not None:
            self.on_progress(step, step + 1, self.graph.num_steps)
        return table
