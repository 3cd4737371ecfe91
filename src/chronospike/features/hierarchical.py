"""Skip-gram with hierarchical softmax on random walks, alone or beside negative sampling, compiled for the CPU.

The centre is predicted from each context by the turns of its path in Huffman's tree: with x the context's input row
and θ the row of an inner node, a turn costs -log σ((1 - 2 bit) θ·x). Windows, negatives, the learning rate and the
input rows that are kept while they are in reach are those of `skipgram.py`. Where both objectives are trained, all
scores of a centre are taken at the old values and the changes are added up, as word2vec does.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from chronospike.cache_hints import prefetch
from chronospike.compiled import njit
from chronospike.features.biased_walks import UNIFORM, Bias, Walks
from chronospike.features.deepwalk import CpuTrainer, Tables
from chronospike.features.huffman import huffman_tree
from chronospike.features.skipgram import MeanLoss, OnWalks, Schedule, Table, train_in_chunks
from chronospike.features.skipgram_kernels import (
    FAST,
    ROWS,
    change_inputs,
    change_outputs,
    count_pairs,
    draw_ahead,
    enter,
    leave,
    output_loss,
    read_walk,
    row_buffers,
    scores,
    silence,
    to_gains,
    walk_buffers,
    walk_loss,
)
from chronospike.features.walks import Snapshot
from chronospike.rng_kernels import derive_numba


class HierarchicalTrainer(CpuTrainer):
    """`CpuTrainer` with hierarchical softmax. With no negatives in the schedule it is the only objective.

    Attributes:
        inner: `[V - 1, d]` the rows of the tree's inner nodes, which begin at zero.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        tables: Tables,
        length: int,
        threads: int | None,
        bias: Bias = UNIFORM,
        key: int = 0,
    ) -> None:
        super().__init__(snapshot, tables, length, threads, bias, key)
        self.tree = huffman_tree(self.visits)
        self.inner: Table = np.zeros((self.tree.num_inner, tables[0].shape[1]), dtype=np.float32)

    def train_pass(
        self, starts: NDArray[np.int32], schedule: Schedule, on_walks: OnWalks | None, loss: MeanLoss | None = None
    ) -> None:
        window, negatives, key, rate, drop = schedule
        settings = window, negatives, np.uint64(key), float(rate), float(drop)
        tree, every = (self.tree.leaves, self.tree.parents, self.tree.bits), loss.every if loss else 0
        depth = self.tree.depth

        def train(walks: Walks, keys: NDArray[np.int64], first: int) -> tuple[float, int]:
            measured: tuple[float, int] = _train_on_walks(
                *self.tables, self.inner, walks, keys, *self.noise, *tree, depth, *settings, first, every
            )
            return measured

        train_in_chunks(
            train, self.snapshot, starts, self.length, schedule.key, self.threads, on_walks, self.bias, loss
        )

    @property
    def learned(self) -> dict[str, Table]:
        return {**super().learned, "inner": self.inner}


@njit
def _train_on_walks(
    inputs: Any, outputs: Any, inner: Any, walks: Any, keys: Any, thresholds: Any, nodes: Any, aliases: Any,
    leaves: Any, parents: Any, bits: Any, depth: Any,
    window: Any, negatives: Any, base: Any, rate: Any, drop: Any, first: Any, every: Any,
) -> Any:  # fmt: skip
    length = walks.shape[1]
    walk, reach, drawn = walk_buffers(length, negatives)
    # Rows for the path first, then for the centre and its negatives.
    rows, before, targets, changes, gains = row_buffers(length, inputs.shape[1], depth + negatives)
    path, turns = np.empty(depth, np.int64), np.empty(depth, np.float32)
    loss, pairs = 0.0, 0
    for w in range(len(walks)):
        size = read_walk(walks, w, walk)
        draw_ahead(reach, drawn, size, derive_numba(base, keys[w]), length, window, thresholds, nodes, aliases)
        if every > 0 and (first + w) % every == 0:
            loss += _path_loss(inputs, inner, walk, reach, size, leaves, parents, bits, path, turns)
            if negatives > 0:
                loss += walk_loss(inputs, outputs, walk, reach, drawn, size)
            pairs += count_pairs(reach, size)
        now = np.float32(rate - drop * (first + w))
        _train_walk(
            inputs, outputs, inner, walk, reach, drawn, leaves, parents, bits, path, turns,
            rows, before, targets, changes, gains, size, window, now,
        )  # fmt: skip
    return loss, pairs


@njit
def _find_path(leaf: Any, parents: Any, bits: Any, path: Any, turns: Any) -> Any:
    """Write the inner nodes above a leaf, and 1 for a turn to the first child there, 0 to the second; how many."""
    size = (len(parents) + 1) // 2
    steps, place = 0, np.int64(leaf)
    while place >= 0 and parents[place] >= 0:
        path[steps], turns[steps] = parents[place], np.float32(1 - bits[place])
        place = size + parents[place]
        steps += 1
    return steps


@njit
def _path_loss(
    inputs: Any, inner: Any, walk: Any, reach: Any, size: Any,
    leaves: Any, parents: Any, bits: Any, path: Any, turns: Any,
) -> Any:  # fmt: skip
    loss = 0.0
    for i in range(size):
        steps = _find_path(leaves[walk[i]], parents, bits, path, turns)
        for j in range(max(0, i - reach[i]), min(size, i + reach[i] + 1)):
            if j != i:
                for step in range(steps):
                    loss += output_loss(inputs, inner, walk[j], path[step], 2.0 * turns[step] - 1.0)
    return loss


@njit(fastmath=FAST)
def _train_walk(
    inputs: Any, outputs: Any, inner: Any, walk: Any, reach: Any, drawn: Any,
    leaves: Any, parents: Any, bits: Any, path: Any, turns: Any,
    rows: Any, before: Any, targets: Any, changes: Any, gains: Any, size: Any, window: Any, rate: Any,
) -> None:  # fmt: skip
    negatives = drawn.shape[1]
    for i in range(size):
        prefetch(inputs, walk[i])
    for i in range(min(window, size)):
        enter(inputs, walk[i], rows, before, i)
    for i in range(size):
        if i + window < size:
            enter(inputs, walk[i + window], rows, before, i + window)
        low, high = max(0, i - reach[i]), min(size, i + reach[i] + 1)
        steps = _find_path(leaves[walk[i]], parents, bits, path, turns)
        for step in range(steps):
            prefetch(inner, path[step])
        for step in range(steps):
            enter(inner, path[step], targets, changes, step)
        if negatives > 0:
            enter(outputs, walk[i], targets, changes, steps)
            for k in range(negatives):
                enter(outputs, drawn[i, k], targets, changes, steps + 1 + k)
        used = steps + 1 + negatives if negatives > 0 else steps
        for r in range(0, used, 2):
            for first in range(low, high, ROWS):
                scores(rows, targets, gains, r, first)
        for step in range(steps):
            to_gains(gains, step, low, high, turns[step], rate)
        if negatives > 0:
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
        if negatives > 0:
            leave(outputs, walk[i], changes, targets, steps)
            for k in range(negatives):
                leave(outputs, drawn[i, k], changes, targets, steps + 1 + k)
        if i >= window:
            leave(inputs, walk[i - window], rows, before, i - window)
    for i in range(max(0, size - window), size):
        leave(inputs, walk[i], rows, before, i)
