"""Writing so that a reader sees all of it or nothing: a temporary name beside the target, then a rename."""

from __future__ import annotations

import errno
import glob
import json
import os
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from chronospike.errors import InputError, OutOfSpaceError

# The lock of a folder (see chronospike.locks), which does not count as contents.
LOCK = ".chronospike.lock"
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


@contextmanager
def atomic_folder(target: Path, *, overwrite: bool = False, marker: str = "meta.json") -> Iterator[Path]:
    """Yield a new folder that becomes `target` when the block ends, and vanishes if it fails.

    An existing `target` is refused, unless it is empty, or `overwrite` is set and it holds `marker`
    (so that a folder of something else is never replaced).
    """
    check_target(target, overwrite=overwrite, marker=marker)
    made = _make_parents(target)
    _remove_abandoned(target)
    partial = _partial(target)
    try:
        with space_errors(target):
            partial.mkdir()
            yield partial
            _swap(partial, target)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        for folder in made:
            _remove_if_empty(folder)
        raise


@contextmanager
def atomic_file(target: Path) -> Iterator[Path]:
    """Yield a temporary path beside `target` that is renamed onto it when the block ends."""
    if target.is_dir():
        raise InputError(f"{target} is a folder. Choose another name for the output file")
    made = _make_parents(target)
    _remove_abandoned(target)
    partial = _partial(target)
    try:
        with space_errors(target):
            yield partial
            partial.replace(target)
    except BaseException:
        partial.unlink(missing_ok=True)
        for folder in made:
            _remove_if_empty(folder)
        raise


def write_json(target: Path, content: Any) -> None:
    """Write `content` as indented JSON, all or nothing."""
    with atomic_file(target) as partial:
        partial.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def check_target(target: Path, *, overwrite: bool, marker: str = "meta.json") -> None:
    """Refuse a target that would lose what is there; call it before long work."""
    if not target.exists() or (target.is_dir() and all(entry.name == LOCK for entry in target.iterdir())):
        return
    if not target.is_dir():
        raise InputError(f"{target} is a file. Choose another name for the output folder")
    if not overwrite:
        raise InputError(f"{target} exists. Choose another name or pass --overwrite")
    if not (target / marker).is_file():
        raise InputError(f"{target} is not a folder that chronospike wrote, so it is not overwritten")


@contextmanager
def space_errors(target: Path) -> Iterator[None]:
    """Turn 'no space left' and 'not allowed' into one line that names the target."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            free = shutil.disk_usage(_existing_parent(target)).free
            raise OutOfSpaceError(
                f"{target}: the disk is full ({free / 1e6:,.0f} MB free). Nothing was left behind; "
                "free some space or write elsewhere"
            ) from error
        if error.errno in (errno.EACCES, errno.EROFS, errno.EPERM, errno.ENOTDIR, errno.EISDIR):
            raise InputError(f"{target}: cannot write here ({error.strerror})") from error
        raise


def _swap(partial: Path, target: Path) -> None:
    if not target.exists():
        partial.rename(target)
        return
    aside = target.with_name(f".{target.name}.old-{os.getpid()}")
    target.rename(aside)
    try:
        partial.rename(target)
    except OSError:
        aside.rename(target)
        raise
    shutil.rmtree(aside)


def _make_parents(target: Path) -> list[Path]:
    """Create the missing parents and return them, innermost first."""
    missing = [folder for folder in target.absolute().parents if not folder.exists()]
    with space_errors(target):
        for folder in reversed(missing):
            folder.mkdir()
    return missing


def _partial(target: Path) -> Path:
    """A hidden name beside `target` that tells whose it is; the suffix stays, since some writers go by it."""
    return target.with_name(f".{target.name}.partial-{socket.gethostname()}-{os.getpid()}{target.suffix}")


def _remove_abandoned(target: Path) -> None:
    """What is left of earlier tries at this target whose process on this host is gone (it was killed)."""
    prefix = f".{target.name}.partial-{socket.gethostname()}-"
    for left in target.absolute().parent.glob(f"{glob.escape(prefix)}*"):
        process = left.name.removeprefix(prefix).removesuffix(target.suffix)
        if process.isdecimal() and not Path(f"/proc/{process}").exists():
            shutil.rmtree(left, ignore_errors=True) if left.is_dir() else left.unlink(missing_ok=True)


def _remove_if_empty(folder: Path) -> None:
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()


def _existing_parent(path: Path) -> Path:
    return next(folder for folder in path.absolute().parents if folder.exists())
