from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.analysis.conftest import built_metrics, example_metrics
from tests.small_runs import refused, worked


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run built from four parts."""
    return _run(tmp_path, **built_metrics(), smoothed=None)


def _run(folder: Path, **changes: Any) -> Path:
    (folder / "metrics.json").write_text(json.dumps({**example_metrics(), **changes}))
    return folder


def _first_columns(said: str) -> list[str]:
    return [line.split("   ")[0].rstrip() for line in said.splitlines()]


def test_parts_come_before_simple_methods_each_best_held_out_first(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = _first_columns(worked(capsys, "leaderboard", run))
    assert names[0] == "pets, seed 7, 10 test nodes"
    assert names[3:10] == [
        "* second stage: logistic regression",
        "  5 networks together",
        "  second stage without the network",
        "  one network (mean of 5)",
        "simple methods",
        "  majority class",
        "  label propagation",
    ]


def test_scores_stand_below_their_headings(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, kinds, measures, chosen, *_ = worked(capsys, "leaderboard", run).splitlines()
    assert kinds.split() == ["held-out", "test"]
    assert measures.split() == ["Macro-F1", "Micro-F1", "Macro-F1", "Micro-F1"]
    assert chosen.split()[-4:] == ["77.00", "78.00", "79.00", "80.00"]
    assert len(measures) == len(chosen)


def test_it_is_said_what_held_out_and_test_scores_are_for(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = worked(capsys, "leaderboard", run)
    assert "Held-out scores are out-of-fold: " in said
    assert "test scores are not used for any choice" in said
    assert "expects a Micro-F1 of 78.0 % ± 0.3 points." in said


def test_a_run_of_one_method_has_its_validation_scores(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = worked(capsys, "leaderboard", _run(tmp_path, smoothed=None, refit={"nodes": 24}))
    (row,) = [line for line in said.splitlines() if line.startswith("* ")]
    assert row.split() == ["*", "ChronoSpike", "74.00", "75.00", "79.00", "80.00"]
    assert "Held-out scores are those of the validation nodes." in said
    (propagation,) = [line for line in said.splitlines() if "label propagation" in line]
    assert propagation.split()[2:] == ["-", "-", "40.00", "50.00"]


def test_labels_that_cannot_be_predicted_are_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    scores = {"macro_f1": 0.5, "micro_f1": 0.5}
    part = {"name": "bag", "chosen": True, "held_out": {**scores, "nodes": 100}, "test": scores}
    run = _run(tmp_path, test={**scores, "nodes": 100}, baselines={"majority class": scores}, parts=[part])
    assert "no better than guessing the largest class" in worked(capsys, "leaderboard", run)


def test_json_has_the_rows(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = json.loads(worked(capsys, "leaderboard", run, "--json"))
    assert rows[0] == {
        "name": "stack: logistic",
        "title": "second stage: logistic regression",
        "kind": "part",
        "chosen": True,
        "on": "out-of-fold",
        "held_out": {"macro_f1": pytest.approx(0.77), "micro_f1": 0.78},
        "test": {"macro_f1": pytest.approx(0.79), "micro_f1": 0.8},
    }
    assert [(row["kind"], row["held_out"] is None) for row in rows[-2:]] == [
        ("simple method", False),
        ("simple method", True),
    ]


def test_a_title_cannot_drive_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = worked(capsys, "leaderboard", _run(tmp_path, parts=[{"name": "\x1b[2Jgone\n" + "x" * 5000}]))
    assert "\x1b" not in said
    assert max(map(len, said.splitlines())) < 400


def test_a_folder_that_is_no_run_is_refused_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "is not a run folder" in refused(capsys, "leaderboard", tmp_path)
    assert "does not exist" in refused(capsys, "leaderboard", tmp_path / "nowhere")
    (tmp_path / "metrics.json").write_text('{"test": 7}')
    assert "metrics.json is damaged" in refused(capsys, "leaderboard", tmp_path)


def test_a_run_that_is_real_has_a_leaderboard(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = worked(capsys, "leaderboard", place / "run")
    assert "* ChronoSpike" in said
    assert "  label propagation" in said
