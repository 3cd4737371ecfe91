"""How active a node and its neighbours are, and when, and whether its neighbours know each other."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from chronospike.data.graph import DynamicGraph
from chronospike.data.neighbour_means import neighbour_means
from chronospike.data.triangles import share_closed

# Degrees of so many steps up to the last are part of the profile; more steps are added up to as many spans.
SPANS = 64
SUMMARY_WIDTH = 8
_EVENT_WIDTH = 9
# Of the summary, what is averaged over neighbours: log(1 + degree), steps since the first edge, burstiness. With all
# columns graphs where neighbours' activity says nothing would lose as much as others gain.
_OF_NEIGHBOURS = (0, 4, 7)
# The cycles that most of what people do follows.
_CYCLES = tuple(int(np.timedelta64(days, "D") / np.timedelta64(1, "us")) for days in (1, 7))


def profile_width(directed: bool) -> int:
    """Columns of `activity_profile`."""
    width = SUMMARY_WIDTH + _EVENT_WIDTH + SPANS + len(_OF_NEIGHBOURS)
    return 2 * width + 2 if directed else width + 1


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

    The columns of `activity_summary` and of `event_summary`; log(1 + degree) of each step, the last one last, zero
    before the graph begins; means over the neighbours of three columns of `activity_summary`; and `share_closed`. More
    than `SPANS` steps are added up over as many spans of equal length, up to one. Of a directed graph what comes before
    the means follows again for incoming edges alone, the means are over sources and over targets, and last comes the
    share of neighbours that are both.
    """
    end = graph.num_steps - 1 if last_step is None else last_step
    parts: list[NDArray[Any]] = []
    for incoming in (False, True) if graph.directed else (False,):
        degrees = degrees_per_step(graph, end, incoming)
        steps = degrees.shape[1]
        starts = np.arange(SPANS) * steps // SPANS if steps > SPANS else np.arange(steps)
        spans = np.log1p(np.add.reduceat(degrees, starts, axis=1))
        parts += [activity_summary(graph, degrees, incoming), event_summary(graph, degrees, incoming)]
        parts.append(np.pad(spans, ((0, 0), (SPANS - len(starts), 0))))
    values = parts[0][:, _OF_NEIGHBOURS]
    parts.append(neighbour_means(graph, end, np.arange(graph.num_nodes), values.__getitem__))
    parts.append(share_closed(graph, end)[:, None])
    if graph.directed:
        parts.append(_share_of_mutual(graph, end)[:, None])
    return np.concatenate(parts, axis=1, dtype=np.float32)


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


def event_summary(graph: DynamicGraph, degrees: NDArray[np.int64], incoming: bool = False) -> NDArray[np.float64]:
    """`[N, 9]` of the events in the first T steps, repeats of an edge within a step included; `degrees [N, T]`.

    log(1 + events) in all and at most in a step; log((1 + events) / (1 + degree)), which tells how often edges are
    repeated; of the times between events the square root of the mean, as a share of the time from the first event of
    the graph to the last, 1 with fewer than two events, and the burstiness (σ - μ) / (σ + μ). Of events with dates the
    mean cosine and sine of the time of the day, then of the week; zero of others. Without stored events every edge of a
    snapshot is one, at the time of its step.
    """
    nodes, times, step, dates = _ends(graph, degrees.shape[1], incoming)
    hours = np.zeros((len(degrees), 2 * len(_CYCLES)))
    if dates is not None:
        angles = [2 * np.pi / cycle * (dates % cycle) for cycle in _CYCLES]
        waves = [wave(angle) for angle in angles for wave in (np.cos, np.sin)]
        hours = np.column_stack([np.bincount(nodes, wave, minlength=len(degrees)) for wave in waves])
        hours /= np.maximum(1, np.bincount(nodes, minlength=len(degrees)))[:, None]
    order = np.argsort(nodes, kind="stable")
    nodes, times, step = nodes[order], times[order], step[order]
    count = np.bincount(nodes, minlength=len(degrees))
    is_same = nodes[1:] == nodes[:-1]
    runs = np.flatnonzero(np.concatenate([[True], ~is_same | (step[1:] != step[:-1])])) if len(nodes) else nodes
    most = np.zeros(len(degrees), dtype=np.int64)
    np.maximum.at(most, nodes[runs], np.diff(runs, append=len(nodes)))
    gaps, node = np.diff(times)[is_same], nodes[1:][is_same]
    between = np.maximum(1, count - 1)
    mean = np.bincount(node, gaps, minlength=len(degrees)) / between
    deviation = np.sqrt(np.bincount(node, np.square(gaps - mean[node]), minlength=len(degrees)) / between)
    total = deviation + mean
    burstiness = np.divide(deviation - mean, total, where=total > 0, out=np.zeros(len(degrees)))
    pause = np.sqrt(np.where(count > 1, mean, 1))
    repeats = np.log((1 + count) / (1 + degrees.sum(axis=1)))
    return np.column_stack([np.log1p(count), np.log1p(most), repeats, pause, burstiness, hours])


def _ends(
    graph: DynamicGraph, steps: int, incoming: bool
) -> tuple[NDArray[np.int32], NDArray[np.float64], NDArray[np.int32], NDArray[np.int64] | None]:
    """Of both ends of each event, or of its target, in the order of time: node, time from 0 to 1, step, and
    microseconds of its date, if the events have dates."""
    dates = None
    if graph.events is not None:
        log = graph.events.until(steps - 1)
        source, target, step = log.source, log.target, log.step
        dates = log.time.astype(np.int64) if log.time.dtype.kind == "M" else None
        times = (log.time if dates is None else dates).astype(np.float64)
    else:
        rows, index, neighbours = graph.snapshot.entries()
        # Of an undirected graph every edge is in two rows.
        once = np.flatnonzero((index < steps) & (graph.directed | (rows < neighbours)))
        once = once[np.argsort(index[once], kind="stable")]
        source, target, step = (ends[once].astype(np.int32) for ends in (neighbours, rows, index))
        times = step.astype(np.float64)
    passed = times - times[:1]
    if len(passed) and passed[-1] > 0:
        passed /= passed[-1]
    if incoming:
        return np.asarray(target), passed, step, dates
    both = np.stack([source, target], axis=1).reshape(-1)
    return both, np.repeat(passed, 2), np.repeat(step, 2), None if dates is None else np.repeat(dates, 2)


def _share_of_mutual(graph: DynamicGraph, last_step: int) -> NDArray[np.float64]:
    """`[N]` the share of a node's distinct neighbours that are both its source and its target."""
    # Here, so that what only predicts does not wait for scipy.
    import scipy.sparse as sp

    rows, step, sources = graph.history.entries()
    seen = step <= last_step
    shape = (graph.num_nodes, graph.num_nodes)
    edges = sp.csr_array((np.ones(np.count_nonzero(seen)), (rows[seen], sources[seen])), shape=shape)
    incoming, outgoing = edges.sum(axis=1), edges.sum(axis=0)
    both = edges.multiply(edges.T).sum(axis=1)
    return np.asarray(both / np.maximum(1, incoming + outgoing - both))


def _first_and_last(degrees: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """`[N]` each: the first step with an edge, T if there is none, and the last, then -1."""
    steps, active = degrees.shape[1], degrees > 0
    seen = active.any(axis=1)
    first = np.where(seen, active.argmax(axis=1), steps)
    last = np.where(seen, steps - 1 - active[:, ::-1].argmax(axis=1), -1)
    return first, last
