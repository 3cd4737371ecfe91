from __future__ import annotations

import errno
import fcntl
import os
import re
import socket
import threading
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from chronospike import locks
from chronospike.errors import InputError, OutOfSpaceError
from chronospike.files import LOCK
from chronospike.locks import claim, wait_for
from tests.lock_holder import CLAIM, WAIT_FOR, let_go_on, started


def test_a_process_waits_for_the_one_that_holds_the_lock_and_says_so(tmp_path: Path) -> None:
    file = tmp_path / "lock"
    told: list[str] = []
    with started(WAIT_FOR, file) as other:

        def tell(line: str) -> None:
            told.append(line)
            let_go_on(other)

        with wait_for(file, "making these features", tell):
            assert other.wait(timeout=10) == 0
    assert len(told) == 1
    assert re.fullmatch(
        rf"waiting for process {other.pid} \(since \d{{4}}-\S+ \S+\), which is making these features", told[0]
    )
    assert list(tmp_path.iterdir()) == []


def test_a_killed_process_is_not_waited_for(tmp_path: Path) -> None:
    file = tmp_path / "lock"
    told: list[str] = []
    with started(WAIT_FOR, file) as other:
        other.kill()
        other.wait(timeout=10)
    assert file.exists()
    with wait_for(file, "at work", told.append):
        assert file.read_text().startswith(f"{os.getpid()} ")
    assert told == []
    assert not file.exists()


def test_a_claimed_folder_is_refused_and_the_process_named(tmp_path: Path) -> None:
    folder = tmp_path / "r"
    with (
        started(CLAIM, folder) as other,
        pytest.raises(InputError, match=rf"r is in use by process {other.pid} \(since .*\)\. Wait for it or choose"),
        claim(folder),
    ):
        pass
    assert folder.is_dir()


def test_a_folder_can_be_claimed_after_its_process_was_killed(tmp_path: Path) -> None:
    with started(CLAIM, tmp_path / "r") as other:
        other.kill()
        other.wait(timeout=10)
    with claim(tmp_path / "r"):
        assert (tmp_path / "r" / LOCK).exists()
    assert list((tmp_path / "r").iterdir()) == []


def test_folders_that_were_made_and_left_empty_are_removed(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), claim(tmp_path / "a" / "b"):
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []


def test_what_was_written_stays_without_the_lock(tmp_path: Path) -> None:
    with claim(tmp_path / "a" / "b"):
        (tmp_path / "a" / "b" / "file").touch()
    assert [path.name for path in (tmp_path / "a" / "b").iterdir()] == ["file"]


def test_an_empty_folder_of_the_user_stays(tmp_path: Path) -> None:
    with claim(tmp_path):
        pass
    assert tmp_path.is_dir()


def test_a_folder_that_is_not_there_is_made_only_when_asked(tmp_path: Path) -> None:
    with claim(tmp_path / "r", make=False):
        assert not (tmp_path / "r").exists()


def test_a_lock_whose_folder_vanishes_is_taken_in_a_new_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    acquire = FileLock.acquire
    calls = []

    def removed_first(lock: FileLock, **options: Any) -> object:
        calls.append(1)
        if len(calls) == 1:
            (tmp_path / "a").rmdir()
        return acquire(lock, **options)

    monkeypatch.setattr(FileLock, "acquire", removed_first)
    with wait_for(tmp_path / "a" / "lock", "at work"):
        assert (tmp_path / "a" / "lock").exists()


def refuse_with(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(locks, "_acquire", refuse)


def test_where_nothing_can_be_written_nobody_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refuse_with(monkeypatch, errno.EROFS)
    told: list[str] = []
    with wait_for(tmp_path / "lock", "at work", told.append):
        pass
    assert told == []


@pytest.mark.parametrize("number", [errno.EROFS, errno.ENOENT, errno.EEXIST])
def test_a_folder_that_cannot_be_written_cannot_be_claimed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    refuse_with(monkeypatch, number)
    with pytest.raises(InputError, match=r"r: cannot write here \("), claim(tmp_path / "r"):
        pass


def test_a_full_disk_is_named_when_a_folder_is_claimed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refuse_with(monkeypatch, errno.ENOSPC)
    with pytest.raises(OutOfSpaceError), claim(tmp_path / "r"):
        pass


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP])
def test_a_file_system_without_locks_gets_one_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def flock(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", flock)
    told: list[str] = []
    with claim(tmp_path / "r", tell=told.append):
        (tmp_path / "r" / "file").touch()
    with wait_for(tmp_path / "lock", "at work", told.append):
        pass
    assert [line.split(" (")[0] for line in told] == [
        f"{tmp_path / 'r'} cannot be locked here",
        f"{tmp_path / 'lock'} cannot be locked here",
    ]
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["file", "r"]


@pytest.mark.parametrize(
    ("text", "holder"),
    [
        ("", "another process"),
        ("x host 12:00", "another process"),
        ("12 elsewhere 2026-01-31 12:00:00\n", "process 12 on elsewhere (since 2026-01-31 12:00:00)"),
    ],
)
def test_a_lock_file_says_whose_it_is(tmp_path: Path, text: str, holder: str) -> None:
    (tmp_path / "lock").write_text(text)
    assert locks._holder(tmp_path / "lock") == holder


def test_a_lock_that_was_taken_a_moment_ago_is_read_again_until_it_is_signed(tmp_path: Path) -> None:
    file = tmp_path / "lock"
    file.write_text("")
    signing = threading.Timer(0.2, lambda: file.write_text(f"12 {socket.gethostname()} 2026-01-31 12:00:00\n"))
    signing.start()
    assert locks._holder(file) == "process 12 (since 2026-01-31 12:00:00)"
    signing.join()
