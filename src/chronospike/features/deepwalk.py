"""DeepWalk on every cumulative snapshot: random walks, then skip-gram with negative sampling.

With one CPU thread the same options give the same bits. With more, or on a GPU, threads write to the tables without
locks (Hogwild) and the last digits differ from run to run; the walks, windows and negatives are the same. Nothing
depends on nodes, edges or steps that come later: draws are keyed by the ids of nodes, not by their places among all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import DTypeLike, NDArray

from chronospike.data.feature_store import write_features
from chronospike.data.graph import DynamicGraph
from chronospike.errors import InputError, MissingPackageError
from chronospike.features.noise import expected_visits, noise_table
from chronospike.features.skipgram import Progress, Schedule, Table, initial_tables, train_on_graph
from chronospike.features.walks import Snapshot, cumulative_snapshot, derive_key, seen_nodes, walk_starts
from chronospike.locks import Tell
from chronospike.optional import has_triton

Tables = tuple[Table, Table]
OnTokens = Callable[[int, int], None]


@dataclass(frozen=True)
class Start:
    """Features of another graph to begin with, so that what is learned keeps pointing in their directions.

    Attributes:
        graph: whose they are.
        features: `[T, N, d]` of that graph; later steps than its last begin with the last.
        key: names that graph, for the record.
    """

    graph: DynamicGraph
    features: NDArray[Any]
    key: str

    def rows(self, graph: DynamicGraph, step: int) -> tuple[NDArray[np.bool_], NDArray[np.float32]]:
        """`[N]` which nodes of `graph` had an edge there by `step`, and the features of these, `[K, d]`."""
        last = min(step, self.graph.num_steps - 1)
        places = self.graph.ids.lookup(graph.ids.values)
        known = (places >= 0) & self.graph.seen_by(last)[places]
        return known, np.asarray(self.features[last][places[known]], dtype=np.float32)


@dataclass(frozen=True)
class DeepWalk:
    """Options; the defaults are the benchmark's recipe (10 walks of 80, window 10, one negative, one epoch).

    Attributes:
        dimension: length of a feature vector.
        walks: walks from each node that has a neighbour.
        length: nodes in a walk.
        window: largest distance between centre and context.
        negatives: noise nodes per centre.
        epochs: passes, each over walks of its own.
        learning_rate, min_learning_rate: at the first and at the last walk.
        warm_start: begin with the tables of the step before, which aligns the steps.
        unseen: rows of nodes without an edge so far: "noise" as word2vec leaves them, or "zero".
        threads: CPU threads; all by default.
        seed: of every draw.
    """

    dimension: int = 128
    walks: int = 10
    length: int = 80
    window: int = 10
    negatives: int = 1
    epochs: int = 1
    learning_rate: float = 0.025
    min_learning_rate: float = 1e-4
    warm_start: bool = False
    unseen: Literal["noise", "zero"] = "noise"
    threads: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        least = {"dimension": 1, "walks": 1, "length": 2, "window": 1, "negatives": 1, "epochs": 1, "seed": 0}
        for name, bound in least.items():
            value = getattr(self, name)
            if value < bound:
                raise InputError(f"deepwalk: {name} is {value}, and must be at least {bound}")
        if self.threads is not None and self.threads < 1:
            raise InputError(f"deepwalk: threads is {self.threads}, and must be at least 1")
        if not 0 < self.min_learning_rate <= self.learning_rate <= 1:
            raise InputError(
                f"deepwalk: the learning rate falls from {self.learning_rate} to {self.min_learning_rate}, "
                "and must fall within 0..1"
            )
        if self.unseen not in ("noise", "zero"):
            raise InputError(f"deepwalk: unseen is {self.unseen!r}, and must be 'noise' or 'zero'")

    def recipe(self) -> dict[str, Any]:
        """What the values depend on, for the feature store."""
        options = asdict(self)
        del options["threads"]
        return {"method": "deepwalk", **options}


class Trainer(Protocol):
    """What a device must offer for one step."""

    def train_pass(self, starts: NDArray[np.int32], schedule: Schedule, on_walks: Progress | None) -> None: ...

    def finish(self) -> Tables: ...


class CpuTrainer:
    """One step on the CPU, in place."""

    def __init__(self, snapshot: Snapshot, tables: Tables, length: int, threads: int | None) -> None:
        self.snapshot, self.tables, self.length, self.threads = snapshot, tables, length, threads
        self.noise = noise_table(expected_visits(snapshot, length))

    def train_pass(self, starts: NDArray[np.int32], schedule: Schedule, on_walks: Progress | None) -> None:
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
    """Makes one step after another and remembers the tables that a warm start goes on from."""

    def __init__(
        self,
        graph: DynamicGraph,
        options: DeepWalk,
        device: str = "cpu",
        on_tokens: Callable[[int, int, int], None] | None = None,
        start: Start | None = None,
    ) -> None:
        """`on_tokens` is called with (step, tokens done, tokens of the step)."""
        self.graph, self.options, self.device, self.on_tokens, self.start = graph, options, device, on_tokens, start
        self.previous: Tables | None = None

    def make_step(self, step: int) -> Table:
        """`[N, d]` features of `step`; with a warm start call it in order."""
        listen = self.on_tokens
        report = None if listen is None else lambda done, total: listen(step, done, total)
        tables = deepwalk_step(self.graph, step, self.options, self.previous, self.device, report, self.start)
        self.previous = tables if self.options.warm_start else None
        return tables[0]

    def save_state(self) -> dict[str, NDArray[Any]]:
        """What the next step needs besides the options."""
        return {} if self.previous is None else {"inputs": self.previous[0], "outputs": self.previous[1]}

    def load_state(self, state: dict[str, NDArray[Any]]) -> None:
        self.previous = (state["inputs"], state["outputs"]) if state else None


def write_deepwalk(
    folder: Path,
    name: str,
    graph: DynamicGraph,
    options: DeepWalk,
    graph_key: str,
    dtype: DTypeLike = np.float32,
    device: str = "cpu",
    on_step: Callable[[int, float], None] | None = None,
    on_tokens: Callable[[int, int, int], None] | None = None,
    overwrite: bool = False,
    tell: Tell | None = None,
    start: Start | None = None,
) -> Path:
    """Make the features of all steps and store them under `folder`; goes on where an earlier call was stopped."""
    steps = DeepWalkSteps(graph, options, device, on_tokens, start)
    shape = (graph.num_steps, graph.num_nodes, options.dimension)
    recipe = {**options.recipe(), **({} if start is None else {"start": start.key})}
    return write_features(
        folder, name, recipe, graph_key, shape, dtype, steps.make_step, on_step, overwrite, steps, tell
    )
