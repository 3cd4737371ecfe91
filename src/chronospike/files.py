"""Atomic writes: a temporary name next to the target, then a rename."""

from __future__ import annotations

import errno
import glob
import json
import os
import re
import shutil
import socket
import stat
import tempfile
import tokenize
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from chronospike.errors import InputError, OutOfSpaceError, StorageError
from chronospike.streams import copy_to_stream, is_stream

# The lock of a folder (see chronospike.locks), which does not count as contents.
LOCK = ".chronospike.lock"
# What numpy raises at a .npy file that is damaged, by where its header is.
BAD_ARRAY = (ValueError, OSError, EOFError, OverflowError, TypeError, SyntaxError, tokenize.TokenError)
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


@contextmanager
def atomic_folder(target: Path, *, overwrite: bool = False, marker: str = "meta.json") -> Iterator[Path]:
    """Yield a new folder that becomes `target` when the block ends, and vanishes if it fails.

    An existing `target` is refused, unless it is empty, or `overwrite` is set and it holds `marker`
    (so that a folder of something else is never replaced). Of a link, the folder it points to is replaced.
    """
    check_target(target, overwrite=overwrite, marker=marker)
    with _partial_of(target) as (partial, place):
        partial.mkdir()
        yield partial
        # Another process may have written there in the meantime.
        check_target(target, overwrite=overwrite, marker=marker)
        swap(partial, place)


@contextmanager
def atomic_file(target: Path) -> Iterator[Path]:
    """Yield a temporary path whose content becomes that of `target` when the block ends, and vanishes if it fails.

    Of a link, the file it points to is replaced. What is no regular file (a pipe, a device, `/dev/stdout`) is
    written to, never replaced.
    """
    check_file(target)
    if is_stream(target):
        with tempfile.TemporaryDirectory(prefix="chronospike-", ignore_cleanup_errors=True) as folder:
            partial = Path(folder) / f"content{target.suffix}"
            with space_errors(partial):
                yield partial
            with space_errors(target):
                copy_to_stream(partial, target)
        return
    with _partial_of(target) as (partial, place):
        yield partial
        if place.exists():
            _keep_permissions(place, partial)
        partial.replace(place)


def write_json(target: Path, content: Any) -> None:
    """Write `content` as indented JSON, all or nothing."""
    with atomic_file(target) as partial:
        partial.write_text(json.dumps(content, indent=2, ensure_ascii=False, default=_plain) + "\n", encoding="utf-8")


def _plain(value: Any) -> Any:
    """A number of numpy as Python's own."""
    if not hasattr(value, "item"):
        raise TypeError(f"a {type(value).__name__} cannot be written as JSON")
    return value.item()


def read_json(path: Path, way_out: str = "Train the model again") -> dict[str, Any]:
    """The object in a JSON file of ours; `way_out` says what to do where there is none."""
    require_readable(path)
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise StorageError(f"{path} is missing. {way_out}") from error
    except (ValueError, RecursionError) as error:
        raise StorageError(f"{path} cannot be read as JSON ({error}). {way_out}") from error
    if not isinstance(content, dict):
        raise StorageError(f"{path} does not hold an object. {way_out}")
    return content


def require_readable(path: Path) -> None:
    """Refuse a file that is there and cannot be opened, or not now: it is not damaged, and must not be thrown away.

    Libraries that read files do not always tell the one from the other.
    """
    try:
        path.open("rb").close()
    except FileNotFoundError:
        return
    except OSError as error:
        raise StorageError(f"{path} cannot be read ({error.strerror})") from error


def check_target(target: Path, *, overwrite: bool, marker: str = "meta.json", in_place: bool = False) -> None:
    """Refuse a target that would lose what is there, or cannot be replaced; call it before long work.

    Args:
        in_place: the folder itself stays and is written into, so that it may be the current one.
    """
    with space_errors(target):
        if not target.exists():
            return
        if not target.is_dir():
            raise InputError(f"{target} is a file. Choose another name for the output folder")
        if not in_place:
            _check_replaceable(target)
        if all(entry.name == LOCK for entry in target.iterdir()):
            return
        if not overwrite:
            raise InputError(f"{target} exists. Choose another name or pass --overwrite")
        if not (target / marker).is_file():
            raise InputError(f"{target} holds something else, so it is not overwritten. Choose another folder")


def check_file(target: Path) -> None:
    """Refuse a file that cannot be written, as far as that can be known before; call it before long work."""
    with space_errors(target):
        if target.is_dir():
            raise InputError(f"{target} is a folder. Choose another name for the output file")
        if is_stream(target):
            return
        place = _real(target)
        if place.is_symlink():
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        parent = _existing_parent(place)
        if not parent.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        if not os.access(parent, os.W_OK | os.X_OK):
            raise InputError(f"{target}: cannot write here (no permission to write to {parent})")


@contextmanager
def space_errors(target: Path) -> Iterator[None]:
    """Turn 'no space left', 'not allowed' and their like into one line that names the target."""
    try:
        yield
    except OSError as error:
        # A reader that went away (`| head`) is for the command line to judge; another file's trouble is not ours.
        if isinstance(error, BrokenPipeError) or not _concerns(target, error):
            raise
        if error.errno in _FULL or (error.errno is None and re.search(r"requested and \d+ written", str(error))):
            free = shutil.disk_usage(_existing_parent(target)).free
            raise OutOfSpaceError(
                f"{target}: the disk is full ({free / 1e6:,.0f} MB free). Nothing half-written was left behind; "
                "free some space or write elsewhere"
            ) from error
        # Not error.strerror, which some libraries fill with a paragraph.
        reason = str(error) if error.errno is None else os.strerror(error.errno)
        raise InputError(f"{target}: cannot write here ({reason})") from error


def _concerns(target: Path, error: OSError) -> bool:
    """Whether the error is about `target` or something beside or below it, as far as it tells."""
    # A copy that fails names both files.
    named = [name for name in (error.filename, error.filename2) if isinstance(name, (str, os.PathLike))]
    folder = _real(target).parent
    found = [_real(Path(name)) for name in named]
    return not found or any(there.is_relative_to(folder) or folder.is_relative_to(there) for there in found)


@contextmanager
def _partial_of(target: Path) -> Iterator[tuple[Path, Path]]:
    """A temporary path and the place it is for, links followed; both it and new parents go if the block fails."""
    made: list[Path] = []
    with space_errors(target):
        place = _real(target)
        partial = _beside(place, "partial")
        try:
            for folder in reversed([folder for folder in place.parents if not folder.exists()]):
                folder.mkdir()
                made.append(folder)
            _remove_abandoned(place)
            yield partial, place
        except BaseException:
            _remove(partial)
            for folder in reversed(made):
                with suppress(OSError):
                    folder.rmdir()
            raise


def swap(partial: Path, place: Path) -> None:
    """Put `partial` in the place of what is there, if anything is."""
    if not place.exists():
        partial.rename(place)
        return
    _keep_permissions(place, partial)
    aside = _beside(place, "old")
    place.rename(aside)
    try:
        partial.rename(place)
    except BaseException:
        aside.rename(place)
        raise
    _remove(aside)


def _check_replaceable(target: Path) -> None:
    place = _real(target)
    if Path.cwd().resolve().is_relative_to(place):
        raise InputError(f"{target} is the current folder or contains it. Choose another name for the output folder")
    if os.path.ismount(place):
        raise InputError(f"{target} is a mount point, which cannot be replaced. Choose a folder below it")


def _keep_permissions(old: Path, new: Path) -> None:
    """Give `new` the mode of `old`, and its owner as far as that is allowed."""
    before = old.stat()
    with suppress(PermissionError):
        os.chown(new, before.st_uid, before.st_gid)
    new.chmod(stat.S_IMODE(before.st_mode))


def _real(path: Path) -> Path:
    return Path(os.path.realpath(path))


def _beside(place: Path, what: str) -> Path:
    """A hidden name beside `place` that tells whose it is; the suffix stays, since some writers go by it."""
    return place.with_name(f".{place.name}.{what}-{socket.gethostname()}-{os.getpid()}{place.suffix}")


def _remove_abandoned(place: Path) -> None:
    """What is left of earlier tries at this place whose process on this host is gone (it was killed)."""
    # An old folder set aside is the only copy as long as nothing has taken its place.
    for what in ("partial", "old") if place.exists() else ("partial",):
        prefix = f".{place.name}.{what}-{socket.gethostname()}-"
        for left in place.parent.glob(f"{glob.escape(prefix)}*"):
            process = left.name.removeprefix(prefix).removesuffix(place.suffix)
            if process.isdecimal() and not Path(f"/proc/{process}").exists():
                _remove(left)


def _remove(path: Path) -> None:
    """Remove a file or a folder of ours as far as possible, also one with folders that may not be written to."""
    with suppress(OSError):
        path.unlink(missing_ok=True)
    shutil.rmtree(path, ignore_errors=True)
    if path.is_dir():
        for folder, _, _ in os.walk(path):
            with suppress(OSError):
                Path(folder).chmod(stat.S_IRWXU)
        shutil.rmtree(path, ignore_errors=True)


def _existing_parent(path: Path) -> Path:
    return next(folder for folder in path.absolute().parents if folder.exists())
