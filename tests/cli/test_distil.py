from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from chronospike.cli import run as run_command
from chronospike.data.storage import open_graph, save_graph
from chronospike.training.loop import Trainer
from tests.small_runs import assignments, command, contents, read_csv, refused, saved_graph, small_graph, train, worked


def begin(teacher: Path, output: Path, *more: str | Path) -> list[str | Path]:
    small = assignments(batch_size=32, epochs=3, patience=9)
    return ["distil", teacher, "-o", output, "--device", "cpu", *small, *more]


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory, place: Path) -> Path:
    """A student of a bag with a second stage."""
    folder = tmp_path_factory.mktemp("distilled")
    values = assignments(folds=2, second_stage="logistic", label_features="true", calibrate="true")
    arguments = ["train", place / "g", "-o", folder / "bag", "--device", "cpu", *values]
    assert run_command([str(part) for part in arguments]) == 0
    assert run_command([str(part) for part in begin(folder / "bag", folder / "small")]) == 0
    return folder / "small"


def test_a_student_is_a_run_whose_scores_stand_beside_its_teachers(
    capsys: pytest.CaptureFixture[str], small: Path
) -> None:
    teacher = small.parent / "bag"
    facts, metrics = (json.loads((small / name).read_text()) for name in ("run.json", "metrics.json"))
    theirs = json.loads((teacher / "metrics.json").read_text())
    assert facts["teacher"] == str(teacher)
    assert metrics["method"] == "chronospike"
    assert metrics["teacher"]["title"] == theirs["title"]
    assert metrics["teacher"]["test"]["micro_f1"] == theirs["test"]["micro_f1"]
    assert metrics["test"]["nodes"] == theirs["test"]["nodes"]
    assert "parts" not in metrics
    assert (small / "labels.parquet").read_bytes() == (teacher / "labels.parquet").read_bytes()
    assert "Teacher: ChronoSpike" in (small / "report.html").read_text()
    # Scored again, the teacher's row stays.
    assert "teacher: ChronoSpike" in worked(capsys, "evaluate", small, "--device", "cpu")
    assert json.loads((small / "metrics.json").read_text())["teacher"] == metrics["teacher"]


def test_it_is_used_without_its_teacher(
    capsys: pytest.CaptureFixture[str], place: Path, small: Path, tmp_path: Path
) -> None:
    alone = shutil.copytree(small, tmp_path / "alone")
    for more in ([], ["--as-of", "2020"], ["--graph", place / "g"]):
        worked(capsys, "predict", alone, "-o", tmp_path / "p.csv", "--device", "cpu", *more)
        assert len(read_csv(tmp_path / "p.csv")) == 120
    worked(capsys, "embed", alone, "-o", tmp_path / "z.npy", "--device", "cpu")
    assert np.load(tmp_path / "z.npy").shape == (120, 8)
    worked(capsys, "report", alone)


def test_on_another_graph_the_teachers_scores_are_left_out(
    capsys: pytest.CaptureFixture[str], small: Path, tmp_path: Path
) -> None:
    made = open_graph(Path(json.loads((small / "run.json").read_text())["folder"]))
    other = save_graph(replace(made, labels=np.roll(np.asarray(made.labels), 1)), tmp_path / "other")
    said = worked(capsys, "evaluate", small, "--graph", other, "--device", "cpu", "--json")
    assert "teacher" not in json.loads(said)


@pytest.mark.parametrize("method", ["labels", "majority"])
def test_a_teacher_may_be_any_method(
    capsys: pytest.CaptureFixture[str], graph: Path, tmp_path: Path, method: str
) -> None:
    worked(capsys, "train", graph, "--method", method, "-o", tmp_path / "teacher", "--device", "cpu")
    said = worked(capsys, *begin(tmp_path / "teacher", tmp_path / "run", "--json", "--label-share", "0.2"))
    assert json.loads(said)["teacher"]["method"] == method
    assert json.loads((tmp_path / "run" / "run.json").read_text())["label_share"] == 0.2


@pytest.mark.parametrize("epochs_done", [0, 1, 2])
def test_stopped_and_resumed_without_the_teacher_it_ends_with_the_same_bits(
    capsys: pytest.CaptureFixture[str],
    place: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    epochs_done: int,
) -> None:
    teacher = shutil.copytree(place / "run", tmp_path / "teacher")
    worked(capsys, *begin(teacher, tmp_path / "whole"))
    epoch = Trainer._epoch

    def interrupted(self: Trainer, watcher: Any) -> Any:
        if self.state.epoch == epochs_done:
            raise KeyboardInterrupt
        return epoch(self, watcher)

    run = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr("chronospike.training.gradient._SAVE_EVERY", 0.0)
        patch.setattr(Trainer, "_epoch", interrupted)
        result = command(capsys, *begin(teacher, run))
    assert result.code == 130
    assert result.err == f"chronospike: interrupted. Resume with: chronospike train --resume -o {run} --device cpu\n"
    shutil.rmtree(teacher)
    said = refused(capsys, "distil", "--resume", "-o", run)
    assert f"Use: chronospike train --resume -o {run}" in said
    worked(capsys, "train", "--resume", "-o", run, "--device", "cpu")
    found, expected = contents(run), contents(tmp_path / "whole")
    for name in ("model.safetensors", "final_stage.safetensors", "soft_targets.parquet", "predictions.csv"):
        assert found.get(name) == expected.get(name), name
    worked(capsys, "train", "--resume", "-o", run, "--device", "cpu", "--epochs", "4")


def test_without_its_targets_it_is_not_resumed_on_labels(
    capsys: pytest.CaptureFixture[str], place: Path, tmp_path: Path
) -> None:
    worked(capsys, *begin(place / "run", tmp_path / "run"))
    (tmp_path / "run" / "soft_targets.parquet").unlink()
    result = command(capsys, "train", "--resume", "-o", tmp_path / "run", "--device", "cpu", "--epochs", "4")
    assert result.code == 2
    assert "soft_targets.parquet is missing. Distil the run again" in result.err


def test_what_cannot_be_distilled_is_one_line(
    capsys: pytest.CaptureFixture[str], place: Path, small: Path, tmp_path: Path
) -> None:
    teacher, new = place / "run", tmp_path / "new"
    assert "which run folder?" in refused(capsys, "distil", teacher)
    assert "which run?" in refused(capsys, "distil", "-o", new)
    assert "is not a run" in refused(capsys, *begin(place / "g", new))
    assert "does not exist" in refused(capsys, *begin(place / "nothing", new))
    assert "its own folder" in refused(capsys, *begin(teacher, teacher, "--overwrite"))
    before = contents(small)
    assert "exists. Choose another name or pass --overwrite" in refused(capsys, *begin(teacher, small))
    assert contents(small) == before
    assert "reads no labels" in refused(capsys, *begin(teacher, new, "--set", "label_inputs=true"))
    half = shutil.copytree(teacher, tmp_path / "half")
    (half / "metrics.json").unlink()
    assert "is not finished" in refused(capsys, *begin(half, new))
    assert not new.exists()


def test_a_graph_that_has_changed_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    place = saved_graph(tmp_path / "g")
    teacher = train(capsys, place, tmp_path / "teacher")
    save_graph(small_graph(seed=1), place, overwrite=True)
    assert "has changed since" in refused(capsys, *begin(teacher, tmp_path / "run"))
    assert not (tmp_path / "run").exists()


def test_an_earlier_run_is_replaced_whole(capsys: pytest.CaptureFixture[str], place: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    worked(capsys, *begin(place / "run", run))
    first = contents(run)
    worked(capsys, *begin(place / "run", run, "--overwrite"))
    assert contents(run)["model.safetensors"] == first["model.safetensors"]
    train(capsys, place / "g", run, "--overwrite")
    assert not (run / "soft_targets.parquet").exists()
    assert "teacher" not in json.loads((run / "metrics.json").read_text())
