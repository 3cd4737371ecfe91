"""Skip-gram with negative sampling on random walks, compiled for the CPU.

word2vec's conventions: the window of a centre is drawn from 1..window; a negative that equals the positive is skipped;
the learning rate falls linearly; input rows start in ±1/(2d), output rows at zero. As in gensim, the input row is the
context's and the output row the centre's. Two things make it quick without changing the objective:

* the negatives are drawn once per centre, so that its contexts meet the same few output rows and the work is a small
  matrix product, done four contexts and two outputs at a time;
* the input row of each position in the walk is kept in a buffer while it can be in a window, and its change is added
  to the table when it leaves. Threads (Hogwild, no locks) then rarely touch the same memory.

The result is the same bits again with one thread, and not with several. `tests/features/reference.py` says the same
thing slowly.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from chronospike.cache_hints import prefetch
from chronospike.compiled import njit
from chronospike.features.noise import NoiseTable, draw_noise
from chronospike.features.walks import Snapshot, derive_key, walk_into
from chronospike.rng_kernels import below_numba, derive_numba
from chronospike.threads import run_chunks

Table = NDArray[np.float32]
OnWalks = Callable[[int], None]

# What lets the compiler use vector instructions for sums, and nothing that assumes there are no NaNs.
_FAST = {"reassoc", "contract", "nsz", "arcp"}
_CHUNK_TOKENS = 2**20
_ROWS = 4
_AHEAD = 2
# Where the passes of a seed have their step.
_INITIAL = -1


class Schedule(NamedTuple):
    """How the windows, the negatives and the learning rate of a run of walks are drawn.

    Attributes:
        window, negatives: as in word2vec.
        key: of the random draws.
        rate: learning rate of the first walk.
        drop: by how much it falls with each walk.
    """

    window: int
    negatives: int
    key: int
    rate: float
    drop: float


def initial_tables(
    keys: NDArray[np.int64], dimension: int, seed: int, threads: int | None = None
) -> tuple[Table, Table]:
    """Input rows uniform in ±1/(2d), each a function of (seed, its node's key), and output rows zero, both `[N, d]`."""
    inputs = np.empty((len(keys), dimension), dtype=np.float32)
    base = np.uint64(derive_key(seed, _INITIAL))
    run_chunks(lambda low, high: _fill_uniform(inputs, keys, base, low, high), len(keys), threads)
    return inputs, np.zeros_like(inputs)


def train_on_graph(
    tables: tuple[Table, Table],
    snapshot: Snapshot,
    starts: NDArray[np.int32],
    length: int,
    noise: NoiseTable,
    schedule: Schedule,
    threads: int | None = None,
    on_walks: OnWalks | None = None,
) -> None:
    """Train in place on one walk from each of `starts`, made and consumed by the same thread: no corpus is held."""
    window, negatives, key, rate, drop = schedule
    settings, keys = (window, negatives, np.uint64(key), float(rate), float(drop)), snapshot.keys[starts]
    # A chunk after the other, so that the threads go down the learning rate together.
    chunk = max(1, _CHUNK_TOKENS // length)
    for first in range(0, len(starts), chunk):
        count = min(chunk, len(starts) - first)

        def work(low: int, high: int, first: int = first) -> None:
            share = first + low, first + high
            _train_on_graph(*tables, *snapshot.rows, starts, keys, length, *noise, *settings, *share)

        run_chunks(work, count, threads)
        if on_walks:
            on_walks(first + count)


# Arrays are handed on one by one and rows are picked inside the innermost functions: a tuple of arrays, or a row
# made further out, has its reference count changed atomically at every use, which costs more than the arithmetic.


@njit
def _fill_uniform(inputs: Any, keys: Any, base: Any, low: Any, high: Any) -> None:
    """24 random bits are as many as a float32 holds."""
    dimension = inputs.shape[1]
    for node in range(low, high):
        own, row = derive_numba(base, keys[node]), inputs[node]
        for d in range(dimension):
            unit = np.float32(derive_numba(own, d) >> np.uint64(40)) * np.float32(2**-24)
            row[d] = (unit - np.float32(0.5)) / np.float32(dimension)


@njit
def _train_on_graph(
    inputs: Any, outputs: Any, indptr: Any, degrees: Any, neighbours: Any, starts: Any, keys: Any, length: Any,
    thresholds: Any, nodes: Any, aliases: Any,
    window: Any, negatives: Any, base: Any, rate: Any, drop: Any, low: Any, high: Any,
) -> None:  # fmt: skip
    walk, reach, drawn = _walk_buffers(length, negatives)
    rows, before, targets, changes, gains = _row_buffers(length, inputs.shape[1], negatives)
    for w in range(low, high):
        key = derive_numba(base, keys[w])
        size = walk_into(walk, indptr, degrees, neighbours, starts[w], key)
        _draw_ahead(reach, drawn, size, key, length, window, thresholds, nodes, aliases)
        now = np.float32(rate - drop * w)
        _train_walk(inputs, outputs, walk, reach, drawn, rows, before, targets, changes, gains, size, window, now)


@njit
def _walk_buffers(length: Any, negatives: Any) -> Any:
    """The walk `[L]`, the window drawn for each centre `[L]` and its negatives `[L, K]`."""
    return np.empty(length, np.int32), np.empty(length, np.int64), np.empty((length, negatives), np.int32)


@njit
def _row_buffers(length: Any, dimension: Any, negatives: Any) -> Any:
    """Working memory of one thread; R is 1 + negatives, made even.

    Input rows of the positions in reach `[L + 4, d]` and as they were read `[L, d]`; output rows of the centre and its
    negatives `[R, d]` and their changes `[R, d]`; scores, and later gains, of each output and position `[R, L + 4]`.
    """
    count = (negatives + 2) // 2 * 2
    return (
        np.zeros((length + _ROWS, dimension), np.float32),
        np.zeros((length, dimension), np.float32),
        np.zeros((count, dimension), np.float32),
        np.zeros((count, dimension), np.float32),
        np.zeros((count, length + _ROWS), np.float32),
    )


@njit
def _draw_ahead(
    reach: Any, drawn: Any, size: Any, key: Any, length: Any, window: Any, thresholds: Any, nodes: Any, aliases: Any
) -> None:
    """Windows and negatives of the whole walk. The walk itself has used the counters below `length`."""
    negatives = drawn.shape[1]
    for i in range(size):
        counter = length + i * (1 + negatives)
        reach[i] = 1 + below_numba(derive_numba(key, counter), window)
        for k in range(negatives):
            drawn[i, k] = draw_noise(derive_numba(key, counter + 1 + k), thresholds, nodes, aliases)


@njit(fastmath=_FAST)
def _train_walk(
    inputs: Any, outputs: Any, walk: Any, reach: Any, drawn: Any,
    rows: Any, before: Any, targets: Any, changes: Any, gains: Any, size: Any, window: Any, rate: Any,
) -> None:  # fmt: skip
    negatives, count = drawn.shape[1], len(gains)
    for i in range(size):
        prefetch(inputs, walk[i])
    for i in range(min(window, size)):
        _enter(inputs, walk[i], rows, before, i)
    for i in range(size):
        if i + window < size:
            _enter(inputs, walk[i + window], rows, before, i + window)
        if i + _AHEAD < size:
            prefetch(outputs, walk[i + _AHEAD])
            for k in range(negatives):
                prefetch(outputs, drawn[i + _AHEAD, k])
        low, high = max(0, i - reach[i]), min(size, i + reach[i] + 1)
        _enter(outputs, walk[i], targets, changes, 0)
        for k in range(negatives):
            _enter(outputs, drawn[i, k], targets, changes, 1 + k)
        for r in range(0, count, 2):
            for first in range(low, high, _ROWS):
                _scores(rows, targets, gains, r, first)
        _to_gains(gains, 0, low, high, np.float32(1), rate)
        for k in range(negatives):
            skipped = drawn[i, k] == walk[i]
            _to_gains(gains, 1 + k, low, high, np.float32(0), np.float32(0) if skipped else rate)
        _silence(gains, i, high)
        for r in range(0, count, 2):
            for first in range(low, high, _ROWS):
                _change_outputs(rows, changes, gains, r, first)
        for r in range(0, count, 2):
            for first in range(low, high, _ROWS):
                _change_inputs(rows, targets, gains, r, first)
        _leave(outputs, walk[i], changes, targets, 0)
        for k in range(negatives):
            _leave(outputs, drawn[i, k], changes, targets, 1 + k)
        if i >= window:
            _leave(inputs, walk[i - window], rows, before, i - window)
    for i in range(max(0, size - window), size):
        _leave(inputs, walk[i], rows, before, i)


@njit(fastmath=_FAST, forceinline=True)
def _enter(table: Any, node: Any, rows: Any, before: Any, i: Any) -> None:
    source, row, old = table[node], rows[i], before[i]
    for d in range(len(source)):
        value = source[d]
        row[d] = value
        old[d] = value


@njit(fastmath=_FAST, forceinline=True)
def _leave(table: Any, node: Any, rows: Any, before: Any, i: Any) -> None:
    target, row, old = table[node], rows[i], before[i]
    for d in range(len(target)):
        target[d] += row[d] - old[d]


@njit(forceinline=True)
def _silence(gains: Any, centre: Any, end: Any) -> None:
    """The blocks of rows run over the centre itself and past the window's end: no gain there."""
    for r in range(len(gains)):
        gains[r, centre] = gains[r, end] = gains[r, end + 1] = gains[r, end + 2] = np.float32(0)


@njit(fastmath=_FAST, forceinline=True)
def _scores(rows: Any, outputs: Any, scores: Any, r: Any, first: Any) -> None:
    """Products of four input rows with two output rows."""
    x0, x1, x2, x3 = rows[first], rows[first + 1], rows[first + 2], rows[first + 3]
    y, z = outputs[r], outputs[r + 1]
    y0 = y1 = y2 = y3 = z0 = z1 = z2 = z3 = np.float32(0)
    for d in range(len(y)):
        y0 += x0[d] * y[d]
        y1 += x1[d] * y[d]
        y2 += x2[d] * y[d]
        y3 += x3[d] * y[d]
        z0 += x0[d] * z[d]
        z1 += x1[d] * z[d]
        z2 += x2[d] * z[d]
        z3 += x3[d] * z[d]
    scores[r, first], scores[r, first + 1], scores[r, first + 2], scores[r, first + 3] = y0, y1, y2, y3
    scores[r + 1, first], scores[r + 1, first + 1], scores[r + 1, first + 2], scores[r + 1, first + 3] = z0, z1, z2, z3


@njit(fastmath=_FAST, forceinline=True)
def _to_gains(gains: Any, r: Any, low: Any, high: Any, label: Any, rate: Any) -> None:
    """(label - sigmoid(score)) · rate. The sigmoid is Lambert's fraction for tanh, 9 terms: 2e-5 off at most."""
    scores = gains[r]
    for j in range(low, high):
        score = scores[j]
        score = score if score < np.float32(10) else np.float32(10)
        score = score if score > np.float32(-10) else np.float32(-10)
        x = np.float32(0.5) * score
        s = x * x
        top = np.float32(990) + s
        top = np.float32(135135) + s * top
        top = np.float32(4729725) + s * top
        top = np.float32(34459425) + s * top
        bottom = np.float32(13860) + s * np.float32(45)
        bottom = np.float32(945945) + s * bottom
        bottom = np.float32(16216200) + s * bottom
        bottom = np.float32(34459425) + s * bottom
        scores[j] = (label - np.float32(0.5) - np.float32(0.5) * x * top / bottom) * rate


@njit(fastmath=_FAST, forceinline=True)
def _change_outputs(rows: Any, changes: Any, gains: Any, r: Any, first: Any) -> None:
    x0, x1, x2, x3 = rows[first], rows[first + 1], rows[first + 2], rows[first + 3]
    y, z = changes[r], changes[r + 1]
    y0, y1, y2, y3 = gains[r, first], gains[r, first + 1], gains[r, first + 2], gains[r, first + 3]
    z0, z1, z2, z3 = gains[r + 1, first], gains[r + 1, first + 1], gains[r + 1, first + 2], gains[r + 1, first + 3]
    for d in range(len(y)):
        a, b, c, e = x0[d], x1[d], x2[d], x3[d]
        y[d] += y0 * a + y1 * b + y2 * c + y3 * e
        z[d] += z0 * a + z1 * b + z2 * c + z3 * e


@njit(fastmath=_FAST, forceinline=True)
def _change_inputs(rows: Any, outputs: Any, gains: Any, r: Any, first: Any) -> None:
    x0, x1, x2, x3 = rows[first], rows[first + 1], rows[first + 2], rows[first + 3]
    y, z = outputs[r], outputs[r + 1]
    y0, y1, y2, y3 = gains[r, first], gains[r, first + 1], gains[r, first + 2], gains[r, first + 3]
    z0, z1, z2, z3 = gains[r + 1, first], gains[r + 1, first + 1], gains[r + 1, first + 2], gains[r + 1, first + 3]
    for d in range(len(y)):
        a, b = y[d], z[d]
        x0[d] += y0 * a + z0 * b
        x1[d] += y1 * a + z1 * b
        x2[d] += y2 * a + z2 * b
        x3[d] += y3 * a + z3 * b
