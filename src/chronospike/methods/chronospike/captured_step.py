"""A training step of ChronoSpike captured once and replayed: a CUDA graph of everything from sampler to optimiser.

What changes from batch to batch lies in buffers that the graph reads: the roots, how many of them count, the keys of
the sampler, the learning rate. The last batch is filled up with roots that count for nothing. Dropout follows
`torch.manual_seed` in a replay as anywhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from chronospike.nn.tree_features import TreeFeatures
from chronospike.training.step import Step, StepContext
from chronospike.training.task import Nodes

if TYPE_CHECKING:
    from chronospike.methods.chronospike.network import ChronoSpikeNetwork

# Steps done without a graph first: kernels are compiled, which cannot be captured.
_WARM_UP = 2
# In place of the number of a bad batch.
_NONE = 2**62


@dataclass(frozen=True)
class Prepared:
    """A batch fetched ahead of time, and the event after which it is there."""

    rows: TreeFeatures
    ready: torch.cuda.Event


class CapturedStep(Step):
    """The step of a network whose features the GPU can read. A loss that is not finite shows after the epoch."""

    def __init__(self, context: StepContext, network: ChronoSpikeNetwork) -> None:
        self.context, self.network = context, network
        device, batch_size = network.task.device, context.batch_nodes
        self._size = batch_size

        def whole(*shape: int) -> Tensor:
            return torch.zeros(shape, dtype=torch.int64, device=device)

        # The roots, how many of them count, and the number of the batch: all that is new in a batch, in one copy.
        self._batch = whole(batch_size + 2)
        self._roots, self._count, self._number = self._batch[:-2], self._batch[-2], self._batch[-1]
        self._tree_key, self._label_key, self._first_bad = whole(1), whole(1), whole() + _NONE
        self._losses = torch.zeros(3, device=device)
        self._positions = torch.arange(batch_size, device=device)
        self._targets = network.targets(np.arange(network.task.graph.num_nodes))
        self._epoch = -1
        self._done = 0
        # One for all: every stream has a workspace of the matrix library.
        self._stream = torch.cuda.Stream(device)
        self._fetching = torch.cuda.Stream(device)
        self._rows: TreeFeatures | None = None
        self._graph: torch.cuda.CUDAGraph | None = None

    @property
    def prepares(self) -> bool:
        """Whether `prepare` has anything to do: not where the graph and the features are on the GPU."""
        return not self.network.inputs.resident

    def prepare(self, nodes: Nodes, epoch: int) -> Prepared | None:
        """Fetch a batch's features from host memory on a stream of its own, while another batch trains."""
        if not self.prepares:
            return None
        filled = np.resize(nodes.astype(np.int64), self._size)
        with torch.cuda.stream(self._fetching):
            rows = self.network.prepare(filled, epoch)
            return Prepared(rows, self._fetching.record_event())

    def run(self, nodes: Nodes, epoch: int, number: int, prepared: Prepared | None = None) -> tuple[Tensor, bool]:
        """The losses `[3]` of batch `number`; they are overwritten by the next. The weights have always changed."""
        self._load(nodes, epoch, number)
        prepared = prepared or self.prepare(nodes, epoch)
        if prepared is not None:
            self._take(prepared)
        if self._graph is None and self._done >= _WARM_UP:
            self._capture()
        if self._graph is not None:
            self._graph.replay()
        else:
            self._warm_up()
        self._done += 1
        return self._losses, True

    def finish(self) -> None:
        """Called after the last batch of an epoch; waits for it."""
        number = int(self._first_bad)
        if number != _NONE:
            raise self.context.on_bad("loss or its gradient", number)

    def _take(self, prepared: Prepared) -> None:
        """Copy what was fetched to where the graph reads it."""
        values = prepared.rows.values
        if self._rows is None:
            self._rows = TreeFeatures(torch.empty_like(values), prepared.rows.sizes)
        torch.cuda.current_stream().wait_event(prepared.ready)
        values.record_stream(torch.cuda.current_stream())
        self._rows.values.copy_(values)

    def _load(self, roots: Nodes, epoch: int, number: int) -> None:
        batch = np.append(np.resize(roots.astype(np.int64), self._size), [len(roots), number])
        self._batch.copy_(torch.from_numpy(batch).pin_memory(), non_blocking=True)
        if epoch != self._epoch:
            self._tree_key.fill_(self.network.sampler.epoch_key(epoch))
            if self.network.labels is not None:
                self._label_key.fill_(self.network.labels.epoch_key(epoch))
            self._epoch = epoch

    def _compute(self) -> None:
        network, optimiser = self.network, self.context.optimiser
        optimiser.zero_grad()
        with network.precision():
            if self._rows is None:
                rows = network.rows_from_tensors(self._roots, self._tree_key, self._label_key)
            else:
                rows = network.with_roots(self._rows, self._roots)
            losses = network.objective_losses(
                network.module, rows, self._targets[self._roots], self._positions < self._count
            )
            losses[0].backward()
            is_good = torch.isfinite(losses[0].detach() + self.context.clip())
            # A step that the optimiser leaves out on the GPU itself: nothing here can wait and look.
            optimiser.step(found_inf=(~is_good).float())
        self._losses.copy_(losses.detach())
        self._first_bad.copy_(torch.where(is_good, self._first_bad, torch.minimum(self._first_bad, self._number)))

    def _warm_up(self) -> None:
        # On the stream of the capture: what autograd remembers of streams must not differ.
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            self._compute()
        torch.cuda.current_stream().wait_stream(self._stream)

    def _capture(self) -> None:
        # What the warm-up steps left in the allocator is of no use to the graph, which has memory of its own.
        self.context.optimiser.zero_grad()
        torch.cuda.empty_cache()
        self._graph = torch.cuda.CUDAGraph()
        # Another thread may be preparing a batch meanwhile; that is none of the graph's business.
        with torch.cuda.graph(self._graph, stream=self._stream, capture_error_mode="thread_local"):
            self._compute()
