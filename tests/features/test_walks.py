from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from chronospike.data.build import build_graph
from chronospike.data.events import Events, Steps
from chronospike.data.graph import DynamicGraph
from chronospike.data.ids import NodeIds
from chronospike.errors import GraphError
from chronospike.features.biased_walks import random_walks
from chronospike.features.walks import Snapshot, cumulative_snapshot, derive_key, walk_starts
from tests.features import reference
from tests.path_of_four import path_of_four
from tests.six_nodes import six_nodes


def snapshot_of(rows: list[list[int]]) -> Snapshot:
    degrees = np.array([len(row) for row in rows], dtype=np.int32)
    indptr = np.concatenate([[0], np.cumsum(degrees)]).astype(np.int64)
    return Snapshot(indptr, degrees, np.array([v for row in rows for v in row], dtype=np.int32), np.arange(len(rows)))


@st.composite
def graphs(draw: st.DrawFn) -> DynamicGraph:
    nodes, steps = draw(st.integers(2, 12)), draw(st.integers(1, 4))
    node = st.integers(0, nodes - 1)
    edges = draw(st.lists(st.tuples(node, node, st.integers(0, steps - 1)), min_size=1, max_size=30))
    edges.append((0, 1, 0))
    source, target, step = (np.array(column) for column in zip(*edges, strict=True))
    times = np.arange(steps)
    events = Events(source, target, times[step], NodeIds.range(nodes))
    return build_graph(events, Steps(step.astype(np.int32), times, times), directed=draw(st.booleans()))


@settings(max_examples=60, deadline=None)
@given(graphs(), st.integers(0, 2**64 - 1))
def test_every_move_is_along_an_edge_of_a_step_up_to_t(graph: DynamicGraph, key: int) -> None:
    for step in range(graph.num_steps):
        allowed = [set(graph.history.before(v, step + 1).tolist()) for v in range(graph.num_nodes)]
        snapshot = cumulative_snapshot(graph, step)
        for walk in random_walks(snapshot, walk_starts(snapshot, key), 9, key, threads=1):
            nodes = walk[walk >= 0].tolist()
            assert all(b in allowed[a] for a, b in pairwise(nodes))
            assert len(nodes) == 9 or not allowed[nodes[-1]]


@settings(max_examples=25, deadline=None)
@given(graphs(), st.integers(0, 2**64 - 1))
def test_compiled_walks_equal_the_plain_ones(graph: DynamicGraph, key: int) -> None:
    snapshot = cumulative_snapshot(graph, graph.num_steps - 1)
    starts = walk_starts(snapshot, key)
    walks = random_walks(snapshot, starts, 7, key, threads=1)
    plain = [reference.walk(snapshot, int(start), 7, key) for start in starts]
    assert [walk[walk >= 0].tolist() for walk in walks] == plain


def test_an_edge_of_a_later_step_is_not_walked() -> None:
    snapshot = cumulative_snapshot(path_of_four(steps=(0, 1, 1), count=2), 0)
    walks = random_walks(snapshot, walk_starts(snapshot, 5), 10, key=5)
    assert sorted(np.unique(walks).tolist()) == [0, 1]


def test_a_node_without_neighbours_is_a_walk_of_one() -> None:
    snapshot = snapshot_of([[1], [0], []])
    walks = random_walks(snapshot, np.array([2], dtype=np.int32), 5, key=0)
    assert walks.tolist() == [[2, -1, -1, -1, -1]]


def test_starts_are_every_node_with_a_neighbour_once() -> None:
    snapshot = cumulative_snapshot(six_nodes(), 1)
    assert sorted(walk_starts(snapshot, 1).tolist()) == [0, 1, 2]


def test_starts_of_another_key_have_another_order() -> None:
    snapshot = snapshot_of([[1]] * 100)
    assert walk_starts(snapshot, 1).tolist() != walk_starts(snapshot, 2).tolist()


def test_walks_do_not_depend_on_the_threads() -> None:
    snapshot = cumulative_snapshot(six_nodes(), 3)
    starts = np.tile(walk_starts(snapshot, 1), 20)
    one, three = (random_walks(snapshot, starts, 20, 8, threads=threads) for threads in (1, 3))
    assert (one == three).all()


def test_a_walk_is_keyed_by_the_id_of_its_start() -> None:
    rows = [[1, 2], [0, 2], [0, 1, 3], [2]]
    plain, other = snapshot_of(rows), snapshot_of(rows)._replace(keys=np.array([8, 1, -3, 0]))
    starts = np.array([1, 0], dtype=np.int32)
    walks, again = (random_walks(snapshot, starts, 30, 6) for snapshot in (plain, other))
    assert (walks[0] == again[0]).all()
    assert (walks[1] != again[1]).any()
    assert again[1].tolist() == reference.walk(other, 0, 30, 6)


def test_visits_are_proportional_to_degree() -> None:
    # Triangle 0-1-2 with a tail 2-3: connected and not bipartite, degrees 2, 2, 3, 1.
    snapshot = snapshot_of([[1, 2], [0, 2], [0, 1, 3], [2]])
    starts = np.arange(4, dtype=np.int32)
    walks = np.concatenate([random_walks(snapshot, starts, 500, derive_key(3, i)) for i in range(500)])
    # Of a million moves every fifth from the fiftieth on: the start is forgotten and the draws are near independent.
    counts = np.bincount(walks[:, 50::5].ravel(), minlength=4)
    assert chisquare(counts, counts.sum() * np.array([2, 2, 3, 1]) / 8).pvalue > 1e-3


def test_a_directed_walk_goes_against_the_edges_and_stops_at_a_source() -> None:
    snapshot = cumulative_snapshot(path_of_four(directed=True), 0)
    walks = random_walks(snapshot, np.array([3], dtype=np.int32), 6, key=1)
    assert walks.tolist() == [[3, 2, 1, 0, -1, -1]]


def test_a_step_outside_the_graph_is_refused() -> None:
    with pytest.raises(GraphError, match=r"step 4 is outside 0\.\.3"):
        cumulative_snapshot(six_nodes(), 4)
