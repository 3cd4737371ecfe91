"""How much work a run is worth, and how long it may take: `train --quality`, `--time-limit`, and Ctrl-C."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from chronospike.cli.clock import Clock
from chronospike.data.storage import save_graph
from chronospike.training import planning
from chronospike.training.planning import Rates
from tests.small_runs import assignments, begin, command, contents, noisy_graph, read_csv, refused, small_stages, worked

# What a quality decides is left to it.
OPEN = {"folds", "second_stage", "epochs", "refit", "samples"}
QUICK = {"epochs": 1, "samples": 1, "second_stage": "logistic"}


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_graph(noisy_graph(), tmp_path_factory.mktemp("graphs") / "g")


def arguments(graph: Path, run: Path, *more: str | Path, **values: Any) -> list[str | Path]:
    """Train the small network, with what a quality decides left to it, then these settings."""
    pairs = zip(assignments()[::2], assignments()[1::2], strict=True)
    small = [part for pair in pairs if pair[1].split("=")[0] not in OPEN for part in pair]
    given = [part for name, value in values.items() for part in ("--set", f"{name}={value}")]
    return ["train", graph, "-o", run, "--device", "cpu", *small, *given, *more]


def config(run: Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((run / "config.yaml").read_text())
    return found


def metrics_of(run: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((run / "metrics.json").read_text())
    return found


def is_usable(run: Path, capsys: pytest.CaptureFixture[str]) -> bool:
    """Everything is there, and `predict` writes what training wrote."""
    worked(capsys, "predict", run, "-o", run.parent / "out.csv", "--device", "cpu")
    same = (run.parent / "out.csv").read_bytes() == (run / "predictions.csv").read_bytes()
    return same and (run / "metrics.json").is_file() and (run / "report.html").is_file()


def test_fast_is_two_networks_and_a_second_stage(
    capsys: pytest.CaptureFixture[str], graph: Path, tmp_path: Path
) -> None:
    worked(capsys, *arguments(graph, tmp_path / "run", "--quality", "fast"))
    found = config(tmp_path / "run")
    names = ("folds", "second_stage", "epochs", "refit", "samples", "feature_method")
    assert [found[name] for name in names] == [2, "auto", 10, False, 1, "fastrp"]


def test_what_is_set_comes_before_the_quality(capsys: pytest.CaptureFixture[str], graph: Path, tmp_path: Path) -> None:
    worked(capsys, *arguments(graph, tmp_path / "run", "--quality", "best", folds=2, **QUICK))
    found = config(tmp_path / "run")
    assert [found[name] for name in ("folds", "second_stage", "epochs", "samples")] == [2, "logistic", 1, 1]


@pytest.mark.parametrize("options", [["--quality", "best"], ["--quality", "fast"], ["--time-limit", "10s"]])
def test_another_method_has_no_quality(
    capsys: pytest.CaptureFixture[str], graph: Path, tmp_path: Path, options: list[str]
) -> None:
    said = refused(capsys, "train", graph, "-o", tmp_path / "run", "--method", "majority", *options)
    assert "--quality and --time-limit are only for chronospike, not for majority" in said
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--quality", "beast"], "Did you mean 'best'?"),
        (["--time-limit", "10"], "a time of '10' cannot be read. Write it as 90s, 15m or 2h"),
        (["--time-limit", "10s", "--dry-run"], "--dry-run trains nothing"),
        (["--quality", "best", "--resume"], "--resume keeps the settings of the run. Leave out --quality"),
    ],
)
def test_what_makes_no_sense_is_one_line_and_no_folder(
    capsys: pytest.CaptureFixture[str], graph: Path, tmp_path: Path, options: list[str], message: str
) -> None:
    assert message in refused(capsys, "train", graph, "-o", tmp_path / "run", *options)
    assert list(tmp_path.iterdir()) == []


def stop_here(*_: Any, **__: Any) -> None:
    raise KeyboardInterrupt


def planned(capsys: pytest.CaptureFixture[str], graph: Path, run: Path, *more: str, **values: Any) -> list[str]:
    """What a run with ten minutes says before it trains, which it does not."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("chronospike.training.runs.execute", stop_here)
        result = command(capsys, *arguments(graph, run, "--time-limit", "10m", *more, **values))
    assert result.code == 130
    return result.out.splitlines()


@pytest.mark.parametrize(
    ("batch", "plan", "folds"),
    [
        (0.0, "plan: 10 networks of 20 epochs, second stage auto, about ", 10),
        # Of 20 epochs with batches of 32 nodes: 3 batches of 86 nodes, of 76 and of 90, 2 of 64.
        (1.0, "plan: 5 networks of 20 epochs, second stage auto, about 5 min", 5),
        (1.7, "plan: 3 networks of 20 epochs, second stage auto, about 3 min", 3),
        (4.2, "plan: 2 networks of 20 epochs, second stage auto, about 6 min", 2),
        (7.0, "plan: 2 networks of 10 epochs, second stage auto, about 5 min", 2),
        (20.0, "plan: one network of 5 epochs, about 5 min", 0),
    ],
)
def test_the_plan_is_said_first_and_kept_in_the_settings(
    capsys: pytest.CaptureFixture[str],
    graph: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    batch: float,
    plan: str,
    folds: int,
) -> None:
    monkeypatch.setattr(planning, "time_batches", lambda *_: Rates(batch, 0.0))
    lines = planned(capsys, graph, tmp_path / "run")
    assert lines[0].startswith(plan)
    assert lines[0].endswith(" of 10 min")
    assert lines[1].startswith("ChronoSpike, seed 0, 120 nodes")
    assert config(tmp_path / "run")["folds"] == folds


def test_a_limit_plans_downwards_from_the_quality_that_is_given(
    capsys: pytest.CaptureFixture[str], graph: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planning, "time_batches", lambda *_: Rates(0.0, 0.0))
    lines = planned(capsys, graph, tmp_path / "one", "--quality", "good", folds=0, second_stage="none")
    assert lines[0].startswith("plan: one network of 20 epochs, fitted again on the validation nodes, about ")
    assert planned(capsys, graph, tmp_path / "fast", "--quality", "fast")[0].startswith(
        "plan: 2 networks of 10 epochs, "
    )


def test_one_second_ends_with_a_usable_run_that_trains_on_when_resumed(
    capsys: pytest.CaptureFixture[str], graph: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    said = worked(capsys, *arguments(graph, run, "--time-limit", "1s"))
    assert said.startswith("plan: one network of 1 epochs, about ")
    assert metrics_of(run)["epochs"] == 1
    assert is_usable(run, capsys)
    worked(capsys, "train", "--resume", "-o", run, "--device", "cpu", "--epochs", "3")
    assert (metrics_of(run)["epochs"], metrics_of(run)["complete"]) == (3, True)
    assert is_usable(run, capsys)


@pytest.mark.parametrize("selection", ["last", "macro_f1"])
def test_a_bag_whose_time_is_up_is_usable_and_resuming_it_gives_the_bits_of_one_that_had_time(
    capsys: pytest.CaptureFixture[str],
    graph: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    selection: str,
) -> None:
    """The plan is too hopeful: it counts nothing at all, and the deadline is over when training begins."""
    small_stages(monkeypatch)
    values = {"folds": 3, "second_stage": "auto", "epochs": 2, "samples": 1, "selection": selection}
    worked(capsys, *arguments(graph, tmp_path / "whole", **values))
    run = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr(planning, "time_batches", lambda *_: Rates(0.0, 0.0))
        patch.setattr(Clock, "left", lambda self: 0.0)
        patch.setattr("chronospike.training.planning.seconds", lambda *_: -1.0)
        said = worked(capsys, *arguments(graph, run, "--time-limit", "1h", **values))
    assert "stopped early: 1 of 3 networks are trained" in said
    again = f"the training was stopped before it was complete. To complete it: chronospike train --resume -o {run}"
    assert again in said
    metrics = metrics_of(run)
    assert (metrics["complete"], metrics["notes"][0]) == (False, again)
    # None of the validation nodes is in the fold of the one network.
    assert metrics["validation"]["nodes"] == 0
    assert is_usable(run, capsys)
    assert again in (run / "report.html").read_text(encoding="utf-8")
    worked(capsys, "train", "--resume", "-o", run, "--device", "cpu")
    found, expected = contents(run), contents(tmp_path / "whole")
    for name in ("model.safetensors", "out_of_fold.parquet", "final_stage.safetensors", "predictions.csv"):
        assert found[name] == expected[name]
    assert metrics_of(run)["complete"] is True


def test_each_of_several_seeds_gets_its_share_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    clock = Clock(100.0, 40.0, is_asked=False)
    deadlines = []
    for runs in (2, 1):
        with clock.share(runs):
            deadlines.append(clock.deadline)
        now[0] += 20
    # Nine tenths of 20 s each, the rest is for scores and reports.
    assert deadlines == pytest.approx([118, 138])


def test_without_a_limit_there_is_no_deadline_and_an_interrupt_is_one() -> None:
    clock, before = Clock(time.monotonic(), None, is_asked=False), signal.getsignal(signal.SIGINT)
    with clock.share(1):
        assert signal.getsignal(signal.SIGINT) is before
    assert (clock.deadline, clock.text(), clock.stop.is_set()) == (None, "", False)


@pytest.fixture
def listening() -> Iterator[None]:
    """Interrupts are heard, however the tests were started."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("listening")
def test_the_first_interrupt_stops_the_second_is_one_and_afterwards_all_is_as_it_was(
    capsys: pytest.CaptureFixture[str],
) -> None:
    clock, before = Clock(time.monotonic(), None, is_asked=True), signal.getsignal(signal.SIGINT)
    with clock.share(1):
        signal.raise_signal(signal.SIGINT)
        assert clock.stop.is_set()
        assert "press Ctrl-C again to exit immediately" in capsys.readouterr().out
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.usefixtures("listening")
def test_interrupts_that_are_ignored_stay_ignored() -> None:
    """As for a command in the background of a script."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    clock = Clock(time.monotonic(), None, is_asked=True)
    with clock.share(1):
        signal.raise_signal(signal.SIGINT)
    assert not clock.stop.is_set()
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def test_another_thread_than_the_main_one_leaves_signals_alone() -> None:
    found: list[Any] = []

    def share() -> None:
        with Clock(time.monotonic(), None, is_asked=True).share(1):
            found.append(signal.getsignal(signal.SIGINT))

    before = signal.getsignal(signal.SIGINT)
    thread = threading.Thread(target=share)
    thread.start()
    thread.join()
    assert found == [before]


# Many small batches, so that a signal comes before the last epoch of the first network.
LONG: dict[str, Any] = {"epochs": 50, "min_batches": 1, "batch_size": 4, "folds": 3, "second_stage": "logistic"}


def started(graph: Path, run: Path) -> subprocess.Popen[str]:
    """A `train --quality best` in another process that has trained an epoch."""
    # Whoever runs the tests in the background may have had interrupts ignored.
    listen = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    program = [sys.executable, "-u", "-c", f"{listen}; from chronospike.cli import main; main()"]
    given = [str(part) for part in arguments(graph, run, "--quality", "best", **LONG)]
    process = subprocess.Popen(
        [*program, *given],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"},
    )
    path, deadline = run / "metrics.jsonl", time.monotonic() + 120
    while not path.exists() or not path.read_text():
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline
        time.sleep(0.005)
    return process


def test_ctrl_c_ends_a_run_with_what_there_is(capsys: pytest.CaptureFixture[str], graph: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    process = started(graph, run)
    try:
        process.send_signal(signal.SIGINT)
        said, errors = process.communicate(timeout=120)
    finally:
        process.kill()
        process.wait()
    assert (process.returncode, errors) == (0, "")
    assert "stopping after this epoch and keeping the results so far; press Ctrl-C again to exit immediately" in said
    assert "stopped early: 1 of 3 networks are trained" in said
    assert "time" not in said
    assert "  (one fold)" in said
    metrics = metrics_of(run)
    assert metrics["complete"] is False
    assert metrics["epochs"] < 50
    assert is_usable(run, capsys)
    assert len(read_csv(run / "predictions.csv")) == 120


def test_a_second_ctrl_c_leaves_at_once_and_the_run_can_be_resumed(graph: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    process = started(graph, run)
    try:
        process.send_signal(signal.SIGINT)
        assert process.stdout is not None
        while "press Ctrl-C again" not in process.stdout.readline():
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 130
    assert errors == f"chronospike: interrupted. Resume with: chronospike train --resume -o {run} --device cpu\n"


def test_a_limit_that_is_over_before_training_begins_still_resumes_in_json(
    capsys: pytest.CaptureFixture[str], graph: Path, tmp_path: Path
) -> None:
    said = worked(capsys, *begin(graph, tmp_path / "run", "--time-limit", "1s", "--json"))
    assert json.loads(said) == metrics_of(tmp_path / "run")
