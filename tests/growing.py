"""Graphs as they were at a moment, and the same graphs with what came later: nodes, edges and steps."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from chronospike.data.graph import DynamicGraph
from chronospike.data.ingest import import_graph

WIDTH = 10

INTEGERS = st.one_of(st.integers(-20, 20), st.integers(-(10**17), 10**17))
# Numbers among them too; the first event sees to it that not all are.
TEXTS = st.text("0159-aAmzé", min_size=1, max_size=3)
FIRST_EVENT = {"integers": (0, 7, 0), "texts": ("m", "5", 0)}


class Growing(NamedTuple):
    """`past` ends before a moment, `whole` continues.

    Attributes:
        place: `[N]` the index in `whole` of each node of `past`.
        steps: the steps of both that had ended by that moment.
    """

    past: DynamicGraph
    whole: DynamicGraph
    place: NDArray[np.int64]
    steps: list[int]


@st.composite
def growing(draw: st.DrawFn, kind: str) -> Growing:
    """A random graph with ids of a `kind`, "integers" or "texts"; ids of later nodes sort anywhere among the others."""
    node = INTEGERS if kind == "integers" else TEXTS
    now = draw(st.integers(WIDTH, 4 * WIDTH))
    few = draw(st.lists(node, min_size=1, max_size=6))
    known = st.sampled_from([*FIRST_EVENT[kind][:2], *few])
    either = st.one_of(known, node)
    past = [FIRST_EVENT[kind], *draw(st.lists(st.tuples(known, known, st.integers(0, now - 1)), max_size=25))]
    future = draw(st.lists(st.tuples(either, either, st.integers(now, now + 3 * WIDTH)), min_size=1, max_size=25))
    directed = draw(st.booleans())
    return grown(past, future, now, directed)


def grown(past: list[Any], future: list[Any], now: int, directed: bool = False) -> Growing:
    """Of (source, target, time) events before and after `now`, in steps of `WIDTH`."""
    before, whole = (_graph_of(events, directed) for events in (past, past + future))
    ended = np.flatnonzero(before.step_end <= now)
    return Growing(before, whole, whole.ids.lookup(before.ids.values), ended.tolist())


def _graph_of(events: list[Any], directed: bool) -> DynamicGraph:
    source, target, time = ([event[i] for event in events] for i in range(3))
    return import_graph((source, target, np.array(time)), every=WIDTH, directed=directed)


def clique_that_grew() -> tuple[DynamicGraph, DynamicGraph]:
    """A graph, and the same with a new node whose id comes first and an edge more, a step later."""
    pairs = [(a, b) for a in range(1, 13) for b in range(1, a)]
    edges = [(a, b, 0) for a, b in pairs]
    later = [*edges, (0, 3, 1), (1, 14, 1), (14, 3, 1)]
    graphs = []
    for rows in (edges, later):
        source, target, time = (np.array(column) for column in zip(*rows, strict=True))
        graphs.append(import_graph((source, target, time)))
    return graphs[0], graphs[1]
