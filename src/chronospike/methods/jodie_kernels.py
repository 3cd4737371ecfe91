"""Compiled walks over events in the order of time: t-batches, and what every update of a state reads."""

from __future__ import annotations

from typing import Any

import numpy as np

from chronospike.compiled import njit


@njit
def fill_batches(source: Any, target: Any, span: Any, num_nodes: Any, out: Any) -> None:
    """Fill `out [E]`: one after the last t-batch of both nodes in the span."""
    last, seen = np.zeros(num_nodes, np.int64), np.full(num_nodes, -1, np.int64)
    for e in range(len(source)):
        u, v, s = source[e], target[e], span[e]
        batch = np.int64(0)
        if seen[u] == s:
            batch = last[u] + 1
        if seen[v] == s:
            batch = max(batch, last[v] + 1)
        last[u] = last[v] = out[e] = batch
        seen[u] = seen[v] = s


@njit
def walk_batches(
    source: Any, target: Any, time: Any, span: Any, place: Any, ends: Any, active: Any, nodes: Any, fresh: Any,
    ahead: Any, owner: Any, role: Any, gap: Any, previous: Any, previous_fresh: Any, final_gap: Any, final_fresh: Any,
    partner: Any, reads: Any, last: Any,
) -> None:  # fmt: skip
    """Go through the events in their order; `place [E, 2]` says which updates are theirs, `active [S + 1]` is filled
    with where the active nodes of each span begin."""
    num_nodes, count = len(final_gap), 0
    seen, entry = np.full(num_nodes, -1, np.int64), np.full(num_nodes, -1, np.int64)
    first_span, first_role = np.full(num_nodes, -1, np.int64), np.zeros(num_nodes, np.int8)
    state, met = np.zeros(num_nodes, np.int64), np.full(num_nodes, num_nodes, np.int64)
    since = np.zeros(num_nodes)
    for e in range(len(source)):
        s, ends_of = span[e], (np.int64(source[e]), np.int64(target[e]))
        base, updates = 2 * ends[s], 2 * (ends[s + 1] - ends[s])
        if e == ends[s]:
            active[s] = count
        for side in range(2):
            node = ends_of[side]
            if seen[node] != s:
                seen[node] = s
                fresh[count] = -1
                if first_span[node] < 0:
                    first_span[node], first_role[node], fresh[count] = s, side, side
                else:
                    ahead[entry[node]] = time[e] - since[node]
                nodes[count], entry[node], state[node] = node, count, updates + count - active[s]
                count += 1
        for side in range(2):
            node, other, u = ends_of[side], ends_of[1 - side], place[e, side]
            owner[u], partner[u], role[u], gap[u] = node, other, side, time[e] - since[node]
            reads[0, u], reads[1, u] = state[node], state[other]
            before = met[node]
            previous[u], previous_fresh[u] = before, -1
            if before == num_nodes:
                previous_fresh[u] = 1 - side
            elif first_span[before] == s:
                previous_fresh[u] = first_role[before]
        for side in range(2):
            node = ends_of[side]
            state[node] = last[entry[node]] = place[e, side] - base
            since[node], met[node] = time[e], ends_of[1 - side]
    active[-1] = count
    end = time[-1] if len(time) > 0 else 0.0
    for v in range(num_nodes):
        final_gap[v] = end - since[v]
        if entry[v] >= 0:
            final_fresh[v], ahead[entry[v]] = -1, end - since[v]


@njit
def walk_steps(
    source: Any, target: Any, steps: Any, ends: Any, end: Any, only_last: Any, active: Any, nodes: Any, fresh: Any,
    ahead: Any, owner: Any, role: Any, gap: Any, previous: Any, previous_fresh: Any, final_gap: Any, final_fresh: Any,
    partners: Any, offsets: Any, shares: Any,
) -> None:  # fmt: skip
    """The same step by step, each of which reads only what was before it."""
    num_nodes, count = len(final_gap), 0
    start = steps[0] if len(steps) > 0 else end
    seen, entry = np.full(num_nodes, -1, np.int64), np.full(num_nodes, -1, np.int64)
    first_span, first_role = np.full(num_nodes, -1, np.int64), np.zeros(num_nodes, np.int8)
    met, since, filled = np.full(num_nodes, num_nodes, np.int64), np.full(num_nodes, start), offsets[1:].copy()
    for s in range(len(steps)):
        active[s] = count
        for e in range(ends[s], ends[s + 1]):
            for side in range(2):
                node = np.int64(source[e]) if side == 0 else np.int64(target[e])
                if seen[node] != s:
                    seen[node] = s
                    fresh[count] = previous_fresh[count] = -1
                    if first_span[node] < 0:
                        first_span[node], first_role[node], fresh[count] = s, side, side
                        previous_fresh[count] = 1 - side
                    else:
                        ahead[entry[node]] = steps[s] - since[node]
                    nodes[count] = owner[count] = node
                    gap[count], previous[count], entry[node] = steps[s] - since[node], met[node], count
                    count += 1
                role[entry[node]] = side
                filled[entry[node]] += 1
        for k in range(active[s], count):
            offsets[k + 1] = offsets[k] + (1 if only_last else filled[k])
            filled[k] = 0
        for e in range(ends[s], ends[s + 1]):
            for side in range(2):
                node, other = np.int64(source[e]), np.int64(target[e])
                if side == 1:
                    node, other = other, node
                k = entry[node]
                partners[offsets[k] + filled[k]] = met[node] = other
                since[node] = steps[s]
                filled[k] += np.int64(0 if only_last else 1)
        for k in range(active[s], count):
            share = np.float32(1 / (offsets[k + 1] - offsets[k]))
            for i in range(offsets[k], offsets[k + 1]):
                if first_span[partners[i]] == s:
                    shares[k, first_role[partners[i]]] += share
    active[-1] = count
    for v in range(num_nodes):
        final_gap[v] = end - since[v]
        if entry[v] >= 0:
            final_fresh[v], ahead[entry[v]] = -1, end - since[v]
