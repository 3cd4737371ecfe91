"""The interface between the training loop and a method: a module, its inputs for a batch of nodes, and its loss."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, ClassVar, Self

import torch
from torch import Tensor, nn

from chronospike.nn.dispatch import product_precision
from chronospike.rng import stream
from chronospike.training.learner import Progress
from chronospike.training.task import Nodes, Task

if TYPE_CHECKING:
    from chronospike.training.step import Step, StepContext


class Network(ABC):
    """A module for one task.

    Attributes:
        module: trained in place.
        loss_terms: names of the parts of the loss, in the order of `losses` after their total.
        notes: what a user should be told before training, a sentence each.
    """

    module: nn.Module
    task: Task
    loss_terms: ClassVar[tuple[str, ...]] = ()
    notes: tuple[str, ...] = ()

    def make_module(self) -> nn.Module:
        """A module on the CPU with initial weights by torch's own generator; a method has this or a `new_module`."""
        raise NotImplementedError(f"{type(self).__name__} has neither make_module nor new_module")

    def new_module(self) -> nn.Module:
        """A module on the task's device with the initial weights of its seed; torch's own generator is left alone."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(stream(self.task.seed, "init"))
            return self.make_module().to(self.task.device)

    def for_task(self, task: Task) -> Self:
        """The same module for a task of the same graph with another split or last step; inputs are shared."""
        other = copy.copy(self)
        other.task = task
        return other

    @abstractmethod
    def losses(self, module: nn.Module, prepared: Any, nodes: Nodes) -> Tensor:
        """`[1 + terms]`: the total, then its parts; each a mean over the batch's `nodes`."""

    @abstractmethod
    def infer(self, module: nn.Module, nodes: Nodes, on_nodes: Progress | None = None) -> tuple[Tensor, Tensor]:
        """Probabilities `[K, C]` and embeddings `[K, d]` of `nodes [K]`, on the CPU."""

    def batch_nodes(self, wanted: int, train: int) -> int:
        """Nodes a batch, of `wanted` by the settings; a full-graph method returns `train`, all of them."""
        return min(wanted, train)

    def prepare(self, nodes: Nodes, epoch: int) -> Any:
        """What the module reads for a batch, made in any thread while another batch trains."""
        return None

    def precision(self) -> AbstractContextManager[None]:
        """Around every forward and backward pass: how products are taken."""
        return product_precision(self.task.device, half=False)

    def new_step(self, context: StepContext) -> Step | None:
        """A way of its own to do a training step; None for the plain one."""
        return None

    def description(self) -> dict[str, Any]:
        """What the weights belong to, ready for JSON: weights are only loaded into a module of the same."""
        return {}

    def details(self) -> dict[str, Any]:
        """See `Fitted.details`."""
        return {}

    def diagnosis(self) -> str:
        """What to look at and what to change when the loss is not finite, in a line."""
        return "Lower learning_rate"


def balanced_class_weights(task: Task) -> Tensor:
    """`[C]` inverse class frequencies in the training set, with mean one over the nodes."""
    classes = task.graph.num_classes
    counts = torch.bincount(torch.from_numpy(task.labels(task.split.train)), minlength=classes).to(task.device)
    return counts.sum() / (classes * counts.clamp(min=1))


OnBad = Callable[[str, int], Exception]
