"""Whatever `config.yaml` and `run.json` of a run hold, the commands that read them work or say one line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from chronospike.cli import run as run_command
from tests.small_runs import assignments, saved_graph

VALUES: tuple[Any, ...] = (None, 7, ["x"])


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run and a file that names one node of its graph."""
    base = tmp_path_factory.mktemp("damaged")
    (base / "one.txt").write_text("3\n")
    graph, run = saved_graph(base / "g"), base / "run"
    values = {"hidden": [4, 2], "heads": 1, "temporal_heads": 1, "feedforward": 4, "fanouts": [1, 1], "epochs": 1}
    given = assignments(**values)
    assert run_command(["train", str(graph), "-o", str(run), "--device", "cpu", *given]) == 0
    return base


def _damaged(content: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for name in content:
        yield f"{name} dropped", {other: value for other, value in content.items() if other != name}
        for value in VALUES:
            yield f"{name}: {value!r}", {**content, name: value}
    yield "nothing", {}


def _predict(base: Path) -> list[str | Path]:
    return ["predict", base / "run", "--nodes", base / "one.txt", "-o", base / "out.csv", "--device", "cpu"]


def _one_line_or_none(what: str, capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> None:
    """The command works, or says one line and ends with a code for it; anything else is raised."""
    capsys.readouterr()
    try:
        code = run_command([str(argument) for argument in arguments])
    except BaseException as error:
        raise AssertionError(f"{what}: {error!r}") from error
    said = capsys.readouterr().err
    assert code in (0, 2), f"{what}: {code} {said}"
    assert code == 0 or (said.startswith("chronospike: ") and said.count("\n") == 1), f"{what}: {said}"


def test_a_damaged_run_json_gives_one_line(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, path = finished / "run", finished / "run" / "run.json"
    before = path.read_text()
    for what, content in _damaged(json.loads(before)):
        path.write_text(json.dumps(content))
        _one_line_or_none(what, capsys, *_predict(finished))
        _one_line_or_none(what, capsys, "train", "--resume", "-o", run, "--dry-run", "--device", "cpu")
    for name in json.loads(before):
        path.write_text(json.dumps({**json.loads(before), name: 7}))
        _one_line_or_none(name, capsys, "evaluate", run, "--device", "cpu")
    path.write_text(before)


def test_a_damaged_config_gives_one_line(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, path = finished / "run", finished / "run" / "config.yaml"
    before = path.read_text()
    for what, content in _damaged(yaml.safe_load(before)):
        path.write_text(yaml.safe_dump(content))
        _one_line_or_none(what, capsys, *_predict(finished))
    for name in yaml.safe_load(before):
        path.write_text(yaml.safe_dump({**yaml.safe_load(before), name: ["x"]}))
        _one_line_or_none(name, capsys, "report", run)
    path.write_text(before)


@pytest.mark.parametrize("content", ["", "[]", "7", "{", "[" * 50_000, "9" * 5000, "\x00"])
@pytest.mark.parametrize("file", ["config.yaml", "run.json"])
def test_a_file_of_a_run_that_holds_something_else_gives_one_line(
    file: str, content: str, finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = finished / "run" / file
    before = path.read_text()
    path.write_text(content)
    _one_line_or_none(file, capsys, "predict", finished / "run", "-o", finished / "out.csv", "--device", "cpu")
    _one_line_or_none(file, capsys, "report", finished / "run")
    path.write_text(before)
