"""Methods trained by gradient: one way to train with checkpoints, to train again on all labels, to save and to load.

The first fit holds the validation nodes out and finds the best epoch. With `refit` a second one begins again from the
same initial weights with all the labels, on the same schedule, and stops after as many epochs. Whatever is chosen by
the validation nodes later, and the score on them, is the first model's: the second has seen their labels.
"""

from __future__ import annotations

import math
import time
from abc import abstractmethod
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from chronospike.data.splits import Split
from chronospike.device import peak_memory
from chronospike.errors import StorageError
from chronospike.training.checkpoint import best_weights, load_checkpoint, read_state, save_checkpoint
from chronospike.training.learner import Cost, FitContext, Fitted, Learner, Progress
from chronospike.training.loop import Trainer, Watcher, seconds_per_epoch
from chronospike.training.memory import memory_errors
from chronospike.training.network import Network
from chronospike.training.run_folder import RunFolder
from chronospike.training.settings import TrainingSettings
from chronospike.training.task import Nodes, Task
from chronospike.training.weights import check_fit, class_names, description, load_weights, save_weights

# Seconds of training that a run may lose when it is killed, beside the epoch it is in.
_SAVE_EVERY = 1.0

Trained = TypeVar("Trained", bound=TrainingSettings)


class GradientLearner(Learner[Trained]):
    """A method that brings a network; the loop, refit, checkpoints and weights are the same for all."""

    @abstractmethod
    def network(self, task: Task, training: bool = True) -> Network:
        """A network for the task with its initial weights, to be trained or only to be used."""

    @property
    def memory_advice(self) -> str:
        """What to change when memory runs out."""
        return f"Lower batch_size (now {self.settings.batch_size})"

    def fit(self, task: Task, context: FitContext | None = None) -> GradientFitted:
        context, device = context or FitContext(), task.device
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
            trainer = Trainer(network, self.settings)
            _train(trainer, context)
            state, final = trainer.state, network
            if self.settings.refit and len(task.split.validation):
                final = network.for_task(task.with_all_labels())
                final.module = final.new_module()
                second = Trainer(final, self.settings, stop_after=state.best_epoch + 1)
                nodes = len(final.task.split.train)
                context.note(
                    f"training again on the {nodes:,} training and validation nodes for {second.stop_after} epochs"
                )
                _train(second, context)
        cost = Cost(
            parameters=sum(value.numel() for value in final.module.parameters() if value.requires_grad),
            seconds_per_epoch=seconds_per_epoch(state.history),
            epochs=state.epoch,
            best_epoch=state.best_epoch,
            peak_memory=peak_memory(device),
        )
        return GradientFitted(final, task.split, cost, network if final is not network else None)

    def load(self, task: Task, run: RunFolder) -> GradientFitted:
        tensors, metadata = load_weights(run.weights)
        if class_names(metadata) != list(task.graph.class_names):
            raise StorageError(f"{run.weights} and {run.path / 'run.json'} name other classes. Train the run again")
        network = self.network(task, training=False)
        if description(metadata) != network.description():
            raise StorageError(
                f"{run.weights} does not match the network that the settings and the graph describe. Use the graph and "
                "features of the training"
            )
        check_fit(tensors, network.module.state_dict(), run.weights)
        first, final = None, network
        if self.settings.refit and len(task.split.validation):
            final = network.for_task(task.with_all_labels())
            if run.checkpoint.is_file():
                first, network.module = network, network.new_module()
                network.module.load_state_dict(best_weights(run.checkpoint))
        final.module.load_state_dict(tensors)
        parameters = sum(value.numel() for value in final.module.parameters() if value.requires_grad)
        return GradientFitted(final, task.split, Cost(parameters), first)

    def is_finished(self, run: RunFolder) -> bool:
        before = run.settings(type(self.settings))
        if not run.checkpoint.is_file():
            if self.settings == before:
                return True
            raise StorageError(
                f"{run.path} cannot be trained for longer: its folder checkpoint/ is missing. Start a new run"
            )
        state = read_state(run.checkpoint)
        state.extend(before, self.settings)
        return state.finished(self.settings) and state.epoch == run.metrics().get("epochs")


class GradientFitted(Fitted):
    """A trained network.

    Args:
        first: the network before the refit, if there was one and it is available.
    """

    def __init__(self, network: Network, split: Split, cost: Cost, first: Network | None = None) -> None:
        self.network, self.split, self.cost, self.first = network, split, cost, first
        self.task = network.task

    def probabilities(self, nodes: Nodes, on_nodes: Progress | None = None) -> NDArray[np.float32]:
        found: NDArray[np.float32] = self.network.infer(self.network.module, nodes, on_nodes)[0].numpy()
        return found

    def embeddings(self, nodes: Nodes, on_nodes: Progress | None = None) -> NDArray[np.float32]:
        found: NDArray[np.float32] = self.network.infer(self.network.module, nodes, on_nodes)[1].numpy()
        return found

    def until(self, last_step: int) -> GradientFitted:
        first = None if self.first is None else self.first.for_task(self.first.task.until(last_step))
        return GradientFitted(self.network.for_task(self.task.until(last_step)), self.split, self.cost, first)

    def held_out(self) -> GradientFitted | None:
        if not self.was_refitted:
            return self
        return None if self.first is None else GradientFitted(self.first, self.split, self.cost)

    def save(self, run: RunFolder) -> None:
        save_weights(self.network.module, run.weights, self.network.description(), self.task.graph.class_names)

    def details(self) -> dict[str, Any]:
        return self.network.details()


def _train(trainer: Trainer, context: FitContext) -> None:
    """Train to the end and take the best weights, with checkpoints; the first fit's epochs are written down too."""
    run, watcher, is_first = context.run, context.watcher, trainer.stop_after is None
    if not is_first and watcher is not None:
        watcher = Watcher(on_batch=watcher.on_batch)
    if run is None:
        trainer.run(watcher)
        return
    checkpoint = run.checkpoint if is_first else run.refit_checkpoint
    if context.resume and checkpoint.is_file():
        load_checkpoint(trainer, checkpoint)
    if context.resume and is_first:
        _extend(trainer, run)
    if is_first:
        run.write_epochs(trainer.state.history)
    saved, unsaved = -math.inf, []
    for report in trainer.epochs(watcher):
        unsaved.append(report)
        # On a GPU an epoch may take less time than writing it down.
        if time.perf_counter() - saved > _SAVE_EVERY or trainer.finished:
            save_checkpoint(trainer, checkpoint)
            for earlier in unsaved if is_first else ():
                run.append_epoch(earlier)
            saved, unsaved = time.perf_counter(), []
    trainer.best_model()


def _extend(trainer: Trainer, run: RunFolder) -> None:
    """Record that a resumed run trains for longer than it was started for, unless it is finished anyway."""
    before = run.settings(type(trainer.settings))
    trainer.state.extend(before, trainer.settings)
    if trainer.settings == before or trainer.finished:
        return
    if run.checkpoint.is_file():
        save_checkpoint(trainer, run.checkpoint)
    # The second fit has another length, and perhaps another schedule.
    run.refit_checkpoint.unlink(missing_ok=True)
    run.extend(trainer.settings)
