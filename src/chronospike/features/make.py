"""Computing features: into a graph folder, for a run, from those of another graph, or in memory."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import DTypeLike, NDArray

from chronospike.config import Settings
from chronospike.data.feature_store import FeatureSet, StepMaker, list_features, open_features, write_features
from chronospike.data.graph import DynamicGraph
from chronospike.data.storage import graph_key, open_graph, structure_key
from chronospike.errors import InputError
from chronospike.features.options import SVD, Activity, DeepWalk, Options, Progress, Start
from chronospike.features.recipes import METHODS, find_set, named_parts, plan_features, recipe
from chronospike.locks import Tell

_CARRIED: dict[str, type[DeepWalk | SVD]] = {"deepwalk": DeepWalk, "svd": SVD}


class Maker(Protocol):
    """`make_features`, or what shows how far it is."""

    def __call__(self, folder: Path, name: str, options: Options, *, device: str, start: Start | None) -> object: ...


def make_features(
    folder: str | Path,
    name: str,
    options: Options,
    *,
    dtype: DTypeLike = np.float32,
    device: str = "auto",
    overwrite: bool = False,
    start: Start | None = None,
    on_progress: Progress | None = None,
    tell: Tell | None = None,
) -> FeatureSet:
    """Compute the features of all steps and store them in a graph folder; resumes an interrupted call.

    Args:
        folder: of the graph.
        name: of the feature set. An existing set with the same options is not changed.
        options: `DeepWalk(...)`, `FastRP(...)`, `SVD(...)` or `Activity()`.
        dtype: float32, or float16 for half the space.
        device: "auto", "cpu" or a CUDA device such as "cuda"; only DeepWalk uses a GPU.
        overwrite: replace an existing set.
        start: features of another graph to initialise DeepWalk with, or to rotate SVD onto.
        on_progress: called with (step, done, total), the last two of all steps, in tokens (DeepWalk) or steps.
        tell: called with a line before waiting for another process that makes the same set.
    """
    if isinstance(folder, DynamicGraph):
        raise InputError("features are stored in a graph folder: give its path, not the graph (save_graph writes one)")
    if not isinstance(options, Options):
        raise InputError(f"options are {options!r}; give DeepWalk(...), FastRP(...), SVD(...) or Activity()")
    place, graph = Path(folder), open_graph(folder, features="none")
    maker = _maker(graph, options, device, start, on_progress)
    made_with = {**options.recipe(), **({} if start is None else {"start": start.key})}
    shape = (graph.num_steps, graph.num_nodes, options.dimension)
    write_features(place, name, made_with, graph_key(place), shape, dtype, maker, overwrite, tell)
    return next(found for found in list_features(place) if found.name == name and found.complete)


def ensure_features(
    folder: Path,
    settings: Settings,
    device: str = "auto",
    parts: list[str] | None = None,
    *,
    make: Maker = make_features,
    on_note: Tell | None = None,
) -> str:
    """The features that the settings ask for, as `open_graph` takes them; missing ones are computed.

    Args:
        parts: what an earlier run resolved the settings to.
        on_note: called with a line where a set is taken that was made elsewhere.
    """
    place = _chosen(device)
    planned = plan_features(folder, settings, place, parts)
    for part in planned:
        if part.note is not None and on_note is not None:
            on_note(part.note)
        if part.options is not None:
            make(folder, part.name, part.options, device=place, start=None)
    return "+".join(part.name for part in planned)


def carry_features(
    folder: Path, source: Path, parts: list[str], device: str = "auto", *, make: Maker = make_features
) -> list[str]:
    """The feature sets of `folder` to use instead of `parts`, with which a model was trained on the graph in `source`.

    DeepWalk sets are computed again, initialised from those of `source`, and SVD sets are rotated onto them; their
    names contain `-from-`. Other parts are returned unchanged.
    """
    place, key = _chosen(device), graph_key(source)
    recipes = {found.name: found.recipe for found in list_features(source) if found.complete}
    result = []
    for part in parts:
        made_with = recipes.get(part, {})
        kind = _CARRIED.get(str(made_with.get("method")))
        if kind is None:
            result.append(part)
            continue
        known = [field.name for field in fields(kind) if field.name in made_with]
        options = kind(**{name: made_with[name] for name in known})
        found = find_set(folder, f"{part}-from-{key[:8]}", options, place)
        if found.options is not None:
            start = Start(open_graph(source, features="none"), open_features(source, part, key), key)
            make(folder, found.name, options, device=place, start=start)
        result.append(found.name)
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
            f"features '{unknown}': named sets are stored in a graph folder. Open it with "
            "open_graph(folder, features=...), and leave the setting features at 'auto'"
        )
    if "own" in parts:
        graph.require(own_features=True)
    else:
        graph = graph.with_features(None)
    if graph.made_features:
        return graph
    made, edges = [recipes[part] for part in parts if part != "own"], structure_key(graph)
    tables = (_all_steps(graph, options, device) for options in made)
    # Through JSON, as recipes are stored: a tuple becomes a list.
    described = json.loads(json.dumps([options.recipe() for options in made]))
    return graph.with_made_features(*tables, recipes=[{**one, "edges": edges} for one in described])


def _all_steps(graph: DynamicGraph, options: Options, device: str) -> NDArray[Any]:
    """`[T, N, d]`."""
    maker = _maker(graph, options, device)
    values = np.empty((graph.num_steps, graph.num_nodes, options.dimension), dtype=np.float32)
    for step in range(graph.num_steps):
        values[step] = maker.make_step(step)
    return values


def _maker(
    graph: DynamicGraph, options: Options, device: str, start: Start | None = None, on_progress: Progress | None = None
) -> StepMaker:
    # Imported here: they load numba, and most runs find their features made.
    if isinstance(options, DeepWalk):
        from chronospike.features.deepwalk import DeepWalkSteps

        return DeepWalkSteps(graph, options, _chosen(device), on_progress, start)
    if isinstance(options, SVD):
        from chronospike.features.svd import SVDSteps

        return SVDSteps(graph, options, on_progress, start)
    if isinstance(options, Activity):
        from chronospike.features.activity import ActivitySteps

        return ActivitySteps(graph, on_progress)
    from chronospike.features.fastrp import FastRPSteps

    return FastRPSteps(graph, options, on_progress)


def _chosen(device: str) -> str:
    if str(device) != "auto":
        return str(device)
    from chronospike.device import choose_device  # loads torch, which most runs do not need here

    return str(choose_device())
