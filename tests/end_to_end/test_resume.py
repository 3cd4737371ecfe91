"""A run that is stopped, however roughly, ends with the bits of one that never was."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.small_runs import assignments, command, contents, saved_graph, worked

# Epochs are written down once a second, and the signal has to come before the last of them.
EPOCHS = 10
# Many small batches, so that a signal after an epoch arrives in the middle of the next one.
SETTINGS = assignments(epochs=EPOCHS, batch_size=2, patience=EPOCHS, schedule="cosine", label_inputs="true")


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved_graph(tmp_path_factory.mktemp("graphs") / "g")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, graph: Path) -> Path:
    """A run that nothing disturbs."""
    output = tmp_path_factory.mktemp("runs") / "whole"
    from chronospike.cli import run

    assert run(["train", str(graph), "-o", str(output), "--device", "cpu", *SETTINGS]) == 0
    return output


def stopped(graph: Path, output: Path, number: signal.Signals) -> tuple[int, str]:
    """Start a run in another process and send it a signal in its third epoch or later; exit code and stderr."""
    program = [sys.executable, "-c", "from chronospike.cli import main; main()"]
    arguments = ["train", str(graph), "-o", str(output), "--device", "cpu", *SETTINGS]
    # As many threads as the other runs have: the order of additions depends on them.
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    process = subprocess.Popen(
        [*program, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment
    )
    try:
        deadline = time.monotonic() + 120
        while lines(output) < 2:
            assert process.poll() is None, process.communicate()[1]
            assert time.monotonic() < deadline
            time.sleep(0.005)
        process.send_signal(number)
        said = process.communicate(timeout=60)[1]
    finally:
        process.kill()
        process.wait()
    return process.returncode, said


def lines(run: Path) -> int:
    path = run / "metrics.jsonl"
    return path.read_text().count("\n") if path.exists() else 0


def test_killed_in_the_middle_of_an_epoch_it_resumes_to_the_same_bits(
    capsys: pytest.CaptureFixture[str], graph: Path, whole: Path, tmp_path: Path
) -> None:
    code, _ = stopped(graph, tmp_path / "run", signal.SIGKILL)
    assert code == -signal.SIGKILL
    assert 2 <= lines(tmp_path / "run") < EPOCHS
    assert not (tmp_path / "run" / "model.safetensors").exists()
    before = (tmp_path / "run" / "metrics.jsonl").read_text()
    worked(capsys, "train", "--resume", "-o", tmp_path / "run", "--device", "cpu")
    assert lines(tmp_path / "run") == EPOCHS
    # The first epochs were not trained again: their times are those of the first process.
    assert (tmp_path / "run" / "metrics.jsonl").read_text().startswith(before)
    found, expected = contents(tmp_path / "run"), contents(whole)
    assert found["model.safetensors"] == expected["model.safetensors"]
    assert found["predictions.csv"] == expected["predictions.csv"]
    # A file half written by the killed process may be left beside the checkpoint, and nothing else.
    assert {name for name in found if ".partial" not in name} == set(expected)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_it_says_how_to_resume_and_does(
    capsys: pytest.CaptureFixture[str], graph: Path, whole: Path, tmp_path: Path, number: signal.Signals
) -> None:
    code, said = stopped(graph, tmp_path / "run", number)
    assert code == 130
    advice = f"Resume with: chronospike train --resume -o {tmp_path / 'run'} --device cpu"
    assert said == f"chronospike: interrupted. {advice}\n"
    assert 2 <= lines(tmp_path / "run") < EPOCHS
    result = command(capsys, "predict", tmp_path / "run", "-o", tmp_path / "out.csv")
    assert (result.code, "is not finished" in result.err) == (2, True)
    worked(capsys, "train", "--resume", "-o", tmp_path / "run", "--device", "cpu")
    assert (tmp_path / "run" / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()
