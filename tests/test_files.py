from __future__ import annotations

import errno
import os
import shutil
import socket
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from chronospike.errors import InputError, OutOfSpaceError
from chronospike.files import (
    LOCK,
    atomic_file,
    atomic_folder,
    check_file,
    check_target,
    read_json,
    space_errors,
    write_json,
)


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


def test_what_another_process_wrote_in_the_meantime_is_kept(tmp_path: Path) -> None:
    with (
        pytest.raises(InputError, match="exists. Choose another name or pass --overwrite"),
        atomic_folder(tmp_path / "graph"),
    ):
        (tmp_path / "graph").mkdir()
        (tmp_path / "graph" / "meta.json").write_text("theirs")
    assert [path.name for path in tmp_path.iterdir()] == ["graph"]
    assert (tmp_path / "graph" / "meta.json").read_text() == "theirs"


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
        pytest.raises(InputError, match="holds something else"),
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


def test_of_a_link_the_file_it_points_to_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "real.csv").write_text("old")
    (tmp_path / "x.csv").symlink_to("deep/real.csv")
    with atomic_file(tmp_path / "x.csv") as partial:
        partial.write_text("new")
        assert partial.parent == tmp_path / "deep"
    assert (tmp_path / "x.csv").is_symlink()
    assert (tmp_path / "deep" / "real.csv").read_text() == "new"
    assert len(list((tmp_path / "deep").iterdir())) == 1


def test_a_link_to_nothing_yet_gets_its_file(tmp_path: Path) -> None:
    (tmp_path / "x.csv").symlink_to("later.csv")
    with atomic_file(tmp_path / "x.csv") as partial:
        partial.write_text("new")
    assert (tmp_path / "x.csv").is_symlink()
    assert (tmp_path / "later.csv").read_text() == "new"


def test_links_in_a_circle_are_one_line(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(InputError, match="a: cannot write here"), atomic_file(tmp_path / "a") as partial:
        partial.write_text("new")
    assert (tmp_path / "a").is_symlink()


def test_a_pipe_is_written_to_and_stays(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "x.csv")
    received: list[str] = []
    reader = threading.Thread(target=lambda: received.append((tmp_path / "x.csv").read_text()))
    reader.start()
    with atomic_file(tmp_path / "x.csv") as partial:
        partial.write_text("content")
    reader.join()
    assert received == ["content"]
    assert (tmp_path / "x.csv").is_fifo()
    assert len(list(tmp_path.iterdir())) == 1


def test_a_full_device_is_one_line() -> None:
    with pytest.raises(OutOfSpaceError, match="/dev/full: the disk is full"), atomic_file(Path("/dev/full")) as partial:
        partial.write_text("content")
    assert Path("/dev/full").is_char_device()


def test_a_reader_that_went_away_is_left_to_the_caller(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        with pytest.raises(BrokenPipeError), atomic_file(Path(f"/dev/fd/{writing}")) as partial:
            partial.write_text("content")
    finally:
        os.close(writing)


def test_the_permissions_of_a_file_are_kept(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("old")
    (tmp_path / "x.csv").chmod(0o640)
    with atomic_file(tmp_path / "x.csv") as partial:
        partial.write_text("new")
    assert (tmp_path / "x.csv").stat().st_mode & 0o777 == 0o640


def test_a_place_below_a_file_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("1")
    for check in (check_file, write_nothing):
        with pytest.raises(InputError, match=r"x/y.csv: cannot write here \(Not a directory\)"):
            check(tmp_path / "x" / "y.csv")


def write_nothing(target: Path) -> None:
    with atomic_file(target):
        raise AssertionError("this place must be refused")


def test_a_folder_without_the_right_to_write_is_known_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(InputError, match="no permission to write to"):
        check_file(tmp_path / "deep" / "x.csv")


def test_no_errors_of_cleaning_up_hide_the_first_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def read_only(*_: Any, **__: Any) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(Path, "unlink", read_only)
    with pytest.raises(OutOfSpaceError), atomic_file(tmp_path / "x.csv"):
        raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (OSError(errno.EROFS, "a paragraph of another library"), InputError),
        (OSError(errno.ENAMETOOLONG, "File name too long"), InputError),
        (OSError("the pipe burst"), InputError),
        (OSError("960 requested and 496 written"), OutOfSpaceError),
        (OSError(errno.EFBIG, "File too large"), OutOfSpaceError),
    ],
)
def test_every_error_of_writing_is_one_line(tmp_path: Path, error: OSError, kind: type[Exception]) -> None:
    with pytest.raises(kind, match=r"x.csv: ") as caught, space_errors(tmp_path / "x.csv"):
        raise error
    assert "paragraph" not in str(caught.value)


def test_trouble_with_another_file_is_not_called_trouble_with_the_target(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), space_errors(tmp_path / "x.csv"):
        Path("/nowhere/at/all").read_text()


def test_a_copy_that_finds_the_disk_full_names_the_target(tmp_path: Path) -> None:
    there = str(tmp_path / "new" / "config.yaml")
    with pytest.raises(OutOfSpaceError, match="new: the disk is full"), space_errors(tmp_path / "new"):
        raise OSError(errno.ENOSPC, "No space left on device", "/elsewhere/config.yaml", None, there)


def graph_folder(folder: Path) -> Path:
    folder.mkdir()
    (folder / "meta.json").write_text("{}")
    return folder


def test_of_a_link_the_folder_it_points_to_is_replaced(tmp_path: Path) -> None:
    graph_folder(tmp_path / "real")
    (tmp_path / "graph").symlink_to("real")
    with atomic_folder(tmp_path / "graph", overwrite=True) as partial:
        (partial / "new").write_text("1")
    assert (tmp_path / "graph").is_symlink()
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["graph", "new", "real"]


@pytest.mark.parametrize("name", [".", "..", "/"])
def test_the_current_folder_and_those_that_hold_it_are_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    with pytest.raises(InputError, match="is the current folder or contains it"):
        check_target(Path(name), overwrite=True)
    assert [path.name for path in tmp_path.rglob("*")] == ["here"]


def test_the_current_folder_may_be_written_into(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    check_target(Path(), overwrite=False, in_place=True)


def test_a_mount_point_is_not_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os.path, "ismount", lambda _: True)
    with pytest.raises(InputError, match="is a mount point"):
        check_target(tmp_path, overwrite=False)


def test_an_old_folder_that_is_hard_to_remove_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph_folder(tmp_path / "graph")
    remove, failures = shutil.rmtree, iter([True])

    def fails_once(path: Path, ignore_errors: bool = False) -> None:
        if not next(failures, False):
            remove(path, ignore_errors=ignore_errors)
        elif not ignore_errors:
            raise OSError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(shutil, "rmtree", fails_once)
    with atomic_folder(tmp_path / "graph", overwrite=True) as partial:
        (partial / "new").write_text("1")
    assert [path.name for path in tmp_path.rglob("*")] == ["graph", "new"]


def test_an_old_folder_that_a_killed_process_left_goes_only_where_a_new_one_is(tmp_path: Path) -> None:
    left = graph_folder(tmp_path / f".graph.old-{socket.gethostname()}-999999999")
    with atomic_folder(tmp_path / "graph") as partial:
        (partial / "meta.json").write_text("{}")
    assert left.exists()
    with atomic_folder(tmp_path / "graph", overwrite=True):
        pass
    assert not left.exists()


def test_numbers_of_numpy_are_written_as_numbers(tmp_path: Path) -> None:
    write_json(tmp_path / "x.json", {"a": np.int64(1), "b": np.float32(0.5)})
    assert read_json(tmp_path / "x.json") == {"a": 1, "b": 0.5}
    with pytest.raises(TypeError, match="a set cannot be written as JSON"):
        write_json(tmp_path / "y.json", {1})
