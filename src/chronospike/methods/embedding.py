"""The base of methods that embed nodes without labels: epochs that resume, and a logistic regression on top.

An `Embedder` learns from the edges alone. What it has learned is frozen, and a softmax regression on the embeddings of
the labelled nodes tells the classes apart, as the published evaluations do: no standardisation, inverse penalty 1.
Embeddings exist for the nodes of the graph that they were learned on, and for no others.
"""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from chronospike.config import Count, Positive, Settings, Width
from chronospike.data.graph import DynamicGraph
from chronospike.device import peak_memory
from chronospike.errors import InputError, StorageError, one_line
from chronospike.memory import require_bytes
from chronospike.methods.logistic import Classifier
from chronospike.training.learner import Cost, FitContext, Fitted, Learner, Progress
from chronospike.training.loop import EpochReport, seconds_per_epoch
from chronospike.training.memory import memory_errors
from chronospike.training.run_folder import RunFolder
from chronospike.training.task import Nodes, Task
from chronospike.training.weights import class_names, description, load_weights, save_tensors

Table = NDArray[np.float32]
OnBatch = Callable[[int, int, float], None]  # batches done, batches in all, mean loss so far

# A checkpoint may take this share of the time, at most.
_SAVING_SHARE = 0.1
_SAVE_EVERY = 1.0
# Of the regression: enough for a gradient below the tolerance on every graph that was tried.
_ITERATIONS, _TOLERANCE = 500, 2e-5
_EMBEDDINGS, _KEYS, _WEIGHTS, _CLASSES = "embeddings", "node_keys", "classifier.weights", "classifier.classes"


class EmbeddingSettings(Settings):
    """What every method of this kind has."""

    dimension: Width = Field(128, description="length of an embedding")
    epochs: Count = 1
    strength: Positive = Field(1.0, description="logistic regression on the embeddings: inverse penalty")


Embedding = TypeVar("Embedding", bound=EmbeddingSettings)


class Embedder(ABC):
    """Learns embeddings of all nodes, epoch by epoch.

    All that an epoch depends on is the epoch's number and `state`, so that a resumed run does what it would have done.

    Attributes:
        parameters: how many numbers are learned.
    """

    parameters: int

    @abstractmethod
    def train_epoch(self, epoch: int, on_batch: OnBatch) -> float:
        """Learn in place; the mean loss. `on_batch` may raise to stop: nothing is kept of such an epoch."""

    @abstractmethod
    def embeddings(self) -> Table:
        """`[S, N, d]`, S = 1, or T for a method with an embedding for each step."""

    @abstractmethod
    def state(self) -> dict[str, Tensor]:
        """Everything that the next epoch changes, by name."""

    @abstractmethod
    def load_state(self, state: dict[str, Tensor]) -> None:
        """The inverse of `state`; the tensors are on the CPU."""


class EmbeddingLearner(Learner[Embedding]):
    """A method that brings an `Embedder`."""

    needs_features = False
    keeps_checkpoints = True
    learns_from_labels = False

    @abstractmethod
    def embedder(self, task: Task) -> Embedder:
        """One for the edges of the task up to its last step, on its device, with the initial values of its seed."""

    @abstractmethod
    def memory(self, graph: DynamicGraph) -> int:
        """Bytes that the embedder needs, at the least, on its device."""

    def readout(self, values: Table) -> Table:
        """`[N, d]` what is classified and embedded, of `values [S, N, d]`: the last step."""
        return np.asarray(values[-1])

    def fit(self, task: Task, context: FitContext | None = None) -> EmbeddingFitted:
        context = context or FitContext()
        if task.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(task.device)
        with memory_errors(self.memory_advice):
            embedder = self.embedder(task)
            history = self._train(embedder, context)
            values = embedder.embeddings()
        cost = Cost(
            parameters=embedder.parameters,
            seconds_per_epoch=seconds_per_epoch(history),
            epochs=len(history),
            complete=len(history) == self.settings.epochs,
        )
        del embedder
        fitted = EmbeddingFitted(self, task, values, cost)
        fitted.cost = replace(cost, peak_memory=peak_memory(task.device))
        return fitted

    def _train(self, embedder: Embedder, context: FitContext) -> list[EpochReport]:
        """Train what is left of the epochs, with checkpoints; the reports of all of them."""
        run, watcher, epochs = context.run, context.watcher, self.settings.epochs
        history: list[EpochReport] = []
        if run is not None and context.resume and run.checkpoint.is_file():
            history = _read_checkpoint(embedder, run.checkpoint)
            if run.settings(type(self.settings)) != self.settings:
                run.extend(self.settings)
        if run is not None:
            run.write_epochs(history)
        last_saved, took = -math.inf, 0.0
        for epoch in range(len(history), epochs):
            if history and context.is_late():
                break
            began = time.perf_counter()

            def tell(done: int, total: int, loss: float, epoch: int = epoch) -> None:
                if watcher is not None and watcher.on_batch is not None:
                    watcher.on_batch(epoch, done, total, loss)

            loss = embedder.train_epoch(epoch, tell)
            if not math.isfinite(loss):
                raise InputError(f"the loss of epoch {epoch} is not finite. Lower learning_rate")
            seconds = time.perf_counter() - began
            history.append(EpochReport(epoch, loss, math.nan, math.nan, math.nan, seconds, best=epoch + 1 == epochs))
            if run is not None:
                run.append_epoch(history[-1])
                now = time.perf_counter()
                if now - last_saved > max(_SAVE_EVERY, took / _SAVING_SHARE) or epoch + 1 == epochs:
                    facts = {"history": [asdict(report) for report in history]}
                    save_tensors(embedder.state(), run.checkpoint, facts, ())
                    last_saved, took = time.perf_counter(), time.perf_counter() - now
            if watcher is not None and watcher.on_epoch is not None:
                watcher.on_epoch(history[-1])
        return history

    def load(self, task: Task, run: RunFolder) -> EmbeddingFitted:
        tensors, metadata = load_weights(run.weights)
        if class_names(metadata) != list(task.graph.class_names):
            raise StorageError(f"{run.weights} and {run.path / 'run.json'} name other classes. Train the run again")
        try:
            values, keys = tensors[_EMBEDDINGS].numpy(), tensors[_KEYS].numpy()
            weights, classes = tensors[_WEIGHTS], tensors[_CLASSES].numpy()
            if description(metadata) != {"method": self.name} or values.ndim != 3 or keys.shape != values.shape[1:2]:
                raise ValueError
        except (KeyError, ValueError) as error:
            raise StorageError(f"{run.weights} holds no embeddings of {self.name}. Train the run again") from error
        wanted = task.graph.node_keys
        if not np.array_equal(keys, wanted):
            values = values[:, self._places(task.graph, keys, wanted)]
        return EmbeddingFitted(self, task, values, Cost(values.size), Classifier.of(classes, weights))

    def _places(self, graph: DynamicGraph, keys: NDArray[np.int64], wanted: NDArray[np.int64]) -> NDArray[np.int64]:
        """Where the nodes of another graph stand in the tables of the run."""
        order = np.argsort(keys)
        places = order[np.minimum(np.searchsorted(keys[order], wanted), len(keys) - 1)]
        missing = np.flatnonzero(keys[places] != wanted)
        if len(missing):
            first = graph.ids[int(missing[0])]
            raise InputError(
                f"{self.name} embeds only the nodes that it was trained on, and {len(missing):,} of this graph are not "
                f"among them, the first is {first!r}. Train it on this graph"
            )
        return places

    def is_finished(self, run: RunFolder) -> bool:
        epochs: int = run.settings(type(self.settings)).epochs
        if self.settings.epochs > epochs and not run.checkpoint.is_file():
            raise StorageError(
                f"{run.path} cannot be trained for longer: its folder checkpoint/ is missing. Start a new run"
            )
        return self.settings.epochs <= epochs

    @property
    def memory_advice(self) -> str:
        return f"Lower dimension (now {self.settings.dimension})"

    def require_memory(self, graph: DynamicGraph, to_make: int, train: int, device: torch.device) -> None:
        if device.type != "cuda":
            require_bytes(self.memory(graph), f"{self.name} on this graph", self.memory_advice)

    def estimate(self, graph: DynamicGraph, width: int) -> dict[str, Any]:
        return {"epochs": self.settings.epochs, "memory_bytes": self.memory(graph)}


class EmbeddingFitted(Fitted):
    """Embeddings `[S, N, d]`, and a regression on those of the labelled nodes, fitted here unless it is given.

    Args:
        task: with the split as it was made.
        all_labels: learn from the validation nodes, too.
    """

    def __init__(
        self,
        learner: EmbeddingLearner[Any],
        task: Task,
        values: Table,
        cost: Cost,
        classifier: Classifier | None = None,
        all_labels: bool = True,
    ) -> None:
        self._learner, self._given, self.values, self.cost = learner, task, values, cost
        self.task, self.split = task.with_all_labels() if all_labels else task, task.split
        self._rows = np.ascontiguousarray(learner.readout(values))
        if classifier is None:
            train = self.task.split.train
            classifier = Classifier(
                self._rows[train],
                task.labels(train),
                learner.settings.strength,
                task.device,
                iterations=_ITERATIONS,
                tolerance=_TOLERANCE,
            )
        self._classifier = classifier

    def probabilities(self, nodes: Nodes, on_nodes: Progress | None = None) -> NDArray[np.float64]:
        found = np.zeros((len(nodes), self.task.graph.num_classes))
        found[:, self._classifier.classes] = self._classifier.probabilities(self._rows[nodes])
        return found

    def embeddings(self, nodes: Nodes, on_nodes: Progress | None = None) -> Table:
        return self._rows[nodes]

    def step_embeddings(self) -> Table | None:
        return self.values if len(self.values) == self.task.last_step + 1 > 1 else None

    def until(self, last_step: int) -> EmbeddingFitted:
        """Learned again: embeddings of all steps know what comes later."""
        if last_step == self._given.last_step:
            return self
        return self._learner.fit(self._given.until(last_step, to_fit=True))

    def held_out(self) -> EmbeddingFitted:
        if not self.was_refitted:
            return self
        return EmbeddingFitted(self._learner, self._given, self.values, self.cost, all_labels=False)

    def save(self, run: RunFolder) -> None:
        tensors = {
            _EMBEDDINGS: torch.from_numpy(self.values),
            _KEYS: torch.from_numpy(np.array(self.task.graph.node_keys)),
            _WEIGHTS: self._classifier.weights,
            _CLASSES: torch.from_numpy(self._classifier.classes),
        }
        save_tensors(tensors, run.weights, {"method": self._learner.name}, self.task.graph.class_names)


def _read_checkpoint(embedder: Embedder, path: Path) -> list[EpochReport]:
    """Bring a new embedder of the same settings to where the checkpoint was written."""
    tensors, metadata = load_weights(path)
    try:
        history = [EpochReport(**report) for report in description(metadata)["history"]]
        embedder.load_state(tensors)
    except (RuntimeError, KeyError, TypeError, ValueError) as error:
        raise StorageError(f"{path} does not fit this run ({one_line(error)}). Start again with --overwrite") from error
    return history
