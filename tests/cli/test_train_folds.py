"""Bags on the command line: what their files say, and graphs that leave little to fold."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from chronospike.cli import run as run_command
from chronospike.data.build import build_graph
from chronospike.data.events import Events, Steps
from chronospike.data.graph import DynamicGraph
from chronospike.data.ids import NodeIds
from chronospike.data.storage import save_graph
from chronospike.data.synthetic import synthetic_graph
from chronospike.training.run_folder import RunFolder
from tests.small_runs import (
    BAG,
    assignments,
    begin,
    contents,
    noisy_graph,
    read_csv,
    refused,
    small_stages,
    worked,
)

ODD: dict[str, Any] = {**BAG, "folds": 5, "second_stage": "auto", "hidden": [4, 4], "feedforward": 4}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a graph `g` and a finished bag `run`, which every test leaves as it was."""
    folder = tmp_path_factory.mktemp("bag")
    save_graph(noisy_graph(), folder / "g")
    with pytest.MonkeyPatch.context() as patch:
        small_stages(patch)
        values = {**BAG, "second_stage": "auto"}
        assert run_command([str(part) for part in begin(folder / "g", folder / "run", **values)]) == 0
    return folder


def metrics_of(run: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((run / "metrics.json").read_text())
    return found


def test_the_test_scores_are_those_of_what_predict_writes(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = place / "out.csv"
    worked(capsys, "predict", place / "run", "-o", out, "--device", "cpu")
    found, graph = read_csv(out), noisy_graph()
    test = RunFolder(place / "run").known_labels(graph)[1].test
    truth = np.array(graph.class_names)[np.asarray(graph.labels)]
    right = np.mean([found[node]["class"] == truth[node] for node in test])
    assert metrics_of(place / "run")["test"]["micro_f1"] == pytest.approx(right)
    assert [{k: row[k] for k in found[0]} for row in read_csv(place / "run" / "predictions.csv")] == found
    out.unlink()


def test_one_part_is_chosen_and_its_test_scores_are_the_runs(place: Path) -> None:
    metrics = metrics_of(place / "run")
    chosen = [part["test"] for part in metrics["parts"] if part["chosen"]]
    assert chosen == [{name: metrics["test"][name] for name in ("macro_f1", "micro_f1")}]


def test_what_is_expected_and_how_far_to_trust_it_is_said(place: Path) -> None:
    metrics = metrics_of(place / "run")
    assert (metrics["estimate"]["on"], metrics["estimate"]["nodes"], metrics["estimate"]["folds"]) == (
        "out-of-fold", 96, 3,
    )  # fmt: skip
    assert metrics["calibration"]["chosen_on"] == "out-of-fold"
    assert metrics["calibration"]["chosen_nodes"] == 96


def test_the_report_shows_the_parts(place: Path) -> None:
    page = (place / "run" / "report.html").read_text(encoding="utf-8")
    assert "Bag of 3 networks" in page
    assert "Held-out scores are out-of-fold" in page
    assert "trained again" not in page


def test_resuming_a_finished_bag_says_so_and_touches_nothing(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = contents(place / "run")
    assert "is finished" in worked(capsys, "train", "--resume", "-o", place / "run", "--device", "cpu")
    assert contents(place / "run") == before


@pytest.mark.parametrize("command", [["evaluate"], ["embed", "-o"], ["predict", "--as-of", "2", "-o"]])
def test_a_bag_is_used_like_any_run(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    name, *more = command
    output = [tmp_path / "out.csv"] if more else ["-o", tmp_path / "out"]
    worked(capsys, name, place / "run", "--device", "cpu", *more, *output)


@pytest.mark.parametrize("name", ["final_stage.safetensors", "out_of_fold.parquet"])
def test_a_damaged_file_gives_one_line(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    path = place / "run" / name
    before = path.read_bytes()
    path.write_bytes(before[: len(before) // 2])
    try:
        said = refused(capsys, "predict", place / "run", "-o", tmp_path / "out.csv", "--device", "cpu")
    finally:
        path.write_bytes(before)
    assert f"{name} is damaged" in said


def test_labels_drawn_at_random_are_reported_as_no_better_than_the_largest_class(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    graph = synthetic_graph(nodes=300, steps=4, classes=2, degree=3.0, feature_dim=4, timing=0.0, structure=0.0)
    graph = graph.with_labels(np.random.default_rng(2).integers(0, 2, 300), graph.class_names)
    save_graph(graph, tmp_path / "g")
    worked(capsys, *begin(tmp_path / "g", tmp_path / "run", **BAG))
    metrics = metrics_of(tmp_path / "run")
    most = max(np.bincount(np.asarray(graph.labels))) / 300
    assert metrics["estimate"]["micro_f1"] < most + 5 * np.sqrt(0.25 / 240)
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    # By the held-out scores and those of the test nodes, or by the latter alone.
    warnings = ("The labels could not be predicted from this graph", "no better than always guessing the largest")
    assert any(warning in page for warning in warnings)


def labelled(graph: DynamicGraph, labels: Any) -> DynamicGraph:
    codes = np.asarray(labels)
    return graph.with_labels(codes, tuple(f"c{code}" for code in range(codes.max() + 1)))


def made(nodes: int, **values: Any) -> DynamicGraph:
    return synthetic_graph(**{"nodes": nodes, "steps": 4, "classes": 2, "feature_dim": 4, "timing": 0.0, **values})


def few(nodes: int, known: int, classes: int) -> DynamicGraph:
    """Only the first `known` nodes have labels."""
    return labelled(made(nodes), np.where(np.arange(nodes) < known, np.arange(nodes) % classes, -1))


def class_of_the_last_step() -> DynamicGraph:
    """Sixty nodes of two classes that meet at steps 0 to 2; twenty of a third that come at step 3."""
    rng = np.random.default_rng(0)
    source, target = rng.integers(0, 60, (2, 400))
    late = np.arange(60, 80)
    source, target = (
        np.concatenate([np.arange(60), source, late]),
        np.concatenate([np.arange(60)[::-1], target, late - 60]),
    )
    step = np.concatenate([np.zeros(60), rng.integers(0, 3, 400), np.full(20, 3)]).astype(np.int32)
    times = np.arange(4)
    events = Events(source, target, times[step], NodeIds.range(80))
    graph = build_graph(events, Steps(step, times, times))
    graph = graph.with_features(rng.normal(size=(80, 4)).astype(np.float32))
    return labelled(graph, np.where(np.arange(80) < 60, np.arange(80) % 2, 2))


WORK: dict[str, tuple[Any, dict[str, Any]]] = {
    "twelve nodes": (lambda: made(12), {}),
    "one percent labelled": (lambda: few(1200, 12, 2), {}),
    "a class of one node": (lambda: labelled(made(120), np.where(np.arange(120) == 0, 2, np.arange(120) % 2)), {}),
    "two hundred classes": (lambda: made(600, classes=200, steps=3), {}),
    "no labels near most nodes": (lambda: few(300, 16, 2), {}),
    "directed": (lambda: made(120, directed=True), {}),
    "a class that comes last": (class_of_the_last_step, {"split_order": "time", "ratio": 0.7}),
}


@pytest.mark.parametrize("name", WORK)
def test_an_odd_graph_is_trained_on_and_every_file_is_written(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    small_stages(monkeypatch)
    make, values = WORK[name]
    save_graph(make(), tmp_path / "g")
    worked(capsys, *begin(tmp_path / "g", tmp_path / "run", **{**ODD, **values}))
    metrics = metrics_of(tmp_path / "run")
    assert sum(part["chosen"] for part in metrics["parts"]) == 1
    probabilities = [float(v) for k, v in read_csv(tmp_path / "run" / "predictions.csv")[0].items() if "prob" in k]
    assert sum(probabilities) == pytest.approx(1, abs=1e-3)
    assert (tmp_path / "run" / "report.html").is_file()


def test_where_labels_are_too_few_for_folds_one_network_is_trained_and_used(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save_graph(few(800, 8, 2), tmp_path / "g")
    said = worked(capsys, *begin(tmp_path / "g", tmp_path / "run", **ODD))
    assert "one network: 6 labelled nodes are too few for 5 folds" in said
    assert "parts" not in metrics_of(tmp_path / "run")
    worked(capsys, "predict", tmp_path / "run", "-o", tmp_path / "out.csv", "--device", "cpu")
    assert (tmp_path / "out.csv").read_bytes() == (tmp_path / "run" / "predictions.csv").read_bytes()
    assert "is finished" in worked(capsys, "train", "--resume", "-o", tmp_path / "run", "--device", "cpu")


def test_the_static_ablation_is_bagged_too(place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    worked(capsys, *begin(place / "g", tmp_path / "run", **BAG, static="true"))
    assert metrics_of(tmp_path / "run")["estimate"]["folds"] == 3


@pytest.mark.parametrize(
    ("known", "classes", "values", "message"),
    [
        (6, 6, {}, "leave 6 to train on and 0 to test on"),
        (3, 3, {}, "leave 3 to train on and 0 to test on"),
    ],
)
def test_a_graph_with_too_few_labels_is_refused_in_one_line_and_leaves_nothing(
    known: int,
    classes: int,
    values: dict[str, Any],
    message: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    save_graph(few(120, known, classes), tmp_path / "g")
    assert message in refused(capsys, *begin(tmp_path / "g", tmp_path / "run", **{**ODD, **values}))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"folds": 1}, "folds is 1: give at least 2, or 0 for a single network"),
        ({"folds": 0}, "second_stage=logistic needs folds: add --set folds=5"),
        ({"folds": 101}, "setting 'folds' is 101"),
        ({"second_stage": "forest"}, "setting 'second_stage' is 'forest'"),
    ],
)
def test_settings_that_do_not_go_together_are_refused_in_one_line(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], values: dict[str, Any], message: str
) -> None:
    given = assignments(**{**BAG, **values})
    assert message in refused(capsys, "train", place / "g", "-o", tmp_path / "run", *given)
    assert not (tmp_path / "run").exists()
