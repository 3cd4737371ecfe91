"""Carrying out a run: train, checkpoint, score, write everything into the run folder."""

from __future__ import annotations

import math
import shlex
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from chronospike.config import Settings
from chronospike.data.graph import DynamicGraph
from chronospike.errors import InputError, StorageError
from chronospike.files import write_json
from chronospike.training.checkpoint import (
    best_weights,
    load_checkpoint,
    read_state,
    save_checkpoint,
    seconds_per_epoch,
)
from chronospike.training.evaluation import (
    as_dict,
    confidently_wrong,
    device_name,
    firing_rates,
    reference_scores,
    score_nodes,
    unlabelled_shares,
    versions,
)
from chronospike.training.inference import Progress, infer
from chronospike.training.loop import State, Trainer, Watcher
from chronospike.training.memory import memory_errors
from chronospike.training.predictions import write_predictions
from chronospike.training.problem import architecture, make_problem, new_model
from chronospike.training.refit import Fitted, second_trainer
from chronospike.training.run_folder import METRICS, PREDICTIONS, RUN, RunFolder
from chronospike.training.weights import class_names, load_weights, rebuild, save_weights

# A run predicts all nodes up to so many, which takes minutes on a CPU and seconds on a GPU, or up to so many times its
# training nodes, which takes as long as about four epochs; beyond both, only the nodes it is scored on.
_PREDICT_ALL = {"cpu": 200_000, "cuda": 5_000_000}
_PREDICT_EPOCHS = 10
# Seconds of training that a run may lose when it is killed, beside the epoch it is in.
_SAVE_EVERY = 1.0


def execute(
    graph: DynamicGraph,
    run: RunFolder,
    device: torch.device,
    *,
    resume: bool = False,
    settings: Settings | None = None,
    smooth: bool = False,
    watcher: Watcher | None = None,
    on_nodes: Progress | None = None,
    on_note: Callable[[str], None] | None = None,
) -> dict[str, Any]:
    """Train the run that `run.begin` started (or resume it) and return what `metrics.json` says.

    Args:
        settings: of a resumed run that is to train for longer; the results it had stay until there are new ones.
        on_note: told, in a line, of what a user might not expect.
    """
    settings = settings or run.settings()
    graph, split = run.known_labels(graph)
    problem = make_problem(graph, settings, device, split, encoder=run.encoder())
    run.save_encoder(problem.inputs.encoder)
    if on_note is not None and problem.inputs.host is not None:
        on_note(problem.inputs.host.describe())
    trainer = Trainer(new_model(settings, problem.inputs.width, graph.num_classes), problem)
    _train(trainer, run, resume, watcher)
    state, fitted = trainer.state, Fitted(trainer.best_model(), problem, problem.split)
    if fitted.is_refitted:
        trainer = second_trainer(trainer)
        if on_note is not None:
            nodes = len(trainer.problem.split.train)
            on_note(f"training again on the {nodes:,} training and validation nodes for {trainer.stop_after} epochs")
        _train(trainer, run, resume, watcher)
        fitted = Fitted(trainer.best_model(), trainer.problem, problem.split, (fitted.model, problem))
    save_weights(fitted.model, run.weights, class_names=graph.class_names)
    name, output = run.facts().get("name"), run.path
    return evaluate(fitted, run, state, smooth=smooth, on_nodes=on_nodes, on_note=on_note, name=name, output=output)


def is_finished(run: RunFolder, settings: Settings, smooth: bool = False) -> bool:
    """Whether a run trained with these settings, perhaps for longer than before, would do nothing that is not done."""
    if not (run.weights.is_file() and (run.path / METRICS).is_file()):
        return False
    before, metrics = run.settings(), run.metrics()
    if smooth and not metrics.get("smoothed"):
        return False
    if not run.checkpoint.is_file():
        if settings == before:
            return True
        raise StorageError(f"{run.path} cannot be trained for longer: its folder checkpoint/ is gone. Start a new run")
    state = read_state(run.checkpoint)
    state.extend(before, settings)
    return state.finished(settings) and state.epoch == metrics.get("epochs")


def _extend(trainer: Trainer, run: RunFolder) -> None:
    """Take down that a resumed run trains for longer than it was begun for, unless it is at its end all the same."""
    before = run.settings()
    trainer.state.extend(before, trainer.settings)
    if trainer.settings == before or trainer.finished:
        return
    if run.checkpoint.is_file():
        save_checkpoint(trainer, run.checkpoint)
    # The second fit has another length, and perhaps another schedule.
    run.refit_checkpoint.unlink(missing_ok=True)
    run.extend(trainer.settings)


def _train(trainer: Trainer, run: RunFolder, resume: bool, watcher: Watcher | None) -> None:
    """Train to the end, with checkpoints; the first fit's epochs are written down too."""
    is_first = trainer.stop_after is None
    checkpoint = run.checkpoint if is_first else run.refit_checkpoint
    if resume and checkpoint.is_file():
        load_checkpoint(trainer, checkpoint)
    if resume and is_first:
        _extend(trainer, run)
    if is_first:
        run.write_epochs(trainer.state.history)
    elif watcher is not None:
        watcher = Watcher(on_batch=watcher.on_batch)
    with memory_errors(trainer.settings):
        saved, unsaved = -math.inf, []
        for report in trainer.epochs(watcher):
            unsaved.append(report)
            # On a GPU an epoch may take less time than writing it down.
            if time.perf_counter() - saved > _SAVE_EVERY or trainer.finished:
                save_checkpoint(trainer, checkpoint)
                for earlier in unsaved if is_first else ():
                    run.append_epoch(earlier)
                saved, unsaved = time.perf_counter(), []


def evaluate(
    fitted: Fitted,
    run: RunFolder,
    state: State | None = None,
    *,
    smooth: bool = False,
    on_nodes: Progress | None = None,
    name: str | None = None,
    output: Path | None = None,
    on_note: Callable[[str], None] | None = None,
) -> dict[str, Any]:
    """Score the model, and write `metrics.json` and `predictions.csv` if asked to.

    Args:
        state: of the training just finished; without it the run's own facts about its training are kept.
        name: of the graph.
        output: the folder to write to.
    """
    model, problem, split = fitted.model, fitted.problem, fitted.split
    if not len(split.test):
        raise InputError("no node of this graph can be scored: only training nodes have labels of the run's classes")
    graph, settings = problem.graph, problem.settings
    began = time.perf_counter()
    # Smoothing spreads what the model says of all nodes.
    most = max(_PREDICT_ALL[problem.device.type], _PREDICT_EPOCHS * len(split.train))
    takes_all = smooth or graph.num_nodes <= most
    nodes = np.arange(graph.num_nodes) if takes_all else np.union1d(split.validation, split.test)
    probabilities = np.zeros((graph.num_nodes, graph.num_classes))
    probabilities[nodes] = infer(model, problem, nodes, on_nodes)[0].numpy()
    seconds = time.perf_counter() - began
    notes = [] if takes_all else [_only_scored(len(nodes), graph.num_nodes, run)]
    if on_note is not None:
        for note in notes:
            on_note(note)
    predicted = probabilities.argmax(axis=1)
    rates = firing_rates(model, problem, split.test)
    test = score_nodes(problem, predicted, split.test)
    metrics: dict[str, Any] = {
        "test": as_dict(test, graph.class_names, len(split.test)),
        "validation": _validation(fitted, run, predicted),
        "refit": {"nodes": len(problem.split.train)} if fitted.is_refitted else None,
        "baselines": reference_scores(problem, split),
        "confidently_wrong": confidently_wrong(problem, probabilities, split.test),
        "unlabelled": unlabelled_shares(problem, predicted, nodes),
        "smoothed": None,
    }
    if smooth:
        metrics["smoothed"], probabilities = _smoothed(fitted, probabilities)
    metrics |= {
        "parameters": model.parameter_count(),
        "seed": settings.seed,
        "classes": list(graph.class_names),
        "firing_rate": [float(np.mean(layer)) for layer in rates],
        "firing_rate_per_step": rates,
        "inference": {"nodes": len(nodes), "seconds": seconds, "samples": settings.samples},
        "notes": notes,
        "split": split.facts,
        "graph": {**graph.summary(), "name": name},
        "device": device_name(problem.device),
        "versions": versions(),
        "command": run.facts().get("command"),
    }
    metrics |= _training_facts(run, state)
    if output is not None:
        write_predictions(output / PREDICTIONS, graph, nodes, probabilities[nodes], split)
        write_json(output / METRICS, metrics)
    return metrics


def load_run(graph: DynamicGraph, run: RunFolder, device: torch.device) -> Fitted:
    """The trained model of a finished run, ready for `graph`, with the labels and the split of the run itself.

    Labelled nodes of the graph that the run does not know are test nodes. A graph with other features is refused.
    """
    settings = run.settings()
    if not run.weights.is_file():
        raise StorageError(f"{run.path} is not finished. Resume with: chronospike train --resume -o {run.path}")
    tensors, metadata = load_weights(run.weights)
    model = rebuild(tensors, metadata, run.weights)
    graph, split = run.known_labels(graph)
    if class_names(metadata) != list(graph.class_names):
        raise StorageError(f"{run.weights} and {run.path / RUN} name other classes. Train the run again")
    problem = make_problem(graph, settings, device, split, encoder=run.encoder())
    if architecture(settings, problem.inputs.width, graph.num_classes) != model.architecture:
        raise StorageError(
            f"{run.weights} takes {model.architecture.inputs} inputs per node, and the settings and the graph, with "
            f"{problem.inputs.width}, describe another network. Use the graph and features of the training"
        )
    model.kernels = settings.kernels
    fitted = Fitted(model.to(device), problem, split)
    if not fitted.is_refitted:
        return fitted
    first = None
    if run.checkpoint.is_file():
        earlier = new_model(settings, problem.inputs.width, graph.num_classes)
        earlier.load_state_dict(best_weights(run.checkpoint))
        first = earlier.to(device), problem
    return Fitted(fitted.model, problem.with_all_labels(), split, first)


def _validation(fitted: Fitted, run: RunFolder, predicted: NDArray[np.int64]) -> dict[str, Any]:
    """Scores of the validation nodes by a model that has not learned from them."""
    nodes, names = fitted.split.validation, fitted.problem.graph.class_names
    if fitted.is_refitted:
        if fitted.first is None:
            return dict(run.metrics()["validation"])
        model, problem = fitted.first
        predicted = predicted.copy()
        predicted[nodes] = infer(model, problem, nodes)[0].argmax(dim=-1).numpy()
    return as_dict(score_nodes(fitted.problem, predicted, nodes), names, len(nodes))


def _only_scored(nodes: int, of: int, run: RunFolder) -> str:
    command = shlex.join(["chronospike", "predict", str(run.path), "-o", PREDICTIONS])
    return (
        f"{PREDICTIONS} holds the {nodes:,} validation and test nodes of {of:,}, since all would take long. "
        f"For all of them: {command}"
    )


def _smoothed(fitted: Fitted, probabilities: NDArray[np.float64]) -> tuple[dict[str, Any], NDArray[np.float64]]:
    values, strengths = fitted.smoothed(probabilities)
    found = score_nodes(fitted.problem, values.argmax(axis=1), fitted.split.test)
    return {"macro_f1": found.macro_f1, "micro_f1": found.micro_f1, "strengths": strengths}, values


def _training_facts(run: RunFolder, state: State | None) -> dict[str, Any]:
    if state is None:
        earlier = run.metrics() if (run.path / METRICS).is_file() else {}
        return {name: earlier.get(name) for name in ("seconds_per_epoch", "epochs", "best_epoch")}
    return {
        "seconds_per_epoch": seconds_per_epoch(state),
        "epochs": state.epoch,
        "best_epoch": state.best_epoch,
    }
