"""Every registered method from training to predictions, with the commands that all of them share."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.csv
import pytest

from chronospike.errors import InputError
from chronospike.methods.registry import METHODS, learner_type, settings_for
from chronospike.training.gradient import GradientLearner
from chronospike.training.task import make_task
from tests.small_runs import CPU, SMALL, command, saved_graph, small_graph, worked

SETTINGS = {
    "chronospike": SMALL,
    "labels": {"trees": 5, "boosting_rounds": 2, "folds": 2},
    "mpnn-lstm": {"epochs": 2, "hidden": 8},
    "jodie": {"epochs": 2, "dimension": 8},
    "evolvegcn": {"epochs": 2, "hidden": 8},
    "tgat": {"epochs": 2, "neighbours": 4},
    "spikenet": {"epochs": 2, "hidden": [16, 8]},
    "delay-dsgn": {"epochs": 2, "hidden": [16, 8]},
    "dy-sign": {"epochs": 2, "hidden": 8, "width": 4},
}


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved_graph(tmp_path_factory.mktemp("methods") / "graph")


@pytest.mark.parametrize("method", METHODS)
def test_a_method_trains_resumes_predicts_and_embeds(
    capsys: pytest.CaptureFixture[str], graph: Path, tmp_path: Path, method: str
) -> None:
    run, given = tmp_path / "run", SETTINGS.get(method, {})
    settings = [part for name, value in given.items() for part in ("--set", f"{name}={value}")]
    worked(capsys, "train", graph, "--method", method, "-o", run, "--device", "cpu", *settings)
    assert {"config.yaml", "metrics.json", "predictions.csv", "report.html"} <= {path.name for path in run.iterdir()}
    assert command(capsys, "train", "--resume", "-o", run, "--device", "cpu").code == 0

    worked(capsys, "predict", run, "-o", tmp_path / "classes.csv", "--device", "cpu")
    found, written = (pyarrow.csv.read_csv(path) for path in (tmp_path / "classes.csv", run / "predictions.csv"))
    assert found.column("class").equals(written.column("class"))

    embedded = command(capsys, "embed", run, "-o", tmp_path / "z.npy", "--device", "cpu")
    if embedded.code:
        assert embedded.code == InputError.exit_code
        assert "has no embeddings" in embedded.err
    else:
        assert len(np.load(tmp_path / "z.npy")) == 120


@pytest.fixture
def no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize("folds", [0, 2])
@pytest.mark.parametrize("method", [name for name in METHODS if issubclass(learner_type(name), GradientLearner)])
def test_what_a_fit_holds_is_freed_with_it(method: str, folds: int) -> None:
    # The collector knows nothing of a GPU's memory: it would let a second fit run out of it.
    settings = settings_for(method, {}, {**SETTINGS[method], "epochs": 1, "folds": folds})
    fitted: Any = learner_type(method)(settings).fit(make_task(small_graph(), settings, CPU))
    networks = fitted.networks if folds else [fitted.network]
    held = [weakref.ref(part) for network in networks for part in (network, network.module)]
    assert len(held) >= 2
    del fitted, networks
    assert not any(one() for one in held)
