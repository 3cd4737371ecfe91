"""DynamicTriad (Zhou et al., AAAI 2018): an embedding of every node at every step.

Neighbours of a step lie near one another, a node moves little from step to step, and open triads that close are told
from those that stay open. What is minimised stands in `dytriad_kernels.py`, what it is drawn from in `triads.py`.

The published program embeds the edges of each step by themselves. On graphs where most nodes have no edge at most steps
that says little of a node: on DBLP the validation Micro-F1 is 29 % (the largest class: 29 %). So by default a step has
all edges so far. The other defaults that differ were chosen on DBLP as well, by known labels alone: with a margin of 1
classes are no linear matter (59 % at 10 iterations, 64 % with 2), and few steps do as well as many (see `stride`).
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from chronospike.compiled import njit
from chronospike.config import AtLeastZero, Count, Positive
from chronospike.data.graph import DynamicGraph
from chronospike.methods.dytriad_kernels import HostTables, Objective, Samples
from chronospike.methods.dytriad_torch import DeviceTables
from chronospike.methods.embedding import Embedder, EmbeddingLearner, EmbeddingSettings, OnBatch, Table
from chronospike.methods.logistic import Classifier
from chronospike.methods.step_graphs import all_edges, holders, step_graphs
from chronospike.methods.triads import closing_coefficients, corrupted, draw_triads, open_corners
from chronospike.rng import derive, stream
from chronospike.rng_kernels import derive_numba
from chronospike.threads import run_chunks
from chronospike.training.task import Task

# Of the selection by reconstruction: edges that are looked at, and iterations without gain after which training stops.
_TEST_EDGES, _PATIENCE = 10_000, 5


class DyTriadSettings(EmbeddingSettings):
    """DynamicTriad. Where the published program has another default, it is named."""

    epochs: Count = Field(20, description="iterations: passes over the edges of all steps; at most 10 in the program")
    batch_size: Count = Field(
        5000, description="edges per batch; larger is faster, since every batch updates all embeddings"
    )
    learning_rate: Positive = Field(0.1, description="of Adagrad")
    beta_smooth: AtLeastZero = Field(0.1, description="weight of the smoothness over steps; 1 in the demo")
    beta_triad: AtLeastZero = Field(0.1, description="weight of the triads; 1 in the published demo")
    margin: Positive = Field(
        2.0, description="margin between the squared distances of non-neighbours and neighbours; 1 in the program"
    )
    graphs: Literal["evolving", "cumulative"] = Field(
        "cumulative",
        description="the graph of a step: the edges of all steps so far, or only its own as in the program",
    )
    window: Count = Field(
        1, description="evolving graphs: the edges of this many steps, up to the step itself; at least `stride`"
    )
    stride: Count = Field(3, description="embed every n-th step, including the last; 1 in the program, 2 in its demo")
    edge_weights: Literal["ones", "events"] = Field(
        "ones", description="'events': an edge weighs as much as it has events in the steps of its graph"
    )
    readout: Literal["last", "mean", "concat"] = Field(
        "last", description="what is classified: the last step, the mean of all steps, or all of them concatenated"
    )
    selection: Literal["last", "reconstruction"] = Field(
        "last",
        description="the iteration to keep: the last, or, as in the program, the best at distinguishing edges from "
        "other pairs, stopping after 5 iterations without improvement",
    )


class TriadEmbedder(Embedder):
    """Embeddings `[T, N, d]` of the steps up to the task's last.

    Args:
        in_torch: whether to compute with torch, also on the CPU. By default where the task has a GPU.
        threads: of the CPU; they change nothing that is learned.
    """

    def __init__(
        self, task: Task, settings: DyTriadSettings, in_torch: bool | None = None, threads: int | None = None
    ) -> None:
        self._settings, self._seed, self._device, self._threads = settings, task.seed, task.device, threads
        by_events = settings.edge_weights == "events"
        self.graphs = step_graphs(
            task.graph, task.last_step, settings.graphs, settings.window, settings.stride, by_events
        )
        self.edges, self._holders = all_edges(self.graphs), holders(task.last_step, settings.stride)
        self._corners = open_corners(self.graphs, self.edges, threads)
        in_torch = task.device.type != "cpu" if in_torch is None else in_torch
        self.tables = self._device_tables(task.graph) if in_torch else self._host_tables(task.graph)
        self.parameters = int(np.prod(self.tables.values.shape)) + settings.dimension + 1
        self._objective = Objective(settings.learning_rate, settings.margin, settings.beta_smooth, settings.beta_triad)
        self._choice = _Choice(self) if settings.selection == "reconstruction" else None

    def _host_tables(self, graph: DynamicGraph) -> HostTables:
        values = np.empty((self.graphs.num_steps, graph.num_nodes, self._settings.dimension), dtype=np.float32)
        for step in range(len(values)):
            self._fill(values[step], graph, step)
        return HostTables(values, self._first_theta(), self._threads)

    def _device_tables(self, graph: DynamicGraph) -> DeviceTables:
        shape = self.graphs.num_steps, graph.num_nodes, self._settings.dimension
        values, one = torch.empty(shape, device=self._device), np.empty(shape[1:], dtype=np.float32)
        for step in range(len(values)):
            self._fill(one, graph, step)
            values[step] = torch.from_numpy(one)
        return DeviceTables(values, torch.from_numpy(self._first_theta()).to(self._device))

    def _fill(self, out: Table, graph: DynamicGraph, step: int) -> None:
        key, nodes = np.uint64(stream(self._seed, "dytriad embeddings", step)), graph.node_keys
        run_chunks(lambda low, high: _fill_uniform(out, nodes, key, low, high), len(out), self._threads)

    def _first_theta(self) -> Table:
        theta = np.empty((1, self._settings.dimension + 1), dtype=np.float32)
        _fill_uniform(theta, np.zeros(1, dtype=np.int64), np.uint64(stream(self._seed, "dytriad theta")), 0, 1)
        return np.asarray(theta[0])

    def samples(self, epoch: int) -> Samples:
        """What iteration `epoch` goes through: all edges, the triads weighed with what has been learned so far."""
        key = stream(self._seed, "dytriad samples", epoch)
        first, second = corrupted(self.graphs, self.edges, derive(key, 0), self._threads)
        edges = self.edges
        if len(first) and first.min() < 0:
            # Nobody is a stranger to someone whom everybody knows.
            kept = first >= 0
            edges, first, second = edges.part(kept), first[kept], second[kept]
        triads = draw_triads(self.graphs, self.edges, self._corners, edges.size, derive(key, 1), self._threads)
        coefficients = closing_coefficients(
            self.graphs, triads, self.tables.scores(), float(self.tables.theta[-1]), self._threads
        )
        return Samples(edges, first, second, triads, coefficients)

    def train_epoch(self, epoch: int, on_batch: OnBatch) -> float:
        if self._choice is not None and self._choice.is_over:
            return self._choice.loss
        samples, size = self.samples(epoch), self._settings.batch_size
        # Without any edge the smoothness is still there.
        batches, total = max(1, -(-samples.edges.size // size)), 0.0
        for number in range(batches):
            total += float(self.tables.descend(samples.batch(number, size), self._objective).sum())
            on_batch(number + 1, batches, total / (number + 1))
        if self._choice is not None:
            self._choice.look(self.tables.values, total / batches)
        return total / batches

    def embeddings(self) -> Table:
        """`[T, N, d]`, T the steps of the graph: one that is not embedded has what the next one has."""
        values = self.tables.values if self._choice is None else self._choice.best
        values = values.cpu().numpy() if isinstance(values, Tensor) else values
        return values if self._settings.stride == 1 else values[self._holders]

    def state(self) -> dict[str, Tensor]:
        """Not copies: write them before the next epoch."""
        tables = self.tables
        names = {"values": tables.values, "squares": tables.squares, "theta": tables.theta}
        found = {name: torch.as_tensor(x) for name, x in {**names, "theta_squares": tables.theta_squares}.items()}
        return found if self._choice is None else {**found, **self._choice.state()}

    def load_state(self, state: dict[str, Tensor]) -> None:
        for name, tensor in self.state().items():
            # A value of another shape must not be broadcast.
            if state[name].shape != tensor.shape:
                raise ValueError(f"{name} has the shape {list(state[name].shape)}, not {list(tensor.shape)}")
            tensor.copy_(state[name])
        if self._choice is not None:
            self._choice.load_state(state)


class _Choice:
    """The iteration whose embeddings tell edges of their step from pairs that are none best.

    As in the published program a logistic regression on `|u_i - u_j|` is fitted to some of the pairs, and its F1 on the
    others decides. After 5 iterations without gain nothing more is learned.
    """

    def __init__(self, embedder: TriadEmbedder) -> None:
        edges, key = embedder.edges, stream(embedder._seed, "dytriad reconstruction")
        some = np.unique(np.linspace(0, max(edges.size - 1, 0), min(edges.size, _TEST_EDGES)).astype(np.int64))
        chosen = edges.part(some)
        first, second = corrupted(embedder.graphs, chosen, key)
        known = first >= 0
        self._pairs = (
            np.concatenate([chosen.steps, chosen.steps[known]]).astype(np.int64),
            np.concatenate([chosen.first, first[known]]).astype(np.int64),
            np.concatenate([chosen.second, second[known]]).astype(np.int64),
        )
        self._labels = np.repeat([1, 0], [chosen.size, int(known.sum())]).astype(np.int64)
        values = embedder.tables.values
        self.best: Any = values.clone() if isinstance(values, Tensor) else values.copy()
        # F1 of the best, iterations since, and the loss of the last.
        self._facts = torch.tensor([-1.0, 0.0, 0.0], dtype=torch.float64)

    @property
    def is_over(self) -> bool:
        return bool(self._facts[1] >= _PATIENCE)

    @property
    def loss(self) -> float:
        return float(self._facts[2])

    def look(self, values: Any, loss: float) -> None:
        score = self._score(values)
        self._facts[1:] = torch.tensor([self._facts[1] + 1, loss])
        if score > self._facts[0]:
            self._facts[:2] = torch.tensor([score, 0.0])
            self.best[...] = values

    def _score(self, values: Any) -> float:
        """Mean F1 of two fits, each to every other pair and scored on the rest."""
        steps, first, second = self._pairs
        if not 0 < self._labels[::2].sum() < len(self._labels[::2]) or len(self._labels) < 4:
            return 0.0
        rows = abs(values[steps, first] - values[steps, second])
        rows = rows.cpu().numpy() if isinstance(rows, Tensor) else rows
        scores = []
        for side in range(2):
            fit, rest = slice(side, None, 2), slice(1 - side, None, 2)
            classifier = Classifier(rows[fit], self._labels[fit], 1.0, torch.device("cpu"))
            found = classifier.classes[classifier.probabilities(rows[rest]).argmax(axis=1)]
            hits = int((found * self._labels[rest]).sum())
            scores.append(2 * hits / max(int(found.sum() + self._labels[rest].sum()), 1))
        return float(np.mean(scores))

    def state(self) -> dict[str, Tensor]:
        return {"best": torch.as_tensor(self.best), "choice": self._facts}

    def load_state(self, state: dict[str, Tensor]) -> None:
        for name, tensor in self.state().items():
            tensor.copy_(state[name])


@njit
def _fill_uniform(out: Any, keys: Any, base: Any, low: Any, high: Any) -> None:
    """Uniform in 0..1; 24 random bits are as many as a float32 holds."""
    for node in range(low, high):
        own = derive_numba(base, keys[node])
        for k in range(out.shape[1]):
            out[node, k] = np.float32(derive_numba(own, k) >> np.uint64(40)) * np.float32(2**-24)


class DyTriad(EmbeddingLearner[DyTriadSettings]):
    name = "dytriad"
    title = "DyTriad"
    summary = "DynamicTriad: an embedding for each step from proximity, smoothness and triadic closure"
    settings_type = DyTriadSettings

    def embedder(self, task: Task) -> TriadEmbedder:
        return TriadEmbedder(task, self.settings)

    def check(self, graph: DynamicGraph) -> None:
        super().check(graph)
        if self.settings.edge_weights == "events":
            graph.require(events=True)

    def memory(self, graph: DynamicGraph) -> int:
        copies, steps = 2 if self.settings.selection == "last" else 3, -(-graph.num_steps // self.settings.stride)
        return 4 * copies * steps * graph.num_nodes * self.settings.dimension

    @property
    def memory_advice(self) -> str:
        return f"Lower dimension (now {self.settings.dimension}), or merge steps"

    def readout(self, values: Table) -> Table:
        # Steps that are not embedded repeat another.
        values = values[(len(values) - 1) % self.settings.stride :: self.settings.stride]
        if self.settings.readout == "mean":
            return np.asarray(values.mean(axis=0, dtype=np.float32))
        if self.settings.readout == "concat":
            return np.ascontiguousarray(values.transpose(1, 0, 2)).reshape(values.shape[1], -1)
        return super().readout(values)
