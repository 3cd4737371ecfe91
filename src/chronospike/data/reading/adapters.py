"""Timestamped edges from graphs of other libraries, told by what they can do: none of them is imported."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from chronospike.data.events import Events
from chronospike.data.reading.edges import add_nodes, events_from_arrays
from chronospike.data.reading.numbering import as_column
from chronospike.errors import InputError


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
    sources: list[Any] = []
    targets: list[Any] = []
    times: list[Any] = []
    positions: list[int] = []
    for step, snapshot in enumerate(snapshots):
        for u, v, value in snapshot.edges(data=time):
            sources.append(u)
            targets.append(v)
            times.append(value)
            positions.append(step)
    if not sources:
        raise InputError("networkx graph: no edges")
    if is_sequence and all(value is None for value in times):
        times = list(positions)
    if None in times:
        bad = times.index(None)
        raise InputError(_no_time(snapshots[positions[bad]], sources[bad], targets[bad], time))
    named = _ids(node for snapshot in snapshots for node in snapshot.nodes)
    ends = [named[u] for u in sources], [named[v] for v in targets]
    events = events_from_arrays(*ends, times, time_unit=time_unit)
    return replace(add_nodes(events, as_column(list(named.values()))), origin="networkx graph")


def events_from_temporal_data(data: Any, *, time_unit: str | None = None) -> Events:
    """Events from a PyTorch Geometric `TemporalData`, or anything with `src`, `dst` and `t`."""
    arrays = {}
    for name in ("src", "dst", "t"):
        values = getattr(data, name, None)
        if values is None:
            raise InputError(f"{type(data).__name__}: no '{name}'; events need src, dst and t")
        arrays[name] = values.detach().cpu().numpy() if hasattr(values, "detach") else np.asarray(values)
    events = events_from_arrays(arrays["src"], arrays["dst"], arrays["t"], time_unit=time_unit)
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
    named = {node: node if _is_plain(node) else str(node) for node in nodes}
    if len({str(name) for name in named.values()}) < len(named):
        seen: dict[str, Any] = {}
        for node, name in named.items():
            if str(name) in seen:
                raise InputError(f"networkx graph: nodes {seen[str(name)]!r} and {node!r} would share the id '{name}'")
            seen[str(name)] = node
    return named


def _is_plain(node: Any) -> bool:
    return isinstance(node, (str, int, np.integer)) and not isinstance(node, bool)


def _no_time(graph: Any, source: Any, target: Any, time: str) -> str:
    known = sorted({str(key) for *_, attributes in graph.edges(data=True) for key in attributes})
    there = f"the attributes there are: {', '.join(known)}" if known else "edges have no attributes"
    return f"networkx graph: edge ({source!r}, {target!r}) has no '{time}'; {there}. Pass time=NAME"
