"""Scores of a fitted method, next to those of simple methods."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from chronospike.data.graph import DynamicGraph
from chronospike.data.splits import Split
from chronospike.errors import InputError
from chronospike.threads import in_background
from chronospike.training.bagging import BagFitted, Folds, f1
from chronospike.training.calibration import calibration_facts, with_temperature
from chronospike.training.final_stage import LABELS_ALONE
from chronospike.training.hardware import device_name, versions
from chronospike.training.learner import Fitted, Learner, Progress
from chronospike.training.metrics import Scores, score_predictions
from chronospike.training.task import Nodes, Task

# All nodes are predicted up to so many, which takes minutes on a CPU and seconds on a GPU, or up to so many times the
# training nodes, which takes as long as about four epochs; beyond both, only the nodes that are scored.
_PREDICT_ALL = {"cpu": 200_000, "cuda": 5_000_000}
_PREDICT_EPOCHS = 10
# Enough for the held-out scores of simple methods.
_REFERENCE_FOLDS = 5

# Fits that are under way, by the name of the method.
Started = Mapping[str, Future[Fitted]]


@dataclass(frozen=True)
class Scored:
    """What `score` found.

    Attributes:
        metrics: ready for JSON.
        nodes: `[K]` those that were predicted.
        probabilities: `[K, C]` of these, smoothed if that was asked for.
    """

    metrics: dict[str, Any]
    nodes: NDArray[np.int64]
    probabilities: NDArray[np.float64]


def score(
    fitted: Fitted,
    references: Sequence[Learner[Any]] = (),
    smooth: bool = False,
    on_nodes: Progress | None = None,
    earlier_validation: dict[str, Any] | None = None,
    started: Started | None = None,
    is_late: bool = False,
) -> Scored:
    """Score a fitted method on its test nodes.

    Args:
        references: simple methods to be fitted to the same labels, and scored beside it.
        smooth: also spread the labels over the edges.
        earlier_validation: the validation scores of a refitted method whose first fit is gone.
        started: see `start_references`.
        is_late: see `nodes_to_predict`.
    """
    task, split, graph = fitted.task, fitted.split, fitted.task.graph
    if not len(split.test):
        raise InputError("no node of this graph can be scored: only training nodes have labels of the run's classes")
    began = time.perf_counter()
    # Smoothing spreads what the method says of all nodes.
    nodes = np.arange(graph.num_nodes) if smooth else nodes_to_predict(graph, split, task.device, is_late)
    probabilities = np.zeros((graph.num_nodes, graph.num_classes))
    probabilities[nodes] = fitted.probabilities(nodes, on_nodes)
    seconds = time.perf_counter() - began
    predicted = probabilities.argmax(axis=1)
    first = fitted.held_out()
    held_out = predicted[split.validation]
    if first is not None and first is not fitted and len(split.validation):
        held_out = first.probabilities(split.validation).argmax(axis=1)
    metrics: dict[str, Any] = {
        "test": _scores(graph, predicted[split.test], split.test),
        "validation": _scores(graph, held_out, split.validation) if first is not None else earlier_validation,
        "refit": {"nodes": len(task.split.train)} if fitted.was_refitted else None,
        "baselines": reference_scores(fitted, references, started or {}),
        "confidently_wrong": confidently_wrong(graph, probabilities, split.test),
        "unlabelled": unlabelled_shares(fitted, predicted, nodes),
        "smoothed": None,
        "parameters": fitted.cost.parameters,
        "seed": task.seed,
        "classes": list(graph.class_names),
        "inference": {"nodes": len(nodes), "seconds": seconds},
        "notes": [],
        "split": split.facts,
        "graph": graph.summary(),
        "device": device_name(task.device),
        "versions": versions(),
        **fitted.details(),
    }
    calibration = fitted.calibration
    if calibration is not None:
        after, truth = probabilities[split.test], np.asarray(graph.labels)[split.test]
        before = with_temperature(after, 1 / calibration.temperature)
        metrics["calibration"] = calibration_facts(
            before, after, truth, calibration.temperature, calibration.chosen_on, calibration.chosen_nodes
        )
    if smooth:
        probabilities, strengths = fitted.smoothed(probabilities)
        found = _scores(graph, probabilities[split.test].argmax(axis=1), split.test)
        metrics["smoothed"] = {"macro_f1": found["macro_f1"], "micro_f1": found["micro_f1"], "strengths": strengths}
    return Scored(metrics, nodes, probabilities[nodes])


def nodes_to_predict(
    graph: DynamicGraph, split: Split, device: torch.device, is_late: bool = False
) -> NDArray[np.int64]:
    """All nodes, or where that takes long those that are scored; `is_late` where hardly any time is left."""
    most = max(0 if is_late else _PREDICT_ALL[device.type], _PREDICT_EPOCHS * len(split.train))
    everyone = np.arange(graph.num_nodes)
    return everyone if len(everyone) <= most else np.union1d(split.validation, split.test).astype(np.int64)


def score_nodes(fitted: Fitted, nodes: Nodes) -> Scores:
    """Scores of what a fitted method says of `nodes`."""
    predicted = torch.from_numpy(fitted.probabilities(nodes).argmax(axis=1))
    return score_predictions(torch.from_numpy(fitted.task.labels(nodes)), predicted, fitted.task.graph.num_classes)


def _scores(graph: DynamicGraph, predicted: NDArray[np.integer[Any]], nodes: Nodes) -> dict[str, Any]:
    """Scores of the classes `predicted [K]` of `nodes [K]`, ready for JSON, with the class names."""
    truth = torch.from_numpy(np.asarray(graph.labels)[nodes].astype(np.int64))
    found = score_predictions(truth, torch.from_numpy(predicted), graph.num_classes)
    return {
        "macro_f1": found.macro_f1,
        "micro_f1": found.micro_f1,
        "per_class_f1": dict(zip(graph.class_names, found.per_class, strict=True)),
        "confusion": [list(row) for row in found.confusion],
        "nodes": len(nodes),
    }


def start_references(references: Sequence[Learner[Any]], task: Task, learner: Learner[Any]) -> Started:
    """Those of `references` that leave the GPU's products alone, fitted while `learner` trains there.

    Not what its ensemble will contain: see `BagFitted.labels_alone`.

    The precision of products is the process', and what reads features has its own.
    """
    if task.device.type != "cuda":
        return {}
    is_part = getattr(learner.settings, "second_stage", "none") == "auto" and task.graph.features is None
    part = "labels" if is_part else None
    begun = [one for one in references if not one.needs_features and one.name != part]
    return {one.name: in_background(partial(one.fit, task)) for one in begun}


def reference_scores(fitted: Fitted, references: Sequence[Learner[Any]], started: Started) -> dict[str, dict[str, Any]]:
    """Test scores of other methods that learn from the same labels, by their titles; none where no such node is."""
    if not len(fitted.split.train):
        return {}
    # With the tables that are there already.
    task, nodes = fitted.task.divided(fitted.split.train, fitted.split.validation), fitted.split.test
    result: dict[str, dict[str, Any]] = {}
    for learner in references:
        if learner.needs_features and task.features is None:
            continue
        bag = fitted if isinstance(fitted, BagFitted) and learner.name == "labels" else None
        if bag is not None and (same := bag.labels_alone(nodes)) is not None:
            result[learner.title] = {**f1(same, task.labels(nodes)), "held_out": bag.final.held_out[LABELS_ALONE]}
            continue
        reference = started[learner.name].result() if learner.name in started else learner.fit(task)
        found = score_nodes(reference, nodes)
        scores = {"macro_f1": found.macro_f1, "micro_f1": found.micro_f1, **reference.details()}
        if isinstance(fitted, BagFitted) and learner.is_quick:
            scores["held_out"] = _out_of_fold_scores(learner, task, fitted.folds)
        result[learner.title] = scores
    return result


def _out_of_fold_scores(learner: Learner[Any], task: Task, folds: Folds) -> dict[str, float]:
    """Scores of a method on each fold, fitted without it."""
    found = np.empty((len(folds.nodes), task.graph.num_classes))
    number = folds.number % _REFERENCE_FOLDS
    for fold in np.unique(number):
        held = number == fold
        rest = np.setdiff1d(task.known, folds.nodes[held])
        found[held] = learner.fit(task.divided(rest, rest[:0])).probabilities(folds.nodes[held])
    return f1(found, task.labels(folds.nodes))


def confidently_wrong(
    graph: DynamicGraph, probabilities: NDArray[Any], nodes: Nodes, limit: int = 20
) -> list[dict[str, Any]]:
    """Those of `nodes` that are wrong with the highest probabilities `[N, C]`, with the ids and classes of the user."""
    truth = np.asarray(graph.labels)[nodes]
    predicted = probabilities[nodes].argmax(axis=1)
    sure = probabilities[nodes, predicted]
    wrong = np.flatnonzero(predicted != truth)
    chosen = wrong[np.argsort(-sure[wrong], kind="stable")[:limit]]
    return [
        {
            "node": graph.ids[int(nodes[i])],
            "class": graph.class_names[truth[i]],
            "predicted": graph.class_names[predicted[i]],
            # A mean of single-precision probabilities may end a rounding above one.
            "probability": min(1.0, round(float(sure[i]), 6)),
        }
        for i in chosen
    ]


def unlabelled_shares(fitted: Fitted, predicted: NDArray[np.integer[Any]], nodes: Nodes) -> dict[str, Any] | None:
    """How many of the unlabelled among `nodes` are predicted as each class (`predicted [N]`), and the training labels.

    None where there are no such nodes.
    """
    graph, train = fitted.task.graph, fitted.task.split.train
    unknown = nodes[np.asarray(graph.labels)[nodes] < 0]
    if len(unknown) == 0:
        return None

    def per_class(codes: NDArray[np.integer[Any]]) -> dict[str, int]:
        sizes = np.bincount(codes, minlength=graph.num_classes)
        return dict(zip(graph.class_names, sizes.tolist(), strict=True))

    return {
        "nodes": len(unknown),
        "predicted": per_class(predicted[unknown]),
        "training": per_class(fitted.task.labels(train)),
    }
