"""DeepWalk: skip-gram on uniform random walks over the edges of all steps together.

Walks start at every node that has a neighbour; a node without one keeps its initial row. In a directed graph they run
against the edges. With `threads` = 1 on a CPU, runs repeat to the bit; more threads, and GPUs, write to the tables
without locks, and values differ a little. Features made by DeepWalk (`chronospike.features`) use the same kernels.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, TypeVar

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from chronospike.config import Count, Positive
from chronospike.data.graph import DynamicGraph
from chronospike.errors import InputError
from chronospike.features.biased_walks import UNIFORM, Bias
from chronospike.features.deepwalk import CpuTrainer, make_trainer
from chronospike.features.skipgram import MeanLoss, Schedule, initial_tables
from chronospike.features.walks import cumulative_snapshot, sorted_rows, walk_starts
from chronospike.methods.embedding import Embedder, EmbeddingFitted, EmbeddingLearner, EmbeddingSettings, OnBatch, Table
from chronospike.rng import stream
from chronospike.training.learner import FitContext
from chronospike.training.task import Task

if TYPE_CHECKING:
    from chronospike.features.gpu import GpuTrainer

Rate = Annotated[float, Field(gt=0, le=1)]


class SkipGramSettings(EmbeddingSettings):
    """Skip-gram on random walks. The defaults are those of node2vec, so that the two methods differ in their walks."""

    walks: Count = Field(10, description="walks from each node in an epoch")
    length: Annotated[int, Field(ge=2, lt=2**20)] = Field(80, description="nodes in a walk")
    window: Annotated[int, Field(ge=1, lt=2**16)] = Field(
        10, description="largest distance between centre and context; drawn from 1..window for each centre"
    )
    negatives: Annotated[int, Field(ge=1, lt=2**16)] = Field(5, description="negative samples per centre")
    objective: Literal["negative", "hierarchical", "both"] = Field(
        "negative",
        description="negative sampling (as in node2vec and the benchmark's features), hierarchical softmax, or "
        "'both' at once (as in the published DeepWalk program)",
    )
    learning_rate: Rate = Field(0.025, description="initial value; decays linearly over all epochs")
    min_learning_rate: Positive = Field(1e-4, description="final value")
    threads: Annotated[int, Field(ge=0, lt=2**16)] = Field(
        0, description="on a CPU, 0: all; with one thread, runs are bit-identical"
    )

    def check(self) -> None:
        super().check()
        if self.min_learning_rate > self.learning_rate:
            raise InputError(
                f"min_learning_rate {self.min_learning_rate} must not be above learning_rate {self.learning_rate}"
            )


class DeepWalkSettings(SkipGramSettings):
    """DeepWalk. The published program has dimension 64, length 40, window 5, 5 epochs and objective 'both'."""


Kind = TypeVar("Kind", bound=SkipGramSettings)


class SkipGramEmbedder(Embedder):
    """Input rows and the rows of one or two objectives, trained on walks over the snapshot of the task's last step.

    Args:
        bias: of the walks.
    """

    def __init__(self, task: Task, settings: SkipGramSettings, bias: Bias = UNIFORM) -> None:
        self.settings, self.seed, threads = settings, task.seed, settings.threads or None
        # The one order of neighbours for all methods: that of arrival would give others walks.
        self.snapshot = sorted_rows(cumulative_snapshot(task.graph, task.last_step), threads)
        inputs, outputs = initial_tables(
            task.graph.node_keys, settings.dimension, stream(task.seed, "skip-gram tables"), threads
        )
        if settings.objective == "hierarchical":
            outputs = np.zeros((0, settings.dimension), dtype=np.float32)
        self.trainer: CpuTrainer | GpuTrainer | None = None
        if self.snapshot.degrees.any():
            key = stream(task.seed, "counted walks")
            walks = self.snapshot, (inputs, outputs), settings.length
            if settings.objective == "negative":
                self.trainer = make_trainer(*walks, str(task.device), threads, bias, key)
            else:
                self.trainer = CpuTrainer(*walks, threads, bias, key, hierarchical=True)
        found = {"inputs": inputs, "outputs": outputs} if self.trainer is None else self.trainer.learned
        self._learned: dict[str, Tensor] = {name: torch.as_tensor(table) for name, table in found.items()}
        self.parameters = sum(table.numel() for table in self._learned.values())

    def train_epoch(self, epoch: int, on_batch: OnBatch) -> float:
        if self.trainer is None:
            # Not an edge so far: there is nothing to learn.
            return 0.0
        s, loss = self.settings, MeanLoss()
        per_pass = int((self.snapshot.degrees > 0).sum())
        drop = (s.learning_rate - s.min_learning_rate) / (s.epochs * s.walks * per_pass)
        negatives = 0 if s.objective == "hierarchical" else s.negatives
        for number in range(s.walks):
            done = number * per_pass

            def report(now: int, done: int = done) -> None:
                on_batch(done + now, s.walks * per_pass, loss.mean)

            key = stream(self.seed, "walks", epoch, number)
            rate = s.learning_rate - drop * (epoch * s.walks + number) * per_pass
            schedule = Schedule(s.window, negatives, key, rate, drop)
            self.trainer.train_pass(walk_starts(self.snapshot, key), schedule, report, loss)
        return loss.mean

    def embeddings(self) -> Table:
        rows: Table = self._learned["inputs"].cpu().numpy()
        return rows[None]

    def state(self) -> dict[str, Tensor]:
        return {name: table.cpu() for name, table in self._learned.items()}

    def load_state(self, state: dict[str, Tensor]) -> None:
        for name, table in self._learned.items():
            if state[name].shape != table.shape:
                raise ValueError(f"{name} has shape {list(state[name].shape)}, not {list(table.shape)}")
            table.copy_(state[name])


class SkipGramLearner(EmbeddingLearner[Kind]):
    """Skip-gram on random walks, of whatever kind."""

    def bias(self, graph: DynamicGraph) -> Bias:
        """The weights of the walks."""
        return UNIFORM

    def embedder(self, task: Task) -> SkipGramEmbedder:
        return SkipGramEmbedder(task, self.settings, self.bias(task.graph))

    def fit(self, task: Task, context: FitContext | None = None) -> EmbeddingFitted:
        if context is not None and task.device.type == "cuda" and self.settings.objective != "negative":
            context.note("hierarchical softmax is trained on the CPU; on a GPU there is only objective=negative")
        return super().fit(task, context)

    def memory(self, graph: DynamicGraph) -> int:
        s, nodes, entries = self.settings, graph.num_nodes, len(graph.history.neighbours)
        tables = 3 if s.objective == "both" else 2
        return 4 * nodes * s.dimension * tables + 4 * entries + 8 * nodes


class DeepWalkLearner(SkipGramLearner[DeepWalkSettings]):
    name = "deepwalk"
    title = "DeepWalk"
    summary = "skip-gram on uniform random walks, then logistic regression"
    settings_type = DeepWalkSettings
