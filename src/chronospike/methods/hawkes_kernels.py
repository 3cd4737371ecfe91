"""What the compiled forms of HTNE and M2DNE share: the nodes of a record, the intensities of a side, adding changes.

A side is a node `own`, candidates c that it may meet next, and its last neighbours h_i with weights u_i. The intensity

    lambda_c = -|own - c|² - Σ_i u_i |h_i - c|²

needs no distance between a candidate and a neighbour. With everything measured from `own`, m = Σ u_i h_i and U = Σ u_i,

    lambda_c = -(1 + U) |c|² - Σ_i u_i |h_i|² + 2 m·c

and its gradients are sums of the same few rows. The work grows with candidates plus neighbours, not with their product.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from chronospike.compiled import FAST, njit
from chronospike.features.noise import draw_noise
from chronospike.rng_kernels import derive_numba

# Added to a probability before its logarithm is taken, as in the published programs.
_SMALL = 1e-6
_SPREAD, _U32 = np.uint64(2654435761), np.uint64(32)
_LOW = np.uint64(2**32 - 1)

# As in `features/skipgram.py` rows are picked inside the innermost functions: handing them on takes long.


@njit
def fill_uniform(table: Any, keys: Any, base: Any, bound: Any, low: Any, high: Any) -> None:
    """Rows low..high-1 uniform in ±`bound`, each a function of its node's key; 24 bits are what a float32 holds."""
    for node in range(low, high):
        own, row = derive_numba(base, keys[node]), table[node]
        for d in range(len(row)):
            unit = np.float32(derive_numba(own, d) >> np.uint64(40)) * np.float32(2**-24)
            row[d] = (np.float32(2) * unit - np.float32(1)) * bound


@njit
def fill_slots(
    indptr: Any, node: Any, neighbour: Any, moment: Any, mirror: Any, times: Any,
    thresholds: Any, noise_nodes: Any, aliases: Any,
    places: Any, key: Any, negatives: Any, history: Any, nodes: Any, gaps: Any, lengths: Any, low: Any, high: Any,
) -> None:  # fmt: skip
    """The nodes that take part in the records `places[low:high]`, and how long ago their neighbours were met.

    Args:
        nodes: `[B, 2 + S K + S h]`, filled: the two nodes, K negatives and then h neighbours for each of S sides. The
            second side is that of the neighbour. Where a row has fewer neighbours, node 0 at time 0 stands for them.
        gaps: `[B, S h]`, filled: time since each.
        lengths: `[B, S]`, filled: how many neighbours are real.
    """
    sides = lengths.shape[1]
    for b in range(low, high):
        p = np.int64(places[b])
        own = derive_numba(key, p)
        nodes[b, 0], nodes[b, 1] = node[p], neighbour[p]
        for k in range(sides * negatives):
            nodes[b, 2 + k] = draw_noise(derive_numba(own, k), thresholds, noise_nodes, aliases)
        now = times[moment[p]]
        for side in range(sides):
            place = p if side == 0 else np.int64(mirror[p])
            found = min(history, place - indptr[node[place]])
            lengths[b, side] = found
            for i in range(history):
                known = i < found
                slot = side * history + i
                nodes[b, 2 + sides * negatives + slot] = neighbour[place - 1 - i] if known else 0
                gaps[b, slot] = now - times[moment[place - 1 - i]] if known else now


@njit
def add_changes(table: Any, nodes: Any, changes: Any, part: Any, parts: Any) -> None:
    """Add `changes [B, M, d]` to the rows `nodes [B, M]` that belong to one of `parts`, in the order of the batch.

    So a row has the same sum however many threads there are.
    """
    for b in range(len(nodes)):
        for m in range(nodes.shape[1]):
            if ((np.uint64(nodes[b, m]) * _SPREAD & _LOW) * np.uint64(parts)) >> _U32 == np.uint64(part):
                _add(table, nodes[b, m], changes, b, m)


@njit(forceinline=True)
def _add(table: Any, node: Any, changes: Any, b: Any, m: Any) -> None:
    row, change = table[node], changes[b, m]
    for d in range(len(row)):
        row[d] += change[d]


@njit
def add_scalars(table: Any, nodes: Any, column: Any, changes: Any) -> None:
    """Add `changes [B, S]` of a side to `table [N]` at `nodes[:, column]`."""
    for b in range(len(nodes)):
        table[nodes[b, column]] += changes[b, column]


@njit(fastmath=FAST, forceinline=True)
def offset_row(table: Any, node: Any, own: Any, rows: Any, r: Any) -> Any:
    """Put the row of `node` as seen from `own` into `rows[r]`; its squared length."""
    source, origin, row = table[node], table[own], rows[r]
    total = np.float32(0)
    for d in range(len(row)):
        value = source[d] - origin[d]
        row[d] = value
        total += value * value
    return total


@njit(fastmath=FAST, forceinline=True)
def _product(rows: Any, r: Any, other: Any) -> Any:
    one, two = rows[r], rows[other]
    total = np.float32(0)
    for d in range(len(one)):
        total += one[d] * two[d]
    return total


@njit(fastmath=FAST, forceinline=True)
def _weighted_sum(rows: Any, target: Any, first: Any, weights: Any) -> None:
    """`rows[target]` becomes the sum of `rows[first:]` with these weights."""
    out = rows[target]
    out[:] = np.float32(0)
    for i in range(len(weights)):
        row, weight = rows[first + i], np.float32(weights[i])
        for d in range(len(out)):
            out[d] += weight * row[d]


@njit(fastmath=FAST, forceinline=True)
def _write_two(changes: Any, b: Any, m: Any, rows: Any, r: Any, factor: Any, other: Any, second: Any) -> None:
    """`factor` · rows[r] + `second` · rows[other]."""
    out, one, two, f, g = changes[b, m], rows[r], rows[other], np.float32(factor), np.float32(second)
    for d in range(len(out)):
        out[d] = f * one[d] + g * two[d]


@njit(fastmath=FAST, forceinline=True)
def add_row(changes: Any, b: Any, m: Any, rows: Any, r: Any, factor: Any) -> None:
    """Add `factor` · rows[r] to `changes[b, m]`."""
    out, row, f = changes[b, m], rows[r], np.float32(factor)
    for d in range(len(out)):
        out[d] += f * row[d]


@njit(forceinline=True)
def load_side(
    table: Any, nodes: Any, b: Any, own: Any, met: Any, negatives: Any, past: Any, rows: Any, near: Any, far: Any
) -> None:
    """Fill `rows`: the candidates (`nodes[b, met]` and those from `negatives` on), then the neighbours from `past` on.

    `near [C]` and `far [h]` become their squared distances from the node of slot `own`.
    """
    count = len(near)
    near[0] = offset_row(table, nodes[b, met], nodes[b, own], rows, 0)
    for k in range(count - 1):
        near[1 + k] = offset_row(table, nodes[b, negatives + k], nodes[b, own], rows, 1 + k)
    for i in range(len(far)):
        far[i] = offset_row(table, nodes[b, past + i], nodes[b, own], rows, count + i)


@njit(forceinline=True)
def intensities(rows: Any, near: Any, far: Any, weights: Any, found: Any) -> None:
    """Fill `found [C]` with lambda of each candidate. Leaves m in the row after the neighbours."""
    count, history = len(near), len(far)
    _weighted_sum(rows, count + history, count, weights)
    total, known = 0.0, 0.0
    for i in range(history):
        total += weights[i]
        known += weights[i] * far[i]
    for c in range(count):
        found[c] = 2.0 * _product(rows, count + history, c) - (1.0 + total) * near[c] - known


@njit(forceinline=True)
def spread_gains(
    rows: Any, near: Any, far: Any, weights: Any, gains: Any, influence: Any,
    changes: Any, b: Any, own: Any, met: Any, negatives: Any, past: Any, rate: Any,
) -> None:  # fmt: skip
    """The gradient of Σ_c gains_c · lambda_c: with respect to the weights, and -`rate` times those to the nodes.

    Args:
        influence: `[h]`, filled: dL / du_i.
        changes: the neighbours' slots from `past` on and those of the negatives are written; what belongs to the two
            nodes themselves, in slots `own` and `met`, is added.
    """
    count, history = len(near), len(far)
    mean, pull = count + history, count + history + 1
    _weighted_sum(rows, pull, 0, gains)
    total, moved, weighted = 1.0, 0.0, 0.0
    for c in range(count):
        moved += gains[c]
        weighted += gains[c] * near[c]
    for i in range(history):
        total += weights[i]
        influence[i] = 2.0 * _product(rows, count + i, pull) - moved * far[i] - weighted
    step = -2.0 * rate
    add_row(changes, b, own, rows, pull, step)
    add_row(changes, b, met, rows, mean, step * gains[0])
    add_row(changes, b, met, rows, 0, -step * gains[0] * total)
    for k in range(count - 1):
        gain = step * gains[1 + k]
        _write_two(changes, b, negatives + k, rows, mean, gain, 1 + k, -gain * total)
    for i in range(history):
        share = step * weights[i]
        _write_two(changes, b, past + i, rows, pull, share, count + i, -share * moved)


@njit(forceinline=True)
def softmax(scores: Any, found: Any, count: Any) -> None:
    """Of the first `count` scores; the others get nothing."""
    found[:] = 0.0
    if count == 0:
        return
    top, total = scores[0], 0.0
    for i in range(1, count):
        top = max(top, scores[i])
    for i in range(count):
        found[i] = math.exp(scores[i] - top)
        total += found[i]
    for i in range(count):
        found[i] /= total


@njit(forceinline=True)
def through_softmax(shares: Any, gradient: Any) -> None:
    """Turn the gradient with respect to the shares into that with respect to the scores."""
    mean = 0.0
    for i in range(len(shares)):
        mean += shares[i] * gradient[i]
    for i in range(len(shares)):
        gradient[i] = shares[i] * (gradient[i] - mean)


@njit(forceinline=True)
def attract(intensity: Any) -> Any:
    """-log(sigmoid + small) and its derivative."""
    p = 1.0 / (1.0 + math.exp(-intensity))
    return -math.log(p + _SMALL), -p * (1.0 - p) / (p + _SMALL)


@njit(forceinline=True)
def repel(intensity: Any) -> Any:
    """The same of minus the intensity."""
    loss, slope = attract(-intensity)
    return loss, -slope
