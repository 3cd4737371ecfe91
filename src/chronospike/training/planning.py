"""Fitting training into a time limit: a few batches are timed, and the first plan in a list that fits is used."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from chronospike.device import settle
from chronospike.sampling.batches import batches, num_batches
from chronospike.threads import default_threads
from chronospike.training.bagging import STAGE_FOLDS
from chronospike.training.gradient import GradientLearner
from chronospike.training.label_tables import numbers_width
from chronospike.training.loop import Trainer
from chronospike.training.scoring import nodes_to_predict
from chronospike.training.settings import TrainingSettings
from chronospike.training.task import Task

# Batches before the clock starts: kernels are compiled, and a GPU's step is captured.
_WARM_UP = 4
_TIMED_SECONDS, _TIMED_BATCHES = 1.5, 20
# Nodes that inference is timed with.
_NODES = 2048
# The plan may take this share of the time; the rest is for what it has not counted.
_SHARE = 0.8
# Seconds on one CPU of cross-validating a second stage, per row, column, class and fold: half as much again as measured
# with 22,000 rows, 200 columns, 10 classes and 5 folds, because on many CPUs some have to wait.
_STAGE = {"auto": 4e-7, "mean": 3e-7, "boosting": 1e-7, "trees": 1.5e-7, "logistic": 4e-8, "none": 0.0}
# Epochs of a network among several, with a second stage on top of them, where time is short.
_FEW_EPOCHS = 10
# Label propagation takes this share of what the network reads of labels.
_OF_TABLES = 0.3
# Loading, scoring simple methods, writing the report.
_REST = 5.0


@dataclass(frozen=True)
class Rates:
    """Seconds of a training batch, of inference per node and sample, and of what is read of known labels and edges."""

    batch: float
    node: float
    tables: float = 0.0


def time_batches(learner: GradientLearner[Any], task: Task) -> Rates:
    """Train a few batches, on a network that is thrown away, and time them."""
    with torch.random.fork_rng(devices=[task.device] if task.device.type == "cuda" else []):
        tables = time_tables(learner.settings, task)
        network = learner.network(task)
        trainer = Trainer(network, learner.settings)
        trainer.model.train()
        done, began = 0, 0.0
        for epoch in range(_WARM_UP + _TIMED_BATCHES):
            for nodes in batches(task.split.train, trainer.batch_nodes, task.seed, epoch):
                if done == _WARM_UP:
                    settle(task.device)
                    began = time.perf_counter()
                is_over = done > _WARM_UP and time.perf_counter() - began > _TIMED_SECONDS
                if is_over or done == _WARM_UP + _TIMED_BATCHES:
                    break
                trainer.batch(nodes, epoch, done)
                done += 1
        settle(task.device)
        batch = (time.perf_counter() - began) / (done - _WARM_UP)
        some = np.resize(task.known, min(_NODES, max(256, task.graph.num_nodes)))
        network.infer(trainer.model, some)
        began = time.perf_counter()
        network.infer(trainer.model, some)
        node = (time.perf_counter() - began) / len(some) / getattr(learner.settings, "samples", 1)
    return Rates(batch, node, tables)


def time_tables(settings: TrainingSettings, task: Task) -> float:
    """Seconds of making label features, which then are there; 0 where none are read."""
    began = time.perf_counter()
    if settings.second_stage == "none" and not getattr(settings, "label_features", False):
        return 0.0
    # Not the whole network: on a GPU compiling its kernels may take longer, and is done once.
    _ = task.tables.features
    return time.perf_counter() - began


def seconds(settings: TrainingSettings, task: Task, rates: Rates) -> float:
    """What a fit with these settings is expected to take, with its scores."""
    s, known, nodes = settings, len(task.known), len(nodes_to_predict(task.graph, task.split, task.device))
    networks = s.folds or 1
    train = known * (networks - 1) // networks if s.folds else len(task.split.train)
    updates = s.epochs * num_batches(train, s.batch_nodes(train))
    samples = getattr(s, "samples", 1)
    chosen = 0 if s.folds and s.selection == "last" else s.epochs * len(task.split.validation) * samples * rates.node
    training = networks * (updates * rates.batch + chosen)
    if s.refit and not s.folds:
        training += s.epochs * num_batches(known, s.batch_nodes(known)) * rates.batch
    inference = networks * samples * (nodes + known / networks) * rates.node
    columns = numbers_width(task.graph.num_classes, task.graph.directed) + task.graph.num_classes
    if task.features is not None:
        # Those of the node, and their means over its neighbours.
        columns += (3 if task.graph.directed else 2) * task.features.own_width
    stage = _STAGE[s.second_stage] * min(known, 50_000) * columns * task.graph.num_classes * STAGE_FOLDS
    # Label features are made again without the labels of each of its folds, and diffused for the simple methods.
    again = rates.tables * (STAGE_FOLDS if s.second_stage != "none" else _OF_TABLES)
    return training + inference + stage / default_threads() + again + _REST


def plans(settings: TrainingSettings) -> Iterator[TrainingSettings]:
    """The settings as they are, then ever quicker ones.

    A second stage is worth more than several networks or many epochs: two networks of ten epochs are then as good.
    """
    s = settings
    yield s
    if s.folds > 5:
        yield (s := s.change(folds=5))
    if getattr(s, "samples", 1) > 1:
        yield (s := s.change(samples=1))
    for folds in (3, 2):
        if s.folds > folds:
            yield (s := s.change(folds=folds))
    if s.folds:
        if s.epochs > _FEW_EPOCHS:
            yield (s := s.change(epochs=_FEW_EPOCHS))
        if s.second_stage not in ("none", "logistic"):
            yield (s := s.change(second_stage="logistic"))
        yield (s := s.change(folds=0, second_stage="none", refit=False))
    if s.refit:
        yield (s := s.change(refit=False))
    while s.epochs > 1:
        yield (s := s.change(epochs=max(1, s.epochs // 2)))


def plan(learner: GradientLearner[Any], task: Task, limit: float) -> tuple[TrainingSettings, float]:
    """The first of `plans` that should be done within `limit` seconds, else the quickest; and the seconds it takes."""
    began = time.perf_counter()
    rates = time_batches(learner, task)
    room = _SHARE * (limit - (time.perf_counter() - began))
    found, needed = learner.settings, 0.0
    for found in plans(learner.settings):
        needed = seconds(found, task, rates)
        if needed <= room:
            break
    return found, needed
