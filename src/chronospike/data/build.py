"""From events and their steps to a dynamic graph."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from chronospike.data.csr import history_and_snapshot
from chronospike.data.events import EventLog, Events, NodeLabels, Steps
from chronospike.data.graph import DynamicGraph
from chronospike.data.import_warnings import (
    warnings_about_classes,
    warnings_about_ids,
    warnings_about_steps,
    warnings_about_times,
)
from chronospike.data.time_text import format_time
from chronospike.errors import GraphError, InputError


def build_graph(
    events: Events,
    steps: Steps,
    *,
    directed: bool = False,
    labels: NodeLabels | None = None,
    features: NDArray[Any] | None = None,
    provenance: dict[str, Any] | None = None,
) -> DynamicGraph:
    """Drop self-loops, symmetrise unless directed, deduplicate, and sort into history and snapshot; keep the events.

    What was dropped is counted in `graph.facts`: `rows`, `self_loops`, `duplicates`; there are also the times of the
    first and the last event, since a step may begin before and end after them.
    """
    if len(events) == 0:
        raise InputError(f"{events.origin}: no edges")
    if len(events.ids) >= 2**31:
        raise InputError(f"{events.origin}: {len(events.ids):,} nodes; at most 2^31 - 1 are supported")
    columns = events.source, events.target, events.time, steps.index
    proper = events.source != events.target
    if not proper.any():
        raise GraphError(f"{events.origin}: all {len(events)} rows are self-loops")
    # Tens of millions of events are not copied where nothing is left out.
    source, target, time, step = columns if proper.all() else (column[proper] for column in columns)
    ends, when = (target, source), step
    if not directed:
        ends, when = (np.concatenate([target, source]), np.concatenate([source, target])), np.concatenate([step, step])
    history, snapshot = history_and_snapshot(*ends, when, len(events.ids), len(steps))
    kept = len(snapshot.neighbours) // (1 if directed else 2)
    facts: dict[str, Any] = {
        "rows": len(events),
        "rows_dropped": events.dropped,
        "self_loops": len(events) - len(source),
        "duplicates": len(source) - kept,
        "step_rule": steps.rule,
        "first_event": format_time(events.time.min()),
        "last_event": format_time(events.time.max()),
        "provenance": {"origin": events.origin, **(provenance or {})},
    }
    sent, received = (np.bincount(column, minlength=len(events.ids)) for column in (events.source, events.target))
    facts["in_both_columns"] = in_both = int(np.count_nonzero((sent > 0) & (received > 0)))
    warnings = [*warnings_about_ids(events, in_both), *warnings_about_times(events.time), *warnings_about_steps(steps)]
    warnings += [] if labels is None else warnings_about_classes(labels)
    if warnings:
        facts["warnings"] = warnings
    if events.columns:
        facts["columns"] = list(events.columns)
    if events.unused:
        facts["unused_columns"] = list(events.unused)
    graph = DynamicGraph(
        history=history,
        snapshot=snapshot,
        ids=events.ids,
        step_start=steps.start,
        step_end=steps.end,
        directed=directed,
        labels=None if labels is None else labels.codes,
        class_names=() if labels is None else labels.names,
        features=features,
        events=EventLog.of(source, target, time, step, len(steps)),
        facts=facts,
    )
    return graph.validate()
