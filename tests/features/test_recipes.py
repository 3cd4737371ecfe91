from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from chronospike.config import Settings
from chronospike.data.feature_store import write_features
from chronospike.data.storage import graph_key
from chronospike.errors import InputError
from chronospike.features.options import SVD, Activity, DeepWalk, FastRP
from chronospike.features.recipes import (
    Part,
    check_source,
    check_transfer,
    named_parts,
    plan_features,
    recipe,
    with_place,
    without_place,
)
from tests.made_steps import MadeBy
from tests.small_runs import saved_graph


def test_the_papers_features_are_deepwalk_with_its_defaults() -> None:
    assert recipe(Settings()) == ("deepwalk-128-w10-n1-s0", DeepWalk())


def test_every_option_of_the_settings_is_in_the_recipe_and_in_its_name() -> None:
    found = recipe(
        Settings(feature_dimension=64, feature_walks=20, feature_negatives=5, feature_warm_start=True, feature_seed=7)
    )
    options = DeepWalk(dimension=64, walks=20, negatives=5, warm_start=True, seed=7)
    assert found == ("deepwalk-64-w20-n5-warm-s7", options)


def test_fastrp_is_a_choice_with_the_methods_own_defaults() -> None:
    found = recipe(Settings(feature_method="fastrp", feature_dimension=32, feature_seed=2))
    assert found == ("fastrp-32-s2", FastRP(dimension=32, seed=2))


def test_svd_and_activity_are_choices() -> None:
    assert recipe(Settings(feature_method="svd", feature_dimension=32)) == ("svd-32-s0", SVD(dimension=32))
    assert recipe(Settings(feature_method="activity")) == ("activity-9", Activity())


@pytest.mark.parametrize(
    ("features", "has_own", "sets", "parts"),
    [
        ("auto", True, [], ["own"]),
        ("auto", False, [], ["fastrp-128-s0"]),
        ("own+deepwalk", True, [], ["own", "deepwalk-128-w10-n1-s0"]),
        ("own + fastrp", True, ["fastrp"], ["own", "fastrp"]),
        ("own+deepwalk", True, ["deepwalk-cpu4"], ["own", "deepwalk"]),
        ("deepwalk+activity", False, [], ["deepwalk-128-w10-n1-s0", "activity-9"]),
        ("svd+activity", False, ["activity"], ["svd-128-s0", "activity"]),
        ("mine+yours", False, ["mine", "yours"], ["mine", "yours"]),
    ],
)
def test_what_the_setting_stands_for(features: str, has_own: bool, sets: list[str], parts: list[str]) -> None:
    assert named_parts(Settings(features=features, feature_method="fastrp"), has_own, sets) == parts


@pytest.mark.parametrize("features", ["own+", "+", "own+own", ""])
def test_a_sum_of_features_that_makes_no_sense_is_refused(features: str) -> None:
    with pytest.raises(InputError, match="give names joined with '\\+'"):
        named_parts(Settings(features=features), True, [])


DEEPWALK = "deepwalk-128-w10-n1-s0"


def with_sets(folder: Path, *names: str, key: str | None = None) -> Path:
    """A graph folder with feature sets of these names."""
    saved_graph(folder, features=None)
    for name in names:
        write_features(
            folder, name, {}, key or graph_key(folder), (5, 120, 2), np.float32, MadeBy(lambda _: np.zeros((120, 2)))
        )
    return folder


def test_the_name_tells_the_place_where_it_matters() -> None:
    assert with_place("walks", DeepWalk(threads=1), "cpu") == "walks-cpu1"
    assert with_place("walks", DeepWalk(), "cuda:1") == "walks-gpu"
    assert with_place("quick", FastRP(), "cpu") == "quick"


@pytest.mark.parametrize("name", ["walks", "walks-cpu1", "walks-cpu16", "walks-gpu"])
def test_the_place_can_be_taken_off_a_name(name: str) -> None:
    assert without_place(name) == "walks"
    assert without_place(f"{name}-from-0123") == f"{name}-from-0123"


@pytest.mark.parametrize(
    ("there", "name"),
    [
        ([f"{DEEPWALK}-cpu999", f"{DEEPWALK}-gpu", DEEPWALK], f"{DEEPWALK}-gpu"),
        ([f"{DEEPWALK}-cpu999"], f"{DEEPWALK}-cpu999"),
        ([DEEPWALK], DEEPWALK),
    ],
)
def test_a_set_made_here_goes_before_one_made_elsewhere(tmp_path: Path, there: list[str], name: str) -> None:
    (part,) = plan_features(with_sets(tmp_path / "g", *there), Settings(), "cuda")
    assert (part.name, part.options) == (name, None)
    assert (part.note is None) == (name == f"{DEEPWALK}-gpu")


@pytest.mark.parametrize("there", [[], ["deepwalk-64-w10-n1-s0-cpu1"], [f"{DEEPWALK}-from-0123-gpu"]])
def test_what_is_not_there_is_to_be_made_here(tmp_path: Path, there: list[str]) -> None:
    (part,) = plan_features(with_sets(tmp_path / "g", *there), Settings(), "cuda")
    assert part == Part(f"{DEEPWALK}-gpu", DeepWalk())


def test_a_set_of_another_graph_is_not_taken_instead(tmp_path: Path) -> None:
    folder = with_sets(tmp_path / "g", f"{DEEPWALK}-cpu999", key="another")
    assert plan_features(folder, Settings(), "cuda") == [Part(f"{DEEPWALK}-gpu", DeepWalk())]


@pytest.mark.parametrize("recorded", [DEEPWALK, f"{DEEPWALK}-cpu999"])
def test_a_run_reads_what_it_read_before(tmp_path: Path, recorded: str) -> None:
    folder = with_sets(tmp_path / "g", DEEPWALK, f"{DEEPWALK}-cpu999", f"{DEEPWALK}-gpu")
    assert plan_features(folder, Settings(), "cuda", ["own", recorded]) == [Part("own"), Part(recorded)]


def test_what_a_run_has_read_is_made_again_on_another_graph_under_the_name_of_this_place(tmp_path: Path) -> None:
    folder = with_sets(tmp_path / "g")
    assert plan_features(folder, Settings(), "cuda", [f"{DEEPWALK}-cpu2"]) == [Part(f"{DEEPWALK}-gpu", DeepWalk())]


@pytest.mark.parametrize("there", ["deepwalk", "deepwalk-cpu999"])
def test_a_method_stands_for_the_set_that_its_command_makes(tmp_path: Path, there: str) -> None:
    folder = with_sets(tmp_path / "g", there, DEEPWALK)
    assert plan_features(folder, Settings(features="deepwalk"), "cuda") == [Part(there)]


@pytest.mark.parametrize("method", ["deepwalk", "svd"])
def test_features_that_lie_in_another_space_on_another_graph_are_refused_there(method: str) -> None:
    check_transfer([method], "one", "one", 0)
    check_transfer(["fastrp", "activity"], "one", "other", 3)
    with pytest.raises(InputError, match="those of another graph are in a different embedding space"):
        check_transfer([method, "activity"], "one", "other", 3)


@pytest.mark.parametrize("edges", [None, "0123456789abcdef"])
def test_features_of_a_graph_that_is_not_the_one_of_the_training_are_not_carried_on(
    tmp_path: Path, edges: str | None
) -> None:
    with pytest.raises(InputError, match="has changed since the training or does not exist"):
        check_source(saved_graph(tmp_path / "source"), edges)


def test_features_of_the_graph_of_the_training_may_be_carried_on(tmp_path: Path) -> None:
    source = saved_graph(tmp_path / "source")
    check_source(source, graph_key(source))
