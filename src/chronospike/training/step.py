"""One step of training: sample, compute, differentiate, update. Plain, or captured once and replayed on a GPU.

A captured step is a CUDA graph of everything from the sampler to the optimiser. What changes from batch to batch lies
in buffers that the graph reads: the roots, how many of them count, the keys of the sampler, the learning rate. The last
batch is filled up with roots that count for nothing. Dropout follows `torch.manual_seed` in a replay as anywhere.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from chronospike.nn.model import ChronoSpike
from chronospike.nn.tree_features import TreeFeatures
from chronospike.training.inference import product_precision
from chronospike.training.problem import Problem, objective

# Steps done without a graph first: kernels are compiled and the optimiser makes its moments, which cannot be captured.
_WARM_UP = 2
# In place of the number of a bad batch.
_NONE = 2**62


Roots = NDArray[np.integer[Any]]


@dataclass(frozen=True)
class Prepared:
    """A batch sampled ahead of time; on a GPU with the event after which it is there."""

    rows: TreeFeatures
    ready: torch.cuda.Event | None = None


@dataclass(frozen=True)
class StepContext:
    """What every kind of step works on."""

    model: ChronoSpike
    problem: Problem
    optimiser: torch.optim.Optimizer
    class_weights: Tensor | None

    def losses(self, logits: Tensor, z: Tensor, targets: Tensor, valid: Tensor | None = None) -> Tensor:
        """`[3]`: total, classification, contrastive; a mean over the rows that are `valid`, or all."""
        wanted = objective(self.problem.settings)
        return wanted.losses(logits.float(), z.float(), targets, self.class_weights, valid, self.model.kernels)

    def clip(self) -> Tensor:
        """Clip the gradient; returns the norm it had."""
        return torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.problem.settings.clip or math.inf)


class PlainStep:
    """One batch after the other, each operation launched by itself; gradients may be gathered over several batches."""

    prepares = True

    def __init__(self, part: StepContext, batches: int, on_bad: Callable[[str, int], Exception]) -> None:
        self.part = part
        self.batches = batches
        self._on_bad = on_bad

    def prepare(self, roots: Roots, epoch: int) -> Prepared | None:
        """Sample a batch, in any thread, while another trains."""
        return Prepared(self.part.problem.rows(roots, epoch, training_epoch=epoch))

    def run(self, roots: Roots, epoch: int, number: int, prepared: Prepared | None = None) -> tuple[Tensor, bool]:
        """The losses `[3]` of batch `number`, and whether the weights have changed."""
        part, s = self.part, self.part.problem.settings
        prepared = prepared or self.prepare(roots, epoch)
        assert prepared is not None
        with product_precision(part.problem):
            logits, z = part.model(prepared.rows)
            losses = part.losses(logits, z, part.problem.targets(roots))
            if not torch.isfinite(losses[0]):
                raise self._on_bad("loss", number)
            (losses[0] / s.accumulate).backward()
            is_due = (number + 1) % s.accumulate == 0 or number + 1 == self.batches
            if is_due:
                if not torch.isfinite(part.clip()):
                    raise self._on_bad("gradient", number)
                part.optimiser.step()
                part.optimiser.zero_grad(set_to_none=True)
        return losses.detach(), is_due

    def finish(self) -> None:
        """Called after the last batch of an epoch."""


class CapturedStep:
    """The same as a CUDA graph. Whether a loss was not finite is found out at the end of the epoch."""

    def __init__(self, part: StepContext, batch_size: int, on_bad: Callable[[str, int], Exception]) -> None:
        self.part = part
        device = part.problem.device
        self._on_bad = on_bad
        self._size = batch_size

        def whole(*shape: int) -> Tensor:
            return torch.zeros(shape, dtype=torch.int64, device=device)

        # The roots, how many of them count, and the number of the batch: all that is new in a batch, in one copy.
        self._batch = whole(batch_size + 2)
        self._roots, self._count, self._number = self._batch[:-2], self._batch[-2], self._batch[-1]
        self._tree_key, self._label_key, self._first_bad = whole(1), whole(1), whole() + _NONE
        self._losses = torch.zeros(3, device=device)
        self._positions = torch.arange(batch_size, device=device)
        self._labels = part.problem.targets(np.arange(part.problem.graph.num_nodes))
        self._epoch = -1
        self._done = 0
        # One for all: every stream has a workspace of the matrix library.
        self._stream = torch.cuda.Stream(device)
        self._fetching = torch.cuda.Stream(device)
        self._rows: TreeFeatures | None = None
        self._graph: torch.cuda.CUDAGraph | None = None

    @staticmethod
    def fits(problem: Problem) -> bool:
        """Whether a step of this problem can be captured."""
        s = problem.settings
        return (
            problem.device.type == "cuda"
            and s.kernels == "auto"
            and s.accumulate == 1
            and problem.sampler.backend == "triton"
            and (problem.inputs.resident or problem.inputs.host is not None)
        )

    @property
    def prepares(self) -> bool:
        """Whether `prepare` has anything to do: not where the graph and the features are on the GPU."""
        return not self.part.problem.inputs.resident

    def prepare(self, roots: Roots, epoch: int) -> Prepared | None:
        """Fetch a batch's features from host memory on a stream of its own, while another batch trains."""
        if not self.prepares:
            return None
        filled = np.resize(roots.astype(np.int64), self._size)
        with torch.cuda.stream(self._fetching):
            rows = self.part.problem.rows(filled, epoch, training_epoch=epoch)
            return Prepared(rows, self._fetching.record_event())

    def run(self, roots: Roots, epoch: int, number: int, prepared: Prepared | None = None) -> tuple[Tensor, bool]:
        """The losses `[3]` of batch `number`; they are overwritten by the next. The weights have always changed."""
        self._load(roots, epoch, number)
        prepared = prepared or self.prepare(roots, epoch)
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
            raise self._on_bad("loss or its gradient", number)

    def _take(self, prepared: Prepared) -> None:
        """Copy what was fetched to where the graph reads it."""
        values = prepared.rows.values
        if self._rows is None:
            self._rows = TreeFeatures(torch.empty_like(values), prepared.rows.sizes)
        assert prepared.ready is not None
        torch.cuda.current_stream().wait_event(prepared.ready)
        values.record_stream(torch.cuda.current_stream())
        self._rows.values.copy_(values)

    def _load(self, roots: Roots, epoch: int, number: int) -> None:
        batch = np.append(np.resize(roots.astype(np.int64), self._size), [len(roots), number])
        self._batch.copy_(torch.from_numpy(batch).pin_memory(), non_blocking=True)
        if epoch != self._epoch:
            problem = self.part.problem
            self._tree_key.fill_(problem.sampler.epoch_key(epoch))
            if problem.labels is not None:
                self._label_key.fill_(problem.labels.epoch_key(epoch))
            self._epoch = epoch

    def _compute(self) -> None:
        part = self.part
        part.optimiser.zero_grad(set_to_none=True)
        with product_precision(part.problem):
            rows = self._rows or part.problem.rows_from_tensors(self._roots, self._tree_key, self._label_key)
            logits, z = part.model(rows)
            losses = part.losses(logits, z, self._labels[self._roots], self._positions < self._count)
            losses[0].backward()
            is_good = torch.isfinite(losses[0].detach() + part.clip())
            # A step that the optimiser leaves out on the GPU itself: nothing here can wait and look.
            part.optimiser.found_inf = (~is_good).float()  # type: ignore[attr-defined]
            part.optimiser.step()
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
        self.part.optimiser.zero_grad(set_to_none=True)
        torch.cuda.empty_cache()
        self._graph = torch.cuda.CUDAGraph()
        # Another thread may be preparing a batch meanwhile; that is none of the graph's business.
        with torch.cuda.graph(self._graph, stream=self._stream, capture_error_mode="thread_local"):
            self._compute()
