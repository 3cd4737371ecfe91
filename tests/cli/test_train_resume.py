from __future__ import annotations

import errno
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from chronospike.data.storage import open_graph, save_graph
from chronospike.errors import OutOfSpaceError
from chronospike.training.loop import Trainer
from tests.small_runs import (
    begin,
    break_loss,
    command,
    contents,
    refused,
    saved_graph,
    train,
    worked,
)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, graph: Path) -> Path:
    from chronospike.cli import run

    output = tmp_path_factory.mktemp("runs") / "run"
    assert run([str(part) for part in begin(graph, output)]) == 0
    return output


def test_a_run_that_exists_is_refused(capsys: pytest.CaptureFixture[str], graph: Path, finished: Path) -> None:
    before = contents(finished)
    assert "exists. Choose another name or pass --overwrite" in refused(capsys, *begin(graph, finished))
    assert contents(finished) == before


@pytest.mark.parametrize("more", [[], ["--seeds", "2"]])
def test_a_run_that_was_killed_is_refused_with_how_to_resume_it(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, graph: Path, more: list[str]
) -> None:
    run = tmp_path / "run"
    worked(capsys, *begin(graph, run, *more))
    for metrics in list(run.rglob("metrics.json"))[-1:]:
        metrics.unlink()
    said = refused(capsys, *begin(graph, run, *more))
    assert f"exists and has not finished. Resume it with: chronospike train --resume -o {run}. Or" in said
    worked(capsys, "train", "--resume", "-o", run)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--epochs", "1"], "is a run of 2 epochs, which can become more but not 1. Start a new run"),
        (["--seed", "4"], "seed was 0, now 4"),
        (["--set", "p=0.1", "--ratio", "0.5"], "ratio was 0.8, now 0.5; p was 0.5, now 0.1"),
        (["--preset", "network"], "fanouts was (3, 2), now (20, 10)"),
        (["--set", "epoch=9"], "Did you mean 'epochs'?"),
    ],
)
def test_resuming_with_other_settings_names_them_and_touches_nothing(
    capsys: pytest.CaptureFixture[str], finished: Path, arguments: list[str], message: str
) -> None:
    before = contents(finished)
    assert message in refused(capsys, "train", "--resume", "-o", finished, *arguments)
    assert contents(finished) == before


def test_resuming_on_another_graph_is_refused(
    capsys: pytest.CaptureFixture[str], finished: Path, tmp_path: Path
) -> None:
    before = contents(finished)
    assert "was started on" in refused(capsys, "train", saved_graph(tmp_path / "g"), "--resume", "-o", finished)
    assert contents(finished) == before


@pytest.mark.parametrize("more", [[], ["--set", "epochs=2"], ["--set", "patience=99"]])
def test_resuming_a_finished_run_says_so_and_touches_nothing(
    capsys: pytest.CaptureFixture[str], graph: Path, finished: Path, monkeypatch: pytest.MonkeyPatch, more: list[str]
) -> None:
    before = contents(finished)
    said = worked(capsys, "train", graph, "--resume", "-o", finished, *more)
    assert said.splitlines()[-1] == (
        f"{finished} is finished. To train for longer: chronospike train --resume -o {finished} --epochs 4"
    )
    assert contents(finished) == before
    asked = worked(capsys, "train", "--resume", "-o", finished, "--json", *more)
    assert json.loads(asked) == json.loads((finished / "metrics.json").read_text())


def test_a_finished_run_is_smoothed_when_that_is_asked_for(
    capsys: pytest.CaptureFixture[str], graph: Path, tmp_path: Path
) -> None:
    run = train(capsys, graph, tmp_path / "run")
    weights = (run / "model.safetensors").read_bytes()
    assert "with --smooth" in worked(capsys, "train", "--resume", "-o", run, "--device", "cpu", "--smooth")
    assert (run / "model.safetensors").read_bytes() == weights


@pytest.mark.parametrize("refit", ["false", "true"])
def test_a_finished_run_trained_for_longer_ends_like_one_trained_so_at_once(
    capsys: pytest.CaptureFixture[str], graph: Path, tmp_path: Path, refit: str
) -> None:
    settings = {"schedule": "constant", "patience": 9, "refit": refit}
    run = train(capsys, graph, tmp_path / "run", epochs=2, **settings)
    whole = train(capsys, graph, tmp_path / "whole", epochs=4, **settings)
    worked(capsys, "train", "--resume", "-o", run, "--device", "cpu", "--epochs", "4")
    for name in ("model.safetensors", "predictions.csv", "config.yaml"):
        assert (run / name).read_bytes() == (whole / name).read_bytes()
    assert (run / "metrics.jsonl").read_text().count("\n") == 4
    command_line = json.loads((run / "run.json").read_text())["command"]
    assert command_line.endswith(f" && chronospike train --resume -o {run} --set epochs=4")


@pytest.mark.parametrize("more", [["--epochs", "10"], ["--set", "patience=2"]])
def test_a_run_that_stopped_early_trains_on_with_more_epochs_or_more_patience(
    capsys: pytest.CaptureFixture[str], graph: Path, tmp_path: Path, more: list[str]
) -> None:
    run = train(capsys, graph, tmp_path / "run", epochs=9, patience=1, selection="macro_f1")
    stopped = json.loads((run / "metrics.json").read_text())["epochs"]
    assert stopped < 9
    worked(capsys, "train", "--resume", "-o", run, "--device", "cpu", *more)
    assert json.loads((run / "metrics.json").read_text())["epochs"] > stopped


def test_a_cosine_schedule_is_said_to_be_that_of_the_longer_run(
    capsys: pytest.CaptureFixture[str], graph: Path, tmp_path: Path
) -> None:
    run = train(capsys, graph, tmp_path / "run", schedule="cosine")
    said = worked(capsys, "train", "--resume", "-o", run, "--device", "cpu", "--epochs", "3")
    assert "the learning rate follows the cosine schedule of 3 epochs from here on" in said


def interrupt_training(monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    epoch = Trainer._epoch

    def interrupt_second_fit(self: Trainer, watcher: Any) -> Any:
        return epoch(self, watcher) if self.stop_after is None else interrupt()

    if where == "scoring":
        monkeypatch.setattr("chronospike.training.runs.evaluate", interrupt)
    elif where == "report":
        monkeypatch.setattr("chronospike.analysis.report.write_report", interrupt)
    else:
        monkeypatch.setattr(Trainer, "_epoch", interrupt if where == "first epoch" else interrupt_second_fit)


@pytest.mark.parametrize("where", ["first epoch", "second fit", "scoring", "report"])
def test_wherever_it_is_interrupted_a_run_says_how_to_resume_and_does(
    capsys: pytest.CaptureFixture[str], graph: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    run = tmp_path / "run"
    with monkeypatch.context() as patch:
        interrupt_training(patch, where)
        result = command(capsys, *begin(graph, run, refit="true"))
    assert result.code == 130
    assert result.err == f"chronospike: interrupted. Resume with: chronospike train --resume -o {run} --device cpu\n"
    worked(capsys, "train", "--resume", "-o", run, "--device", "cpu")
    assert (run / "report.html").is_file()


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (OutOfSpaceError("x: the disk is full"), 2, "x: the disk is full"),
        (BrokenPipeError(errno.EPIPE, "Broken pipe"), 130, "stopped, because nothing reads the output any more"),
    ],
)
def test_a_run_that_a_full_disk_or_a_closed_pipe_stops_says_how_to_resume(
    capsys: pytest.CaptureFixture[str],
    graph: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
    code: int,
    said: str,
) -> None:
    def stop(*_: object) -> None:
        raise error

    monkeypatch.setattr(Trainer, "_epoch", stop)
    for arguments in (begin(graph, tmp_path / "run"), ("train", "--resume", "-o", tmp_path / "run", "--device", "cpu")):
        result = command(capsys, *arguments)
        assert result.code == code
        again = f"Resume with: chronospike train --resume -o {tmp_path / 'run'} --device cpu"
        assert result.err == f"chronospike: {said}. {again}\n"


@pytest.mark.parametrize("where", ["first epoch", "scoring"])
def test_results_stay_until_a_longer_run_has_its_own_and_it_can_be_resumed(
    capsys: pytest.CaptureFixture[str], graph: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    run = train(capsys, graph, tmp_path / "run")
    results = ("metrics.json", "predictions.csv", "report.html")
    before = {name: (run / name).read_bytes() for name in results}
    with monkeypatch.context() as patch:
        interrupt_training(patch, where)
        result = command(capsys, "train", "--resume", "-o", run, "--device", "cpu", "--epochs", "4")
    assert result.code == 130
    assert f"Resume with: chronospike train --resume -o {run} --set epochs=4 --device cpu" in result.err
    assert {name: (run / name).read_bytes() for name in results} == before
    worked(capsys, "train", "--resume", "-o", run, "--device", "cpu")
    assert json.loads((run / "metrics.json").read_text())["epochs"] == 4


def test_a_run_without_its_checkpoint_cannot_be_trained_for_longer(
    capsys: pytest.CaptureFixture[str], graph: Path, tmp_path: Path
) -> None:
    run = train(capsys, graph, tmp_path / "run")
    (run / "checkpoint" / "state.safetensors").unlink()
    before = contents(run)
    assert "its folder checkpoint/ is missing" in refused(capsys, "train", "--resume", "-o", run, "--epochs", "4")
    assert "is finished" in worked(capsys, "train", "--resume", "-o", run)
    assert contents(run) == before


def test_a_graph_that_was_imported_again_is_noticed(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    place = saved_graph(tmp_path / "g")
    run = train(capsys, place, tmp_path / "run")
    made = open_graph(place)
    assert made.labels is not None
    save_graph(replace(made, labels=np.roll(made.labels, 1)), place, overwrite=True)
    before = contents(run)
    said = refused(capsys, "train", "--resume", "-o", run, "--device", "cpu", "--epochs", "9")
    assert "has changed since" in said
    assert contents(run) == before


def test_a_run_can_be_resumed_from_another_folder(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved_graph(tmp_path / "g")
    monkeypatch.chdir(tmp_path)
    train(capsys, Path("g"), tmp_path / "run")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    worked(capsys, "train", "--resume", "-o", tmp_path / "run", "--device", "cpu", "--epochs", "3")


def test_a_loss_that_is_not_finite_is_one_line_and_the_run_can_go_on(
    capsys: pytest.CaptureFixture[str], graph: Path, finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    break_loss(monkeypatch, batch=5)
    result = command(capsys, *begin(graph, tmp_path / "run"))
    assert result.code == 1
    assert result.err.count("\n") == 1
    assert "the loss is not finite at epoch 1, batch 1; " in result.err
    assert "layer 1: tau" in result.err
    worked(capsys, "train", "--resume", "-o", tmp_path / "run", "--device", "cpu")
    weights = "model.safetensors"
    assert (tmp_path / "run" / weights).read_bytes() == (finished / weights).read_bytes()


def test_a_damaged_checkpoint_is_said_and_left_alone(
    capsys: pytest.CaptureFixture[str], graph: Path, tmp_path: Path
) -> None:
    run = train(capsys, graph, tmp_path / "run")
    path = run / "checkpoint" / "state.safetensors"
    path.write_bytes(path.read_bytes()[:-10])
    before = contents(run)
    said = command(capsys, "train", "--resume", "-o", run, "--device", "cpu")
    assert said.code == 2
    assert "state.safetensors is damaged" in said.err
    assert said.err.count("\n") == 1
    assert contents(run) == before


def test_a_run_that_is_not_there_is_not_resumed_and_not_made(
    capsys: pytest.CaptureFixture[str], graph: Path, tmp_path: Path
) -> None:
    assert "does not exist" in refused(capsys, "train", "--resume", "-o", tmp_path / "run")
    assert list(tmp_path.iterdir()) == []
