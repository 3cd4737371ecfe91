"""Whatever `config.yaml` and `run.json` of a run hold, the commands that read them work or say one line."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from chronospike.cli import run as run_command
from chronospike.errors import StorageError
from chronospike.methods.chronospike.distil import read_targets
from chronospike.training.bagging import read_out_of_fold
from chronospike.training.checkpoint import read_state
from chronospike.training.final_stage import FinalStage
from chronospike.training.known_labels import KnownLabels
from chronospike.training.weights import load_weights
from tests.small_runs import assignments, refused, saved_graph, small_graph

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


def _forbid(path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Let nobody open the file; what is to be said of it."""
    opened = Path.open

    def refuse(self: Path, *arguments: Any, **options: Any) -> Any:
        if self == path:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(self))
        return opened(self, *arguments, **options)

    monkeypatch.setattr(Path, "open", refuse)
    return f"{path} cannot be read (Permission denied)"


@pytest.mark.parametrize(
    "name", ["run/run.json", "run/labels.parquet", "run/model.safetensors", "g/meta.json", "g/features.npy"]
)
def test_a_file_that_may_not_be_opened_is_not_called_damaged(
    name: str, finished: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    said = _forbid(finished / name, monkeypatch)
    assert refused(capsys, *_predict(finished)) == f"chronospike: {said}\n"


@pytest.mark.parametrize(
    "read",
    [
        read_state,
        load_weights,
        FinalStage.load,
        read_out_of_fold,
        partial(KnownLabels.read, classes=2),
        partial(read_targets, graph=small_graph()),
    ],
)
def test_every_reader_tells_what_may_not_be_opened_from_what_is_damaged(
    read: Callable[[Path], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"damaged")
    with pytest.raises(StorageError, match="damaged"):
        read(path)
    said = _forbid(path, monkeypatch)
    with pytest.raises(StorageError) as caught:
        read(path)
    assert str(caught.value) == said
