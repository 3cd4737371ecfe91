"""What tests of training and of the command line share: a small easy graph, small settings, one way to run commands."""

from __future__ import annotations

import csv
import math
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from chronospike.cli import run
from chronospike.config import make_settings
from chronospike.data.csr import history_and_snapshot
from chronospike.data.graph import DynamicGraph
from chronospike.data.ids import NodeIds
from chronospike.data.storage import save_graph
from chronospike.data.synthetic import synthetic_graph
from chronospike.methods.chronospike.network import ChronoSpikeNetwork
from chronospike.methods.chronospike.settings import ChronoSpikeSettings
from chronospike.methods.registry import learner_of, references
from chronospike.nn import losses
from chronospike.nn.losses import contrastive_loss
from chronospike.training import bagging, runs, second_stage
from chronospike.training.learner import FitContext, Fitted
from chronospike.training.loop import Trainer
from chronospike.training.run_folder import RunFolder
from chronospike.training.second_stage import StageSettings
from chronospike.training.task import make_task, split_for

CPU = torch.device("cpu")
SMALL: dict[str, Any] = {
    "hidden": [16, 8], "heads": 2, "temporal_heads": 2, "feedforward": 16, "fanouts": [3, 2], "dropout": 0.2,
    "epochs": 2, "batch_size": 32, "learning_rate": 0.02, "folds": 0, "second_stage": "none",
}  # fmt: skip
# What a network may read of a root itself, with a small reader and head.
READS: dict[str, Any] = {
    "label_sequences": True, "label_features": True, "activity": True, "sequence_channels": 8, "head": 16,
}  # fmt: skip


def small_graph(nodes: int = 120, seed: int = 0) -> DynamicGraph:
    """Two communities over five steps whose features lie apart."""
    graph = synthetic_graph(
        nodes=nodes, steps=5, classes=2, structure=0.9, timing=0.0, degree=4.0, feature_dim=8, seed=seed
    )
    assert graph.features is not None
    assert graph.labels is not None
    return graph.with_features(graph.features + 2 * graph.labels[None, :, None].astype(np.float32))


# Three networks on three folds, the quickest second stage, and a temperature.
BAG: dict[str, Any] = {**READS, "folds": 3, "second_stage": "logistic", "calibrate": True}


def noisy_graph(nodes: int = 120) -> DynamicGraph:
    """The small graph with every fourth label drawn anew and features that say nothing: nobody is right always."""
    graph, rng = small_graph(nodes), np.random.default_rng(7)
    labels = np.where(rng.random(nodes) < 0.25, rng.integers(0, 2, nodes), np.asarray(graph.labels))
    features = rng.normal(size=(5, nodes, 8)).astype(np.float32)
    return graph.with_features(features).with_labels(labels, graph.class_names)


def small_stages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Second stages of few and small trees."""
    monkeypatch.setattr(second_stage, "StageSettings", partial(StageSettings, trees=8, rounds=4))
    monkeypatch.setattr(bagging, "ALONE", StageSettings(trees=8, rounds=4))


def dated_graph() -> DynamicGraph:
    """Text ids with leading zeros, and steps that are the years 2018 to 2022."""
    years = np.arange("2018", "2023", dtype="datetime64[Y]").astype("datetime64[D]")
    ids = NodeIds.of([f"{v:04d}" for v in range(120)])
    return replace(small_graph(), ids=ids, step_start=years, step_end=years + 364)


def small_settings(**values: Any) -> ChronoSpikeSettings:
    return make_settings(ChronoSpikeSettings, {**SMALL, **values})


def small_network(graph: DynamicGraph | None = None, device: torch.device = CPU, **values: Any) -> ChronoSpikeNetwork:
    settings = small_settings(**values)
    return ChronoSpikeNetwork(make_task(graph or small_graph(), settings, device), settings)


def small_trainer(graph: DynamicGraph | None = None, device: torch.device = CPU, **values: Any) -> Any:
    """A `Trainer` of the small network; untyped, since tests look into the network behind its protocol."""
    network = small_network(graph, device, **values)
    return Trainer(network, network.settings)


def begun(path: Path, graph: DynamicGraph | None = None, **values: Any) -> RunFolder:
    """A run folder ready to be trained on `graph`, or on the small one."""
    run, graph, settings = RunFolder(path), graph or small_graph(), small_settings(**values)
    run.begin(
        "chronospike", settings, {"graph": "mine", "name": "mine"}, graph, split_for(graph, settings), overwrite=False
    )
    return run


def execute(graph: DynamicGraph, run: RunFolder, smooth: bool = False, **options: Any) -> dict[str, Any]:
    """Train a begun run, with the simple methods beside it; further options are those of `FitContext`."""
    learner = learner_of(run, **options.pop("changes", {}))
    return runs.execute(learner, graph, FitContext(run, **options), CPU, references(learner), smooth=smooth)


def load_run(graph: DynamicGraph, run: RunFolder) -> Any:
    return runs.load_run(learner_of(run), graph, run, CPU)


def evaluate(fitted: Fitted, run: RunFolder, **options: Any) -> dict[str, Any]:
    learner = learner_of(run)
    return runs.evaluate(learner, fitted, run, references(learner), **options)


def same_weights(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def break_loss(monkeypatch: pytest.MonkeyPatch, batch: int) -> None:
    """Make the loss of the `batch`-th batch from now on (from 1) not a number; those after it are well again."""
    calls = [0]

    def broken(*arguments: Any) -> torch.Tensor:
        calls[0] += 1
        return contrastive_loss(*arguments) * (math.nan if calls[0] == batch else 1.0)

    monkeypatch.setattr(losses, "contrastive_loss", broken)


def with_other_future(graph: DynamicGraph, last: int) -> DynamicGraph:
    """After step `last` every edge leads elsewhere and every feature is another."""

    def moved(ends: Any, steps: Any) -> Any:
        return np.where(steps > last, (ends * 7 + 3) % graph.num_nodes, ends)

    rows, steps, neighbours = graph.snapshot.entries()
    rows, neighbours = moved(rows, steps), moved(neighbours, steps)
    history, snapshot = history_and_snapshot(rows, neighbours, steps, graph.num_nodes, graph.num_steps)
    assert graph.features is not None
    features = np.array(graph.features)
    features[last + 1 :] = features[last + 1 :] * -3 + 1
    log = graph.require(events=True).events
    assert log is not None
    events = replace(log, source=moved(log.source, log.step), target=moved(log.target, log.step))
    return replace(graph, history=history, snapshot=snapshot, features=features, events=events).validate()


@dataclass(frozen=True)
class Result:
    code: int
    out: str
    err: str


def command(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> Result:
    """Run one command in this process."""
    capsys.readouterr()
    code = run([str(argument) for argument in arguments])
    said = capsys.readouterr()
    return Result(code, said.out, said.err)


def worked(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> str:
    """What a command that must work printed."""
    result = command(capsys, *arguments)
    assert result.code == 0, result.err
    return result.out


def refused(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> str:
    """The one line that a command says about bad input, with exit code 2 and nothing else printed."""
    result = command(capsys, *arguments)
    assert result.code == 2, result
    assert result.out == ""
    assert result.err.startswith("chronospike: ")
    assert result.err.count("\n") == 1
    return result.err


def assignments(**values: Any) -> list[str]:
    """`--set` for the small settings and these."""
    pairs = {**SMALL, **values}
    return [part for name, value in pairs.items() for part in ("--set", f"{name}={value}")]


def begin(graph: Path, output: Path, *more: str | Path, **values: Any) -> list[str | Path]:
    return ["train", graph, "-o", output, "--device", "cpu", *assignments(**values), *more]


def read_csv(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def train(capsys: pytest.CaptureFixture[str], graph: Path, output: Path, *more: str | Path, **values: Any) -> Path:
    """A finished small run on a graph folder."""
    worked(capsys, "train", graph, "-o", output, "--device", "cpu", *assignments(**values), *more)
    return output


def saved_graph(folder: Path, **changes: Any) -> Path:
    return save_graph(replace(small_graph(), **changes), folder)


def contents(folder: Path) -> dict[str, bytes]:
    """Every file below `folder` and its bytes."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
