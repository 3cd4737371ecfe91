"""Walks and skip-gram in plain Python: what the compiled kernels must agree with, draw for draw."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from chronospike.features.biased_walks import Bias
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


def row(snapshot: Snapshot, node: int) -> list[int]:
    first = int(snapshot.indptr[node])
    return [int(v) for v in snapshot.neighbours[first : first + int(snapshot.degrees[node])]]


def move_probabilities(snapshot: Snapshot, old: int, node: int, p: float, q: float) -> dict[int, float]:
    """Where a walk that came from `old` goes on to from `node`, and how likely."""
    near = set(row(snapshot, old))
    weights = {x: 1 / p if x == old else 1.0 if x in near else 1 / q for x in row(snapshot, node)}
    return {x: weight / sum(weights.values()) for x, weight in weights.items()}


def biased_walk(snapshot: Snapshot, start: int, length: int, key: int, bias: Bias) -> list[int]:
    """The walk of at most `length` nodes from `start` with a memory; rows ascend."""
    own = derive(key, int(snapshot.keys[start]))
    nodes = [start]
    while len(nodes) < length and snapshot.degrees[nodes[-1]] > 0:
        neighbours = row(snapshot, nodes[-1])
        if len(nodes) == 1 or len(neighbours) == 1:
            nodes.append(neighbours[below(derive(own, len(nodes)), len(neighbours))])
        else:
            nodes.append(_biased_move(own, len(nodes), neighbours, nodes[-2], set(row(snapshot, nodes[-2])), bias))
    return nodes


def _biased_move(own: int, i: int, neighbours: list[int], old: int, near: set[int], bias: Bias) -> int:
    extra = bias.excess if old in neighbours else 0.0
    for tries in range(len(neighbours)):
        word = derive(own, i + (tries << 32))
        slot = int((word >> 32) * (len(neighbours) + extra) / 2**32) if extra else below(word, len(neighbours))
        if slot >= len(neighbours):
            return old
        node = neighbours[slot]
        if word % 2**32 < (bias.returns if node == old else bias.near if node in near else bias.far):
            return node
    # As many proposals were turned down as there are neighbours: draw one by counting, the return first.
    word = derive(own, i + (len(neighbours) << 32))
    order = [[x for x in neighbours if x == old], [x for x in neighbours if x != old and x in near]]
    order.append([x for x in neighbours if x != old and x not in near])
    weighed = [(x, int(weight)) for group, weight in zip(order, bias[:3], strict=True) for x in group]
    place = int((word >> 11) / 2**53 * sum(weight for _, weight in weighed))
    for node, weight in weighed:
        if place < weight:
            return node
        place -= weight
    return weighed[-1][0]


def negative(noise: NoiseTable, bits: int) -> int:
    """The node that 64 random bits stand for."""
    slot = below(bits, len(noise.aliases))
    own = bits & (2**31 - 1) < noise.thresholds[slot]
    return int(noise.nodes[slot] if own else noise.aliases[slot])


def sgns_loss(v: Array, positive: Array, negatives: Array) -> float:
    """-log σ(z⁺·v) - Σ_k log σ(-z_k·v) for v `[d]`, z⁺ `[d]` and z `[K, d]`."""
    return float(np.logaddexp(0, -positive @ v) + np.logaddexp(0, negatives @ v).sum())


Paths = dict[int, list[tuple[int, int]]]


def centres(
    nodes: list[int], length: int, noise: NoiseTable, schedule: Schedule, number: int, paths: Paths | None
) -> Iterator[tuple[int, list[int], list[int], Array]]:
    """Of each centre its place, those of its contexts, and the output rows with the labels that it should predict.

    `paths` has the (output row, bit) of each node for hierarchical softmax; it is then the only objective where there
    are no negatives. `number` is the key of the start, or the row of the walk.
    """
    key = derive(schedule.key, number)
    for i, centre in enumerate(nodes):
        counter = length + i * (1 + schedule.negatives)
        reach = 1 + below(derive(key, counter), schedule.window)
        drawn = [negative(noise, derive(key, counter + 1 + k)) for k in range(schedule.negatives)]
        contexts = [j for j in range(max(0, i - reach), min(len(nodes), i + reach + 1)) if j != i]
        wanted = [(row, 1 - bit) for row, bit in paths[centre]] if paths else []
        if schedule.negatives:
            wanted += [(centre, 1)] + [(n, 0) for n in drawn if n != centre]
        yield i, contexts, [row for row, _ in wanted], np.array([float(label) for _, label in wanted])


def walk_loss(
    inputs: Array,
    outputs: Array,
    nodes: list[int],
    length: int,
    noise: NoiseTable,
    schedule: Schedule,
    number: int,
    paths: Paths | None = None,
) -> tuple[float, int]:
    """The loss of all pairs of a walk with the tables as they are, and how many pairs there are."""
    loss, pairs = 0.0, 0
    for _, contexts, targets, labels in centres(nodes, length, noise, schedule, number, paths):
        for j in contexts:
            v, z = inputs[nodes[j]], outputs[targets]
            loss += float(np.logaddexp(0, (1 - 2 * labels) * (z @ v)).sum())
        pairs += len(contexts)
    return loss, pairs


def train_walk(
    inputs: Array,
    outputs: Array,
    nodes: list[int],
    length: int,
    noise: NoiseTable,
    schedule: Schedule,
    number: int,
    order: int,
    paths: Paths | None = None,
) -> None:
    """Train both tables, `[N, d]` and with hierarchical softmax more outputs, in place on the walk that is `order`-th.

    The input row of a position is read when it comes into reach of a window and its change is added when it leaves.
    For a centre all scores are taken at the old values, then inputs and outputs change together.
    """
    window, rate = schedule.window, schedule.rate - schedule.drop * order
    rows: dict[int, Array] = {}
    before: dict[int, Array] = {}
    for i, contexts, targets, labels in centres(nodes, length, noise, schedule, number, paths):
        for j in range(i - window, min(i + window + 1, len(nodes))):
            if j >= 0 and j not in rows:
                before[j] = inputs[nodes[j]].copy()
                rows[j] = before[j].copy()
        z = outputs[targets]
        x = np.array([rows[j] for j in contexts]).reshape(-1, inputs.shape[1])
        gains = rate * (labels - 1 / (1 + np.exp(-x @ z.T)))
        for j, change in zip(contexts, gains @ z, strict=True):
            rows[j] = rows[j] + change
        np.add.at(outputs, targets, gains.T @ x)
        if i >= window:
            inputs[nodes[i - window]] += rows[i - window] - before[i - window]
    for j in range(max(0, len(nodes) - window), len(nodes)):
        inputs[nodes[j]] += rows[j] - before[j]
