from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from chronospike.config import Settings
from chronospike.data.feature_store import write_features
from chronospike.data.storage import graph_key
from chronospike.errors import InputError
from chronospike.features.deepwalk import DeepWalk, Start
from chronospike.features.fastrp import FastRP
from chronospike.features.recipes import Maker, carry_on, ensure_features, named_parts, recipe
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


def make_zeros(made: list[str]) -> Maker:
    """A maker that writes zeros and remembers what it was asked for."""

    def make(folder: Path, name: str, options: DeepWalk | FastRP) -> None:
        made.append(name)
        write_features(folder, name, {}, graph_key(folder), (5, 120, 2), np.float32, lambda _: np.zeros((120, 2)))

    return make


def test_features_are_made_once_and_then_found(tmp_path: Path) -> None:
    folder = saved_graph(tmp_path / "g", features=None)
    made: list[str] = []
    settings = Settings(feature_method="fastrp")
    for _ in range(2):
        assert ensure_features(folder, settings, make_zeros(made)) == "fastrp-128-s0"
    assert made == ["fastrp-128-s0"]
    ensure_features(folder, settings.change(feature_seed=1), make_zeros(made))
    assert made == ["fastrp-128-s0", "fastrp-128-s1"]


def test_features_of_the_graph_itself_go_first(tmp_path: Path) -> None:
    made: list[str] = []
    folder = saved_graph(tmp_path / "g")
    assert ensure_features(folder, Settings(), make_zeros(made)) == "own"
    assert made == []


def test_a_set_that_is_named_is_taken_whatever_else_there_is(tmp_path: Path) -> None:
    made: list[str] = []
    folder = saved_graph(tmp_path / "g")
    assert ensure_features(folder, Settings(features="mine"), make_zeros(made)) == "mine"
    assert made == []


@pytest.mark.parametrize(
    ("features", "has_own", "sets", "parts"),
    [
        ("auto", True, [], ["own"]),
        ("auto", False, [], ["fastrp-128-s0"]),
        ("own+deepwalk", True, [], ["own", "deepwalk-128-w10-n1-s0"]),
        ("own + fastrp", True, ["fastrp"], ["own", "fastrp"]),
        ("mine+yours", False, ["mine", "yours"], ["mine", "yours"]),
    ],
)
def test_what_the_setting_stands_for(features: str, has_own: bool, sets: list[str], parts: list[str]) -> None:
    assert named_parts(Settings(features=features, feature_method="fastrp"), has_own, sets) == parts


@pytest.mark.parametrize("features", ["own+", "+", "own+own", ""])
def test_a_sum_of_features_that_makes_no_sense_is_refused(features: str) -> None:
    with pytest.raises(InputError, match="give names joined with '\\+'"):
        named_parts(Settings(features=features), True, [])


def test_features_are_carried_on_from_the_graph_of_the_training(tmp_path: Path) -> None:
    source, folder = (saved_graph(tmp_path / name, features=None) for name in ("source", "other"))
    deepwalk, fastrp = ("walks", {"method": "deepwalk", "dimension": 2, "walks": 3}), ("quick", {"method": "fastrp"})
    edges = graph_key(source)
    for name, made in (deepwalk, fastrp):
        write_features(source, name, made, edges, (5, 120, 2), np.float32, lambda t: np.full((120, 2), t + 1.0))
    asked = []

    def make(where: Path, name: str, options: DeepWalk, start: Start) -> None:
        asked.append((where, name, options, start.key, start.features.shape))

    parts = carry_on(folder, source, ["own", "walks", "quick"], edges, make)
    assert parts == ["own", f"walks-from-{edges[:8]}", "quick"]
    assert asked == [(folder, parts[1], DeepWalk(dimension=2, walks=3), edges, (5, 120, 2))]


@pytest.mark.parametrize("edges", [None, "0123456789abcdef"])
def test_features_of_a_graph_that_is_not_the_one_of_the_training_are_not_carried_on(
    tmp_path: Path, edges: str | None
) -> None:
    source = saved_graph(tmp_path / "source")
    with pytest.raises(InputError, match="not the graph of the training any more"):
        carry_on(tmp_path / "other", source, ["walks"], edges, lambda *_: None)
