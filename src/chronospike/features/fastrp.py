"""FastRP: a very sparse random projection, smoothed over the neighbourhoods of a cumulative snapshot.

With S the adjacency, D its degrees and 2m their sum, the transition matrix is A = D⁻¹S and

    N₁ = A · diag((dⱼ/2m)^β) · R,   Nₖ = A · Nₖ₋₁,   features = Σₖ wₖ · Nₖ / ‖Nₖ‖ (row by row)

A row of the projection R is a function of (seed, node id), the same for every step, so that the steps are aligned and
later nodes change nothing. There is no training: it is for very large graphs and quick starts, and deterministic
whatever the number of threads.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import DTypeLike, NDArray

from chronospike.cache_hints import prefetch_row
from chronospike.data.feature_store import write_features
from chronospike.data.graph import DynamicGraph
from chronospike.errors import InputError
from chronospike.features.walks import Snapshot, cumulative_snapshot, derive_key
from chronospike.locks import Tell
from chronospike.rng import below_numba, derive_numba
from chronospike.threads import run_chunks

Table = NDArray[np.float32]
_SPARSITY = 3
_AHEAD = 8


@dataclass(frozen=True)
class FastRP:
    """Options. The authors stop at three or four hops; on DBLP the hops 9 to 16 are worth 20 points of Micro-F1 more.

    Attributes:
        dimension: length of a feature vector.
        weights: of the neighbourhoods 1, 2, 3, … hops away.
        normalization: the exponent β; below zero, neighbours with many edges count less.
        threads: CPU threads; all by default.
        seed: of the projection.
    """

    dimension: int = 128
    weights: tuple[float, ...] = (0.0,) * 8 + (1.0,) * 8
    normalization: float = 0.0
    threads: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if self.dimension < 1:
            raise InputError(f"fastrp: dimension is {self.dimension}, and must be at least 1")
        if not self.weights or not any(self.weights) or not np.isfinite(self.weights).all():
            raise InputError(f"fastrp: weights are {list(self.weights)}, and must be finite and not all zero")
        if not -10 <= self.normalization <= 10:
            raise InputError(f"fastrp: normalization is {self.normalization}, and must be in -10..10")
        if self.threads is not None and self.threads < 1:
            raise InputError(f"fastrp: threads is {self.threads}, and must be at least 1")
        if self.seed < 0:
            raise InputError(f"fastrp: seed is {self.seed}, and must be at least 0")

    def recipe(self) -> dict[str, Any]:
        """What the values depend on, for the feature store."""
        options = asdict(self)
        del options["threads"]
        return {"method": "fastrp", **options}


def sparse_projection(keys: NDArray[np.int64], dimension: int, seed: int, threads: int | None = None) -> Table:
    """`[N, d]` of ±√3 with probability 1/6 each, else zero: distances are kept in expectation.

    A row is a function of (seed, its node's key), see `DynamicGraph.node_keys`.
    """
    projection = np.empty((len(keys), dimension), dtype=np.float32)
    base = np.uint64(derive_key(seed))
    run_chunks(lambda low, high: _throw_dice(projection, keys, base, low, high), len(keys), threads)
    return projection


def fastrp_step(graph: DynamicGraph, step: int, options: FastRP, projection: Table | None = None) -> Table:
    """`[N, d]` features of the cumulative snapshot at `step`; nodes without an edge so far are zero."""
    if projection is None:
        projection = sparse_projection(graph.node_keys, options.dimension, options.seed, options.threads)
    snapshot = cumulative_snapshot(graph, step)
    return propagate(snapshot, projection, options.weights, options.normalization, options.threads)


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


@njit(nogil=True, cache=True)
def _throw_dice(projection: Any, keys: Any, base: Any, low: Any, high: Any) -> None:
    """A six-sided die for every cell of the rows low..high-1."""
    root = np.float32(np.sqrt(_SPARSITY))
    for node in range(low, high):
        own, row = derive_numba(base, keys[node]), projection[node]
        for d in range(len(row)):
            die = below_numba(derive_numba(own, d), 2 * _SPARSITY)
            row[d] = root if die == 0 else -root if die == 1 else np.float32(0)


@njit(nogil=True, fastmath={"reassoc", "contract", "nsz", "arcp"}, cache=True)
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
                prefetch_row(source, neighbours[edge + _AHEAD])
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


def write_fastrp(
    folder: Path,
    name: str,
    graph: DynamicGraph,
    options: FastRP,
    graph_key: str,
    dtype: DTypeLike = np.float32,
    on_step: Callable[[int, float], None] | None = None,
    overwrite: bool = False,
    tell: Tell | None = None,
) -> Path:
    """Make the features of all steps and store them under `folder`; goes on where an earlier call was stopped."""
    projection = sparse_projection(graph.node_keys, options.dimension, options.seed, options.threads)
    shape = (graph.num_steps, graph.num_nodes, options.dimension)
    return write_features(
        folder,
        name,
        options.recipe(),
        graph_key,
        shape,
        dtype,
        lambda step: fastrp_step(graph, step, options, projection),
        on_step,
        overwrite,
        tell=tell,
    )
