from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from chronospike.data.build import build_graph
from chronospike.data.events import Events, Steps
from chronospike.data.graph import DynamicGraph
from chronospike.data.ids import NodeIds
from chronospike.errors import GraphError
from chronospike.methods.step_graphs import Kind, all_edges, step_graphs
from tests.six_nodes import EDGES, six_nodes

Pair = tuple[int, int]


def _sets(graph: DynamicGraph, last_step: int, **options: object) -> list[set[Pair]]:
    """The edges of each step, lower end first."""
    graphs = step_graphs(graph, last_step, **options)  # type: ignore[arg-type]
    edges = all_edges(graphs)
    pairs = list(zip(edges.steps.tolist(), edges.first.tolist(), edges.second.tolist(), strict=True))
    assert pairs == sorted(pairs)
    return [{(u, v) for step, u, v in pairs if step == t} for t in range(graphs.num_steps)]


def _wanted(last_step: int, kind: Kind, window: int, stride: int) -> list[set[Pair]]:
    ours = [t for t in range(last_step + 1) if (last_step - t) % stride == 0]
    window = 100 if kind == "cumulative" else max(window, stride)
    return [{(min(u, v), max(u, v)) for u, v, s in EDGES if u != v and t - window < s <= t} for t in ours]


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("kind", ["evolving", "cumulative"])
@pytest.mark.parametrize("window", [1, 2, 9])
@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("last_step", [0, 2, 3])
def test_a_step_holds_the_edges_of_its_window(
    directed: bool, kind: Kind, window: int, stride: int, last_step: int
) -> None:
    found = _sets(six_nodes(directed), last_step, kind=kind, window=window, stride=stride)
    assert found == _wanted(last_step, kind, window, stride)


def test_evolving_graphs_share_the_memory_of_the_snapshot() -> None:
    graph = six_nodes()
    neighbours = np.asarray(graph.snapshot.neighbours, dtype=np.int32)
    graph = replace(graph, snapshot=replace(graph.snapshot, neighbours=neighbours))
    assert np.shares_memory(step_graphs(graph, 3).neighbours, neighbours)


def test_an_edge_weighs_as_much_as_its_events() -> None:
    graphs = step_graphs(six_nodes(), 3, kind="cumulative", count_events=True)
    edges = all_edges(graphs)
    weights = {(t, u, v): w for t, u, v, w in zip(*(x.tolist() for x in edges), strict=True)}
    # 0-1 twice at step 0 and once at step 2.
    assert [weights[t, 0, 1] for t in range(4)] == [2, 2, 3, 3]
    assert weights[3, 2, 3] == 1


def test_without_events_edges_cannot_be_weighed_by_them() -> None:
    with pytest.raises(GraphError, match="without its events"):
        step_graphs(replace(six_nodes(), events=None), 3, count_events=True)


def test_an_edge_in_both_directions_of_a_directed_graph_is_one_edge() -> None:
    step = np.zeros(2, dtype=np.int32)
    events = Events(np.array([0, 1]), np.array([1, 0]), np.array([5, 5]), NodeIds.range(2))
    graph = build_graph(events, Steps(step, np.array([5]), np.array([5])), directed=True)
    assert _sets(graph, 0) == [{(0, 1)}]
