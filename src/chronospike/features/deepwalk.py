"""DeepWalk on every cumulative snapshot: random walks, then skip-gram with negative sampling.

With one CPU thread the same options give the same bits. With more, or on a GPU, threads write to the tables without
locks (Hogwild) and values differ a little from run to run (two on 1,000 nodes and two threads correlate by 0.976 to
0.996 at a step); the walks, windows and negatives are the same. Nothing depends on nodes, edges or steps that come
later: draws are keyed by the ids of nodes, not by their places among all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from chronospike.data.graph import DynamicGraph
from chronospike.errors import InputError, MissingPackageError
from chronospike.features.biased_walks import UNIFORM, Bias
from chronospike.features.huffman import HuffmanTree, huffman_tree
from chronospike.features.noise import counted_visits, expected_visits, noise_table
from chronospike.features.options import DeepWalk, Progress, Start
from chronospike.features.skipgram import MeanLoss, OnWalks, Schedule, Table, initial_tables, train_on_graph
from chronospike.features.walks import Snapshot, cumulative_snapshot, derive_key, walk_starts
from chronospike.optional import has_triton

if TYPE_CHECKING:
    from chronospike.features.gpu import GpuTrainer

Tables = tuple[Table, Table]


class CpuTrainer:
    """Skip-gram on walks of one snapshot on the CPU, in place; `GpuTrainer` does the same on a GPU.

    Args:
        bias: of walks that remember the node before.
        key: of the walks that are counted for the noise, where they are not uniform.
        hierarchical: train hierarchical softmax; with no negatives in the schedule it is the only objective.

    Attributes:
        tree, inner: of hierarchical softmax: the tree, and `[V - 1, d]` the rows of its inner nodes, zero at first.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        tables: Tables,
        length: int,
        threads: int | None,
        bias: Bias = UNIFORM,
        key: int = 0,
        hierarchical: bool = False,
    ) -> None:
        self.snapshot, self.tables, self.length, self.threads, self.bias = snapshot, tables, length, threads, bias
        if bias.is_uniform:
            self.visits = expected_visits(snapshot, length)
        else:
            self.visits = counted_visits(snapshot, length, bias, key, threads)
        self.noise = noise_table(self.visits)
        self.tree: HuffmanTree | None = None
        self.inner: Table | None = None
        if hierarchical:
            self.tree = huffman_tree(self.visits)
            self.inner = np.zeros((len(self.tree.parents) // 2, tables[0].shape[1]), dtype=np.float32)

    def train_pass(
        self, starts: NDArray[np.int32], schedule: Schedule, on_walks: OnWalks | None, loss: MeanLoss | None = None
    ) -> None:
        walks = starts, self.length, self.noise, schedule
        tree = self.tree, self.inner
        train_on_graph(self.tables, self.snapshot, *walks, self.threads, on_walks, self.bias, loss, *tree)

    @property
    def learned(self) -> dict[str, Table]:
        """Everything that training changes, by name."""
        inner = {} if self.inner is None else {"inner": self.inner}
        return {"inputs": self.tables[0], "outputs": self.tables[1], **inner}

    def finish(self) -> Tables:
        return self.tables


def make_trainer(
    snapshot: Snapshot,
    tables: Tables,
    length: int,
    device: str,
    threads: int | None,
    bias: Bias = UNIFORM,
    key: int = 0,
) -> CpuTrainer | GpuTrainer:
    """The trainer for a device, "cpu" or a CUDA device such as "cuda"."""
    if device == "cpu":
        return CpuTrainer(snapshot, tables, length, threads, bias, key)
    if not has_triton():
        raise MissingPackageError("triton", "deepwalk on a GPU", extra="gpu")
    from chronospike.features.gpu import GpuTrainer

    return GpuTrainer(snapshot, tables, length, device, bias, key)


class DeepWalkSteps:
    """Makes one step after another and remembers the tables that a warm start continues from.

    Args:
        device: "cpu" or a CUDA device such as "cuda".
        on_progress: called after every million tokens or so.
        start: features of another graph that its nodes begin with.
    """

    def __init__(
        self,
        graph: DynamicGraph,
        options: DeepWalk,
        device: str = "cpu",
        on_progress: Progress | None = None,
        start: Start | None = None,
    ) -> None:
        self.graph, self.options, self.device, self.start = graph, options, device, start
        self.on_progress = on_progress
        self.previous: Tables | None = None
        # Later snapshots hold more nodes and so more tokens; the number of seen nodes says how many.
        seen = (np.asarray(graph.history.step_offsets[:, 1:]) > 0).sum(axis=0)
        self.tokens_before = [0, *np.cumsum(seen * options.walks * options.epochs * options.length).tolist()]

    def make_step(self, step: int) -> Table:
        """`[N, d]` features of `step`; with a warm start call it in order."""
        tables = self.tables(step)
        self.previous = tables if self.options.warm_start else None
        return tables[0]

    def save_state(self) -> dict[str, NDArray[Any]]:
        """What the next step needs besides the options."""
        return {} if self.previous is None else {"inputs": self.previous[0], "outputs": self.previous[1]}

    def load_state(self, state: dict[str, NDArray[Any]]) -> None:
        self.previous = (state["inputs"], state["outputs"]) if state else None

    def tables(self, step: int) -> Tables:
        """Of the cumulative snapshot, the input table, which is the features, and the output table: `[N, d]` each."""
        snapshot = cumulative_snapshot(self.graph, step)
        tables = self._starting_tables(step)
        if snapshot.degrees.any():
            trainer = make_trainer(snapshot, tables, self.options.length, self.device, self.options.threads)
            self._train(trainer, snapshot, step)
            tables = trainer.finish()
        if self.options.unseen == "zero":
            tables[0][~self.graph.seen_by(step)] = 0
        return tables

    def _starting_tables(self, step: int) -> Tables:
        """word2vec's, or with a warm start the previous ones, in which nodes not seen so far still have their noise."""
        options, previous = self.options, self.previous
        fresh = initial_tables(self.graph.node_keys, options.dimension, options.seed, options.threads)
        if self.start is not None:
            known, rows = self.start.rows(self.graph, step)
            fresh[0][known] = rows
        if not options.warm_start or previous is None or step == 0:
            return fresh
        wanted = (self.graph.num_nodes, options.dimension)
        if previous[0].shape != wanted or previous[1].shape != wanted:
            raise InputError(f"deepwalk: the previous tables have shape {list(previous[0].shape)}, not {list(wanted)}")
        seen = self.graph.seen_by(step - 1)
        fresh[0][seen] = previous[0][seen]
        return fresh[0], previous[1].astype(np.float32)

    def _train(self, trainer: CpuTrainer | GpuTrainer, snapshot: Snapshot, step: int) -> None:
        options, listen, before = self.options, self.on_progress, self.tokens_before
        passes = [(epoch, number) for epoch in range(options.epochs) for number in range(options.walks)]
        per_pass = int((snapshot.degrees > 0).sum())
        drop = (options.learning_rate - options.min_learning_rate) / (len(passes) * per_pass)
        for index, (epoch, number) in enumerate(passes):
            done = index * per_pass

            def report(now: int, done: int = done) -> None:
                if listen is not None:
                    listen(step, before[step] + (done + now) * options.length, before[-1])

            key = derive_key(options.seed, step, epoch, number)
            schedule = Schedule(options.window, options.negatives, key, options.learning_rate - drop * done, drop)
            trainer.train_pass(walk_starts(snapshot, key), schedule, None if listen is None else report)
