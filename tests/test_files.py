from __future__ import annotations

import errno
import os
import socket
from pathlib import Path

import pytest

from chronospike.errors import InputError, OutOfSpaceError
from chronospike.files import LOCK, atomic_file, atomic_folder, check_target, write_json


def test_a_folder_appears_only_when_it_is_whole(tmp_path: Path) -> None:
    target = tmp_path / "deep" / "graph"
    with atomic_folder(target) as partial:
        (partial / "a").write_text("1")
        assert not target.exists()
    assert (target / "a").read_text() == "1"


def test_a_failure_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), atomic_folder(tmp_path / "deep" / "graph") as partial:
        (partial / "a").write_text("1")
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_one_line_and_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(OutOfSpaceError, match="the disk is full"), atomic_folder(tmp_path / "graph") as partial:
        (partial / "a").write_text("1")
        raise OSError(errno.ENOSPC, "No space left on device")
    assert list(tmp_path.iterdir()) == []


def test_an_existing_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "graph").mkdir()
    (tmp_path / "graph" / "meta.json").write_text("{}")
    with (
        pytest.raises(InputError, match="exists. Choose another name or pass --overwrite"),
        atomic_folder(tmp_path / "graph"),
    ):
        pass


def test_overwriting_replaces_the_old_folder_whole(tmp_path: Path) -> None:
    (tmp_path / "graph").mkdir()
    (tmp_path / "graph" / "meta.json").write_text("{}")
    with atomic_folder(tmp_path / "graph", overwrite=True) as partial:
        (partial / "new").write_text("1")
    assert [path.name for path in tmp_path.rglob("*")] == ["graph", "new"]


def test_a_failed_overwrite_keeps_the_old_folder(tmp_path: Path) -> None:
    (tmp_path / "graph").mkdir()
    (tmp_path / "graph" / "meta.json").write_text("old")
    with pytest.raises(RuntimeError), atomic_folder(tmp_path / "graph", overwrite=True):
        raise RuntimeError
    assert (tmp_path / "graph" / "meta.json").read_text() == "old"


def test_a_folder_of_something_else_is_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.jpg").write_text("meow")
    with (
        pytest.raises(InputError, match="not a folder that chronospike wrote"),
        atomic_folder(tmp_path / "photos", overwrite=True),
    ):
        pass
    assert (tmp_path / "photos" / "cat.jpg").exists()


def test_a_lock_does_not_count_as_contents(tmp_path: Path) -> None:
    (tmp_path / LOCK).touch()
    check_target(tmp_path, overwrite=False)


def test_a_file_in_the_way_is_refused(tmp_path: Path) -> None:
    (tmp_path / "graph").write_text("")
    with pytest.raises(InputError, match="is a file"), atomic_folder(tmp_path / "graph"):
        pass


def test_what_a_killed_process_left_is_removed(tmp_path: Path) -> None:
    abandoned = tmp_path / f".graph.partial-{socket.gethostname()}-999999999"
    alive = tmp_path / f".graph.partial-{socket.gethostname()}-{os.getppid()}"
    abandoned.mkdir()
    alive.mkdir()
    with atomic_folder(tmp_path / "graph"):
        pass
    assert not abandoned.exists()
    assert alive.exists()


def test_a_failed_file_keeps_the_old_one(tmp_path: Path) -> None:
    write_json(tmp_path / "x.json", {"a": 1})
    with pytest.raises(RuntimeError), atomic_file(tmp_path / "x.json") as partial:
        partial.write_text("half")
        raise RuntimeError
    assert (tmp_path / "x.json").read_text() == '{\n  "a": 1\n}\n'
    assert len(list(tmp_path.iterdir())) == 1


def test_a_folder_in_the_way_of_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.csv").mkdir()
    with pytest.raises(InputError, match="is a folder"), atomic_file(tmp_path / "x.csv"):
        pass


def test_half_a_file_of_a_killed_process_is_removed(tmp_path: Path) -> None:
    abandoned = tmp_path / f".x.csv.partial-{socket.gethostname()}-999999999.csv"
    abandoned.write_text("half")
    with atomic_file(tmp_path / "x.csv") as partial:
        partial.write_text("whole")
    assert [path.name for path in tmp_path.iterdir()] == ["x.csv"]
