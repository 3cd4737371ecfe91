from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from chronospike.config import Settings
from chronospike.data.feature_store import list_features, open_features, write_features
from chronospike.data.storage import feature_sets, graph_key, open_graph, save_graph
from chronospike.errors import InputError
from chronospike.features.make import carry_features, ensure_features, make_features, with_features_for
from chronospike.features.options import SVD, Activity, DeepWalk, FastRP, Options, Start
from tests.features.one_step import deepwalk_step
from tests.growing import clique_that_grew
from tests.made_steps import MadeBy
from tests.six_nodes import six_nodes
from tests.small_runs import saved_graph, small_graph

SMALL = DeepWalk(dimension=8, walks=3, length=10, window=3, threads=1)


class Stop(Exception):
    pass


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("options", [replace(SMALL, warm_start=True), SVD(dimension=3, threads=1), Activity()])
def test_resumed_features_are_the_same_bits(tmp_path: Path, dtype: str, options: Options) -> None:
    one, other = (save_graph(six_nodes(), tmp_path / name) for name in ("whole", "parts"))
    whole = make_features(one, "walks", options, dtype=dtype, device="cpu").path

    def stop_in_step_2(step: int, done: int, total: int) -> None:
        if step == 2:
            raise Stop

    with pytest.raises(Stop):
        make_features(other, "walks", options, dtype=dtype, device="cpu", on_progress=stop_in_step_2)
    made: set[int] = set()
    parts = make_features(
        other, "walks", options, dtype=dtype, device="cpu", on_progress=lambda step, *_: made.add(step)
    ).path
    assert made == {2, 3}
    assert (parts / "values.npy").read_bytes() == (whole / "values.npy").read_bytes()
    assert sorted(path.name for path in parts.iterdir()) == ["meta.json", "values.npy"]


def test_cold_steps_do_not_depend_on_each_other(tmp_path: Path) -> None:
    folder = save_graph(six_nodes(), tmp_path / "g")
    make_features(folder, "walks", SMALL, device="cpu")
    assert (open_features(folder, "walks")[3] == deepwalk_step(six_nodes(), 3, SMALL)[0]).all()


@pytest.mark.parametrize(
    ("options", "total"),
    # Three passes with walks of ten from the nodes that have had a neighbour by each step: 2, 3, 4 and 5; four steps.
    [(SMALL, 3 * 10 * (2 + 3 + 4 + 5)), (FastRP(dimension=8), 4), (SVD(dimension=2), 4), (Activity(), 4)],
)
def test_progress_counts_over_all_steps_and_ends_at_the_total(tmp_path: Path, options: Options, total: int) -> None:
    calls: list[tuple[int, int, int]] = []
    make_features(
        save_graph(six_nodes(), tmp_path / "g"), "f", options, device="cpu", on_progress=lambda *now: calls.append(now)
    )
    assert calls[-1] == (3, total, total)
    assert [done for _, done, _ in calls] == sorted({done for _, done, _ in calls})


def test_what_was_made_is_described(tmp_path: Path) -> None:
    folder = save_graph(six_nodes(), tmp_path / "g")
    made = make_features(folder, "quick", FastRP(dimension=4, seed=2), dtype=np.float16)
    assert (made.name, made.path, made.dtype) == ("quick", folder / "features" / "quick", "float16")
    assert (list(made.shape), made.recipe["method"], made.recipe["seed"]) == ([4, 6, 4], "fastrp", 2)
    assert made.complete


def test_the_record_tells_where_features_began(tmp_path: Path) -> None:
    old, new = clique_that_grew()
    folder = save_graph(new, tmp_path / "g")
    start = Start(old, np.zeros((1, len(old.ids), 8), dtype=np.float32), "abc")
    make_features(folder, "f", SMALL, device="cpu", start=start)
    assert list_features(folder)[0].recipe["start"] == "abc"
    with pytest.raises(InputError, match="exists with start 'abc', not None"):
        make_features(folder, "f", SMALL, device="cpu")


class Recorder:
    """Makes zeros, and remembers what it was asked for."""

    def __init__(self) -> None:
        self.made: list[tuple[str, Options]] = []
        self.starts: list[Start | None] = []

    def __call__(self, folder: Path, name: str, options: Options, *, device: str, start: Start | None) -> None:
        self.made.append((name, options))
        self.starts.append(start)
        zeros(folder, name)


def zeros(folder: Path, name: str, **recipe: object) -> None:
    write_features(
        folder, name, recipe, graph_key(folder), (5, 120, 2), np.float32, MadeBy(lambda _: np.zeros((120, 2)))
    )


def test_features_are_made_once_and_then_found(tmp_path: Path) -> None:
    folder, make = saved_graph(tmp_path / "g", features=None), Recorder()
    settings = Settings(feature_method="fastrp")
    for _ in range(2):
        assert ensure_features(folder, settings, "cpu", make=make) == "fastrp-128-s0"
    assert make.made == [("fastrp-128-s0", FastRP())]
    ensure_features(folder, settings.change(feature_seed=1), "cpu", make=make)
    assert make.made[1:] == [("fastrp-128-s1", FastRP(seed=1))]


def test_features_of_the_graph_itself_go_first(tmp_path: Path) -> None:
    make = Recorder()
    assert ensure_features(saved_graph(tmp_path / "g"), Settings(), "cpu", make=make) == "own"
    assert make.made == []


def test_a_set_that_is_named_is_taken_whatever_else_there_is(tmp_path: Path) -> None:
    make = Recorder()
    assert ensure_features(saved_graph(tmp_path / "g"), Settings(features="mine"), "cpu", make=make) == "mine"
    assert make.made == []


def test_one_note_says_that_features_come_from_elsewhere(tmp_path: Path) -> None:
    folder, make, notes = saved_graph(tmp_path / "g", features=None), Recorder(), list[str]()
    zeros(folder, "deepwalk-128-w10-n1-s0-cpu999")
    found = ensure_features(folder, Settings(), "cuda", make=make, on_note=notes.append)
    assert (found, make.made) == ("deepwalk-128-w10-n1-s0-cpu999", [])
    assert len(notes) == 1
    assert notes[0].endswith("computed here, they would differ slightly")


def test_features_are_carried_on_from_the_graph_of_the_training(tmp_path: Path) -> None:
    source, folder = (saved_graph(tmp_path / name, features=None) for name in ("source", "other"))
    zeros(source, "walks-cpu1", method="deepwalk", dimension=2, walks=3)
    zeros(source, "quick", method="fastrp")
    zeros(source, "svd-cpu1", method="svd", dimension=2)
    key, make = graph_key(source), Recorder()
    parts = carry_features(folder, source, ["own", "walks-cpu1", "quick", "svd-cpu1"], "cuda", make=make)
    assert parts[:3] == ["own", f"walks-cpu1-from-{key[:8]}-gpu", "quick"]
    assert parts[3].startswith(f"svd-cpu1-from-{key[:8]}-cpu")
    assert make.made == [(parts[1], DeepWalk(dimension=2, walks=3)), (parts[3], SVD(dimension=2))]
    assert make.starts[0] is not None
    assert (make.starts[0].key, make.starts[0].features.shape) == (key, (5, 120, 2))


def test_features_that_were_carried_on_are_found_again_wherever_that_was(tmp_path: Path) -> None:
    source, folder = (saved_graph(tmp_path / name, features=None) for name in ("source", "other"))
    zeros(source, "walks", method="deepwalk", dimension=2)
    make = Recorder()
    first = carry_features(folder, source, ["walks"], "cuda", make=make)
    assert carry_features(folder, source, ["walks"], "cpu", make=make) == first
    assert len(make.made) == 1


def test_in_memory_and_in_a_folder_they_are_the_same_bits(tmp_path: Path) -> None:
    settings = Settings(features="fastrp", feature_dimension=8)
    folder = saved_graph(tmp_path / "g", features=None)
    opened = open_graph(folder, features=ensure_features(folder, settings, "cpu"))
    assert feature_sets(folder) == ["fastrp-8-s0"]
    (there,), (here,) = opened.made_features, with_features_for(small_graph(), settings).made_features
    np.testing.assert_array_equal(there, here)


def test_a_graph_for_a_folder_and_a_class_for_its_options_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="give its path, not the graph"):
        make_features(six_nodes(), "x", SVD())  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"options are <class .*SVD'>; give DeepWalk\(...\)"):
        make_features(saved_graph(tmp_path / "graph"), "x", SVD)  # type: ignore[arg-type]


def test_the_device_may_be_one_of_torch(tmp_path: Path) -> None:
    folder, options = saved_graph(tmp_path / "graph"), DeepWalk(dimension=2, walks=1, length=5, threads=1)
    make_features(folder, "x", options, device="cpu")
    make_features(folder, "y", options, device=torch.device("cpu"))  # type: ignore[arg-type]
    x, y = (open_features(folder, name, graph_key(folder)) for name in "xy")
    np.testing.assert_array_equal(x, y)
