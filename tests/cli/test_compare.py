from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from chronospike.cli import run
from chronospike.cli.comparing import Comparing
from chronospike.errors import OutOfSpaceError
from chronospike.methods import registry
from tests.experiments.fake_methods import FAKES
from tests.experiments.small_grids import graph_folder
from tests.lock_holder import CLAIM, started

COMMAND = """
import sys
from chronospike.cli import main
from chronospike.methods import registry
from tests.experiments.fake_methods import FAKES
registry.METHODS.update(FAKES)
main()
"""


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return graph_folder(tmp_path_factory.mktemp("graphs") / "mine")


@pytest.fixture(autouse=True)
def fake_methods(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FIT_COUNTER", str(tmp_path / "fits"))
    for name, place in FAKES.items():
        monkeypatch.setitem(registry.METHODS, name, place)


def _command(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, str, str]:
    capsys.readouterr()
    code = run(["compare", *map(str, arguments)])
    said = capsys.readouterr()
    return code, said.out, said.err


def _refused(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> str:
    code, out, err = _command(capsys, *arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)
    return err


def test_a_comparison_is_a_folder_with_all_it_promises(
    capsys: pytest.CaptureFixture[str], graph: Path, tmp_path: Path
) -> None:
    options = ["--methods", "logistic,failing", "--ratios", "0.6", "--runs", "1", "--device", "cpu", "--seed", "7"]
    code, said, _ = _command(capsys, graph, "-o", tmp_path / "c", *options)
    assert code == 0
    assert "2 cells: 2 to fit" in said
    assert "failed: failing, 60 %, seed 7: this graph is too round" in said
    assert {path.name for path in (tmp_path / "c").iterdir()} == {
        "cells", "comparison.json", "index.html", "results.jsonl", "table.csv", "table.md", "table.tex",
    }  # fmt: skip
    lines = [json.loads(line) for line in (tmp_path / "c" / "results.jsonl").read_text().splitlines()]
    assert [(one["variant"], one["ratio"], one["seed"], one["status"]) for one in lines] == [
        ("logistic", 0.6, 7, "done"),
        ("failing", 0.6, 7, "failed"),
    ]
    assert "logistic regression" in (tmp_path / "c" / "index.html").read_text()


def test_without_methods_those_that_take_minutes_are_compared(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, graph: Path, tmp_path: Path
) -> None:
    monkeypatch.setattr(registry, "COMPARED", ("majority", "logistic"))
    options = ["--ratios", "0.6", "--runs", "1", "--device", "cpu"]
    code, said, _ = _command(capsys, graph, "-o", tmp_path / "c", *options)
    assert code == 0
    assert "--methods all adds the paper's other methods" in said
    assert "2 cells: 2 to fit" in said
    code, said, _ = _command(capsys, graph, "-o", tmp_path / "c", *options, "--methods", "majority")
    assert "--methods all" not in said


def test_a_changed_grid_takes_what_is_the_same_and_fits_the_rest(
    capsys: pytest.CaptureFixture[str], graph: Path, tmp_path: Path
) -> None:
    options: list[str | Path] = [
        graph,
        "-o",
        tmp_path / "c",
        "--methods",
        "counted",
        "--ratios",
        "0.8",
        "--device",
        "cpu",
    ]
    _command(capsys, *options, "--runs", "1")
    (tmp_path / "grid.yaml").write_text("other split: {method: counted, settings: {split_seed: 3}}")
    code, said, _ = _command(capsys, *options, "--runs", "1", "--grid", tmp_path / "grid.yaml", "--json")
    assert code == 0
    assert [(one["variant"], one["runs"]) for one in json.loads(said)["entries"][:2]] == [
        ("counted", 1),
        ("other split", 1),
    ]
    assert len((tmp_path / "fits").read_text().split()) == 2


def test_a_killed_comparison_resumes_and_fits_nothing_twice(
    capsys: pytest.CaptureFixture[str], graph: Path, tmp_path: Path
) -> None:
    options: list[str | Path] = [
        graph,
        "-o",
        tmp_path / "c",
        "--methods",
        "counted",
        "--ratios",
        "0.8",
        "--runs",
        "3",
        "--jobs",
        "1",
    ]
    command = [sys.executable, "-c", COMMAND, "compare", *map(str, options)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, env={**os.environ, "PYTHONPATH": "src:."})
    try:
        for _ in range(1200):
            done = list((tmp_path / "c" / "cells").glob("*/result.json"))
            if done or process.poll() is not None:
                break
            time.sleep(0.05)
        process.send_signal(signal.SIGKILL)
    finally:
        process.kill()
        process.wait()
    assert 1 <= len(done) < 3
    finished = {path: path.stat().st_mtime_ns for path in done}
    code, said, _ = _command(capsys, *options)
    assert code == 0
    assert f"3 cells: {len(done)} are already done" in said
    assert {path: path.stat().st_mtime_ns for path in done} == finished


def test_it_is_an_error_if_no_cell_is_done(capsys: pytest.CaptureFixture[str], graph: Path, tmp_path: Path) -> None:
    code, _, err = _command(
        capsys, graph, "-o", tmp_path / "c", "--methods", "failing", "--runs", "1", "--ratios", "0.8"
    )
    assert code == 1
    assert "no cell has finished. The first: this graph is too round" in err


@pytest.mark.parametrize(("error", "code"), [(OutOfSpaceError("the disk is full"), 2), (BrokenPipeError(), 130)])
def test_what_a_full_disk_or_a_closed_pipe_stops_says_how_to_resume(
    capsys: pytest.CaptureFixture[str],
    graph: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
    code: int,
) -> None:
    def stop(_: Comparing) -> None:
        raise error

    monkeypatch.setattr(Comparing, "write", stop)
    options = ["--methods", "majority", "--runs", "1", "--ratios", "0.8"]
    found, _, err = _command(capsys, graph, "-o", tmp_path / "c", *options)
    assert found == code
    assert err.endswith(". Finished cells are kept. Run the same command again to resume\n")


def test_a_second_comparison_in_the_same_folder_is_refused(
    capsys: pytest.CaptureFixture[str], graph: Path, tmp_path: Path
) -> None:
    with started(CLAIM, tmp_path / "c"):
        assert "is in use by process" in _refused(capsys, graph, "-o", tmp_path / "c", "--methods", "majority")


def test_methods_are_listed_with_a_line_on_each(capsys: pytest.CaptureFixture[str]) -> None:
    code, said, _ = _command(capsys, "--list")
    assert code == 0
    assert "  majority " in said
    assert "the class frequencies of the labelled nodes, for every node" in said


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--methods", "majorty"], "no method 'majorty'. Did you mean 'majority'?"),
        (["--methods", ""], "--methods is empty"),
        (["--ratios", ""], "--ratios is empty"),
        (["--methods", "majority,,logistic"], "a name is missing between two commas"),
        (["--ratios", "0.4,80"], "'80' is not a number between 0 and 1"),
        (["--ratios", "some"], "'some' is not a number"),
        (["--ratios", "0.01"], "validation 0.05 must be smaller than ratio 0.01"),
        (["--methods", "majority", "--set", "rounds=3"], "no setting 'rounds'"),
        (["--set", "seed=3"], "Use --seed"),
        (["--set", "ratio=0.3"], "Use --ratios"),
        (["--budget", "2 days"], "Write it as 90s, 15m or 2h"),
        (["--grid", "no/such.yaml"], "no/such.yaml does not exist"),
        (["--preset", "dblpp"], "no preset 'dblpp'"),
    ],
)
def test_what_makes_no_sense_is_refused_in_a_line_and_nothing_is_made(
    capsys: pytest.CaptureFixture[str], graph: Path, tmp_path: Path, options: list[str], words: str
) -> None:
    assert words in _refused(capsys, graph, "-o", tmp_path / "c", *options)
    assert not (tmp_path / "c").exists()


def test_a_variant_called_like_a_method_of_the_grid_is_refused(
    capsys: pytest.CaptureFixture[str], graph: Path, tmp_path: Path
) -> None:
    (tmp_path / "grid.yaml").write_text("majority: {method: logistic}")
    options = ["--methods", "majority", "--grid", str(tmp_path / "grid.yaml")]
    assert "'majority' is given twice" in _refused(capsys, graph, "-o", tmp_path / "c", *options)


def test_a_folder_of_something_else_is_left_alone(
    capsys: pytest.CaptureFixture[str], graph: Path, tmp_path: Path
) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    assert "holds something else" in _refused(capsys, graph, "-o", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_a_graph_and_a_folder_are_needed(capsys: pytest.CaptureFixture[str]) -> None:
    assert "which graph, and which output folder?" in _refused(capsys)
