"""The training loop (Algorithm 2): AdamW, clipping, early stopping on validation Macro-F1, the best weights kept.

The order of batches, the sampled trees and the dropout masks of a batch are functions of (seed, epoch, batch), so a
run that continues from a checkpoint does exactly what it would have done without the break.
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor

from chronospike.config import Settings
from chronospike.errors import ChronoSpikeError
from chronospike.nn.lif import AdaptiveLIF
from chronospike.nn.model import ChronoSpike
from chronospike.rng import derive
from chronospike.sampling.batches import batches, num_batches
from chronospike.training.inference import infer
from chronospike.training.metrics import Scores, score_predictions
from chronospike.training.prefetch import prepare_ahead
from chronospike.training.problem import Problem, batch_size
from chronospike.training.step import CapturedStep, PlainStep, Prepared, Roots, StepContext

# Seconds between two readings of the running loss.
_REFRESH = 0.1


class TrainingFailure(ChronoSpikeError):
    """Training cannot go on: the loss or a gradient is not finite."""


@dataclass(frozen=True)
class EpochReport:
    """One line of `metrics.jsonl`."""

    epoch: int
    loss: float
    classification_loss: float
    contrastive_loss: float
    validation_macro_f1: float
    validation_micro_f1: float
    learning_rate: float
    seconds: float
    best: bool


@dataclass
class State:
    """Where training stands; with the weights and the optimiser it is all that a resumed run needs."""

    epoch: int = 0
    best_epoch: int = -1
    best_score: float = -1.0
    waited: int = 0
    updates: int = 0
    history: list[EpochReport] = field(default_factory=list)

    def finished(self, settings: Settings) -> bool:
        return self.epoch >= settings.epochs or self.waited >= settings.patience

    def extend(self, before: Settings, after: Settings) -> None:
        """Prepare for more epochs than there were to be: a run that had stopped early waits once more from here."""
        if after.epochs > before.epochs and self.waited >= after.patience:
            self.waited = 0


@dataclass
class Watcher:
    """What is told of progress; each may be left out. An exception raised here stops the training cleanly."""

    on_batch: Callable[[int, int, int, float], None] | None = None  # epoch, batch, batches, loss
    on_epoch: Callable[[EpochReport], None] | None = None


class Trainer:
    """Trains one model on one problem. A checkpoint holds `state`, the weights, their running mean and the moments.

    Args:
        stop_after: train for exactly so many epochs, choose none of them and keep the last weights.
    """

    def __init__(self, model: ChronoSpike, problem: Problem, stop_after: int | None = None) -> None:
        s = problem.settings
        self.stop_after = stop_after
        self.model = model.to(problem.device)
        self.problem = problem
        self.settings = s
        self.state = State()
        self.optimiser = _optimiser(self.model, s, problem.device)
        # What is validated and kept: the model itself, or the running mean of its weights.
        self.ema_model = copy.deepcopy(self.model) if s.weight_average > 0 else self.model
        self.best = {name: value.detach().clone() for name, value in model.state_dict().items()}
        self.class_weights = _class_weights(problem) if s.class_weights == "balanced" else None
        self.batch_size = batch_size(s, len(problem.split.train))
        self.batches = num_batches(len(problem.split.train), self.batch_size)
        part = StepContext(self.model, problem, self.optimiser, self.class_weights)
        self.step: PlainStep | CapturedStep = (
            CapturedStep(part, self.batch_size, self._failure)
            if CapturedStep.fits(problem)
            else PlainStep(part, self.batches, self._failure)
        )

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

    def run(self, watcher: Watcher | None = None) -> ChronoSpike:
        """Train to the end and return the model with the weights of the best epoch."""
        for _ in self.epochs(watcher):
            pass
        return self.best_model()

    def best_model(self) -> ChronoSpike:
        """The model, holding the weights of its best epoch."""
        self.model.load_state_dict(self.best)
        return self.model

    def _epoch(self, watcher: Watcher) -> EpochReport:
        s, epoch = self.settings, self.state.epoch
        begin = time.perf_counter()
        self.model.train()
        totals = torch.zeros(3, device=self.problem.device)
        nodes = 0
        shown, mean = 0.0, math.nan
        order = batches(self.problem.split.train, self.batch_size, s.seed, epoch)
        for number, (roots, prepared) in enumerate(self._prepared(order, epoch)):
            totals += self.batch(roots, epoch, number, prepared) * len(roots)
            nodes += len(roots)
            if watcher.on_batch is not None:
                # Reading the loss waits for the GPU, so it is read no more often than anyone can see.
                if time.perf_counter() - shown > _REFRESH:
                    mean, shown = float(totals[0]) / nodes, time.perf_counter()
                watcher.on_batch(epoch, number + 1, self.batches, mean)
        self.step.finish()
        seconds = time.perf_counter() - begin
        macro, micro = self._validation_scores()
        better = epoch + 1 == self.stop_after if self.stop_after is not None else macro > self.state.best_score
        if better:
            self.state.best_epoch, self.state.best_score, self.state.waited = epoch, macro, 0
            self.best = {name: value.detach().clone() for name, value in self.ema_model.state_dict().items()}
        else:
            self.state.waited += 1
        loss, classification, contrastive = (totals / max(1, nodes)).tolist()
        report = EpochReport(
            epoch=epoch,
            loss=loss,
            classification_loss=classification,
            contrastive_loss=contrastive,
            validation_macro_f1=macro,
            validation_micro_f1=micro,
            learning_rate=float(self.optimiser.param_groups[0]["lr"]),
            seconds=seconds,
            best=better,
        )
        self.state.history.append(report)
        self.state.epoch = epoch + 1
        return report

    def _prepared(self, order: Iterator[Roots], epoch: int) -> Iterator[tuple[Roots, Prepared | None]]:
        """Each batch, sampled while the one before it trains where that is worth a thread."""
        if not self.step.prepares:
            return ((roots, None) for roots in order)
        return prepare_ahead(order, lambda roots: self.step.prepare(roots, epoch))

    def batch(self, roots: Roots, epoch: int, number: int, prepared: Prepared | None = None) -> Tensor:
        """Learn from batch `number` of an epoch; its losses `[3]`: total, classification, contrastive."""
        self._set_learning_rate(epoch + number / self.batches)
        torch.manual_seed(derive(derive(derive(self.settings.seed, 0xD06), epoch), number) % 2**63)
        losses, has_changed = self.step.run(roots, epoch, number, prepared)
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
        """Macro- and Micro-F1 of the validation nodes; nothing where they choose nothing."""
        if self.stop_after is not None:
            return math.nan, math.nan
        found = self.validate()
        return found.macro_f1, found.micro_f1

    def validate(self) -> Scores:
        """Scores on the validation nodes with the current weights, or with their running mean."""
        split = self.problem.split
        # Where there were too few nodes to hold any out, the training nodes choose the epoch themselves.
        nodes = split.validation if len(split.validation) else split.train
        probabilities, _ = infer(self.ema_model, self.problem, nodes)
        truth = self.problem.targets(nodes).cpu()
        return score_predictions(truth, probabilities.argmax(dim=-1), self.problem.graph.num_classes)

    def _set_learning_rate(self, progress: float) -> None:
        s = self.settings
        factor = 0.5 * (1 + math.cos(math.pi * progress / s.epochs)) if s.schedule == "cosine" else 1.0
        for group in self.optimiser.param_groups:
            # A captured step reads the rate from a tensor, which must stay the same one.
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(s.learning_rate * factor)
            else:
                group["lr"] = s.learning_rate * factor

    def _failure(self, what: str, batch: int) -> TrainingFailure:
        return TrainingFailure(
            f"the {what} is not finite at epoch {self.state.epoch}, batch {batch}; {neuron_state(self.model)}. "
            "The last good checkpoint is kept. Lower learning_rate, or use neuron_form=softplus and clip=1.0"
        )


def neuron_state(model: ChronoSpike) -> str:
    """The ranges of τ, V_th and α of every layer, in one line."""
    parts = []
    for number, layer in enumerate(model.neurons):
        if isinstance(layer, AdaptiveLIF):
            values = {"tau": layer.tau, "V_th": layer.threshold, "alpha": layer.alpha}
            ranges = ", ".join(f"{name} {v.min().item():.3g}..{v.max().item():.3g}" for name, v in values.items())
            parts.append(f"layer {number + 1}: {ranges}")
    return "; ".join(parts) or "no spiking neurons"


def _optimiser(model: ChronoSpike, s: Settings, device: torch.device) -> torch.optim.AdamW:
    on_gpu = device.type == "cuda"
    rate: Any = torch.tensor(s.learning_rate, device=device) if on_gpu else s.learning_rate
    return torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=s.weight_decay, fused=True, capturable=on_gpu)


def _class_weights(problem: Problem) -> Tensor:
    """Inverse class frequencies in the training set, with mean one over the nodes."""
    classes = problem.graph.num_classes
    counts = torch.bincount(problem.targets(problem.split.train), minlength=classes)
    return counts.sum() / (classes * counts.clamp(min=1))


def report_as_dict(report: EpochReport) -> dict[str, Any]:
    """A report ready for JSON."""
    return asdict(report)
