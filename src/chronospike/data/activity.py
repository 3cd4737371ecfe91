"""How active a node is, and when."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from chronospike.data.graph import DynamicGraph

# Degrees of so many steps up to the last are part of the profile; more steps are added up to as many spans.
SPANS = 64
SUMMARY_WIDTH = 8


def profile_width(directed: bool) -> int:
    """Columns of `activity_profile`."""
    return (2 if directed else 1) * (SUMMARY_WIDTH + SPANS)


def degrees_per_step(graph: DynamicGraph, last_step: int | None = None, incoming: bool = False) -> NDArray[np.int64]:
    """`[N, T]` neighbours at each of T steps; edges count at both ends.

    Args:
        last_step: T - 1; by default the graph's.
        incoming: of a directed graph, count edges at their targets alone.
    """
    steps = graph.num_steps if last_step is None else last_step + 1
    degrees = np.diff(graph.snapshot.step_offsets[:, : steps + 1], axis=1).astype(np.int64)
    if graph.directed and not incoming:
        _, step, sources = graph.snapshot.entries()
        keep = step < steps
        cells = sources[keep].astype(np.int64) * steps + step[keep]
        degrees += np.bincount(cells, minlength=degrees.size).reshape(degrees.shape)
    return degrees


def activity_profile(graph: DynamicGraph, last_step: int | None = None) -> NDArray[np.float32]:
    """`[N, profile_width]` activity in numbers that mean the same on graphs of other lengths.

    The columns of `activity_summary`; then log(1 + degree) of each step, the last one last, zero before the graph
    begins. More than `SPANS` steps are added up over as many spans of equal length, up to one. Of a directed graph
    all of that follows again for incoming edges alone.
    """
    parts = []
    for incoming in (False, True) if graph.directed else (False,):
        degrees = degrees_per_step(graph, last_step, incoming)
        steps = degrees.shape[1]
        starts = np.arange(SPANS) * steps // SPANS if steps > SPANS else np.arange(steps)
        spans = np.log1p(np.add.reduceat(degrees, starts, axis=1))
        parts += [activity_summary(graph, degrees, incoming), np.pad(spans, ((0, 0), (SPANS - len(starts), 0)))]
    return np.column_stack(parts).astype(np.float32)


def activity_summary(graph: DynamicGraph, degrees: NDArray[np.int64], incoming: bool = False) -> NDArray[np.float64]:
    """`[N, SUMMARY_WIDTH]` of the degrees `[N, T]` in the first T steps of the graph.

    log(1 + degree) in all, at most, and per step since the first, and log(1 + distinct neighbours); steps since the
    first and since the last edge and steps with an edge, as shares of T; burstiness (σ - μ) / (σ + μ) of the degrees
    since the first edge.
    """
    steps = degrees.shape[1]
    first, last = _first_and_last(degrees)
    total, span = degrees.sum(axis=1), np.maximum(1, steps - first)
    mean = total / span
    deviation = np.sqrt(np.maximum(0.0, np.square(degrees, dtype=np.float64).sum(axis=1) / span - mean**2))
    burstiness = np.divide(deviation - mean, deviation + mean, where=total > 0, out=np.zeros(len(total)))
    distinct = np.asarray(graph.history.step_offsets[:, steps]).astype(np.int64)
    if graph.directed and not incoming:
        _, step, sources = graph.history.entries()
        distinct += np.bincount(sources[step < steps], minlength=len(total))
    shares = [(steps - first) / steps, (steps - 1 - last) / steps, (degrees > 0).sum(axis=1) / steps]
    logarithms = [np.log1p(total), np.log1p(degrees.max(axis=1)), np.log1p(mean), np.log1p(distinct)]
    return np.column_stack([*logarithms, *shares, burstiness])


def _first_and_last(degrees: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """`[N]` each: the first step with an edge, T if there is none, and the last, then -1."""
    steps, active = degrees.shape[1], degrees > 0
    seen = active.any(axis=1)
    first = np.where(seen, active.argmax(axis=1), steps)
    last = np.where(seen, steps - 1 - active[:, ::-1].argmax(axis=1), -1)
    return first, last
