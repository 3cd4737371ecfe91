"""One step of training: what a batch reads, its loss, the gradient, an update of the weights."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from chronospike.training.network import Network, OnBad
from chronospike.training.optimiser import AdamW
from chronospike.training.settings import TrainingSettings
from chronospike.training.task import Nodes


@dataclass(frozen=True)
class StepContext:
    """What every kind of step works on.

    Attributes:
        batches: of an epoch.
        batch_nodes: of all batches but perhaps the last.
        on_bad: makes the exception for a loss or gradient that is not finite: of what, and in which batch.
    """

    network: Network
    optimiser: AdamW
    settings: TrainingSettings
    batches: int
    batch_nodes: int
    on_bad: OnBad

    def clip(self) -> Tensor:
        """Clip the gradient; returns the norm it had."""
        return torch.nn.utils.clip_grad_norm_(self.network.module.parameters(), self.settings.clip or math.inf)


class Step(ABC):
    """How the loop does a batch."""

    @property
    def prepares(self) -> bool:
        """Whether `prepare` has anything to do."""
        return False

    def prepare(self, nodes: Nodes, epoch: int) -> Any:
        """What a batch reads, made in any thread while another batch trains."""
        return None

    @abstractmethod
    def run(self, nodes: Nodes, epoch: int, number: int, prepared: Any = None) -> tuple[Tensor, bool]:
        """The losses of batch `number`, means over its nodes, and whether the weights have changed."""

    def finish(self) -> None:
        """Called after the last batch of an epoch."""
        return


class PlainStep(Step):
    """One batch after the other, each operation launched by itself; gradients may be gathered over several batches."""

    prepares = True

    def __init__(self, context: StepContext) -> None:
        self.context = context

    def prepare(self, nodes: Nodes, epoch: int) -> Any:
        return self.context.network.prepare(nodes, epoch)

    def run(self, nodes: Nodes, epoch: int, number: int, prepared: Any = None) -> tuple[Tensor, bool]:
        c, network, accumulate = self.context, self.context.network, self.context.settings.accumulate
        prepared = self.prepare(nodes, epoch) if prepared is None else prepared
        with network.precision():
            losses = network.losses(network.module, prepared, nodes)
            if not torch.isfinite(losses[0]):
                raise c.on_bad("loss", number)
            (losses[0] / accumulate).backward()
            is_due = (number + 1) % accumulate == 0 or number + 1 == c.batches
            if is_due:
                if not torch.isfinite(c.clip()):
                    raise c.on_bad("gradient", number)
                c.optimiser.step()
                c.optimiser.zero_grad()
        return losses.detach(), is_due
