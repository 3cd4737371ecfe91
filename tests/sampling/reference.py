"""The hybrid sampler as one would explain it: plain Python, one slot after the other. And graphs to try it on."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import strategies as st

from chronospike.data.build import build_graph
from chronospike.data.events import Events, Steps
from chronospike.data.graph import DynamicGraph
from chronospike.data.ids import NodeIds
from chronospike.optional import has_triton
from chronospike.rng import derive, stream, threshold
from tests.plain_rng import below, chance

Edge = tuple[int, int, int]

GPU = "cuda" if torch.cuda.is_available() else "cpu"
# The backends and a device for each; without a GPU, Triton's interpreter runs on the CPU.
BACKENDS = [
    {"backend": "numba"},
    pytest.param({"backend": "triton", "device": GPU}, marks=pytest.mark.skipif(not has_triton(), reason="no Triton")),
]


def reference_tree(
    graph: DynamicGraph,
    roots: list[int],
    steps: Iterable[int],
    fanouts: tuple[int, ...] = (5, 2),
    p: float = 0.5,
    history: str = "strict",
    mix: str = "bernoulli",
    replace: bool = False,
    seed: int = 0,
    epoch: int = 0,
    purpose: str = "sampler",
) -> list[list[int]]:
    rows = []
    for step in steps:
        hops: list[list[int]] = [[] for _ in range(len(fanouts) + 1)]
        for root in roots:
            key = derive(derive(stream(seed, purpose, epoch), int(graph.node_keys[root])), step)
            level, slot = [root], 1
            hops[0] += level
            for hop, fanout in enumerate(fanouts, start=1):
                following: list[int] = []
                for node in level:
                    words = [derive(key, slot + j) for j in range(fanout)]
                    known = graph.history.before(node, step + (history == "inclusive")).tolist()
                    active = graph.snapshot.at(node, step).tolist()
                    if mix == "split":
                        count = max(int(fanout * p + 1e-9), 1)
                        takes_history = [j < count for j in range(fanout)]
                    else:
                        takes_history = [chance(word, threshold(p)) for word in words]
                    following += _fill([*known, node], [*active, node], words, takes_history, replace)
                    slot += fanout
                hops[hop] += following
                level = following
        rows.append([node for hop in hops for node in hop])
    return rows


def _fill(known: list[int], active: list[int], words: list[int], takes_history: list[bool], replace: bool) -> list[int]:
    chosen = [-1] * len(words)
    for neighbours, view in ((known, True), (active, False)):
        slots = [j for j, taken in enumerate(takes_history) if taken == view]
        picks = _picks(len(neighbours), [words[j] for j in slots], replace)
        for j, pick in zip(slots, picks, strict=True):
            chosen[j] = neighbours[pick]
    return chosen


def _picks(degree: int, words: list[int], replace: bool) -> list[int]:
    if replace:
        return [below(word, degree) for word in words]
    if degree <= len(words):
        return [*range(degree), *(below(word, degree) for word in words[degree:])]
    picks: list[int] = []
    for word, newest in zip(words, range(degree - len(words), degree), strict=True):
        drawn = below(word, newest + 1)
        picks.append(newest if drawn in picks else drawn)
    return picks


def graph_of(
    edges: list[Edge], num_nodes: int, num_steps: int, directed: bool = False, ids: NodeIds | None = None
) -> DynamicGraph:
    """A graph of (source, target, step) edges; the ids are 0..N-1 unless given."""
    source, target, step = (np.array(column) for column in zip(*edges, strict=True))
    times = np.arange(num_steps)
    events = Events(source, target, times[step], NodeIds.range(num_nodes) if ids is None else ids)
    return build_graph(events, Steps(step.astype(np.int32), times, times), directed=directed)


def hubs() -> DynamicGraph:
    """Five nodes with hundreds of neighbours each, at three steps."""
    rng = np.random.default_rng(0)
    few, others, step = rng.integers(0, 5, 4000), rng.integers(5, 1000, 4000), rng.integers(0, 3, 4000)
    return graph_of(list(zip(few.tolist(), others.tolist(), step.tolist(), strict=True)), 1000, 3)


def renamed(graph: DynamicGraph) -> DynamicGraph:
    """A graph of at most nine nodes with text for ids, some of it numbers."""
    names = ["-7", "0", "12", "a", "b-2", "007", "münchen", "999999999999999999", "x" * 40]
    return replace(graph, ids=NodeIds.of([*names[: graph.num_nodes - 1], "z"]))


@st.composite
def edge_lists(draw: st.DrawFn) -> tuple[list[Edge], int, int]:
    """Edges of a random graph with its counts of nodes and steps; the first edge makes sure there is one."""
    num_nodes, num_steps = draw(st.integers(2, 9)), draw(st.integers(1, 5))
    node, step = st.integers(0, num_nodes - 1), st.integers(0, num_steps - 1)
    edges = draw(st.lists(st.tuples(node, node, step), max_size=40))
    return [(0, 1, 0), *edges], num_nodes, num_steps


settings = st.fixed_dictionaries(
    {
        "fanouts": st.lists(st.integers(1, 6), min_size=1, max_size=3).map(tuple),
        "p": st.sampled_from([0.0, 0.1, 0.3, 0.5, 0.9, 1.0]),
        "history": st.sampled_from(["strict", "inclusive"]),
        "mix": st.sampled_from(["bernoulli", "split"]),
        "replace": st.booleans(),
        "seed": st.integers(-(2**63), 2**64 - 1),
    }
)
