"""Standard input and output, pipes and devices: read once, written to, never replaced."""

from __future__ import annotations

import atexit
import os
import re
import select
import shutil
import stat
import sys
import tempfile
from pathlib import Path

STDIN, STDOUT = Path("/dev/stdin"), Path("/dev/stdout")
_STANDARD = {STDIN: 0, STDOUT: 1, Path("/dev/stderr"): 2}
_NAMES = {0: "standard input", 1: "standard output", 2: "standard error"}
_BLOCK_BYTES = 1 << 20
_MOST_LINKS = 40


def descriptor_of(path: Path) -> int | None:
    """The descriptor of this process that `path` names (`/dev/stdout`, `/dev/fd/63`, a link to one); None if none."""
    own = {os.path.realpath(folder) for folder in ("/dev/fd", "/proc/self/fd", "/proc/thread-self/fd")}
    for _ in range(_MOST_LINKS):
        folder = os.path.realpath(path.parent)
        path = Path(folder) / path.name
        if path in _STANDARD:
            return _STANDARD[path]
        if folder in own and re.fullmatch("[0-9]{1,9}", path.name):
            return int(path.name)
        if not path.is_symlink():
            return None
        path = Path(folder) / path.readlink()
    return None


def is_stream(path: Path) -> bool:
    """Whether `path` is an open descriptor, a pipe, a device or a socket."""
    if descriptor_of(path) is not None:
        return True
    try:
        mode = path.stat().st_mode
    except OSError:
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def stream_name(path: Path) -> str:
    """What messages call it."""
    number = descriptor_of(path)
    return path.name if number is None else _NAMES.get(number, f"descriptor {number}")


def copy_from_stream(path: Path) -> Path:
    """All that a stream holds as a temporary file, which has the stream's name and goes when the process ends."""
    folder = Path(tempfile.mkdtemp(prefix="chronospike-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    copy = folder / stream_name(path)
    try:
        with open(_open(path, os.O_RDONLY), "rb") as stream, copy.open("wb") as file:
            shutil.copyfileobj(stream, file, _BLOCK_BYTES)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return copy


def copy_to_stream(content: Path, path: Path) -> None:
    """Write the bytes of a file to a stream, after what was written to it before."""
    descriptor = _open(path, os.O_WRONLY)
    try:
        with content.open("rb") as file:
            while block := file.read(_BLOCK_BYTES):
                _write_all(descriptor, block)
    finally:
        os.close(descriptor)


def _open(path: Path, flags: int) -> int:
    number = descriptor_of(path)
    if number is None:
        return os.open(path, flags | os.O_NOCTTY)
    standard = (sys.__stdin__, sys.__stdout__, sys.__stderr__)
    if number < len(standard) and standard[number] is None:
        # It was closed when the process began, and the number may since have gone to a file of ours.
        number = -1
    # Not by its name: opening a file again would begin at its first byte, over what is there.
    return os.dup(number)


def _write_all(descriptor: int, block: bytes) -> None:
    rest = memoryview(block)
    while rest:
        try:
            rest = rest[os.write(descriptor, rest) :]
        except BlockingIOError:
            select.select([], [descriptor], [])
