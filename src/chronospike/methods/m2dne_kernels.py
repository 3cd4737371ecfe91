"""The gradients of M2DNE, compiled for the CPU; `m2dne.py` says what is computed, and the same in torch."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from chronospike.cache_hints import prefetch
from chronospike.compiled import FAST, njit
from chronospike.methods.hawkes_kernels import (
    add_row,
    attract,
    intensities,
    load_side,
    repel,
    softmax,
    spread_gains,
    through_softmax,
)

_SMALL, _LEAK = 1e-6, 0.2
# In log space the macro loss is nearly a square, and a step of 2 over its curvature comes no closer to the least.
LONGEST_STEP, LEAST_ZETA = 1.9, 1e-3


@njit
def m2dne_gradients(
    vectors: Any, decays: Any, other_decays: Any, is_tied: Any, attention: Any, bias: Any, growth: Any, logs: Any,
    nodes: Any, gaps: Any, lengths: Any, moments: Any,
    changes: Any, decay_changes: Any, losses: Any, growth_changes: Any, attention_changes: Any,
    negatives: Any, history: Any, macro: Any, divisor: Any, rate: Any, low: Any, high: Any,
) -> None:  # fmt: skip
    """Fill what the records low..high-1 change.

    Args:
        decays, other_decays: `[N]` of the first node's side and of the second's.
        attention: `[3, d]` the vectors that the attention layers amount to, see `m2dne.Attention`; bias: `[1]`.
        growth: `[3]` zeta, gamma, theta.
        logs: `[M, 4]` see `m2dne.growth_logs`.
        nodes, gaps, lengths: see `hawkes_kernels.fill_slots`, with two sides; moments: `[B]`.
        changes: `[B, 2 + 2 K + 2 h, d]`, decay_changes: `[B, 2]`, losses: `[B]`, all filled.
        growth_changes: `[B, 4]`, filled: gradients of zeta, gamma and theta, and the curvature.
        attention_changes: `[B, 3 + 4 h]`, filled: the gradient of the bias; how much of each node is in that of the
            first vector, of each neighbour in that of the second, and in that of the third.
        macro: share of the macro part in the loss; divisor: of its mean.
    """
    count, width = 1 + negatives, vectors.shape[1]
    rows = np.empty((2, count + history + 2, width), np.float32)
    near, found, gains = np.empty((2, count)), np.empty((2, count)), np.empty((2, count))
    far, weights, influence = np.empty((2, history)), np.empty((2, history)), np.empty((2, history))
    scores, fades, shares = np.empty((2, history)), np.empty((2, history)), np.empty((2, history))
    values, kernel, activated = np.empty((2, history)), np.empty((2, history)), np.empty((2, history))
    level, fade, out, mix = np.empty(2), np.empty(2), np.empty(2), np.empty(2)
    for b in range(low, high):
        if b + 1 < high:
            for m in range(nodes.shape[1]):
                prefetch(vectors, nodes[b + 1, m])
        for side in range(2):
            past = 2 + 2 * negatives + side * history
            load_side(vectors, nodes, b, side, 1 - side, 2 + side * negatives, past, rows[side], near[side], far[side])
            own = decays[nodes[b, 0]] if side == 0 else other_decays[nodes[b, 1]]
            used = decays[nodes[b, 0]] if is_tied else own
            _attend(
                vectors, attention, nodes, gaps, b, side, past, lengths[b, side], own, used,
                scores, fades, activated, shares, values, kernel, level, fade,
            )  # fmt: skip
            out[side] = math.tanh(level[side] * fade[side] + bias[0])
        mix[0] = 1.0 / (1.0 + math.exp(out[1] - out[0]))
        mix[1] = 1.0 - mix[0]
        for side in range(2):
            for i in range(history):
                weights[side, i] = mix[side] * shares[side, i] * kernel[side, i]
            intensities(rows[side], near[side], far[side], weights[side], found[side])

        # Both sides have the distance of the two nodes, which counts once.
        distance = near[0, 0]
        loss, gain = attract(found[0, 0] + found[1, 0] + distance)
        for side in range(2):
            gains[side, 0] = (1.0 - macro) * gain
            for c in range(1, count):
                more, slope = repel(found[side, c])
                loss += more
                gains[side, c] = (1.0 - macro) * slope
        large, slope = _grow(growth, logs, moments[b], distance, growth_changes, b, macro / divisor)
        losses[b] = (1.0 - macro) * loss + large

        changes[b, 0] = changes[b, 1] = np.float32(0)
        for side in range(2):
            spread_gains(
                rows[side], near[side], far[side], weights[side], gains[side], influence[side],
                changes, b, side, 1 - side, 2 + side * negatives, 2 + 2 * negatives + side * history, rate,
            )  # fmt: skip
        apart = 2.0 * rate * (gains[0, 0] + slope)
        add_row(changes, b, 0, rows[0], 0, apart)
        add_row(changes, b, 1, rows[0], 0, -apart)
        _attend_back(
            attention, gaps, b, is_tied, influence, weights, scores, fades, shares, values, kernel, level, fade, out,
            mix, lengths, changes, decay_changes, attention_changes, 2 + 2 * negatives, rate,
        )  # fmt: skip


@njit(fastmath=FAST, forceinline=True)
def _projections(vectors: Any, node: Any, attention: Any) -> Any:
    """Products of a row with the three vectors."""
    row, p, r, v = vectors[node], attention[0], attention[1], attention[2]
    one = two = three = np.float32(0)
    for d in range(len(row)):
        one += row[d] * p[d]
        two += row[d] * r[d]
        three += row[d] * v[d]
    return one, two, three


@njit(forceinline=True)
def _attend(
    vectors: Any, attention: Any, nodes: Any, gaps: Any, b: Any, side: Any, past: Any, length: Any, own: Any, used: Any,
    scores: Any, fades: Any, activated: Any, shares: Any, values: Any, kernel: Any, level: Any, fade: Any,
) -> None:  # fmt: skip
    """Attention of one side to its neighbours, and what they add up to for the mix of both sides.

    `own` is the decay of the side, `used` the one in its attention.
    """
    history, mean = scores.shape[1], 0.0
    base = _projections(vectors, nodes[b, side], attention)[0]
    for i in range(history):
        gap = np.float64(gaps[b, side * history + i])
        mean += gap / history
        _, key, values[side, i] = _projections(vectors, nodes[b, past + i], attention)
        scores[side, i] = base + key
        fades[side, i] = math.exp(-used * gap)
        activated[side, i] = fades[side, i] * scores[side, i] * (1.0 if scores[side, i] > 0 else _LEAK)
        kernel[side, i] = math.exp(own * gap) if i < length else 0.0
    softmax(activated[side], shares[side], history)
    level[side], fade[side] = 0.0, math.exp(-own * mean)
    for i in range(length):
        level[side] += shares[side, i] * values[side, i]


@njit(forceinline=True)
def _attend_back(
    attention: Any, gaps: Any, b: Any, is_tied: Any, influence: Any, weights: Any, scores: Any, fades: Any, shares: Any,
    values: Any, kernel: Any, level: Any, fade: Any, out: Any, mix: Any, lengths: Any,
    changes: Any, decay_changes: Any, attention_changes: Any, first: Any, rate: Any,
) -> None:  # fmt: skip
    """From dL / du (`influence`) back to nodes, decays and the three vectors. Uses `influence` up."""
    history, to_mix = scores.shape[1], 0.0
    for i in range(history):
        to_mix += influence[0, i] * shares[0, i] * kernel[0, i] - influence[1, i] * shares[1, i] * kernel[1, i]
    to_out = mix[0] * mix[1] * to_mix
    decay_changes[b, 0] = decay_changes[b, 1] = attention_changes[b, 0] = 0.0
    for side in range(2):
        to_sum = (to_out if side == 0 else -to_out) * (1.0 - out[side] * out[side])
        to_level = to_sum * fade[side]
        mean = to_own = to_used = to_base = 0.0
        for i in range(history):
            gap = np.float64(gaps[b, side * history + i])
            mean += gap / history
            to_own += influence[side, i] * weights[side, i] * gap
            influence[side, i] *= mix[side] * kernel[side, i]
            if i < lengths[b, side]:
                influence[side, i] += to_level * values[side, i]
        to_own -= to_level * level[side] * mean
        through_softmax(shares[side], influence[side])
        for i in range(history):
            slope = influence[side, i] * fades[side, i] * (1.0 if scores[side, i] > 0 else _LEAK)
            to_used -= slope * scores[side, i] * gaps[b, side * history + i]
            to_base += slope
            value = to_level * shares[side, i] if i < lengths[b, side] else 0.0
            slot = side * history + i
            _add_two(changes, b, first + slot, attention, slope, value, rate)
            attention_changes[b, 3 + slot], attention_changes[b, 3 + 2 * history + slot] = slope, value
        add_row(changes, b, side, attention, 0, -rate * to_base)
        attention_changes[b, 0] += to_sum
        attention_changes[b, 1 + side] = to_base
        decay_changes[b, side] -= rate * to_own
        decay_changes[b, 0 if is_tied else side] -= rate * to_used


@njit(fastmath=FAST, forceinline=True)
def _add_two(changes: Any, b: Any, m: Any, attention: Any, key: Any, value: Any, rate: Any) -> None:
    out, r, v = changes[b, m], attention[1], attention[2]
    f, g = np.float32(-rate * key), np.float32(-rate * value)
    for d in range(len(out)):
        out[d] += f * r[d] + g * v[d]


@njit(forceinline=True)
def _grow(growth: Any, logs: Any, moment: Any, distance: Any, changes: Any, b: Any, factor: Any) -> Any:
    """The macro loss of a record times `factor`, and its derivative with respect to the squared distance."""
    fewer, time, known, added = logs[moment, 0], logs[moment, 1], logs[moment, 2], logs[moment, 3]
    edge = -distance - math.log1p(math.exp(-distance))
    predicted = math.exp(edge + known + math.log(growth[0]) + growth[1] * fewer - growth[2] * time)
    miss = math.log(predicted + _SMALL) - added
    slope = 2.0 * factor * miss * predicted / (predicted + _SMALL)
    changes[b, 0] = slope / growth[0]
    changes[b, 1] = slope * fewer
    changes[b, 2] = -slope * time
    changes[b, 3] = 2.0 * factor * (1.0 / (growth[0] * growth[0]) + fewer * fewer + time * time)
    return factor * miss * miss, -slope / (1.0 + math.exp(-distance))


@njit
def descend_growth(growth: Any, changes: Any, count: Any, rate: Any) -> None:
    """A step of ζ, γ and θ down the gradients of `count` records, `changes [B, 4]`.

    It is shortened where it would overshoot: the published step does so on graphs with far more nodes than DBLP, or
    with many events at time 0, and ends with numbers that are none.
    """
    sums = np.zeros(4)
    for b in range(count):
        for i in range(4):
            sums[i] += changes[b, i]
    step = min(rate, LONGEST_STEP / max(sums[3], _SMALL))
    for i in range(3):
        growth[i] -= step * sums[i]
    growth[0] = max(growth[0], LEAST_ZETA)
