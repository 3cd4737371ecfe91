"""The features that a run's settings ask for: own attributes, feature sets by name, and sets made by a recipe.

The setting `features` names them, joined with `+`: `own+deepwalk`. A recipe is made once, and found again by a name
that tells its options and, where that changes the values a little, the place: `deepwalk-128-w10-n1-s0-cpu2`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chronospike.config import Settings
from chronospike.data.feature_store import RUN, list_features
from chronospike.data.storage import feature_sets, graph_key, read_meta
from chronospike.errors import InputError
from chronospike.features.options import SVD, Activity, DeepWalk, FastRP, Options

METHODS = ("deepwalk", "fastrp", "svd", "activity")
# Those whose values on another graph lie in a space of their own, unless they start from the first graph's.
_OWN_SPACE = {"deepwalk", "svd"}


def recipe(settings: Settings, method: str | None = None) -> tuple[str, Options]:
    """The name, without a place, and the options of the features that the settings describe.

    `method` goes before that of the settings.
    """
    s, method = settings, method or settings.feature_method
    if method == "fastrp":
        return f"fastrp-{s.feature_dimension}-s{s.feature_seed}", FastRP(s.feature_dimension, seed=s.feature_seed)
    if method == "svd":
        return f"svd-{s.feature_dimension}-s{s.feature_seed}", SVD(s.feature_dimension, seed=s.feature_seed)
    if method == "activity":
        return f"activity-{Activity().dimension}", Activity()
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
    there = {without_place(name) for name in sets}
    return [recipe(settings, part)[0] if part in METHODS and part not in there else part for part in parts]


def with_place(name: str, options: Options, device: str) -> str:
    """The name of a set made on `device` of this machine."""
    place = options.place(device)
    return f"{name}-{place}" if place else name


def without_place(name: str) -> str:
    return re.sub(r"-(cpu\d+|gpu)$", "", name)


@dataclass(frozen=True)
class Part:
    """One part of the features of a run: `own`, or a feature set.

    Attributes:
        options: what the set is to be made with; None if it is there, or nothing is known of it.
        note: what to say about the choice.
    """

    name: str
    options: Options | None = None
    note: str | None = None


def plan_features(folder: Path, settings: Settings, device: str, parts: list[str] | None = None) -> list[Part]:
    """What to read and what to make first on `device`.

    A set that was made in another place is taken rather than made again.

    Args:
        parts: what an earlier run resolved the settings to.
    """
    sets = feature_sets(folder)
    given = parts or named_parts(settings, "features" in read_meta(folder)["arrays"], sets)
    recipes = dict(recipe(settings, method) for method in METHODS)
    result = []
    for part in given:
        if part in METHODS and part not in sets:
            # Made by hand under the name that its command gives it.
            result.append(Part(next((name for name in sets if without_place(name) == part), part)))
        elif without_place(part) in recipes and not (parts and part in sets):
            result.append(find_set(folder, without_place(part), recipes[without_place(part)], device))
        else:
            result.append(Part(part))
    return result


def find_set(folder: Path, name: str, options: Options, device: str) -> Part:
    """The set `name` as made on `device`, else as made elsewhere for this graph, else to be made here."""
    sets, here, key = list_features(folder), with_place(name, options, device), graph_key(folder)
    there = [found.name for found in sets if found.complete and (found.graph_key == key or found.name == here)]
    if here in there:
        return Part(here)
    others = [found for found in there if without_place(found) == name]
    if not others:
        return Part(here, options)
    return Part(others[0], note=f"using features {others[0]}; computed here, they would differ slightly")


def feature_methods(folder: Path, features: str) -> list[str]:
    """How the feature sets in `features` were made."""
    parts = features.split("+")
    return [str(found.recipe.get("method")) for found in list_features(folder) if found.name in parts]


def methods_for(settings: Settings, has_own: bool) -> list[str]:
    """How the features that the settings ask for would be made, where there is no folder of feature sets."""
    parts = named_parts(settings, has_own, [])
    return [method for method in METHODS if recipe(settings, method)[0] in parts]


def check_transfer(methods: list[str], edges: str | None, other_edges: str, shared: int) -> None:
    """Refuse features that mean nothing on other edges, or for other nodes, than those they were learned with.

    Args:
        shared: how many training nodes are in the other graph.
    """
    if _OWN_SPACE.intersection(methods) and edges not in (None, other_edges):
        raise InputError(
            "the model was trained on DeepWalk or SVD features, and those of another graph are in a different "
            "embedding space: predictions would be meaningless. If most nodes are the same, use --carry-features or "
            "train with FastRP; else train with the nodes' own attributes, or on this graph"
        )
    if "fastrp" in methods and not shared:
        raise InputError(
            "the model was trained on FastRP features, which depend on the ids of the nodes, and none of its training "
            "nodes is in this graph: predictions would be meaningless. Train with the nodes' own attributes, or on "
            "this graph"
        )
    if RUN in methods and edges not in (None, other_edges):
        raise InputError(
            "the model reads embeddings of another run, which exist only for the graph of that run. "
            "Train both runs on this graph"
        )


def check_sets(trained: Sequence[dict[str, Any]], given: Sequence[dict[str, Any]], shared: int) -> None:
    """Refuse feature sets that do not mean what those of the training meant, as far as their recipes are known.

    Args:
        trained, given: `DynamicGraph.recipes` of the training and of the graph to predict on.
        shared: how many training nodes are in the latter.
    """
    for one, other in zip(trained, given, strict=False):
        # A set that was carried over lies in the space of the edges that it starts from.
        edges = [made.get("start", made["edges"]) for made in (one, other)]
        for name in sorted(one.keys() & other.keys() - {"edges", "start"}):
            if one[name] != other[name]:
                raise InputError(
                    f"the model was trained on features with {name} {one[name]}, and those of this graph have "
                    f"{other[name]}. Use the set of the training, or make it with the same options"
                )
        check_transfer([str(one.get("method"))], edges[0], edges[1], shared)


def check_date(methods: list[str]) -> None:
    """Refuse to look at an earlier date with features that know all steps."""
    if RUN in methods:
        raise InputError(
            "the model reads embeddings of another run, which were learned from all steps: predictions as of a date "
            "would use later information. Import the graph up to that date and train on it"
        )


def check_source(source: Path, edges: str | None) -> None:
    """Refuse to carry features over from `source` if it is not the graph with the `edges` of the training any more."""
    if edges is None or not (source / "meta.json").is_file() or graph_key(source) != edges:
        raise InputError(
            f"{source} has changed since the training or does not exist, so its features cannot be carried over"
        )
