"""Executing a run: fit, save, score, and write everything into the run folder."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from chronospike.data.graph import DynamicGraph
from chronospike.errors import StorageError
from chronospike.files import write_json
from chronospike.training.label_tables import LabelTables
from chronospike.training.learner import FitContext, Fitted, Learner, Progress
from chronospike.training.predictions import write_predictions
from chronospike.training.run_folder import METRICS, PREDICTIONS, RunFolder
from chronospike.training.scoring import Started, score, start_references
from chronospike.training.task import Task, make_task

# What is known of the training itself, which scoring a run again does not change.
_TRAINING_FACTS = ("seconds_per_epoch", "epochs", "best_epoch", "peak_memory_bytes", "complete")


def execute(
    learner: Learner[Any],
    graph: DynamicGraph,
    context: FitContext,
    device: torch.device,
    references: Sequence[Learner[Any]] = (),
    *,
    smooth: bool = False,
    on_nodes: Progress | None = None,
    tables: LabelTables | None = None,
) -> dict[str, Any]:
    """Train the run of the context, which `run.begin` started (or resume it), and return what `metrics.json` says.

    Args:
        learner: with the settings of the run; a resumed run may train for longer than it was begun for. The results
            it had stay until there are new ones.
        references: simple methods to be scored beside it.
        tables: those of an earlier task, made use of if this one has the same.
    """
    run = context.run
    assert run is not None
    task = task_of(learner, graph, run, device)
    if tables is not None:
        task.take_over(tables)
    if task.features is not None:
        run.save_encoder(task.features.encoder)
    started = start_references(references, task, learner)
    fitted = learner.fit(task, context)
    fitted.save(run)
    return evaluate(
        learner,
        fitted,
        run,
        references,
        smooth=smooth,
        on_nodes=on_nodes,
        on_note=context.on_note,
        name=run.facts().get("name"),
        output=run.path,
        started=started,
        is_late=context.deadline is not None and context.is_late(),
    )


def task_of(learner: Learner[Any], graph: DynamicGraph, run: RunFolder, device: torch.device) -> Task:
    """The task of a run: its own labels, split and encoding of attributes on `graph`."""
    graph, split = run.known_labels(graph)
    needs_features = learner.needs_features or graph.has_features
    return make_task(graph, learner.settings, device, split, run.encoder(), needs_features)


def load_run(learner: Learner[Any], graph: DynamicGraph, run: RunFolder, device: torch.device) -> Fitted:
    """What a finished run has learned, ready for `graph`, with the labels and the split of the run itself.

    Labelled nodes of the graph that the run does not know are test nodes. A graph with other features is refused.
    """
    if not (run.path / METRICS).is_file() and not run.weights.is_file():
        raise StorageError(
            f"{run.path} is not finished. Unless it still runs, resume with: chronospike train --resume -o {run.path}"
        )
    return learner.load(task_of(learner, graph, run, device), run)


def is_finished(run: RunFolder, learner: Learner[Any], smooth: bool = False) -> bool:
    """Whether a run trained with these settings, perhaps for longer than before, would do nothing that is not done."""
    if not (run.path / METRICS).is_file():
        return False
    metrics = run.metrics()
    if metrics.get("complete") is False or (smooth and not metrics.get("smoothed")):
        return False
    return learner.is_finished(run)


def evaluate(
    learner: Learner[Any],
    fitted: Fitted,
    run: RunFolder,
    references: Sequence[Learner[Any]] = (),
    *,
    smooth: bool = False,
    on_nodes: Progress | None = None,
    name: str | None = None,
    output: Path | None = None,
    on_note: Callable[[str], None] | None = None,
    started: Started | None = None,
    is_late: bool = False,
) -> dict[str, Any]:
    """Score what a run has learned, and write `metrics.json` and `predictions.csv` if asked to.

    Args:
        name: of the graph.
        output: the folder to write to.
        started, is_late: see `score`.
    """
    earlier = run.metrics() if (run.path / METRICS).is_file() else {}
    scored = score(fitted, references, smooth, on_nodes, earlier.get("validation"), started, is_late)
    metrics, of, cost = scored.metrics, fitted.task.graph.num_nodes, fitted.cost
    if not cost.complete:
        rest = shlex.join(["chronospike", "train", "--resume", "-o", str(run.path)])
        metrics["notes"].append(f"the training was stopped before it was complete. To complete it: {rest}")
    if len(scored.nodes) < of:
        everyone = shlex.join(["chronospike", "predict", str(run.path), "-o", "predictions.csv"])
        note = (
            f"predictions.csv holds the {len(scored.nodes):,} validation and test nodes of {of:,}, "
            f"since predicting all would take long. For all nodes: {everyone}"
        )
        metrics["notes"].append(note)
        if on_note is not None:
            on_note(note)
    metrics |= {"method": learner.name, "title": learner.title, "command": run.facts().get("command")}
    metrics["graph"]["name"] = name
    if run.teacher is not None and output == run.path:
        # On another graph its scores would be others.
        metrics["teacher"] = run.facts().get("teacher_scores")
    if cost.epochs is not None or not earlier:
        facts = (cost.seconds_per_epoch, cost.epochs, cost.best_epoch, cost.peak_memory, cost.complete)
        metrics |= dict(zip(_TRAINING_FACTS, facts, strict=True))
    else:
        metrics |= {fact: earlier.get(fact) for fact in _TRAINING_FACTS}
    if output is not None:
        write_predictions(output / PREDICTIONS, fitted.task.graph, scored.nodes, scored.probabilities, fitted.split)
        # Last, since it tells that a run is finished.
        write_json(output / METRICS, metrics)
    return metrics
