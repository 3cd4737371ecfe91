"""The kernels of skip-gram that its objectives share: draws of a walk, and blocks of four input and two output rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from chronospike.cache_hints import prefetch
from chronospike.compiled import FAST, njit
from chronospike.features.noise import draw_noise
from chronospike.rng_kernels import below_numba, derive_numba

ROWS = 4
_AHEAD = 2


# Arrays are handed on one by one and rows are picked inside the innermost functions: a tuple of arrays, or a row
# made further out, has its reference count changed atomically at every use, which costs more than the arithmetic.


@njit
def read_walk(walks: Any, w: Any, walk: Any) -> Any:
    """Copy walk number `w` and return how many nodes it has."""
    for i in range(len(walk)):
        if walks[w, i] < 0:
            return i
        walk[i] = walks[w, i]
    return len(walk)


@njit
def count_pairs(reach: Any, size: Any) -> Any:
    pairs = 0
    for i in range(size):
        pairs += min(size - 1, i + reach[i]) - max(0, i - reach[i])
    return pairs


@njit
def walk_loss(inputs: Any, outputs: Any, walk: Any, reach: Any, drawn: Any, size: Any) -> Any:
    """The loss of all pairs of a walk with the tables as they are: -log σ(z·x) of the centre, -log σ(-z·x) of noise."""
    loss = 0.0
    for i in range(size):
        for j in range(max(0, i - reach[i]), min(size, i + reach[i] + 1)):
            if j != i:
                loss += output_loss(inputs, outputs, walk[j], walk[i], 1.0)
                for k in range(drawn.shape[1]):
                    if drawn[i, k] != walk[i]:
                        loss += output_loss(inputs, outputs, walk[j], drawn[i, k], -1.0)
    return loss


@njit
def path_loss(
    inputs: Any, inner: Any, walk: Any, reach: Any, size: Any,
    leaves: Any, parents: Any, bits: Any, path: Any, turns: Any,
) -> Any:  # fmt: skip
    """The same of the turns on the path of each centre."""
    loss = 0.0
    for i in range(size):
        steps = find_path(leaves, walk[i], parents, bits, path, turns)
        for j in range(max(0, i - reach[i]), min(size, i + reach[i] + 1)):
            if j != i:
                for step in range(steps):
                    loss += output_loss(inputs, inner, walk[j], path[step], 2.0 * turns[step] - 1.0)
    return loss


@njit(fastmath=FAST)
def output_loss(inputs: Any, outputs: Any, node: Any, output: Any, sign: Any) -> Any:
    """-log σ(sign · z·x) of an input row x and an output row z."""
    x, z, score = inputs[node], outputs[output], np.float32(0)
    for d in range(len(x)):
        score += x[d] * z[d]
    signed = sign * np.float64(score)
    return max(0.0, -signed) + np.log1p(np.exp(-abs(signed)))


@njit
def find_path(leaves: Any, node: Any, parents: Any, bits: Any, path: Any, turns: Any) -> Any:
    """Write the inner nodes above a node's leaf, and 1 for a turn to the first child, 0 to the second; how many."""
    size = (len(parents) + 1) // 2
    steps, place = 0, np.int64(leaves[node])
    while place >= 0 and parents[place] >= 0:
        path[steps], turns[steps] = parents[place], np.float32(1 - bits[place])
        place = size + parents[place]
        steps += 1
    return steps


@njit
def walk_buffers(length: Any, negatives: Any) -> Any:
    """The walk `[L]`, the window drawn for each centre `[L]` and its negatives `[L, K]`."""
    return np.empty(length, np.int32), np.empty(length, np.int64), np.empty((length, negatives), np.int32)


@njit
def row_buffers(length: Any, dimension: Any, negatives: Any) -> Any:
    """Working memory of one thread; R is 1 + negatives, made even.

    Input rows of the positions in reach `[L + 4, d]` and as they were read `[L, d]`; output rows of the centre and its
    negatives `[R, d]` and their changes `[R, d]`; scores, and later gains, of each output and position `[R, L + 4]`.
    """
    count = (negatives + 2) // 2 * 2
    return (
        np.zeros((length + ROWS, dimension), np.float32),
        np.zeros((length, dimension), np.float32),
        np.zeros((count, dimension), np.float32),
        np.zeros((count, dimension), np.float32),
        np.zeros((count, length + ROWS), np.float32),
    )


@njit
def draw_ahead(
    reach: Any, drawn: Any, size: Any, key: Any, length: Any, window: Any, thresholds: Any, nodes: Any, aliases: Any
) -> None:
    """Windows and negatives of the whole walk. The walk itself has used the counters below `length`."""
    negatives = drawn.shape[1]
    for i in range(size):
        counter = length + i * (1 + negatives)
        reach[i] = 1 + below_numba(derive_numba(key, counter), window)
        for k in range(negatives):
            drawn[i, k] = draw_noise(derive_numba(key, counter + 1 + k), thresholds, nodes, aliases)


@njit(fastmath=FAST)
def train_walk(
    inputs: Any, outputs: Any, inner: Any, walk: Any, reach: Any, drawn: Any,
    leaves: Any, parents: Any, bits: Any, path: Any, turns: Any,
    rows: Any, before: Any, targets: Any, changes: Any, gains: Any, size: Any, window: Any, rate: Any,
) -> None:  # fmt: skip
    """The output rows of a centre are those of its path, if there is a tree, then with negatives its own and theirs.

    `leaves` is None without a tree, `outputs` without negatives: the kernel is then compiled without these.
    """
    negatives = drawn.shape[1]
    for i in range(size):
        prefetch(inputs, walk[i])
    for i in range(min(window, size)):
        enter(inputs, walk[i], rows, before, i)
    for i in range(size):
        if i + window < size:
            enter(inputs, walk[i + window], rows, before, i + window)
        if outputs is not None and i + _AHEAD < size:
            prefetch(outputs, walk[i + _AHEAD])
            for k in range(negatives):
                prefetch(outputs, drawn[i + _AHEAD, k])
        low, high = max(0, i - reach[i]), min(size, i + reach[i] + 1)
        steps = 0
        if leaves is not None:
            steps = find_path(leaves, walk[i], parents, bits, path, turns)
        for step in range(steps):
            prefetch(inner, path[step])
        for step in range(steps):
            enter(inner, path[step], targets, changes, step)
        used = steps
        if outputs is not None:
            used += 1 + negatives
            enter(outputs, walk[i], targets, changes, steps)
            for k in range(negatives):
                enter(outputs, drawn[i, k], targets, changes, steps + 1 + k)
        for r in range(0, used, 2):
            for first in range(low, high, ROWS):
                scores(rows, targets, gains, r, first)
        for step in range(steps):
            to_gains(gains, step, low, high, turns[step], rate)
        if outputs is not None:
            to_gains(gains, steps, low, high, np.float32(1), rate)
            for k in range(negatives):
                skipped = drawn[i, k] == walk[i]
                to_gains(gains, steps + 1 + k, low, high, np.float32(0), np.float32(0) if skipped else rate)
        if used % 2 == 1:
            # The row that makes them even is left from another centre.
            for j in range(low, high):
                gains[used, j] = np.float32(0)
        silence(gains, i, high)
        for r in range(0, used, 2):
            for first in range(low, high, ROWS):
                change_outputs(rows, changes, gains, r, first)
        for r in range(0, used, 2):
            for first in range(low, high, ROWS):
                change_inputs(rows, targets, gains, r, first)
        for step in range(steps):
            leave(inner, path[step], changes, targets, step)
        if outputs is not None:
            leave(outputs, walk[i], changes, targets, steps)
            for k in range(negatives):
                leave(outputs, drawn[i, k], changes, targets, steps + 1 + k)
        if i >= window:
            leave(inputs, walk[i - window], rows, before, i - window)
    for i in range(max(0, size - window), size):
        leave(inputs, walk[i], rows, before, i)


@njit(fastmath=FAST, forceinline=True)
def enter(table: Any, node: Any, rows: Any, before: Any, i: Any) -> None:
    source, row, old = table[node], rows[i], before[i]
    for d in range(len(source)):
        value = source[d]
        row[d] = value
        old[d] = value


@njit(fastmath=FAST, forceinline=True)
def leave(table: Any, node: Any, rows: Any, before: Any, i: Any) -> None:
    target, row, old = table[node], rows[i], before[i]
    for d in range(len(target)):
        target[d] += row[d] - old[d]


@njit(forceinline=True)
def silence(gains: Any, centre: Any, end: Any) -> None:
    """The blocks of rows run over the centre itself and past the window's end: no gain there."""
    for r in range(len(gains)):
        gains[r, centre] = gains[r, end] = gains[r, end + 1] = gains[r, end + 2] = np.float32(0)


@njit(fastmath=FAST, forceinline=True)
def scores(rows: Any, outputs: Any, found: Any, r: Any, first: Any) -> None:
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
    found[r, first], found[r, first + 1], found[r, first + 2], found[r, first + 3] = y0, y1, y2, y3
    found[r + 1, first], found[r + 1, first + 1], found[r + 1, first + 2], found[r + 1, first + 3] = z0, z1, z2, z3


@njit(fastmath=FAST, forceinline=True)
def to_gains(gains: Any, r: Any, low: Any, high: Any, label: Any, rate: Any) -> None:
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


@njit(fastmath=FAST, forceinline=True)
def change_outputs(rows: Any, changes: Any, gains: Any, r: Any, first: Any) -> None:
    x0, x1, x2, x3 = rows[first], rows[first + 1], rows[first + 2], rows[first + 3]
    y, z = changes[r], changes[r + 1]
    y0, y1, y2, y3 = gains[r, first], gains[r, first + 1], gains[r, first + 2], gains[r, first + 3]
    z0, z1, z2, z3 = gains[r + 1, first], gains[r + 1, first + 1], gains[r + 1, first + 2], gains[r + 1, first + 3]
    for d in range(len(y)):
        a, b, c, e = x0[d], x1[d], x2[d], x3[d]
        y[d] += y0 * a + y1 * b + y2 * c + y3 * e
        z[d] += z0 * a + z1 * b + z2 * c + z3 * e


@njit(fastmath=FAST, forceinline=True)
def change_inputs(rows: Any, outputs: Any, gains: Any, r: Any, first: Any) -> None:
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
