"""Skip-gram on random walks with negative sampling, hierarchical softmax or both, compiled for the CPU.

word2vec's conventions: the window of a centre is drawn from 1..window; a negative that equals the positive is skipped;
the learning rate falls linearly; input rows start in ±1/(2d), output rows at zero. As in gensim, the input row is the
context's and the output row the centre's. Two things make it quick without changing the objective:

* the negatives are drawn once per centre, so that its contexts meet the same few output rows and the work is a small
  matrix product, done four contexts and two outputs at a time;
* the input row of each position in the walk is kept in a buffer while it can be in a window, and its change is added
  to the table when it leaves. Threads (Hogwild, no locks) then rarely touch the same memory.

Hierarchical softmax predicts the centre from each context by the turns of its path in Huffman's tree: with x the
context's input row and θ the row of an inner node, a turn costs -log σ((1 - 2 bit) θ·x). Where both objectives are
trained, all scores of a centre are taken at the old values and the changes are added up, as word2vec does.

The result is the same bits again with one thread, and not with several. `tests/features/reference.py` says the same
thing slowly.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from chronospike.compiled import njit
from chronospike.features.biased_walks import UNIFORM, Bias, fill_walks
from chronospike.features.huffman import HuffmanTree
from chronospike.features.noise import NoiseTable
from chronospike.features.skipgram_kernels import (
    count_pairs,
    draw_ahead,
    path_loss,
    read_walk,
    row_buffers,
    train_walk,
    walk_buffers,
    walk_loss,
)
from chronospike.features.walks import Snapshot, derive_key
from chronospike.rng_kernels import derive_numba
from chronospike.threads import run_chunks

Table = NDArray[np.float32]
OnWalks = Callable[[int], None]

_CHUNK_TOKENS = 2**20
# One walk in so many is measured where the loss is asked for, which adds about a hundredth to the time.
_MEASURED = 32
# Whoever asks for the loss wants to see it move: a fraction of a second.
_MEASURED_TOKENS = 2**15
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


@dataclass
class MeanLoss:
    """The mean loss of a centre and a context, over walks that are measured before the tables learn from them.

    Attributes:
        total, pairs: the losses added up, and of how many pairs.
        every: one walk in so many is measured.
    """

    total: float = 0.0
    pairs: int = 0
    every: int = _MEASURED

    def add(self, measured: tuple[float, int]) -> None:
        self.total += measured[0]
        self.pairs += measured[1]

    @property
    def mean(self) -> float:
        return self.total / max(1, self.pairs)


def train_on_graph(
    tables: tuple[Table, Table],
    snapshot: Snapshot,
    starts: NDArray[np.int32],
    length: int,
    noise: NoiseTable,
    schedule: Schedule,
    threads: int | None = None,
    on_walks: OnWalks | None = None,
    bias: Bias = UNIFORM,
    loss: MeanLoss | None = None,
    tree: HuffmanTree | None = None,
    inner: Table | None = None,
) -> None:
    """Make a walk from each of `starts` and train in place on it in the same thread: no corpus is held.

    Args:
        tree, inner: for hierarchical softmax, with the rows of its inner nodes. With no negatives in the schedule it is
            the only objective.
    """
    window, negatives, key, rate, drop = schedule
    settings, every = (window, negatives, np.uint64(key), float(rate), float(drop)), loss.every if loss else 0
    inputs, outputs = tables
    rows = inputs, outputs if negatives else None, inputs[:0] if inner is None else inner
    paths = tree or (None, None, None, 0)
    # A chunk after the other, so that the threads go down the learning rate together.
    chunk = max(1, (_MEASURED_TOKENS if loss else _CHUNK_TOKENS) // length)
    walks, keys = np.empty((min(chunk, len(starts)), length), dtype=np.int32), snapshot.keys[starts]
    measured: list[tuple[float, int]] = []
    for first in range(0, len(starts), chunk):
        count = min(chunk, len(starts) - first)

        def work(low: int, high: int, first: int = first) -> None:
            share, own = slice(first + low, first + high), walks[low:high]
            fill_walks(own, snapshot, starts[share], key, bias)
            measured.append(_train_on_walks(*rows, own, keys[share], *noise, *paths, *settings, first + low, every))

        run_chunks(work, count, threads)
        if loss:
            for part in measured:
                loss.add(part)
        measured.clear()
        if on_walks:
            on_walks(first + count)


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
def _train_on_walks(
    inputs: Any, outputs: Any, inner: Any, walks: Any, keys: Any, thresholds: Any, nodes: Any, aliases: Any,
    leaves: Any, parents: Any, bits: Any, depth: Any,
    window: Any, negatives: Any, base: Any, rate: Any, drop: Any, first: Any, every: Any,
) -> Any:  # fmt: skip
    """The loss of the walks that are measured, before the tables learn from them, and how many pairs these have."""
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
            if leaves is not None:
                loss += path_loss(inputs, inner, walk, reach, size, leaves, parents, bits, path, turns)
            if outputs is not None:
                loss += walk_loss(inputs, outputs, walk, reach, drawn, size)
            pairs += count_pairs(reach, size)
        now = np.float32(rate - drop * (first + w))
        train_walk(
            inputs, outputs, inner, walk, reach, drawn, leaves, parents, bits, path, turns,
            rows, before, targets, changes, gains, size, window, now,
        )  # fmt: skip
    return loss, pairs
