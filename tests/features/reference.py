"""Walks and skip-gram in plain Python: what the compiled kernels must agree with, draw for draw."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from chronospike.features.noise import NoiseTable
from chronospike.features.skipgram import Schedule
from chronospike.features.walks import Snapshot
from chronospike.rng import derive
from tests.plain_rng import below

Array = NDArray[np.float64]


def walk(snapshot: Snapshot, start: int, length: int, key: int) -> list[int]:
    """The walk of at most `length` nodes from `start`; `key` is that of the whole pass."""
    own = derive(key, int(snapshot.keys[start]))
    nodes = [start]
    while len(nodes) < length and snapshot.degrees[nodes[-1]] > 0:
        node = nodes[-1]
        index = below(derive(own, len(nodes)), int(snapshot.degrees[node]))
        nodes.append(int(snapshot.neighbours[snapshot.indptr[node] + index]))
    return nodes


def negative(noise: NoiseTable, bits: int) -> int:
    """The node that 64 random bits stand for."""
    slot = below(bits, len(noise.aliases))
    own = bits & (2**31 - 1) < noise.thresholds[slot]
    return int(noise.nodes[slot] if own else noise.aliases[slot])


def sgns_loss(v: Array, positive: Array, negatives: Array) -> float:
    """-log σ(z⁺·v) - Σ_k log σ(-z_k·v) for v `[d]`, z⁺ `[d]` and z `[K, d]`."""
    return float(np.logaddexp(0, -positive @ v) + np.logaddexp(0, negatives @ v).sum())


def train_walk(
    inputs: Array,
    outputs: Array,
    nodes: list[int],
    length: int,
    noise: NoiseTable,
    schedule: Schedule,
    number: int,
    order: int,
) -> None:
    """Train both `[N, d]` tables in place on the walk with this `number` (start's key or row) and place in the `order`.

    The input row of a position is read when it comes into reach of a window and its change is added when it leaves.
    For a centre all scores are taken at the old values, then inputs and outputs change together.
    """
    key, window = derive(schedule.key, number), schedule.window
    rate = schedule.rate - schedule.drop * order
    rows: dict[int, Array] = {}
    before: dict[int, Array] = {}
    for i, centre in enumerate(nodes):
        for j in range(i - window, min(i + window + 1, len(nodes))):
            if j >= 0 and j not in rows:
                before[j] = inputs[nodes[j]].copy()
                rows[j] = before[j].copy()
        counter = length + i * (1 + schedule.negatives)
        reach = 1 + below(derive(key, counter), window)
        drawn = [negative(noise, derive(key, counter + 1 + k)) for k in range(schedule.negatives)]
        targets = [centre] + [n for n in drawn if n != centre]
        labels = np.array([1.0] + [0.0] * (len(targets) - 1))
        z = outputs[targets]
        contexts = [j for j in range(max(0, i - reach), min(len(nodes), i + reach + 1)) if j != i]
        x = np.array([rows[j] for j in contexts]).reshape(-1, inputs.shape[1])
        gains = rate * (labels - 1 / (1 + np.exp(-x @ z.T)))
        for j, change in zip(contexts, gains @ z, strict=True):
            rows[j] = rows[j] + change
        np.add.at(outputs, targets, gains.T @ x)
        if i >= window:
            inputs[nodes[i - window]] += rows[i - window] - before[i - window]
    for j in range(max(0, len(nodes) - window), len(nodes)):
        inputs[nodes[j]] += rows[j] - before[j]
