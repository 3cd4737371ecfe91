"""The features that a run's settings ask for, made once and found again by a name that tells the recipe."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from chronospike.config import Settings
from chronospike.data.storage import feature_sets, read_meta
from chronospike.features.deepwalk import DeepWalk
from chronospike.features.fastrp import FastRP

Maker = Callable[[Path, str, DeepWalk | FastRP], None]


def recipe(settings: Settings) -> tuple[str, DeepWalk | FastRP]:
    """The name and the options of the features that the settings describe."""
    s = settings
    if s.feature_method == "fastrp":
        return f"fastrp-{s.feature_dimension}-s{s.feature_seed}", FastRP(s.feature_dimension, seed=s.feature_seed)
    warm = "-warm" if s.feature_warm_start else ""
    name = f"deepwalk-{s.feature_dimension}-w{s.feature_walks}-n{s.feature_negatives}{warm}-s{s.feature_seed}"
    return name, DeepWalk(
        dimension=s.feature_dimension,
        walks=s.feature_walks,
        negatives=s.feature_negatives,
        warm_start=s.feature_warm_start,
        seed=s.feature_seed,
    )


def ensure_features(folder: Path, settings: Settings, make: Maker) -> str:
    """The name of the feature set to open; `make(folder, name, options)` is called if it has to be made first."""
    if settings.features != "auto":
        return settings.features
    if "features" in read_meta(folder)["arrays"]:
        return "own"
    name, options = recipe(settings)
    if name not in feature_sets(folder):
        make(folder, name, options)
    return name
