"""Build a graph from the user's data in one call: files, tables, arrays, networkx and PyG objects.

Graphs of other libraries are recognised by their attributes: none of these libraries is imported.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from chronospike.data.build import build_graph
from chronospike.data.events import Events, NodeLabels
from chronospike.data.graph import DynamicGraph
from chronospike.data.import_warnings import warnings_about_attributes, warnings_about_leaks
from chronospike.data.reading.attributes import read_features
from chronospike.data.reading.edges import (
    add_nodes,
    events_from_arrays,
    events_from_rows,
    is_rows_of_edges,
    read_events,
)
from chronospike.data.reading.labels import read_labels
from chronospike.data.reading.numbering import as_column, to_numpy
from chronospike.data.reading.tables import refuse_one_stream_twice
from chronospike.data.steps import make_steps
from chronospike.errors import InputError


def import_graph(
    data: Any,
    *,
    labels: Any = None,
    features: Any = None,
    source: str | None = None,
    target: str | None = None,
    time: str | None = None,
    time_unit: str | None = None,
    node: str | None = None,
    label: str | None = None,
    header: bool | None = None,
    delimiter: str | None = None,
    steps: int | None = None,
    every: str | float | None = None,
    origin: Any = None,
    merge: int = 1,
    directed: bool = False,
    on_missing: str = "error",
    on_unknown: str = "error",
) -> DynamicGraph:
    """Build a graph from timestamped edges.

    Args:
        data: a path (CSV, TSV, text, Parquet, JSON; `-` for standard input), an Arrow-compatible table (pandas, polars,
            pyarrow), a tuple `(source, target, time)` of arrays, an array `[E, 3]` or a list of triples, a networkx
            graph or a list of one per step, or a PyG `TemporalData`.
        labels: a path or table with a node and a label column, or a mapping or pandas Series from node id to
            label.
        features: the nodes' attributes: a path (table with a node column, or `.npy`), an Arrow-compatible table with a
            node column, or an array `[N, d]` or `[T, N, d]` in the order of the node ids.
        source, target, time: column names, unless the usual ones are used; with networkx, `time` is the edge
            attribute.
        time_unit: `"s"`, `"ms"`, `"us"` or `"ns"` if times, also those of features, are Unix timestamps; they become
            dates.
        node, label: column names in `labels` (and `node` in `features`).
        steps, every, merge: how times are grouped into steps; by default one step per distinct time.
        origin: where a step of `every` begins: a date for dates, a number for numbers. By default the first event,
            and the calendar for months, quarters and years.
        directed: keep direction (a node then aggregates over the sources of its incoming edges).
        on_missing: `"error"` or `"drop"` for rows with an empty value.
        on_unknown: `"error"` or `"drop"` for labels and features of nodes that have no edge.
    """
    refuse_one_stream_twice(data, labels, features)
    if label is not None and labels is None:
        raise InputError(f"--label {label}: it names the column of the labels, so it needs --labels FILE")
    if node is not None and labels is None and features is None:
        raise InputError(f"--node {node}: it names a column of --labels or --features, so it needs one of them")
    rules = {"time_unit": time_unit, "on_missing": on_missing, "header": header, "delimiter": delimiter}
    events = _events(data, source, target, time, rules)
    times = make_steps(events.time, steps=steps, every=every, origin=origin, merge=merge)
    found: NodeLabels | None = None
    facts: dict[str, Any] = {}
    if labels is not None:
        found, facts = read_labels(labels, events.ids, node, label, header=header, on_unknown=on_unknown)
    graph = build_graph(events, times, directed=directed, labels=found, provenance=facts)
    if features is None:
        return graph
    if isinstance(features, np.ndarray) or hasattr(features, "detach"):
        array = to_numpy(features) if hasattr(features, "detach") else features
        try:
            numbers = array if array.dtype.kind == "f" else array.astype(np.float32)
        except (TypeError, ValueError) as error:
            raise InputError(f"features are {array.dtype}; numbers are needed. Give other values as a table") from error
        return graph.with_features(numbers)
    label = _label_column(found, labels, features)
    values, columns, counts = read_features(
        features, graph, node=node, time_unit=time_unit, on_unknown=on_unknown, label=label
    )
    graph.facts["provenance"].update(counts)
    warnings = [*warnings_about_attributes(values, columns), *warnings_about_leaks(values, columns, graph.labels)]
    if warnings:
        graph.facts["warnings"] = [*graph.facts.get("warnings", ()), *warnings]
    return graph.with_features(values, columns)


def _label_column(found: NodeLabels | None, labels: Any, features: Any) -> str | None:
    """The column of the labels, which is no attribute where it is in both tables; a place counts in one table only."""
    same = labels is features or (isinstance(features, (str, os.PathLike)) and str(labels) == str(features))
    if found is None or found.column is None or (found.column.isdecimal() and not same):
        return None
    return found.column


def _events(data: Any, source: str | None, target: str | None, time: str | None, rules: dict[str, Any]) -> Events:
    """By the kind of `data`; `rules` are those of `read_events`."""
    unit, on_missing = rules["time_unit"], rules["on_missing"]
    if is_rows_of_edges(data):
        return events_from_rows(data, time_unit=unit, on_missing=on_missing)
    if isinstance(data, tuple):
        return events_from_arrays(*data, time_unit=unit, on_missing=on_missing)
    # A pandas table has its columns as attributes.
    if all(hasattr(data, name) for name in ("src", "dst", "t")) and not hasattr(data, "columns"):
        return events_from_temporal_data(data, time_unit=unit, on_missing=on_missing)
    if isinstance(data, list) or (hasattr(data, "edges") and hasattr(data, "is_directed")):
        return events_from_networkx(data, time=time or "time", time_unit=unit)
    return read_events(data, source, target, time, **rules)


def events_from_networkx(graph: Any, time: str = "time", *, time_unit: str | None = None) -> Events:
    """Events from a networkx graph, or from a sequence of them such as a `networkx_temporal` graph.

    In a sequence whose edges do not carry the attribute, the time of an edge is the position of its graph. Nodes
    without an edge are kept. Ids that are neither text nor integers become text.

    Args:
        graph: directed or not, with or without parallel edges.
        time: the edge attribute that holds the time.
        time_unit: `s`, `ms`, `us` or `ns` for numbers that are Unix time.
    """
    snapshots, is_sequence = _snapshots(graph)
    edges = [(*edge, step) for step, snapshot in enumerate(snapshots) for edge in snapshot.edges(data=time)]
    if not edges:
        raise InputError("networkx graph: no edges")
    sources, targets, times, positions = zip(*edges, strict=True)
    if is_sequence and all(value is None for value in times):
        times = positions
    if None in times:
        bad = times.index(None)
        raise InputError(_no_time(snapshots[positions[bad]], sources[bad], targets[bad], time))
    named = _ids(node for snapshot in snapshots for node in snapshot.nodes)
    ends = [named[u] for u in sources], [named[v] for v in targets]
    events = events_from_arrays(*ends, times, time_unit=time_unit)
    return replace(add_nodes(events, as_column(list(named.values()))), origin="networkx graph")


def events_from_temporal_data(data: Any, *, time_unit: str | None = None, on_missing: str = "error") -> Events:
    """Events from a PyTorch Geometric `TemporalData`, or anything with `src`, `dst` and `t`."""
    arrays = {name: getattr(data, name, None) for name in ("src", "dst", "t")}
    for name, values in arrays.items():
        if values is None:
            raise InputError(f"{type(data).__name__}: no '{name}'; events need src, dst and t")
    events = events_from_arrays(*arrays.values(), time_unit=time_unit, on_missing=on_missing)
    return replace(events, origin=type(data).__name__)


def _snapshots(graph: Any) -> tuple[list[Any], bool]:
    """The graphs, and whether they were given as a sequence. A networkx graph iterates over nodes instead."""
    is_sequence = isinstance(graph, (list, tuple)) or hasattr(graph, "to_snapshots")
    snapshots = list(graph) if is_sequence else [graph]
    for snapshot in snapshots:
        if not (hasattr(snapshot, "edges") and hasattr(snapshot, "nodes")):
            raise InputError(f"a {type(snapshot).__name__} is not a networkx graph")
    return snapshots, is_sequence


def _ids(nodes: Iterable[Any]) -> dict[Any, Any]:
    """Node to id: text and integers as they are, the rest as text; nodes that would share an id are refused."""
    plain = (str, int, np.integer)
    named = {node: node if isinstance(node, plain) and not isinstance(node, bool) else str(node) for node in nodes}
    seen: dict[str, Any] = {}
    for node, name in named.items():
        first = seen.setdefault(str(name), node)
        if first is not node:
            raise InputError(f"networkx graph: nodes {first!r} and {node!r} would share the id '{name}'")
    return named


def _no_time(graph: Any, source: Any, target: Any, time: str) -> str:
    known = sorted({str(key) for *_, attributes in graph.edges(data=True) for key in attributes})
    there = f"the attributes there are: {', '.join(known)}" if known else "edges have no attributes"
    return f"networkx graph: edge ({source!r}, {target!r}) has no '{time}'; {there}. Pass time=NAME"
