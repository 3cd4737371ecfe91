"""Locking: a lock file next to what is written, held with the kernel's flock.

The kernel drops the lock when its process ends, however it ends, so a file left by a killed process is no obstacle.
The file says which process holds it. It is removed while the lock is still held: a process that waits for it finds
that its file is gone and starts over with a new one (filelock looks for that after each try).
"""

from __future__ import annotations

import errno
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path

from filelock import FileLock, Timeout

from chronospike.errors import InputError
from chronospike.files import LOCK, space_errors

Tell = Callable[[str], None]

_POLL_SECONDS = 0.1
# What flock answers on a file system that has none, such as some NFS mounts.
_NO_LOCKS = {errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK, errno.EINVAL}
_READ_ONLY = {errno.EACCES, errno.EPERM, errno.EROFS}
# Of a folder that a process which gives up removes while another makes its lock in it, and of reading who holds a lock.
_TRIES = 20
_SIGN_SECONDS = 0.05


@contextmanager
def wait_for(file: Path, activity: str, tell: Tell | None = None) -> Iterator[None]:
    """Hold the lock `file`; wait while another process does, which is busy with `activity`.

    Where nothing can be written, there is nothing to lock and the block runs without.

    Args:
        tell: called with a line before waiting, and where there are no locks.
    """

    def wait(holder: str) -> None:
        if tell is not None:
            tell(f"waiting for {holder}, which is {activity}")

    def go_on(error: OSError) -> None:
        if tell is not None and error.errno not in _READ_ONLY:
            tell(_no_lock(file, error))

    with _held(file, wait, go_on):
        yield


@contextmanager
def claim(folder: Path, *, make: bool = True, tell: Tell | None = None) -> Iterator[None]:
    """Be the only one to write into `folder`, or refuse.

    Args:
        make: create a folder that is not there; it is removed again if it is left empty.
        tell: called with a line where there are no locks.

    Raises:
        InputError: another process has claimed it, or it cannot be written.
    """

    def refuse(holder: str) -> None:
        raise InputError(f"{folder} is in use by {holder}. Wait for it or choose another folder")

    def go_on(error: OSError) -> None:
        if error.errno not in _NO_LOCKS:
            with space_errors(folder):
                raise error
        if tell is not None:
            tell(_no_lock(folder, error))

    if folder.is_dir() or (make and not folder.exists()):
        with _held(folder / LOCK, refuse, go_on):
            yield
    else:
        yield


@contextmanager
def _held(file: Path, on_busy: Callable[[str], None], on_error: Callable[[OSError], None]) -> Iterator[None]:
    """Hold `file` if it can be: `on_busy` hears who has it before the wait, `on_error` why there is no lock."""
    file = file.absolute()
    made = [folder for folder in file.parents if not folder.exists()]
    lock = FileLock(file, poll_interval=_POLL_SECONDS, fallback_to_soft=False, on_acquired=_sign)
    try:
        try:
            _acquire(lock, file, on_busy)
        except OSError as error:
            if error.errno in _NO_LOCKS:
                file.unlink(missing_ok=True)
            on_error(error)
        yield
    finally:
        if lock.is_locked:
            with suppress(OSError):
                file.unlink()
            lock.release()
        for folder in made:
            with suppress(OSError):
                folder.rmdir()


def _acquire(lock: FileLock, file: Path, on_busy: Callable[[str], None]) -> None:
    for left in reversed(range(_TRIES)):
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            try:
                lock.acquire(blocking=False)
            except Timeout:
                on_busy(_holder(file))
                lock.acquire()
            return
        except FileNotFoundError:
            if not left:
                raise


def _sign(descriptor: int) -> None:
    """Write into the lock file whose it is."""
    since = datetime.now().isoformat(sep=" ", timespec="seconds")
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"{os.getpid()} {socket.gethostname()} {since}\n".encode(), 0)


def _holder(file: Path) -> str:
    """The process that a lock file names, such as `process 1234 (since 2026-01-31 12:00:00)`."""
    for _ in range(_TRIES):
        try:
            process, host, since = file.read_text(encoding="utf-8").strip().split(" ", 2)
            int(process)
            break
        except (OSError, ValueError):
            # It was taken a moment ago, and is about to be signed.
            time.sleep(_SIGN_SECONDS)
    else:
        return "another process"
    elsewhere = "" if host == socket.gethostname() else f" on {host}"
    return f"process {process}{elsewhere} (since {since})"


def _no_lock(path: Path, error: OSError) -> str:
    return f"{path} cannot be locked here ({error.strerror}): make sure no other program writes to it"
