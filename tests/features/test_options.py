from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from chronospike.errors import InputError
from chronospike.features.options import SVD, Activity, DeepWalk, FastRP, Start
from chronospike.threads import default_threads
from tests.growing import clique_that_grew


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dimension": 0}, "dimension is 0, and must be at least 1"),
        ({"length": 1}, "length is 1, and must be at least 2"),
        ({"threads": 0}, "threads is 0"),
        ({"learning_rate": 1e-5}, "falls from 1e-05 to 0.0001"),
        ({"unseen": "ones"}, "unseen is 'ones'"),
    ],
)
def test_bad_options_of_deepwalk_are_named(options: dict, message: str) -> None:
    with pytest.raises(InputError, match=message):
        DeepWalk(**options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dimension": 0}, "dimension is 0"),
        ({"weights": ()}, "weights are"),
        ({"weights": (0.0, 0.0)}, "not all zero"),
        ({"weights": (float("nan"),)}, "finite"),
        ({"seed": -1}, "seed is -1"),
    ],
)
def test_bad_options_of_fastrp_are_named(options: dict, message: str) -> None:
    with pytest.raises(InputError, match=message):
        FastRP(**options)


@pytest.mark.parametrize("options", [{"dimension": 0}, {"recency": -1}, {"recency": float("nan")}, {"threads": 0}])
def test_bad_options_of_svd_are_named(options: dict) -> None:
    with pytest.raises(InputError, match=f"svd: {next(iter(options))} is"):
        SVD(**options)


@pytest.mark.parametrize("options", [DeepWalk(threads=2), FastRP(threads=2), SVD(threads=2)])
def test_threads_are_no_part_of_the_recipe(options: DeepWalk | FastRP | SVD) -> None:
    assert "threads" not in options.recipe()
    assert json.loads(json.dumps(options.recipe()))["dimension"] == 128


def test_deepwalk_depends_on_the_threads_and_on_the_device() -> None:
    assert DeepWalk(threads=1).place("cpu") == "cpu1"
    assert DeepWalk(threads=3).place("cpu") == "cpu3"
    assert DeepWalk().place("cpu") == f"cpu{default_threads()}"
    assert {DeepWalk(threads=1).place("cuda"), DeepWalk().place("cuda:1")} == {"gpu"}


def test_svd_is_made_on_the_cpu_and_depends_on_the_threads() -> None:
    assert SVD(threads=3).place("cpu") == SVD(threads=3).place("cuda") == "cpu3"


def test_fastrp_and_activity_are_the_same_everywhere() -> None:
    assert FastRP(threads=3).place("cpu") == FastRP().place("cuda") == Activity().place("cpu") == ""


def test_features_of_another_graph_are_found_by_id_and_those_of_new_nodes_are_not_there() -> None:
    old, new = clique_that_grew()
    features = np.arange(len(old.ids) * 8, dtype=np.float32).reshape(1, -1, 8)
    known, rows = Start(old, features, "k").rows(new, 1)
    assert [new.ids[int(v)] for v in np.flatnonzero(known)] == list(old.ids)
    np.testing.assert_array_equal(rows, features[0])


@pytest.mark.parametrize(
    ("method", "options", "message"),
    [
        (DeepWalk, {"walks": 2.5}, "deepwalk: walks is 2.5, and must be a whole number"),
        (DeepWalk, {"seed": None}, "deepwalk: seed is None, and must be a whole number"),
        (DeepWalk, {"learning_rate": "x"}, "deepwalk: learning_rate is 'x', and must be a number"),
        (SVD, {"dimension": "4"}, "svd: dimension is '4', and must be a whole number"),
        (FastRP, {"weights": 1.0}, "fastrp: weights are 1.0, and must be numbers"),
    ],
)
def test_an_option_of_another_type_is_named(method: Any, options: dict, message: str) -> None:
    with pytest.raises(InputError, match=message):
        method(**options)


def test_numbers_of_numpy_are_pythons_own_in_a_recipe() -> None:
    given = DeepWalk(np.int64(4), learning_rate=np.float32(0.5), seed=np.uint8(3))  # type: ignore[arg-type]
    assert json.dumps(given.recipe()) == json.dumps(DeepWalk(4, learning_rate=0.5, seed=3).recipe())
    assert FastRP(weights=np.array([0, 1])) == FastRP(weights=(0.0, 1.0))  # type: ignore[arg-type]
