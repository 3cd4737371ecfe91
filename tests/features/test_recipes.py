from __future__ import annotations

from pathlib import Path

import numpy as np

from chronospike.config import Settings
from chronospike.data.feature_store import write_features
from chronospike.data.storage import graph_key
from chronospike.features.deepwalk import DeepWalk
from chronospike.features.fastrp import FastRP
from chronospike.features.recipes import Maker, ensure_features, recipe
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
