"""The base of methods trained by gradient: training with checkpoints, refit on all labels, saving and loading.

The first fit holds the validation nodes out and finds the best epoch. With `refit` a second one begins again from the
same initial weights with all the labels, on the same schedule, and stops after as many epochs. Whatever is chosen by
the validation nodes later, and the score on them, is the first model's: the second has seen their labels.

With `folds` there are several networks instead, each on the labelled nodes without one fold: see `bagging`.
"""

from __future__ import annotations

import math
import time
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from chronospike.data.graph import DynamicGraph
from chronospike.data.splits import Split
from chronospike.device import peak_memory
from chronospike.errors import StorageError
from chronospike.training.bagging import (
    FOLDS,
    BagFitted,
    Folds,
    finish,
    fold_task,
    loaded_bag,
    make_folds,
    read_out_of_fold,
)
from chronospike.training.checkpoint import best_weights, load_checkpoint, read_state, save_checkpoint
from chronospike.training.final_stage import FinalStage, log_probabilities
from chronospike.training.learner import Cost, FitContext, Fitted, Learner, Progress
from chronospike.training.loop import Trainer, TrainingFailure, Watcher, seconds_per_epoch
from chronospike.training.memory import memory_errors, require_device_bytes
from chronospike.training.network import Network
from chronospike.training.node_features import input_width, is_static
from chronospike.training.run_folder import RunFolder
from chronospike.training.settings import TrainingSettings
from chronospike.training.task import Nodes, Task
from chronospike.training.weights import check_fit, class_names, description, load_weights, save_weights

# Seconds of training that a run may lose when it is killed, beside the epoch it is in.
_SAVE_EVERY = 1.0
# With fewer validation nodes a temperature would be a guess.
FEWEST_NODES = 50

Trained = TypeVar("Trained", bound=TrainingSettings)


class GradientLearner(Learner[Trained]):
    """A method that brings a network; the loop, refit, checkpoints and weights are the same for all."""

    keeps_checkpoints = True

    @abstractmethod
    def network(self, task: Task, training: bool = True) -> Network:
        """A network for the task with its initial weights, to be trained or only to be used."""

    @property
    def memory_advice(self) -> str:
        """What to change when memory runs out."""
        return f"Lower batch_size (now {self.settings.batch_size})"

    def memory(self, graph: DynamicGraph, width: int, static: bool, train: int) -> int:
        """Bytes on the device at the peak of a fit to `train` nodes; 0 where nobody counted them.

        Args:
            width: inputs per node; `static` if they are the same at all steps.
        """
        return 0

    def require_memory(self, graph: DynamicGraph, to_make: int, train: int, device: torch.device) -> None:
        width = input_width(graph) + to_make * self.settings.feature_dimension
        needed = self.memory(graph, width, is_static(graph) and not to_make, train)
        require_device_bytes(needed, f"{self.name} on this graph", device, self.memory_advice)

    def estimate(self, graph: DynamicGraph, width: int) -> dict[str, Any]:
        s = self.settings
        train = int((s.ratio - s.validation) * len(graph.labelled))
        needed = self.memory(graph, width, is_static(graph) and width == input_width(graph), train)
        return {"epochs": s.epochs, "memory_bytes": needed} if needed else {}

    def fit(self, task: Task, context: FitContext | None = None) -> GradientFitted | BagFitted:
        context, device = context or FitContext(), task.device
        run = context.run
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
        # Training seeds torch's own generators for each batch; the caller's are given back as they were.
        with (
            torch.random.fork_rng(devices=[device] if device.type == "cuda" else []),
            memory_errors(self.memory_advice),
        ):
            network = self.network(task)
            for note in network.notes:
                context.note(note)
            folds, note = make_folds(task, self.settings.folds) if self.settings.folds else (None, "")
            if note:
                context.note(note)
            if folds is not None:
                return self._fit_folds(network, folds, context)
            trainer = Trainer(network, self.settings, self._last_epoch)
            _train(trainer, context, None if run is None else run.checkpoint)
            state, final, second_done = trainer.state, network, True
            if self.settings.refit and len(task.split.validation) and not context.is_late():
                final = network.for_task(task.with_all_labels())
                final.module = final.new_module()
                second = Trainer(final, self.settings, stop_after=state.best_epoch + 1)
                nodes = len(final.task.split.train)
                context.note(
                    f"training again on the {nodes:,} training and validation nodes for {second.stop_after} epochs"
                )
                _train(second, context, None if run is None else run.refit_checkpoint, is_first=False)
                if not second.finished:
                    # Half a second fit is no better than a whole first one.
                    final, second_done = network, False
            cost = Cost(
                parameters=_parameters(final),
                seconds_per_epoch=seconds_per_epoch(state.history),
                epochs=state.epoch,
                best_epoch=None if self._last_epoch else state.best_epoch,
                peak_memory=peak_memory(device),
                complete=trainer.finished and second_done,
            )
            stage = self._calibrated(network)
        return GradientFitted(final, task.split, cost, network if final is not network else None, stage)

    @property
    def _last_epoch(self) -> int | None:
        return self.settings.epochs if self.settings.selection == "last" else None

    def _calibrated(self, network: Network) -> FinalStage:
        """The temperature that suits what a network says of its validation nodes."""
        nodes = network.task.split.validation
        if not self.settings.calibrate or len(nodes) < FEWEST_NODES:
            return FinalStage()
        found = network.infer(network.module, nodes)[0].numpy()
        return FinalStage().calibrated(found.astype(np.float64), network.task.labels(nodes), "validation")

    def _fit_folds(self, network: Network, folds: Folds, context: FitContext) -> BagFitted:
        """One network after the other on the same inputs, then what follows them."""
        task, s, run = network.task, self.settings, context.run

        def new_trainer(fold: int) -> Trainer:
            member = network.for_task(fold_task(task, folds, fold, s))
            member.module = member.new_module()
            return Trainer(member, s, self._last_epoch)

        if run is not None and context.resume:
            _extend_folds(new_trainer, folds.count, s, run)
        networks: list[Network] = []
        states = []
        for fold in range(folds.count):
            if networks and context.is_late():
                context.note(f"stopped early: {len(networks)} of {folds.count} networks are trained")
                break
            trainer = new_trainer(fold)
            watched = replace(context, watcher=_of_fold(context.watcher, fold, s.epochs))
            _train(trainer, watched, None if run is None else run.fold_checkpoint(fold), is_first=fold == 0)
            networks.append(trainer.network)
            states.append(trainer.state)
        cost = Cost(
            parameters=sum(map(_parameters, networks)),
            seconds_per_epoch=seconds_per_epoch(states[0].history),
            epochs=sum(state.epoch for state in states),
            best_epoch=None if self._last_epoch else states[0].best_epoch,
            peak_memory=peak_memory(task.device),
            complete=len(networks) == folds.count and not context.is_late(),
        )
        if s.second_stage != "none":
            context.note(f"fitting the second stage on {len(task.known):,} labelled nodes")
        return finish(task, networks, folds, s, cost, context.is_late, context.on_stage)

    def load(self, task: Task, run: RunFolder) -> GradientFitted | BagFitted:
        tensors, metadata = load_weights(run.weights)
        if class_names(metadata) != list(task.graph.class_names):
            raise StorageError(f"{run.weights} and {run.path / 'run.json'} name other classes. Train the run again")
        task.tables.take(run.label_features)
        network = self.network(task, training=False)
        described = description(metadata)
        count = described.pop(FOLDS, 0)
        fits = described == network.description() and isinstance(count, int) and 0 <= count <= self.settings.folds
        if not fits:
            raise StorageError(
                f"{run.weights} does not match the network that the settings and the graph describe. Use the features "
                "of the training, and directed edges only if they were directed there; or train a run of an earlier "
                "version again"
            )
        if count:
            modules = nn.ModuleList(network.new_module() for _ in range(count))
            check_fit(tensors, modules.state_dict(), run.weights)
            modules.load_state_dict(tensors)
            stage, table = FinalStage.load(run.final_stage, metadata["sha256"]), read_out_of_fold(run.out_of_fold)
            return loaded_bag(task, network, list(modules), stage, table, run.out_of_fold)
        check_fit(tensors, network.module.state_dict(), run.weights)
        first, final = None, network
        if self.settings.refit and len(task.split.validation):
            final = network.for_task(task.with_all_labels())
            if run.checkpoint.is_file():
                first, network.module = network, network.new_module()
                network.module.load_state_dict(best_weights(run.checkpoint))
        final.module.load_state_dict(tensors)
        stage = FinalStage()
        if run.final_stage.is_file():
            stage = FinalStage.load(run.final_stage, metadata["sha256"])
        return GradientFitted(final, task.split, Cost(_parameters(final)), first, stage)

    def is_finished(self, run: RunFolder) -> bool:
        before = run.settings(type(self.settings))
        paths = [run.checkpoint, *(run.fold_checkpoint(fold) for fold in range(self.settings.folds))]
        # There may be fewer folds than were asked for, or none.
        checkpoints = [path for path in paths if path.is_file()]
        if not checkpoints:
            if self.settings == before:
                return True
            raise StorageError(
                f"{run.path} cannot be trained for longer: its folder checkpoint/ is missing. Start a new run"
            )
        states = [read_state(path) for path in checkpoints]
        for state in states:
            state.extend(before, self.settings)
        epochs = sum(state.epoch for state in states)
        return all(state.finished(self.settings) for state in states) and epochs == run.metrics().get("epochs")


class GradientFitted(Fitted):
    """A trained network.

    Args:
        first: the network before the refit, if there was one and it is available.
    """

    def __init__(
        self,
        network: Network,
        split: Split,
        cost: Cost,
        first: Network | None = None,
        final: FinalStage | None = None,
    ) -> None:
        self.network, self.split, self.cost, self.first = network, split, cost, first
        self.task, self.final = network.task, final or FinalStage()

    @property
    def calibration(self) -> FinalStage | None:
        return self.final if self.final.chosen_nodes else None

    def probabilities(self, nodes: Nodes, on_nodes: Progress | None = None) -> NDArray[np.floating[Any]]:
        found: NDArray[np.float32] = self.network.infer(self.network.module, nodes, on_nodes)[0].numpy()
        # After a fit without validation nodes nobody has looked.
        if not np.isfinite(found).all():
            raise TrainingFailure(f"the predictions are not finite. {self.network.diagnosis()}")
        if self.calibration is None:
            return found
        return self.final.probabilities(log_probabilities(found), self.task, nodes)

    def embeddings(self, nodes: Nodes, on_nodes: Progress | None = None) -> NDArray[np.float32]:
        found: NDArray[np.float32] = self.network.infer(self.network.module, nodes, on_nodes)[1].numpy()
        return found

    def until(self, last_step: int) -> GradientFitted:
        first = None if self.first is None else self.first.for_task(self.first.task.until(last_step))
        network = self.network.for_task(self.task.until(last_step))
        return GradientFitted(network, self.split, self.cost, first, self.final)

    def held_out(self) -> GradientFitted | None:
        if not self.was_refitted:
            return self
        return None if self.first is None else GradientFitted(self.first, self.split, self.cost, None, self.final)

    def save(self, run: RunFolder) -> None:
        names = self.task.graph.class_names
        weights = save_weights(self.network.module, run.weights, self.network.description(), names)
        if self.calibration is not None:
            self.final.save(run.final_stage, weights)
        self.task.tables.save(run.label_features)

    def details(self) -> dict[str, Any]:
        return self.network.details()


def _train(trainer: Trainer, context: FitContext, checkpoint: Path | None, is_first: bool = True) -> None:
    """Train to the end, or until time is up, and take the best weights, with checkpoints; the epochs of the first of
    several fits are written down too."""
    run, watcher = context.run, context.watcher
    if not is_first and watcher is not None:
        watcher = Watcher(on_batch=watcher.on_batch)
    if run is None or checkpoint is None:
        for _ in trainer.epochs(watcher):
            if context.is_late():
                break
        _keep(trainer)
        return
    if context.resume and checkpoint.is_file():
        load_checkpoint(trainer, checkpoint)
    if context.resume:
        _extend(trainer, run, checkpoint, is_first)
    if is_first:
        run.write_epochs(trainer.state.history)
    saved, unsaved = -math.inf, []
    for report in trainer.epochs(watcher):
        unsaved.append(report)
        is_late = context.is_late()
        # On a GPU an epoch may take less time than writing it down.
        if time.perf_counter() - saved > _SAVE_EVERY or trainer.finished or is_late:
            save_checkpoint(trainer, checkpoint)
            for earlier in unsaved if is_first else ():
                run.append_epoch(earlier)
            saved, unsaved = time.perf_counter(), []
        if is_late:
            break
    _keep(trainer)


def _keep(trainer: Trainer) -> None:
    """Take the best weights; where none are chosen and time was up before the last epoch, those there are."""
    if trainer.stop_after is not None and not trainer.finished:
        trainer.best = {name: value.detach().clone() for name, value in trainer.ema_model.state_dict().items()}
    trainer.best_model()


def _parameters(network: Network) -> int:
    return sum(value.numel() for value in network.module.parameters() if value.requires_grad)


def _of_fold(watcher: Watcher | None, fold: int, epochs: int) -> Watcher | None:
    """The same watcher, with the epochs of all folds counted in one sequence."""
    if watcher is None or watcher.on_batch is None:
        return watcher
    on_batch = watcher.on_batch
    return replace(watcher, on_batch=lambda epoch, *rest: on_batch(fold * epochs + epoch, *rest))


def _extend_folds(
    new_trainer: Callable[[int], Trainer], count: int, settings: TrainingSettings, run: RunFolder
) -> None:
    """Record that the networks of a resumed run train for longer, all of them before one does, as `_extend` does."""
    before, after = run.settings(type(settings)), run.lengthened(settings)
    if after == before:
        return
    is_done = True
    for fold in range(count):
        checkpoint, trainer = run.fold_checkpoint(fold), new_trainer(fold)
        if checkpoint.is_file():
            load_checkpoint(trainer, checkpoint)
            trainer.state.extend(before, settings)
            save_checkpoint(trainer, checkpoint)
        is_done = is_done and trainer.finished
    if not is_done:
        run.extend(after)


def _extend(trainer: Trainer, run: RunFolder, checkpoint: Path, is_first: bool) -> None:
    """Record that a resumed run trains for longer than it was started for, unless it is finished anyway."""
    before, after = run.settings(type(trainer.settings)), run.lengthened(trainer.settings)
    trainer.state.extend(before, after)
    if after == before or trainer.finished or not is_first:
        return
    if checkpoint.is_file():
        save_checkpoint(trainer, checkpoint)
    # The second fit has another length, and perhaps another schedule.
    run.refit_checkpoint.unlink(missing_ok=True)
    run.extend(after)
