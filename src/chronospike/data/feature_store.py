"""Feature sets on disk: `[T, N, d]` beside the graph they were made for, written one step at a time.

features/NAME/values.npy      the array, opened by memory map
features/NAME/meta.json       recipe, graph, shape, a checksum and the seconds of each step
features/NAME.partial/        the same while it is being made: what is finished survives an interruption
features/.NAME.lock           who is making it; another process that wants it waits
"""

from __future__ import annotations

import errno
import json
import math
import os
import shlex
import shutil
import time
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import DTypeLike, NDArray

from chronospike._version import __version__
from chronospike.data.meta import FeaturesMeta, check_meta
from chronospike.errors import InputError, OutOfSpaceError, StorageError, nearest
from chronospike.files import BAD_ARRAY, read_json, require_readable, space_errors, swap, write_json
from chronospike.locks import Tell, wait_for
from chronospike.threads import run_chunks

FORMAT = "chronospike-features"
VERSION = 1
VALUES = "values.npy"
META = "meta.json"
# Larger sets are only checked for size on opening, unless asked.
_VERIFY_BYTES = 2 * 1024**3
# File systems allow 255 bytes; names of temporary files are made of it.
_LONGEST_NAME = 200
_NO_FALLOCATE = {errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS}

# The method of the embeddings of another run.
RUN = "run"

Shape = tuple[int, int, int]


class StepMaker(Protocol):
    """Makes the features of one step after another; its state, if it has any, survives an interruption."""

    def make_step(self, step: int) -> NDArray[Any]:
        """`[N, d]` features of `step`."""

    def save_state(self) -> dict[str, NDArray[Any]]:
        """What the next step needs of those before it: nothing where the steps do not depend on each other."""
        return {}

    def load_state(self, state: dict[str, NDArray[Any]]) -> None:
        """The inverse of `save_state`."""
        return


@dataclass(frozen=True)
class FeatureSet:
    """One feature set of a graph folder, as its meta.json describes it."""

    name: str
    path: Path
    shape: Shape
    dtype: str
    recipe: dict[str, Any]
    graph_key: str
    steps_done: int
    seconds: float

    @property
    def complete(self) -> bool:
        return self.steps_done == self.shape[0] and not self.path.name.endswith(".partial")


def write_features(
    folder: Path,
    name: str,
    recipe: dict[str, Any],
    graph_key: str,
    shape: Shape,
    dtype: DTypeLike,
    maker: StepMaker,
    overwrite: bool = False,
    tell: Tell | None = None,
) -> Path:
    """Make and store all T steps, resuming where an earlier call with the same recipe was stopped.

    While another process makes a set of that name, this one waits, then takes what is there.

    Args:
        folder: of the graph.
        recipe: everything the values depend on, ready for JSON.
        graph_key: names the graph the features are made for.
        maker: returns `[N, d]` for a step; called in order.
        overwrite: throw away an existing or unfinished set of that name.
        tell: called with a line before waiting for another process.

    Returns:
        The finished folder. A set that is there already with this recipe is left as it is.
    """
    target = _set_folder(folder, name)
    wanted = _describe(recipe, graph_key, shape, np.dtype(dtype))
    with wait_for(target.with_name(f".{name}.lock"), "making these features", tell):
        if target.exists() and not overwrite:
            _require_same(target, _read_meta(target), wanted)
        else:
            _make_set(target, wanted, maker, overwrite)
    return target


def open_features(
    folder: Path, name: str, graph_key: str | None = None, verify: bool | None = None
) -> np.memmap[Any, np.dtype[Any]]:
    """`[T, N, d]` by memory map, read only.

    Args:
        graph_key: refuse features made for another graph.
        verify: True reads every byte against its checksum, False none, None all but very large sets.
    """
    target = _set_folder(folder, name)
    if not target.is_dir():
        known = [found.name for found in list_features(folder) if found.complete]
        there = ", ".join(known) or "none"
        raise StorageError(f"{folder} has no feature set '{name}' (there: {there}).{nearest(name, known)}")
    meta = _read_meta(target)
    if graph_key is not None and meta["graph_key"] != graph_key:
        raise StorageError(
            f"{target} was made for another graph ({meta['graph_key']}, not {graph_key}). {_again(target)}"
        )
    values = _open_values(target, meta)
    if verify or (verify is None and values.nbytes <= _VERIFY_BYTES):
        _verify(target, meta, values)
    return values


def list_features(folder: Path) -> list[FeatureSet]:
    """The feature sets of a graph folder, unfinished ones included, by name."""
    found = []
    for path in sorted((Path(folder) / "features").glob(f"*/{META}")):
        try:
            meta = _read_meta(path.parent)
        except StorageError:
            # Another process has just finished it, and it has its final name now.
            if not path.exists():
                continue
            raise
        parts = {part: meta[part] for part in ("shape", "dtype", "recipe", "graph_key")}
        name, done = path.parent.name.removesuffix(".partial"), len(meta["checksums"])
        found.append(FeatureSet(name, path.parent, steps_done=done, seconds=math.fsum(meta["seconds"]), **parts))
    return found


def _make_set(target: Path, wanted: dict[str, Any], maker: StepMaker, overwrite: bool) -> None:
    """Make what is missing of `wanted`, then put it in the place of `target`."""
    partial = target.with_name(f"{target.name}.partial")
    if overwrite:
        shutil.rmtree(partial, ignore_errors=True)
    is_new = not (partial / META).is_file()
    try:
        with space_errors(target):
            if is_new:
                _begin(partial, wanted)
            meta = _read_meta(partial)
            _require_same(partial, meta, wanted)
            _finish_steps(partial, meta, maker)
            _drop_states(partial, None)
            swap(partial, target)
    except OutOfSpaceError as error:
        if is_new:
            shutil.rmtree(partial, ignore_errors=True)
            raise
        raise OutOfSpaceError(
            f"{target}: the disk is full. The steps finished earlier are kept; "
            "free some space and run the same command again"
        ) from error


def _set_folder(folder: Path, name: str) -> Path:
    if (
        not 0 < len(os.fsencode(name)) <= _LONGEST_NAME
        or name != Path(name).name
        or name[0] == "."
        or name.endswith(".partial")
    ):
        raise InputError(f"'{name}' cannot be the name of a feature set. Use letters, digits, - and _, at most 200")
    if name in ("own", "none", "auto") or "+" in name:
        raise InputError(f"a feature set cannot be named '{name}': own, none, auto and + are reserved")
    return Path(folder) / "features" / name


def _describe(recipe: dict[str, Any], graph_key: str, shape: Shape, dtype: np.dtype[Any]) -> dict[str, Any]:
    if dtype not in (np.float32, np.float16):
        raise InputError(f"features are stored as float32 or float16, not {dtype}")
    return {
        "format": FORMAT,
        "version": VERSION,
        "chronospike": __version__,
        # Through JSON, so that it compares equal to what is read back (a tuple becomes a list).
        "recipe": json.loads(json.dumps(recipe)),
        "graph_key": graph_key,
        "shape": [int(size) for size in shape],
        "dtype": dtype.name,
        "checksums": [],
        "seconds": [],
    }


def _require_same(folder: Path, found: dict[str, Any], wanted: dict[str, Any]) -> None:
    """The way out of a difference is to make it all again, or to use another name."""
    old, new = found["recipe"], wanted["recipe"]
    parts = [(part, found[part], wanted[part]) for part in ("graph_key", "shape", "dtype")]
    for what, there, asked in parts + [(key, old.get(key), new.get(key)) for key in sorted(old.keys() | new.keys())]:
        if there != asked:
            raise InputError(
                f"{folder} exists with {what} {there!r}, not {asked!r}. "
                "Pass --overwrite to make it again, or choose another name"
            )


def _begin(partial: Path, meta: dict[str, Any]) -> None:
    """Reserve the space for all steps at once, so that a disk that is too small is known at the start."""
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    header = {"descr": np.lib.format.dtype_to_descr(np.dtype(meta["dtype"])), "fortran_order": False}
    with (partial / VALUES).open("wb") as file:
        np.lib.format.write_array_header_1_0(file, {**header, "shape": tuple(meta["shape"])})
        file.flush()
        size = file.tell() + math.prod(meta["shape"]) * np.dtype(meta["dtype"]).itemsize
        try:
            os.posix_fallocate(file.fileno(), 0, size)
        except OSError as error:
            if error.errno not in _NO_FALLOCATE:
                raise
            os.ftruncate(file.fileno(), size)
    write_json(partial / META, meta)


def _finish_steps(partial: Path, meta: dict[str, Any], maker: StepMaker) -> None:
    steps, done = meta["shape"][0], len(meta["checksums"])
    if done:
        _verify(partial, meta, _open_values(partial, meta))
    if 0 < done < steps:
        maker.load_state({path.stem: np.load(path) for path in _state_folder(partial, done).glob("*.npy")})
    for step in range(done, steps):
        began = time.perf_counter()
        block = np.ascontiguousarray(maker.make_step(step), dtype=meta["dtype"])
        if list(block.shape) != meta["shape"][1:]:
            raise StorageError(f"step {step} has shape {list(block.shape)}, not {meta['shape'][1:]}")
        _write_block(partial / VALUES, block, step)
        _save_state(partial, step + 1, maker.save_state())
        meta["checksums"].append(_checksum(block))
        meta["seconds"].append(round(time.perf_counter() - began, 3))
        # The step counts as done from here on; what came before can be repeated.
        write_json(partial / META, meta)
        _drop_states(partial, step + 1)


def _write_block(path: Path, block: NDArray[Any], step: int) -> None:
    """Plain writes: on a full disk they raise an error, where a memory map would kill the process."""
    with path.open("r+b") as file:
        np.lib.format.read_magic(file)
        np.lib.format.read_array_header_1_0(file)
        file.seek(step * block.nbytes, os.SEEK_CUR)
        file.write(block.data)
        file.flush()
        os.fsync(file.fileno())


def _state_folder(partial: Path, done: int) -> Path:
    return partial / f"state-{done}"


def _save_state(partial: Path, done: int, state: dict[str, NDArray[Any]]) -> None:
    if state:
        folder = _state_folder(partial, done)
        folder.mkdir(exist_ok=True)
        for name, array in state.items():
            with (folder / f"{name}.npy").open("wb") as file:
                np.save(file, array)
                os.fsync(file.fileno())


def _drop_states(partial: Path, keep: int | None) -> None:
    for folder in partial.glob("state-*"):
        if keep is None or folder != _state_folder(partial, keep):
            shutil.rmtree(folder)


def _read_meta(folder: Path) -> dict[str, Any]:
    path = folder / META
    if not path.is_file():
        raise StorageError(f"{folder} has no {META}. {_again(folder)}")
    meta = read_json(path, _again(folder))
    if meta.get("format") != FORMAT:
        raise StorageError(f"{path} does not describe features of chronospike")
    if meta.get("version") != VERSION:
        raise StorageError(
            f"{folder} has features format {meta.get('version')}; this chronospike ({__version__}) reads {VERSION}. "
            "Update chronospike or make the features again"
        )
    check_meta(FeaturesMeta, meta, path, _again(folder))
    done, steps = len(meta["checksums"]), meta["shape"][0]
    if done != len(meta["seconds"]) or done > steps or (done < steps and not folder.name.endswith(".partial")):
        raise StorageError(f"{path} is damaged: its steps, checksums and seconds do not agree. {_again(folder)}")
    return meta


def _again(folder: Path) -> str:
    """The way out of a damaged set; it holds for every command that reads it."""
    return (
        f"Remove it with: rm -r {shlex.quote(str(folder))}. Training makes the features that it chose itself again; "
        "others are made again with: chronospike features"
    )


def _checksum(block: NDArray[Any]) -> int:
    return zlib.crc32(np.ascontiguousarray(block).data)


def _open_values(folder: Path, meta: dict[str, Any]) -> np.memmap[Any, np.dtype[Any]]:
    path = folder / VALUES
    require_readable(path)
    try:
        values = np.lib.format.open_memmap(path, mode="r")
    except BAD_ARRAY as error:
        raise StorageError(f"{path} is missing or cut short ({error}). {_again(folder)}") from error
    if list(values.shape) != meta["shape"] or values.dtype != np.dtype(meta["dtype"]):
        raise StorageError(
            f"{path} holds {values.dtype} {list(values.shape)}, its {META} says {meta['dtype']} {meta['shape']}. "
            f"{_again(folder)}"
        )
    return values


def _verify(folder: Path, meta: dict[str, Any], values: NDArray[Any]) -> None:
    wrong: list[int] = []

    def work(start: int, stop: int) -> None:
        wrong.extend(step for step in range(start, stop) if _checksum(values[step]) != meta["checksums"][step])

    run_chunks(work, len(meta["checksums"]))
    if wrong:
        raise StorageError(f"{folder / VALUES}: step {min(wrong)} does not match its checksum. {_again(folder)}")
