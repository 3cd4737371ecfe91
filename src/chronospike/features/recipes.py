"""The features that a run's settings ask for: own attributes, feature sets by name, and sets made by a recipe.

The setting `features` names them, joined with `+`: `own+deepwalk`. A recipe is made once, and found again by a name
that tells its options.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from chronospike.config import Settings
from chronospike.data.feature_store import list_features, open_features
from chronospike.data.graph import DynamicGraph
from chronospike.data.storage import feature_sets, graph_key, open_graph, read_meta
from chronospike.errors import InputError
from chronospike.features.deepwalk import DeepWalk, DeepWalkSteps, Start
from chronospike.features.fastrp import FastRP, fastrp_step, sparse_projection

METHODS = ("deepwalk", "fastrp")
Maker = Callable[[Path, str, DeepWalk | FastRP], None]
StartedMaker = Callable[[Path, str, DeepWalk, Start], None]


def recipe(settings: Settings, method: str | None = None) -> tuple[str, DeepWalk | FastRP]:
    """The name and the options of the features that the settings describe, by `method` if not by their own."""
    s = settings
    if (method or s.feature_method) == "fastrp":
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


def named_parts(settings: Settings, has_own: bool, sets: list[str]) -> list[str]:
    """What `settings.features` stands for: `own` and names of feature sets, those of recipes included.

    Args:
        has_own: whether the graph has attributes of its own.
        sets: the feature sets that are there. One called `deepwalk` comes before the recipe of that method.
    """
    if settings.features == "auto":
        return ["own"] if has_own else [recipe(settings)[0]]
    parts = [part.strip() for part in settings.features.split("+")]
    if "" in parts or len(set(parts)) < len(parts):
        raise InputError(f"features '{settings.features}': give names joined with '+', each once, as in own+deepwalk")
    return [recipe(settings, part)[0] if part in METHODS and part not in sets else part for part in parts]


def ensure_features(folder: Path, settings: Settings, make: Maker, parts: list[str] | None = None) -> str:
    """The features to open, as `open_graph` takes them; `make(folder, name, options)` is called for what is not there.

    Args:
        parts: what an earlier run resolved the settings to.
    """
    sets = feature_sets(folder)
    parts = parts or named_parts(settings, "features" in read_meta(folder)["arrays"], sets)
    recipes = dict(recipe(settings, method) for method in METHODS)
    for part in parts:
        if part in recipes and part not in sets:
            make(folder, part, recipes[part])
    return "+".join(parts)


def feature_methods(folder: Path, features: str) -> list[str]:
    """How the feature sets in `features` were made."""
    parts = features.split("+")
    return [str(found.recipe.get("method")) for found in list_features(folder) if found.name in parts]


def methods_for(settings: Settings, has_own: bool) -> list[str]:
    """How the features that the settings ask for would be made, where there is no folder of feature sets."""
    parts = named_parts(settings, has_own, [])
    return [method for method in METHODS if recipe(settings, method)[0] in parts]


def check_transfer(methods: list[str], edges: str | None, other_edges: str) -> None:
    """Refuse features that mean nothing on other edges than those they were learned with."""
    if "deepwalk" in methods and edges not in (None, other_edges):
        raise InputError(
            "the model reads DeepWalk features, and those of another graph point in directions of their own, which it "
            "has not learned: its answers would be noise. Where most nodes are the same, begin with the run's own "
            "features (--carry-features) or train with FastRP; else train with the nodes' own attributes, or on this "
            "graph"
        )


def carry_on(folder: Path, source: Path, parts: list[str], edges: str | None, make: StartedMaker) -> list[str]:
    """What to read of the graph in `folder` instead of `parts`, which a model has learned on the graph in `source`.

    DeepWalk sets are made beginning with those of `source`, under names that tell so; the others stay.
    """
    if edges is None or not (source / "meta.json").is_file() or graph_key(source) != edges:
        raise InputError(
            f"{source} is gone, or not the graph of the training any more: its features cannot be carried on"
        )
    methods = {found.name: found.recipe for found in list_features(source) if found.complete}
    result = []
    for part in parts:
        recipe_of = methods.get(part, {})
        if recipe_of.get("method") != "deepwalk":
            result.append(part)
            continue
        result.append(f"{part}-from-{edges[:8]}")
        if result[-1] not in feature_sets(folder):
            options = DeepWalk(
                **{field.name: recipe_of[field.name] for field in fields(DeepWalk) if field.name in recipe_of}
            )
            start = Start(open_graph(source, features="none"), open_features(source, part, edges), edges)
            make(folder, result[-1], options, start)
    return result


def with_features_for(graph: DynamicGraph, settings: Settings, device: str = "cpu") -> DynamicGraph:
    """`graph` with what the settings ask for, made in memory where it is not there: for use without a folder."""
    if settings.features == "auto" and graph.has_features:
        return graph
    recipes = dict(recipe(settings, method) for method in METHODS)
    parts = named_parts(settings, graph.features is not None, [])
    unknown = next((part for part in parts if part != "own" and part not in recipes), None)
    if unknown is not None:
        raise InputError(
            f"features '{unknown}': a set by name lies in a graph folder. Open it with "
            "open_graph(folder, features=...), and leave the setting features at 'auto'"
        )
    if "own" in parts:
        graph.require(own_features=True)
    else:
        graph = graph.with_features(None)
    if graph.made_features:
        return graph
    made = [_made(graph, recipes[part], device) for part in parts if part != "own"]
    return graph.with_made_features(*made)


def _made(graph: DynamicGraph, options: DeepWalk | FastRP, device: str) -> NDArray[Any]:
    """`[T, N, d]` of all steps."""
    if isinstance(options, DeepWalk):
        make = DeepWalkSteps(graph, options, device).make_step
    else:
        projection = sparse_projection(graph.node_keys, options.dimension, options.seed)

        def make(step: int) -> NDArray[np.float32]:
            return fastrp_step(graph, step, options, projection)

    values = np.empty((graph.num_steps, graph.num_nodes, options.dimension), dtype=np.float32)
    for step in range(graph.num_steps):
        values[step] = make(step)
    return values
