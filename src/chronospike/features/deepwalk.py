"""DeepWalk on every cumulative snapshot: random walks, then skip-gram with negative sampling.

With one CPU thread the same options give the same bits. With more, or on a GPU, threads write to the tables without
locks (Hogwild) and the last digits differ from run to run; the walks, windows and negatives are the same. Nothing
depends on nodes, edges or steps that come later: draws are keyed by the ids of nodes, not by their places among all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from chronospike.data.graph import DynamicGraph
from chronospike.errors import InputError, MissingPackageError
from chronospike.features.noise import expected_visits, noise_table
from chronospike.features.options import DeepWalk, Progress, Start
from chronospike.features.skipgram import OnWalks, Schedule, Table, initial_tables, train_on_graph
from chronospike.features.walks import Snapshot, cumulative_snapshot, derive_key, seen_nodes, walk_starts
from chronospike.optional import has_triton

Tables = tuple[Table, Table]
OnTokens = Callable[[int, int], None]


class Trainer(Protocol):
    """What a device must offer for one step."""

    def train_pass(self, starts: NDArray[np.int32], schedule: Schedule, on_walks: OnWalks | None) -> None: ...

    def finish(self) -> Tables: ...


class CpuTrainer:
    """One step on the CPU, in place."""

    def __init__(self, snapshot: Snapshot, tables: Tables, length: int, threads: int | None) -> None:
        self.snapshot, self.tables, self.length, self.threads = snapshot, tables, length, threads
        self.noise = noise_table(expected_visits(snapshot, length))

    def train_pass(self, starts: NDArray[np.int32], schedule: Schedule, on_walks: OnWalks | None) -> None:
        train_on_graph(self.tables, self.snapshot, starts, self.length, self.noise, schedule, self.threads, on_walks)

    def finish(self) -> Tables:
        return self.tables


def deepwalk_step(
    graph: DynamicGraph,
    step: int,
    options: DeepWalk,
    previous: Tables | None = None,
    device: str = "cpu",
    on_tokens: OnTokens | None = None,
    start: Start | None = None,
) -> Tables:
    """Embed the cumulative snapshot of one step.

    Args:
        previous: the tables of the step before; used, and left as they are, with `options.warm_start`.
        device: "cpu" or a CUDA device such as "cuda".
        on_tokens: called with (tokens done, tokens in all) after every million or so.
        start: features of another graph that its nodes begin with.

    Returns:
        The input table, which is the features, and the output table: `[N, d]` each.
    """
    snapshot = cumulative_snapshot(graph, step)
    tables = _starting_tables(graph, step, options, previous, start)
    per_pass = int((snapshot.degrees > 0).sum())
    if per_pass:
        trainer = _trainer(device, snapshot, tables, options)
        _train(trainer, snapshot, step, options, per_pass, on_tokens)
        tables = trainer.finish()
    if options.unseen == "zero":
        tables[0][~seen_nodes(snapshot)] = 0
    return tables


def _train(
    trainer: Trainer, snapshot: Snapshot, step: int, options: DeepWalk, per_pass: int, on_tokens: OnTokens | None
) -> None:
    passes = [(epoch, number) for epoch in range(options.epochs) for number in range(options.walks)]
    walks = len(passes) * per_pass
    drop = (options.learning_rate - options.min_learning_rate) / walks
    for index, (epoch, number) in enumerate(passes):
        done = index * per_pass

        def report(now: int, done: int = done) -> None:
            if on_tokens:
                on_tokens((done + now) * options.length, walks * options.length)

        key = derive_key(options.seed, step, epoch, number)
        schedule = Schedule(options.window, options.negatives, key, options.learning_rate - drop * done, drop)
        trainer.train_pass(walk_starts(snapshot, key), schedule, report if on_tokens else None)


def _trainer(device: str, snapshot: Snapshot, tables: Tables, options: DeepWalk) -> Trainer:
    if device == "cpu":
        return CpuTrainer(snapshot, tables, options.length, options.threads)
    if not has_triton():
        raise MissingPackageError("triton", "deepwalk on a GPU", extra="gpu")
    from chronospike.features.gpu import GpuTrainer

    return GpuTrainer(snapshot, tables, options.length, device)


def _starting_tables(
    graph: DynamicGraph, step: int, options: DeepWalk, previous: Tables | None, start: Start | None
) -> Tables:
    """word2vec's, or with a warm start the previous ones, in which nodes not seen until now still have their noise."""
    fresh = initial_tables(graph.node_keys, options.dimension, options.seed, options.threads)
    if start is not None:
        known, rows = start.rows(graph, step)
        fresh[0][known] = rows
    if not options.warm_start or previous is None or step == 0:
        return fresh
    wanted = (graph.num_nodes, options.dimension)
    if previous[0].shape != wanted or previous[1].shape != wanted:
        raise InputError(f"deepwalk: the previous tables have shape {list(previous[0].shape)}, not {list(wanted)}")
    seen = seen_nodes(cumulative_snapshot(graph, step - 1))
    fresh[0][seen] = previous[0][seen]
    return fresh[0], previous[1].astype(np.float32)


class DeepWalkSteps:
    """Makes one step after another and remembers the tables that a warm start continues from."""

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
        listen, before = self.on_progress, self.tokens_before
        report = None if listen is None else lambda done, _: listen(step, before[step] + done, before[-1])
        tables = deepwalk_step(self.graph, step, self.options, self.previous, self.device, report, self.start)
        self.previous = tables if self.options.warm_start else None
        return tables[0]

    def save_state(self) -> dict[str, NDArray[Any]]:
        """What the next step needs besides the options."""
        return {} if self.previous is None else {"inputs": self.previous[0], "outputs": self.previous[1]}

    def load_state(self, state: dict[str, NDArray[Any]]) -> None:
        self.previous = (state["inputs"], state["outputs"]) if state else None
