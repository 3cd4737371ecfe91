"""What HTNE and M2DNE share: settings, and epochs over the records of events.

Both take the gradients of a batch of records at the values before the batch, add them up and take a plain step: of the
sum, not of the mean, so that the learning rate is that of one record. The CPU does it in compiled functions, and the
result is the same bits whatever the number of threads. A GPU does it in torch; there additions to a row come in any
order, and the last digits differ from run to run. The order of the records and their negatives are the same on both.
If a step has few records, it runs on the CPU even if there is a GPU, where launching it would take longer.
"""

from __future__ import annotations

import math
import time
from abc import abstractmethod
from typing import Annotated, Any, ClassVar, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from chronospike.config import Count, Positive
from chronospike.data.graph import DynamicGraph
from chronospike.features.noise import noise_table
from chronospike.methods.embedding import Embedder, EmbeddingLearner, EmbeddingSettings, OnBatch, Table
from chronospike.methods.event_history import event_records
from chronospike.methods.hawkes_kernels import add_changes, fill_slots, fill_uniform
from chronospike.methods.hawkes_torch import DeviceRecords, TensorSlots
from chronospike.nn.dispatch import product_precision
from chronospike.rng import stream
from chronospike.threads import default_threads, run_chunks
from chronospike.training.task import Task

# Seconds between progress reports.
_TELL_EVERY = 0.1
# Records whose nodes are found at once, on the CPU and on a GPU.
_CPU_AHEAD, _GPU_AHEAD = 2**14, 2**16
# With fewer records of a batch than this, starting a thread takes longer than its work.
_RECORDS_PER_THREAD = 256
# Batches are joined on a GPU while together they touch at most this share of the rows.
_TOUCHED, _MOST_JOINED = 1 / 16, 64
# In the time to launch a step on a GPU, two CPU cores process about this many records.
_LEAST_ON_GPU = 512


class HawkesSettings(EmbeddingSettings):
    """What both have."""

    history: Count = Field(2, description="number of last neighbours in a node's history")
    negatives: Count = Field(10, description="negative samples per event")
    learning_rate: Positive = Field(0.01, description="per event: gradients of a batch are summed")
    batch_size: Count = Field(1000, description="events per update")
    gpu_batches: Annotated[int, Field(ge=0, lt=2**15)] = Field(
        0,
        description="GPU: batches per update; 0: several on large graphs, as long as they touch 1/16 of the nodes; "
        "with fewer than 512 events, updates run on the CPU",
    )


class Slots(NamedTuple):
    """The nodes of B records; see `hawkes_kernels.fill_slots`, S sides, K negatives and h neighbours.

    Attributes:
        nodes: `[B, 2 + S K + S h]`.
        gaps: `[B, S h]` time since each neighbour was met.
        lengths: `[B, S]` how many neighbours are real.
        moments: `[B]` index of each record's time.
    """

    nodes: NDArray[np.int32]
    gaps: NDArray[np.float32]
    lengths: NDArray[np.int64]
    moments: NDArray[np.int32]

    def part(self, low: int, high: int) -> Slots:
        return Slots(self.nodes[low:high], self.gaps[low:high], self.lengths[low:high], self.moments[low:high])


class HawkesEmbedder(Embedder):
    """Batches of records; a method brings what one batch does.

    Args:
        sides: 1 if only the node's own past counts, 2 if its neighbour's does, too.
        compiled: whether to use the compiled functions, on the CPU; by default where there is no GPU or little for it
            to do at a time.
        threads: of the CPU; all by default.

    Attributes:
        vectors: `[N, d]` the embeddings.
        changes, losses: of a batch, where it is compiled: `[B, 2 + S K + S h, d]` and `[B]`.
    """

    def __init__(
        self, task: Task, settings: HawkesSettings, sides: int, compiled: bool | None = None, threads: int | None = None
    ) -> None:
        assert task.graph.events is not None
        self.sides, self.seed = sides, task.seed
        self.history, self.negatives = settings.history, settings.negatives
        self.rate, self.batch_size = settings.learning_rate, settings.batch_size
        nodes, slots = task.graph.num_nodes, 2 + sides * (settings.negatives + settings.history)
        self.joined = settings.gpu_batches or joined_batches(nodes, slots, self.batch_size)
        is_small = not settings.gpu_batches and self.joined * self.batch_size < _LEAST_ON_GPU
        self.compiled = task.device.type == "cpu" or is_small if compiled is None else compiled
        self.device = torch.device("cpu") if self.compiled else task.device
        self.threads = threads or default_threads()
        self.records = event_records(task.graph.events.until(task.last_step), nodes)
        self.vectors = self._initial_vectors(task.graph, settings.dimension)
        if not len(self.records):
            return
        self.noise = noise_table(self.records.degrees().astype(np.float64))
        if self.compiled:
            size = min(self.batch_size, len(self.records))
            self.changes = np.zeros((size, slots, settings.dimension), dtype=np.float32)
            self.losses = np.zeros(size)
        else:
            self.device_records = DeviceRecords(self.records, self.noise, self.device)
            self.visits = torch.zeros(nodes, device=self.device)

    def _initial_vectors(self, graph: DynamicGraph, dimension: int) -> Tensor:
        """Uniform in ±1/√N."""
        table = np.empty((graph.num_nodes, dimension), dtype=np.float32)
        base, bound = np.uint64(stream(self.seed, "hawkes vectors")), np.float32(1 / math.sqrt(len(table)))
        keys = graph.node_keys
        run_chunks(lambda low, high: fill_uniform(table, keys, base, bound, low, high), len(table), self.threads)
        return torch.from_numpy(table).to(self.device)

    @abstractmethod
    def gradients(self, slots: Slots, low: int, high: int) -> None:
        """Compiled: fill `changes` and `losses` for the records low..high-1 of a batch."""

    def before_adding(self, slots: Slots) -> None:
        """Compiled: what has to be done while the embeddings are still those of the gradients."""
        return

    @abstractmethod
    def after_adding(self, slots: Slots) -> None:
        """Compiled: change what else `gradients` found to change."""

    @abstractmethod
    def torch_step(self, slots: TensorSlots) -> Tensor:
        """The same in torch, embeddings included (`add_to_vectors`); the sum of the losses."""

    @abstractmethod
    def tables(self) -> dict[str, Tensor]:
        """Everything that is learned, by name."""

    def train_epoch(self, epoch: int, on_batch: OnBatch) -> float:
        if not len(self.records):
            return 0.0
        generator = np.random.Generator(np.random.Philox(key=stream(self.seed, "hawkes order", epoch)))
        order = generator.permutation(np.arange(len(self.records), dtype=self.records.mirror.dtype))
        key = stream(self.seed, "hawkes negatives", epoch)
        return (self._compiled_epoch if self.compiled else self._torch_epoch)(order, key, on_batch)

    def _compiled_epoch(self, order: NDArray[Any], key: int, on_batch: OnBatch) -> float:
        size, total, told = self.batch_size, -(-len(order) // self.batch_size), time.perf_counter()
        ahead, loss = max(1, _CPU_AHEAD // size) * size, 0.0
        for first in range(0, len(order), ahead):
            slots = self.find_slots(order[first : first + ahead], key)
            for low in range(0, len(slots.nodes), size):
                loss += self.compiled_step(slots.part(low, low + size))
                done = min(len(order), first + low + size)
                if time.perf_counter() - told > _TELL_EVERY or done == len(order):
                    told = time.perf_counter()
                    on_batch(-(-done // size), total, loss / done)
        return loss / len(order)

    def find_slots(self, places: NDArray[Any], key: int) -> Slots:
        """The nodes of the records `places`, with the negatives of `key`."""
        r, count, base = self.records, len(places), np.uint64(key)
        slots = Slots(
            np.empty((count, 2 + self.sides * (self.negatives + self.history)), dtype=np.int32),
            np.empty((count, self.sides * self.history), dtype=np.float32),
            np.empty((count, self.sides), dtype=np.int64),
            r.moment[places],
        )

        def fill(low: int, high: int) -> None:
            fill_slots(
                r.indptr, r.node, r.neighbour, r.moment, r.mirror, r.times, *self.noise,
                places, base, self.negatives, self.history, *slots[:3], low, high,
            )  # fmt: skip

        run_chunks(fill, count, self.threads)
        return slots

    def compiled_step(self, slots: Slots) -> float:
        """Learn from a batch; the sum of its losses."""
        table, nodes, count = self.vectors.numpy(), slots.nodes, len(slots.nodes)
        parts = max(1, min(self.threads, count // _RECORDS_PER_THREAD))

        def add(low: int, high: int) -> None:
            for part in range(low, high):
                add_changes(table, nodes, self.changes, part, parts)

        run_chunks(lambda low, high: self.gradients(slots, low, high), count, parts)
        self.before_adding(slots)
        run_chunks(add, parts, parts)
        self.after_adding(slots)
        return float(self.losses[:count].sum())

    def _torch_epoch(self, order: NDArray[Any], key: int, on_batch: OnBatch) -> float:
        size = self.batch_size * self.joined
        ahead, total, told = max(1, _GPU_AHEAD // size) * size, -(-len(order) // size), time.perf_counter()
        loss = torch.zeros((), dtype=torch.float64, device=self.device)
        places = torch.from_numpy(order).to(self.device)
        with product_precision(self.device, half=False):
            for first in range(0, len(order), ahead):
                some = places[first : first + ahead]
                slots = self.device_records.slots(some, key, self.sides, self.negatives, self.history)
                for low in range(0, len(some), size):
                    loss += self.torch_step(slots.part(low, low + size))
                    done = min(len(order), first + low + size)
                    if time.perf_counter() - told > _TELL_EVERY or done == len(order):
                        # Waits for the device, so that only finished work is reported.
                        on_batch(-(-done // size), total, loss.item() / done)
                        told = time.perf_counter()
        return loss.item() / len(order)

    def add_to_vectors(self, nodes: Tensor, changes: Tensor) -> None:
        """Add `changes [B, M, d]` to the rows `nodes [B, M]`.

        Where batches are joined, a row that occurs more often than a batch has records moves no further than a batch
        of nothing else would move it. Node 0, which stands for missing neighbours, would be flung away otherwise.
        """
        flat = nodes.reshape(-1)
        if self.joined > 1:
            self.visits.index_add_(0, flat, torch.ones_like(flat, dtype=self.visits.dtype))
            share = (self.batch_size / self.visits[flat]).clamp(max=1)
            self.visits[flat] = 0
            changes = changes * share.view(*nodes.shape, 1)
        self.vectors.index_add_(0, flat, changes.reshape(len(flat), -1))

    def embeddings(self) -> Table:
        found: Table = self.vectors.cpu().numpy().copy()[None]
        return found

    def state(self) -> dict[str, Tensor]:
        return {name: table.cpu().clone() for name, table in self.tables().items()}

    def load_state(self, state: dict[str, Tensor]) -> None:
        for name, table in self.tables().items():
            if state[name].shape != table.shape:
                raise ValueError(f"{name} is {list(state[name].shape)}, not {list(table.shape)}")
            table.copy_(state[name])


def joined_batches(num_nodes: int, slots: int, batch_size: int) -> int:
    """How many batches, of so many records with so many nodes each, a GPU takes as one."""
    return max(1, min(_MOST_JOINED, int(num_nodes * _TOUCHED / (slots * batch_size))))


Hawkes = TypeVar("Hawkes", bound=HawkesSettings)


class HawkesLearner(EmbeddingLearner[Hawkes]):
    """What the two learners share.

    Attributes:
        sides: see `HawkesEmbedder`.
    """

    sides: ClassVar[int]

    def check(self, graph: DynamicGraph) -> None:
        super().check(graph)
        graph.require(events=True)

    def memory(self, graph: DynamicGraph) -> int:
        s, records = self.settings, 0 if graph.events is None else 2 * len(graph.events)
        # The embeddings with their decays, and a copy for the regression.
        tables = 2 * 4 * graph.num_nodes * (s.dimension + 2)
        # Of each record four columns and its place in the order; of each of a batch the changes of its nodes.
        slots = 2 + self.sides * (s.negatives + s.history)
        return tables + 5 * 4 * records + 4 * min(records, s.batch_size) * slots * s.dimension

    @property
    def memory_advice(self) -> str:
        return f"{super().memory_advice} or batch_size (now {self.settings.batch_size})"
