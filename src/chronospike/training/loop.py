"""The training loop (Algorithm 2): AdamW, clipping, early stopping on the validation score, the best weights kept.

The order of batches, the sampled trees and the dropout masks of a batch are functions of (seed, epoch, batch), so a
run that continues from a checkpoint does exactly what it would have done without the break.
"""

from __future__ import annotations

import copy
import math
import time
import weakref
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from chronospike.errors import ChronoSpikeError
from chronospike.rng import stream
from chronospike.sampling.batches import batches, num_batches
from chronospike.training.metrics import Scores, score_predictions
from chronospike.training.network import Network
from chronospike.training.optimiser import AdamW
from chronospike.training.prefetch import prepare_ahead
from chronospike.training.settings import TrainingSettings
from chronospike.training.step import PlainStep, Step, StepContext
from chronospike.training.task import Nodes

# Seconds between two readings of the running loss.
_REFRESH = 0.1


class TrainingFailure(ChronoSpikeError):
    """Training cannot go on: the loss, a gradient or a prediction is not finite."""


@dataclass(frozen=True)
class EpochReport:
    """One line of `metrics.jsonl`."""

    epoch: int
    loss: float
    validation_macro_f1: float
    validation_micro_f1: float
    learning_rate: float
    seconds: float
    best: bool
    terms: dict[str, float] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Ready for JSON, with the parts of the loss beside their total."""
        values = asdict(self)
        terms = values.pop("terms")
        return {**values, **terms}


@dataclass
class State:
    """Where training stands; with the weights and the optimiser it is all that a resumed run needs."""

    epoch: int = 0
    best_epoch: int = -1
    best_score: float = -1.0
    waited: int = 0
    updates: int = 0
    history: list[EpochReport] = field(default_factory=list)

    def finished(self, settings: TrainingSettings) -> bool:
        return self.epoch >= settings.epochs or (self.waited >= settings.patience and settings.selection != "last")

    def extend(self, before: TrainingSettings, after: TrainingSettings) -> None:
        """Prepare for more epochs than there were to be: a run that had stopped early waits once more from here."""
        if after.epochs > before.epochs and self.waited >= after.patience:
            self.waited = 0


@dataclass
class Watcher:
    """Callbacks for progress; each may be None. An exception raised here stops the training cleanly."""

    on_batch: Callable[[int, int, int, float], None] | None = None  # epoch, batch, batches, loss
    on_epoch: Callable[[EpochReport], None] | None = None


class Trainer:
    """Trains one network. A checkpoint holds `state`, the weights, their running mean and the moments.

    Args:
        stop_after: train for exactly so many epochs, choose none of them and keep the last weights.
    """

    def __init__(self, network: Network, settings: TrainingSettings, stop_after: int | None = None) -> None:
        self.network, self.settings, self.stop_after = network, settings, stop_after
        self.model = network.module
        self.state = State()
        self.optimiser = AdamW(self.model.named_parameters(), settings.learning_rate, settings.weight_decay)
        # What is validated and kept: the model itself, or the running mean of its weights.
        self.ema_model = _copy(self.model) if settings.weight_average > 0 else self.model
        self.best = {name: value.detach().clone() for name, value in self.model.state_dict().items()}
        train = len(network.task.split.train)
        self.batch_nodes = network.batch_nodes(settings.batch_nodes(train), train)
        self.batches = num_batches(train, self.batch_nodes)
        # Weakly: a trainer that holds itself is freed late, and with it what the network holds on a GPU.
        this = weakref.proxy(self)
        self.context = StepContext(
            network,
            self.optimiser,
            settings,
            self.batches,
            self.batch_nodes,
            on_bad=lambda what, batch: this._failure(what, batch),
        )
        self.step: Step = network.new_step(self.context) or PlainStep(self.context)

    @property
    def finished(self) -> bool:
        """Whether there is no epoch left to train."""
        if self.stop_after is not None:
            return self.state.epoch >= self.stop_after
        return self.state.finished(self.settings)

    def epochs(self, watcher: Watcher | None = None) -> Iterator[EpochReport]:
        """Train epoch by epoch until the settings say stop; the caller may checkpoint after each."""
        watcher = watcher or Watcher()
        while not self.finished:
            report = self._epoch(watcher)
            if watcher.on_epoch is not None:
                watcher.on_epoch(report)
            yield report

    def run(self, watcher: Watcher | None = None) -> nn.Module:
        """Train to the end and return the model with the weights of the best epoch."""
        for _ in self.epochs(watcher):
            pass
        return self.best_model()

    def best_model(self) -> nn.Module:
        """The model, holding the weights of its best epoch."""
        self.model.load_state_dict(self.best)
        return self.model

    def _epoch(self, watcher: Watcher) -> EpochReport:
        s, epoch, split = self.settings, self.state.epoch, self.network.task.split
        begin = time.perf_counter()
        self.model.train()
        totals = torch.zeros(1 + len(self.network.loss_terms), device=self.network.task.device)
        seen = 0
        shown, mean = 0.0, math.nan
        order = batches(split.train, self.batch_nodes, self.network.task.seed, epoch)
        for number, (nodes, prepared) in enumerate(self._prepared(order, epoch)):
            # Losses are means over the batch's nodes: weighted by their number they add up over batches of any size.
            totals += self.batch(nodes, epoch, number, prepared) * len(nodes)
            seen += len(nodes)
            if watcher.on_batch is not None:
                # Reading the loss waits for the GPU, so it is read no more often than anyone can see.
                if time.perf_counter() - shown > _REFRESH:
                    mean, shown = float(totals[0]) / seen, time.perf_counter()
                watcher.on_batch(epoch, number + 1, self.batches, mean)
        self.step.finish()
        seconds = time.perf_counter() - begin
        macro, micro = self._validation_scores()
        score = micro if s.selection == "micro_f1" else macro
        better = epoch + 1 == self.stop_after if self.stop_after is not None else score > self.state.best_score
        if better:
            self.state.best_epoch, self.state.best_score, self.state.waited = epoch, score, 0
            self.best = {name: value.detach().clone() for name, value in self.ema_model.state_dict().items()}
        else:
            self.state.waited += 1
        loss, *terms = (totals / max(1, seen)).tolist()
        report = EpochReport(
            epoch=epoch,
            loss=loss,
            validation_macro_f1=macro,
            validation_micro_f1=micro,
            learning_rate=self.optimiser.learning_rate,
            seconds=seconds,
            best=better,
            terms=dict(zip(self.network.loss_terms, terms, strict=True)),
        )
        self.state.history.append(report)
        self.state.epoch = epoch + 1
        return report

    def _prepared(self, order: Iterator[Nodes], epoch: int) -> Iterator[tuple[Nodes, Any]]:
        """Each batch, prepared while the one before it trains where that is worth a thread."""
        if not self.step.prepares:
            return ((nodes, None) for nodes in order)
        return prepare_ahead(order, lambda nodes: self.step.prepare(nodes, epoch))

    def batch(self, nodes: Nodes, epoch: int, number: int, prepared: Any = None) -> Tensor:
        """Learn from batch `number` of an epoch; its losses, the total first."""
        self._set_learning_rate(epoch + number / self.batches)
        torch.manual_seed(stream(self.network.task.seed, "dropout", epoch, number))
        losses, has_changed = self.step.run(nodes, epoch, number, prepared)
        if has_changed:
            self._update_average()
        return losses

    @torch.no_grad()
    def _update_average(self) -> None:
        if self.ema_model is not self.model:
            # The first steps count fully, so that the mean is not held back by the initial weights.
            self.state.updates += 1
            keep = min(self.settings.weight_average, self.state.updates / (self.state.updates + 10))
            torch._foreach_lerp_(list(self.ema_model.parameters()), list(self.model.parameters()), 1 - keep)

    def _validation_scores(self) -> tuple[float, float]:
        """Macro- and Micro-F1 of the validation nodes; nothing where there are none and nothing is to be chosen."""
        if self.stop_after is not None and not len(self.network.task.split.validation):
            return math.nan, math.nan
        found = self.validate()
        return found.macro_f1, found.micro_f1

    def validate(self) -> Scores:
        """Scores on the validation nodes with the current weights, or with their running mean."""
        task = self.network.task
        # Where there were too few nodes to hold any out, the training nodes choose the epoch themselves.
        nodes = task.split.validation if len(task.split.validation) else task.split.train
        probabilities, _ = self.network.infer(self.ema_model, nodes)
        # No later loss would tell of the last step of a training.
        if not probabilities.isfinite().all():
            raise self._failure("prediction")
        truth = torch.from_numpy(task.labels(nodes))
        return score_predictions(truth, probabilities.argmax(dim=-1), task.graph.num_classes)

    def _set_learning_rate(self, progress: float) -> None:
        s = self.settings
        factor = 0.5 * (1 + math.cos(math.pi * progress / s.epochs)) if s.schedule == "cosine" else 1.0
        self.optimiser.learning_rate = s.learning_rate * factor

    def _failure(self, what: str, batch: int | None = None) -> TrainingFailure:
        where = f"epoch {self.state.epoch}" + ("" if batch is None else f", batch {batch}")
        return TrainingFailure(
            f"the {what} is not finite at {where}; the last good checkpoint is kept. {self.network.diagnosis()}"
        )


def _copy(model: nn.Module) -> nn.Module:
    other = copy.deepcopy(model)
    for part in other.modules():
        if isinstance(part, nn.RNNBase):
            # A GPU wants all weights of a recurrent layer in one piece, and copies are made one by one.
            part.flatten_parameters()
    return other


def seconds_per_epoch(history: list[EpochReport]) -> float:
    """Median training time of the epochs after the first, which pays for warming up."""
    times = [report.seconds for report in history]
    return float(torch.tensor(times[1:] or times).median()) if times else 0.0
