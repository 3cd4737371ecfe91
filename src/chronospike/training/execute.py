"""Carrying out a run: train, checkpoint, score, write everything into the run folder."""

from __future__ import annotations

import math
import shlex
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from chronospike.data.graph import DynamicGraph
from chronospike.data.splits import Split
from chronospike.errors import InputError, StorageError
from chronospike.files import write_json
from chronospike.training.checkpoint import best_weights, load_checkpoint, save_checkpoint, seconds_per_epoch
from chronospike.training.evaluation import (
    as_dict,
    device_name,
    firing_rates,
    reference_scores,
    score_nodes,
    versions,
)
from chronospike.training.inference import Progress, infer
from chronospike.training.loop import State, Trainer, Watcher
from chronospike.training.memory import memory_errors
from chronospike.training.problem import architecture, make_problem, new_model
from chronospike.training.refit import Fitted, second_trainer
from chronospike.training.run import METRICS, PREDICTIONS, RunFolder, write_predictions
from chronospike.training.smoothing import choose_and_smooth
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
    smooth: bool = False,
    watcher: Watcher | None = None,
    on_nodes: Progress | None = None,
    on_note: Callable[[str], None] | None = None,
) -> dict[str, Any]:
    """Train the run that `run.begin` started (or go on with it) and return what `metrics.json` says.

    `on_note` is told, in a line, of what a user might not expect.
    """
    settings = run.settings()
    problem = make_problem(graph, settings, device)
    if on_note is not None and problem.inputs.host is not None:
        on_note(problem.inputs.host.describe())
    trainer = Trainer(new_model(settings, graph.num_features, graph.num_classes), problem)
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
    return evaluate(fitted, run, state, smooth=smooth, on_nodes=on_nodes, on_note=on_note)


def _train(trainer: Trainer, run: RunFolder, resume: bool, watcher: Watcher | None) -> None:
    """Train to the end, with checkpoints; the first fit's epochs are written down too."""
    is_first = trainer.stop_after is None
    checkpoint = run.checkpoint if is_first else run.refit_checkpoint
    if resume and checkpoint.is_file():
        load_checkpoint(trainer, checkpoint)
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
    on_note: Callable[[str], None] | None = None,
) -> dict[str, Any]:
    """Score the model and write `metrics.json` and `predictions.csv`. Without `state`, training facts are kept."""
    model, problem, split = fitted.model, fitted.problem, fitted.split
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
        "baselines": reference_scores(problem, split.test),
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
        "graph": {**graph.summary(), "name": run.facts().get("name")},
        "device": device_name(problem.device),
        "versions": versions(),
        "command": run.facts().get("command"),
    }
    metrics |= _training_facts(run, state)
    write_predictions(run.path / PREDICTIONS, graph, nodes, probabilities[nodes], split)
    write_json(run.path / METRICS, metrics)
    return metrics


def load_run(graph: DynamicGraph, run: RunFolder, device: torch.device, needs_labels: bool = True) -> Fitted:
    """The trained model of a finished run and its problem; a graph of other classes or features is refused.

    One without labels is taken where no labels are needed; its split is then empty.
    """
    settings = run.settings()
    if not run.weights.is_file():
        raise StorageError(f"{run.path} is not finished. Go on with: chronospike train --resume -o {run.path}")
    tensors, metadata = load_weights(run.weights)
    model = rebuild(tensors, metadata, run.weights)
    known, own = class_names(metadata), list(graph.class_names)
    split = None
    if needs_labels:
        graph.require(classes=2)
    if graph.labels is None:
        if settings.label_inputs:
            raise InputError(f"{run.path} takes labels of neighbours as inputs, and the graph has none")
        graph = replace(graph, labels=np.full(graph.num_nodes, -1), class_names=tuple(known))
        nobody = np.zeros(0, dtype=np.int64)
        split = Split(nobody, nobody, nobody)
    elif known != own:
        raise StorageError(f"{run.path} knows the classes {_listed(known)}, and the graph has {_listed(own)}")
    if architecture(settings, graph.num_features, graph.num_classes) != model.architecture:
        raise StorageError(
            f"{run.weights} takes {model.architecture.inputs} inputs per node, and the settings and the graph, with "
            f"{graph.num_features} features, describe another network. Use the graph and features of the training"
        )
    model.kernels = settings.kernels
    problem = make_problem(graph, settings, device, split)
    fitted = Fitted(model.to(device), problem, problem.split)
    if not fitted.is_refitted:
        return fitted
    first = None
    if run.checkpoint.is_file():
        earlier = new_model(settings, graph.num_features, graph.num_classes)
        earlier.load_state_dict(best_weights(run.checkpoint))
        first = earlier.to(device), problem
    return Fitted(fitted.model, problem.with_all_labels(), problem.split, first)


def smooth_all(fitted: Fitted, probabilities: NDArray[np.float64]) -> tuple[NDArray[np.float64], dict[str, float]]:
    """Correct and Smooth of the probabilities `[N, C]` of all nodes, and the strengths that it chose."""
    if fitted.is_refitted and fitted.first is None:
        raise InputError(
            "to smooth a run with refit, the checkpoint of its first fit is needed, and its folder checkpoint/ is gone"
        )
    split = fitted.split
    first = fitted.first_probabilities()
    return choose_and_smooth(fitted.problem.graph, probabilities, split.train, split.validation, first)


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


def _listed(names: list[str]) -> str:
    """Up to six names and how many there are in all."""
    shown = ", ".join(repr(name) for name in names[:6])
    return f"{shown}, … ({len(names)})" if len(names) > 6 else shown or "none"


def _smoothed(fitted: Fitted, probabilities: NDArray[np.float64]) -> tuple[dict[str, Any], NDArray[np.float64]]:
    values, strengths = smooth_all(fitted, probabilities)
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
