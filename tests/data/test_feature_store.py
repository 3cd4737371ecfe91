from __future__ import annotations

import errno
import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from chronospike import locks
from chronospike.data.feature_store import list_features, open_features, write_features
from chronospike.errors import InputError, OutOfSpaceError, StorageError
from tests.lock_holder import let_go_on, started
from tests.made_steps import MadeBy

SHAPE = (3, 4, 2)
RECIPE: dict[str, Any] = {"method": "test", "weights": (1.0, 2.0)}


def step_values(step: int) -> NDArray[Any]:
    return np.arange(8, dtype=np.float64).reshape(4, 2) + 100 * step


def write(folder: Path, make: Callable[[int], NDArray[Any]] = step_values, **options: Any) -> Path:
    arguments = {"recipe": RECIPE, "graph_key": "abc", "shape": SHAPE, "dtype": "float32", **options}
    return write_features(folder, "set", maker=MadeBy(make), **arguments)


def stopping_at(stop: int) -> Callable[[int], NDArray[Any]]:
    def make(step: int) -> NDArray[Any]:
        if step == stop:
            raise KeyboardInterrupt
        return step_values(step)

    return make


def edit_meta(folder: Path, **changes: Any) -> None:
    path = folder / "meta.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_what_was_written_comes_back(tmp_path: Path, dtype: str) -> None:
    write(tmp_path, dtype=dtype)
    values = open_features(tmp_path, "set", graph_key="abc", verify=True)
    assert isinstance(values, np.memmap)
    assert values.dtype == dtype
    assert (values == np.stack([step_values(step) for step in range(3)])).all()


def test_a_stopped_run_goes_on_where_it_was(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        write(tmp_path, stopping_at(2))
    made: list[int] = []

    def make(step: int) -> NDArray[Any]:
        made.append(step)
        return step_values(step)

    write(tmp_path, make)
    assert made == [2]
    assert open_features(tmp_path, "set")[1, 0, 0] == 100


def test_an_unfinished_set_is_listed_and_not_opened(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        write(tmp_path, stopping_at(1))
    (found,) = list_features(tmp_path)
    assert (found.name, found.steps_done, found.complete) == ("set", 1, False)
    with pytest.raises(StorageError, match="no feature set 'set'"):
        open_features(tmp_path, "set")


def test_a_finished_step_that_was_damaged_is_not_resumed(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        write(tmp_path, stopping_at(2))
    flip_byte(tmp_path / "features" / "set.partial" / "values.npy", 130)
    with pytest.raises(StorageError, match="step 0 does not match its checksum"):
        write(tmp_path)


@pytest.mark.parametrize("stop", [1, 3])
def test_another_recipe_is_refused_with_the_difference(tmp_path: Path, stop: int) -> None:
    if stop < 3:
        with pytest.raises(KeyboardInterrupt):
            write(tmp_path, stopping_at(stop))
    else:
        write(tmp_path)
    with pytest.raises(InputError, match=r"weights \[1.0, 2.0\], not \[1.0, 3.0\].*--overwrite"):
        write(tmp_path, recipe={"method": "test", "weights": (1.0, 3.0)})


def test_another_graph_is_refused(tmp_path: Path) -> None:
    write(tmp_path)
    with pytest.raises(InputError, match="graph_key 'abc', not 'xyz'"):
        write(tmp_path, graph_key="xyz")


def test_a_finished_set_is_not_made_again(tmp_path: Path) -> None:
    first = write(tmp_path)
    assert write(tmp_path, stopping_at(0)) == first


def test_overwrite_replaces_a_finished_set(tmp_path: Path) -> None:
    write(tmp_path)
    write(tmp_path, lambda step: step_values(step) + 1, overwrite=True, graph_key="xyz")
    assert open_features(tmp_path, "set", graph_key="xyz")[0, 0, 0] == 1
    assert [path.name for path in (tmp_path / "features").iterdir()] == ["set"]


def flip_byte(path: Path, offset: int) -> None:
    data = bytearray(path.read_bytes())
    data[offset] ^= 1
    path.write_bytes(data)


def test_a_flipped_byte_is_noticed(tmp_path: Path) -> None:
    flip_byte(write(tmp_path) / "values.npy", -1)
    with pytest.raises(StorageError, match="step 2 does not match its checksum"):
        open_features(tmp_path, "set")


def test_a_file_cut_short_is_noticed_without_reading_it(tmp_path: Path) -> None:
    path = write(tmp_path) / "values.npy"
    os.truncate(path, path.stat().st_size - 4)
    with pytest.raises(StorageError, match="missing or cut short"):
        open_features(tmp_path, "set", verify=False)


def test_a_newer_version_is_refused(tmp_path: Path) -> None:
    edit_meta(write(tmp_path), version=2)
    with pytest.raises(StorageError, match="features format 2; this chronospike .* reads 1"):
        open_features(tmp_path, "set")


def test_features_of_another_graph_are_refused(tmp_path: Path) -> None:
    write(tmp_path)
    with pytest.raises(StorageError, match=r"made for another graph \(abc, not xyz\)"):
        open_features(tmp_path, "set", graph_key="xyz")


def test_meta_that_contradicts_the_array_is_refused(tmp_path: Path) -> None:
    edit_meta(write(tmp_path), dtype="float16")
    with pytest.raises(StorageError, match="holds float32"):
        open_features(tmp_path, "set")


def test_a_mistyped_name_gets_the_nearest_one(tmp_path: Path) -> None:
    write(tmp_path)
    with pytest.raises(StorageError, match="Did you mean 'set'"):
        open_features(tmp_path, "sett")


@pytest.mark.parametrize("name", ["own", "none", "auto", "own+mine"])
def test_a_name_that_means_something_else_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match="a feature set cannot be named"):
        write_features(tmp_path, name, RECIPE, "abc", SHAPE, "float32", MadeBy(step_values))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["", "a/b", "..", "x.partial", ".hidden", "x" * 300, "\udcff" * 201])
def test_a_name_that_is_no_folder_name_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match="cannot be the name"):
        open_features(tmp_path, name)


def test_a_full_disk_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(OutOfSpaceError, match="the disk is full"):
        write(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_fills_up_later_keeps_the_finished_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(KeyboardInterrupt):
        write(tmp_path, stopping_at(2))

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OutOfSpaceError, match="finished earlier are kept"):
            write(tmp_path)
    write(tmp_path)
    assert open_features(tmp_path, "set")[2, 0, 0] == 200


def test_a_file_system_without_reservation_still_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unsupported(*_: Any) -> None:
        raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    monkeypatch.setattr(os, "posix_fallocate", unsupported)
    write(tmp_path)
    assert open_features(tmp_path, "set", verify=True).shape == SHAPE


def test_a_step_of_the_wrong_shape_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"step 0 has shape \[4, 3\], not \[4, 2\]"):
        write(tmp_path, lambda step: np.zeros((4, 3)))


def test_other_number_types_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="float32 or float16, not float64"):
        write(tmp_path, dtype="float64")


OTHER_MAKER = """
import sys
from pathlib import Path
from tests.data.test_feature_store import step_values, write

def make(step):
    print("step", step, flush=True)
    if sys.stdin.readline() == "fail\\n":
        raise RuntimeError
    return step_values(step)

write(Path(sys.argv[1]), make)
"""


def write_beside(
    other: subprocess.Popen[str], folder: Path, once_waiting: Callable[[], None], **options: Any
) -> list[int]:
    """Write the set while `other` makes it; returns the steps that were made here."""
    made: list[int] = []
    told: list[str] = []

    def make(step: int) -> NDArray[Any]:
        made.append(step)
        return step_values(step)

    def tell(line: str) -> None:
        told.append(line)
        once_waiting()

    write(folder, make, tell=tell, **options)
    assert len(told) == 1
    assert f"waiting for process {other.pid} " in told[0]
    open_features(folder, "set", verify=True)
    assert [path.name for path in (folder / "features").iterdir()] == ["set"]
    return made


def test_a_set_that_another_process_makes_is_waited_for_and_taken(tmp_path: Path) -> None:
    with started(OTHER_MAKER, tmp_path) as other:
        assert write_beside(other, tmp_path, lambda: let_go_on(other, "\n\n")) == []
        assert other.wait(timeout=10) == 0


def test_when_the_other_process_is_killed_the_finished_steps_are_kept(tmp_path: Path) -> None:
    with started(OTHER_MAKER, tmp_path) as other:
        let_go_on(other)
        assert other.stdout is not None
        assert other.stdout.readline() == "step 1\n"
        assert write_beside(other, tmp_path, other.kill) == [1, 2]


def test_when_the_other_process_fails_the_set_is_made_here(tmp_path: Path) -> None:
    with started(OTHER_MAKER, tmp_path) as other:
        assert write_beside(other, tmp_path, lambda: let_go_on(other, "fail")) == [0, 1, 2]


def test_overwriting_waits_for_the_other_process_and_makes_all_steps_again(tmp_path: Path) -> None:
    with started(OTHER_MAKER, tmp_path) as other:
        assert write_beside(other, tmp_path, lambda: let_go_on(other, "\n\n"), overwrite=True) == [0, 1, 2]


def test_a_finished_set_is_used_where_no_lock_can_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = write(tmp_path)

    def refuse(*_: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(locks, "_acquire", refuse)
    assert write(tmp_path, stopping_at(0)) == target


def test_a_set_that_is_finished_while_sets_are_listed_is_no_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path)
    gone = tmp_path / "features" / "other.partial" / "meta.json"
    monkeypatch.setattr(Path, "glob", lambda *_: [gone, tmp_path / "features" / "set" / "meta.json"])
    assert [found.name for found in list_features(tmp_path)] == ["set"]
