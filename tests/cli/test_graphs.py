from __future__ import annotations

import json
from pathlib import Path

import pytest

from chronospike.cli import graphs
from chronospike.cli.graphs import cache_folder, graph_folder
from chronospike.data.storage import open_graph
from chronospike.errors import InputError
from tests.lock_holder import WAIT_FOR, let_go_on, started
from tests.small_runs import saved_graph, worked


def test_the_cache_is_where_the_environment_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CHRONOSPIKE_CACHE", str(tmp_path / "mine"))
    assert cache_folder() == tmp_path / "mine"
    monkeypatch.delenv("CHRONOSPIKE_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder() == tmp_path / "xdg" / "chronospike"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == tmp_path / ".cache" / "chronospike"


def test_without_a_home_the_way_out_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CHRONOSPIKE_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    # As for a user of a container whom it does not know.
    monkeypatch.setattr("os.path.expanduser", lambda path: path)
    with pytest.raises(InputError, match="Set CHRONOSPIKE_CACHE"):
        cache_folder()


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


def _dblp_files(root: Path, edges: int) -> Path:
    """A few edges under the names of DBLP's files; the later ones are of other nodes."""
    (root / "dblp").mkdir(parents=True, exist_ok=True)
    (root / "dblp" / "dblp.txt").write_text("".join(f"{i} {i + 1} {i % 3}\n" for i in range(edges)))
    (root / "dblp" / "node2label.txt").write_text("".join(f"{i} {i % 2}\n" for i in range(edges + 1)))
    return root


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("CHRONOSPIKE_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("CHRONOSPIKE_DATA", raising=False)
    return tmp_path / "cache"


def _nodes(root: Path | None) -> int:
    folder = graph_folder("dblp", root, quiet=True)
    assert folder.name == "dblp"
    return open_graph(folder).num_nodes


def test_files_of_another_root_are_another_graph(cache: Path, tmp_path: Path) -> None:
    assert _nodes(_dblp_files(tmp_path / "a", 9)) == 10
    assert _nodes(_dblp_files(tmp_path / "b", 19)) == 20
    assert _nodes(tmp_path / "a") == 10
    assert len(list(cache.rglob("meta.json"))) == 2


def test_files_that_changed_are_imported_again(cache: Path, tmp_path: Path) -> None:
    _nodes(_dblp_files(tmp_path / "a", 9))
    assert _nodes(_dblp_files(tmp_path / "a", 29)) == 30


def test_the_same_files_by_another_name_are_the_same_graph(cache: Path, tmp_path: Path) -> None:
    _nodes(_dblp_files(tmp_path / "a", 9))
    (tmp_path / "link").symlink_to(tmp_path / "a")
    assert _nodes(tmp_path / "link") == 10
    assert len(list(cache.rglob("meta.json"))) == 1


def test_without_a_root_the_one_graph_imported_earlier_is_taken(cache: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no data folder is given"):
        graph_folder("dblp")
    _nodes(_dblp_files(tmp_path / "a", 9))
    assert _nodes(None) == 10
    _nodes(_dblp_files(tmp_path / "b", 19))
    with pytest.raises(InputError, match="dblp was imported from 2 sets of files. Choose one with --root"):
        graph_folder("dblp")


def test_a_dry_run_reads_the_files_that_it_is_given(
    cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _nodes(_dblp_files(tmp_path / "a", 99))
    _dblp_files(tmp_path / "b", 199)
    for root, labelled in (("a", 100), ("b", 200)):
        given = ["train", "dblp", "--root", str(tmp_path / root), "--dry-run", "--json", "--device", "cpu"]
        found = json.loads(worked(capsys, *given))
        assert found["train"] + found["validation"] + found["test"] == labelled


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
