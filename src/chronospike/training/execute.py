"""Carrying out a run: train, checkpoint, score, write everything into the run folder."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from chronospike.data.graph import DynamicGraph
from chronospike.errors import ChronoSpikeError, StorageError
from chronospike.files import write_json
from chronospike.nn.model import ChronoSpike
from chronospike.training.checkpoint import load_checkpoint, save_checkpoint, seconds_per_epoch
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
from chronospike.training.problem import Problem, architecture, make_problem, new_model
from chronospike.training.run import METRICS, PREDICTIONS, RunFolder, write_predictions
from chronospike.training.smoothing import choose_and_smooth
from chronospike.training.weights import class_names, load_weights, rebuild, save_weights

# Up to this many nodes a run predicts all of them; beyond, only those it is scored on.
_PREDICT_ALL = 200_000
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
    if resume and run.checkpoint.is_file():
        load_checkpoint(trainer, run.checkpoint)
    run.write_epochs(trainer.state.history)
    try:
        saved, unsaved = -math.inf, []
        for report in trainer.epochs(watcher):
            unsaved.append(report)
            # On a GPU an epoch may take less time than writing it down.
            if time.perf_counter() - saved > _SAVE_EVERY or trainer.state.finished(settings):
                save_checkpoint(trainer, run.checkpoint)
                for earlier in unsaved:
                    run.append_epoch(earlier)
                saved, unsaved = time.perf_counter(), []
    except torch.OutOfMemoryError as error:
        raise ChronoSpikeError(
            f"the GPU is out of memory. Lower batch_size (now {settings.batch_size}) or fanouts (now "
            f"{list(settings.fanouts)}), set precision=half, or run with --device cpu"
        ) from error
    model = trainer.best_model()
    save_weights(model, run.weights, class_names=graph.class_names)
    return evaluate(model, problem, run, trainer.state, smooth=smooth, on_nodes=on_nodes)


def evaluate(
    model: ChronoSpike,
    problem: Problem,
    run: RunFolder,
    state: State | None = None,
    *,
    smooth: bool = False,
    on_nodes: Progress | None = None,
) -> dict[str, Any]:
    """Score the model and write `metrics.json` and `predictions.csv`. Without `state`, training facts are kept."""
    graph, split, settings = problem.graph, problem.split, problem.settings
    began = time.perf_counter()
    nodes = np.arange(graph.num_nodes) if graph.num_nodes <= _PREDICT_ALL else np.union1d(split.validation, split.test)
    probabilities = np.zeros((graph.num_nodes, graph.num_classes))
    probabilities[nodes] = infer(model, problem, nodes, on_nodes)[0].numpy()
    seconds = time.perf_counter() - began
    predicted = probabilities.argmax(axis=1)
    rates = firing_rates(model, problem, split.test)
    metrics: dict[str, Any] = {
        name: as_dict(score_nodes(problem, predicted, part), graph.class_names, len(part))
        for name, part in (("test", split.test), ("validation", split.validation))
    }
    metrics |= {"baselines": reference_scores(problem, split.test), "smoothed": None}
    if smooth:
        metrics["smoothed"], probabilities = _smoothed(problem, probabilities)
    metrics |= {
        "parameters": model.parameter_count(),
        "seed": settings.seed,
        "classes": list(graph.class_names),
        "firing_rate": [float(np.mean(layer)) for layer in rates],
        "firing_rate_per_step": rates,
        "inference": {"nodes": len(nodes), "seconds": seconds, "samples": settings.samples},
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


def load_run(graph: DynamicGraph, run: RunFolder, device: torch.device) -> tuple[ChronoSpike, Problem]:
    """The trained model of a finished run and its problem; a graph of other classes or features is refused."""
    settings = run.settings()
    if not run.weights.is_file():
        raise StorageError(f"{run.path} is not finished. Go on with: chronospike train --resume -o {run.path}")
    tensors, metadata = load_weights(run.weights)
    model = rebuild(tensors, metadata, run.weights)
    known, own = class_names(metadata), list(graph.class_names)
    if known != own:
        raise StorageError(f"{run.path} knows the classes {_listed(known)}, and the graph has {_listed(own)}")
    if architecture(settings, graph.num_features, graph.num_classes) != model.architecture:
        raise StorageError(
            f"{run.weights} takes {model.architecture.inputs} inputs per node, and the settings and the graph, with "
            f"{graph.num_features} features, describe another network. Use the graph and features of the training"
        )
    model.kernels = settings.kernels
    return model.to(device), make_problem(graph, settings, device)


def _listed(names: list[str]) -> str:
    """Up to six names and how many there are in all."""
    shown = ", ".join(repr(name) for name in names[:6])
    return f"{shown}, … ({len(names)})" if len(names) > 6 else shown or "none"


def _smoothed(problem: Problem, probabilities: NDArray[np.float64]) -> tuple[dict[str, Any], NDArray[np.float64]]:
    values, strengths = choose_and_smooth(problem.graph, probabilities, problem.split.train, problem.split.validation)
    found = score_nodes(problem, values.argmax(axis=1), problem.split.test)
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
