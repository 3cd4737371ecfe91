from __future__ import annotations

from pathlib import Path

import pytest

from chronospike.cli import graphs
from chronospike.cli.graphs import cache_folder, graph_folder
from chronospike.errors import InputError
from tests.lock_holder import WAIT_FOR, let_go_on, started
from tests.small_runs import saved_graph


def test_the_cache_is_where_the_environment_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CHRONOSPIKE_CACHE", str(tmp_path / "mine"))
    assert cache_folder() == tmp_path / "mine"
    monkeypatch.delenv("CHRONOSPIKE_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder() == tmp_path / "xdg" / "chronospike"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == tmp_path / ".cache" / "chronospike"


def test_a_folder_is_taken_as_it_is(tmp_path: Path) -> None:
    assert graph_folder(str(saved_graph(tmp_path / "g"))) == tmp_path / "g"


def test_a_dataset_is_made_once_and_kept(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CHRONOSPIKE_CACHE", str(tmp_path))
    folder = graph_folder("synthetic")
    assert folder == tmp_path / "graphs" / "synthetic"
    assert "importing synthetic" in capsys.readouterr().out
    before = (folder / "meta.json").stat().st_mtime_ns
    assert graph_folder("synthetic") == folder
    assert (folder / "meta.json").stat().st_mtime_ns == before
    assert capsys.readouterr().out == ""


def test_neither_a_folder_nor_a_dataset_gets_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="'pubmet' is neither a graph folder nor a dataset. Did you mean 'pubmed'"):
        graph_folder("pubmet")


def test_a_dataset_that_another_process_imports_is_waited_for_and_taken(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CHRONOSPIKE_CACHE", str(tmp_path))
    folder = tmp_path / "graphs" / "synthetic"
    with started(WAIT_FOR, tmp_path / "graphs" / ".synthetic.lock") as other:
        told: list[str] = []

        def tell(line: str) -> None:
            told.append(line)
            saved_graph(folder)
            let_go_on(other)

        monkeypatch.setattr(graphs, "tell", tell)
        assert graph_folder("synthetic") == folder
    assert len(told) == 1
    assert f"waiting for process {other.pid} " in told[0]
    assert "importing synthetic" in told[0]
    assert capsys.readouterr().out == ""
    assert [path.name for path in (tmp_path / "graphs").iterdir()] == ["synthetic"]
