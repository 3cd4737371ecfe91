from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from chronospike.data.build import build_graph
from chronospike.data.events import Events, Steps
from chronospike.data.graph import DynamicGraph
from chronospike.data.ids import NodeIds
from chronospike.methods import triads as kernels
from chronospike.methods.step_graphs import Edges, StepGraphs, all_edges, step_graphs
from chronospike.methods.triads import Triads, closing_coefficients, corrupted, draw_triads, open_corners

# k = 2 and m = 3 are the common neighbours of a = 0 and b = 1, which meet at step 1.
SQUARE = [(0, 2, 0), (1, 2, 0), (0, 3, 0), (1, 3, 0), (0, 1, 1)]
PLACES = np.array([[0, 0], [1, 0], [0.5, 0.5], [0, 1]], dtype=np.float32)
THETA = np.array([0.6, 0.8], dtype=np.float32)


def graph_of(edges: list[tuple[int, int, int]], nodes: int) -> DynamicGraph:
    source, target, step = (np.array(column) for column in zip(*edges, strict=True))
    times = np.arange(step.max() + 1)
    events = Events(source, target, times[step], NodeIds.range(nodes))
    return build_graph(events, Steps(step.astype(np.int32), times, times))


def graphs_of(edges: list[tuple[int, int, int]], nodes: int) -> StepGraphs:
    graph = graph_of(edges, nodes)
    return step_graphs(graph, graph.num_steps - 1)


def random_edges(nodes: int, steps: int, count: int, seed: int = 0) -> list[tuple[int, int, int]]:
    rng = np.random.default_rng(seed)
    drawn = [(int(u), int(v), int(t)) for u, v, t in rng.integers(0, [nodes, nodes, steps], (count, 3)) if u != v]
    return [*drawn, *((0, 1, t) for t in range(steps))]


def adjacency(edges: list[tuple[int, int, int]], nodes: int) -> NDArray[np.bool_]:
    """`[T, N, N]`."""
    found = np.zeros((1 + max(t for _, _, t in edges), nodes, nodes), dtype=np.bool_)
    for u, v, t in edges:
        found[t, u, v] = found[t, v, u] = True
    return found


def _triads(edges: list[tuple[int, int, int]], nodes: int, count: int, key: int = 1, threads: int = 1) -> Triads:
    graphs = graphs_of(edges, nodes)
    listed = all_edges(graphs)
    return draw_triads(graphs, listed, open_corners(graphs, listed), count, key, threads)


def _times(edges: Edges, times: int) -> Edges:
    return edges.part(np.repeat(np.arange(edges.size), times))


def test_a_corrupted_edge_keeps_one_end_and_its_ends_are_strangers() -> None:
    edges = random_edges(12, 3, 60)
    near, graphs = adjacency(edges, 12), graphs_of(edges, 12)
    listed = _times(all_edges(graphs), 50)
    first, second = corrupted(graphs, listed, 7)
    assert (first >= 0).all()
    assert not near[listed.steps, first, second].any()
    assert (first != second).all()
    assert ((first == listed.first) ^ (second == listed.second)).all()


def test_the_new_end_is_uniform_over_the_strangers_and_the_coin_is_fair() -> None:
    # Node 2 lies between its neighbours 0, 1, 5: its strangers are 3, 4, 6, 7.
    graphs = graphs_of([(2, 0, 0), (2, 1, 0), (2, 5, 0)], 8)
    edges = _times(all_edges(graphs), 20_000)
    first, second = corrupted(graphs, edges, 3)
    kept = np.where(edges.first == 2, first == 2, second == 2)
    assert abs(kept.mean() - 0.5) < 0.01
    others = np.where(edges.first == 2, second, first)[kept]
    shares = np.bincount(others, minlength=8) / len(others)
    assert np.allclose(shares, [0, 0, 0, 0.25, 0.25, 0, 0.25, 0.25], atol=0.01)


@pytest.mark.parametrize("nodes", [2, 5])
def test_in_a_complete_graph_no_edge_can_be_corrupted_and_no_triad_is_open(nodes: int) -> None:
    edges = [(u, v, t) for t in range(2) for u in range(nodes) for v in range(u)]
    graphs = graphs_of(edges, nodes)
    listed = all_edges(graphs)
    first, second = corrupted(graphs, listed, 1)
    assert (first == -1).all()
    assert (second == -1).all()
    assert len(open_corners(graphs, listed)) == 0
    assert _triads(edges, nodes, 10).size == 0


def test_the_centre_of_a_star_has_no_strangers_and_its_leaves_have() -> None:
    graphs = graphs_of([(0, leaf, 0) for leaf in range(1, 6)], 6)
    edges = _times(all_edges(graphs), 100)
    first, second = corrupted(graphs, edges, 1)
    # Replaced was the centre, or nothing.
    assert set(first[first >= 0]) <= set(range(1, 6))
    assert 0.4 < (first < 0).mean() < 0.6
    assert ((first < 0) == (second < 0)).all()


def test_triads_are_open_and_ascend_in_time_and_close_where_their_ends_meet_next() -> None:
    edges = random_edges(30, 5, 300)
    near, triads = adjacency(edges, 30), _triads(edges, 30, 4000)
    t, c, a, b = triads.steps, triads.centre, triads.a, triads.b
    assert triads.size == 4000
    assert near[t, c, a].all()
    assert near[t, c, b].all()
    assert not near[t, a, b].any()
    assert (a != b).all()
    assert (np.diff(t) >= 0).all()
    assert np.array_equal(triads.closes, near[t + 1, a, b])
    assert triads.closes.any()


def test_every_open_corner_is_drawn_equally_often_and_so_is_each_third_node() -> None:
    # Three leaves at step 0: each of the three corners at the centre has two third nodes.
    edges = [(0, 1, 0), (0, 2, 0), (0, 3, 0), (4, 5, 1)]
    triads = _triads(edges, 6, 60_000)
    assert (triads.centre == 0).all()
    shares = np.bincount(triads.a * 4 + triads.b, minlength=16) / 60_000
    assert np.allclose(shares[[6, 7, 9, 11, 13, 14]], 1 / 6, atol=0.01)


def test_a_third_node_that_is_hard_to_draw_is_found_among_all_neighbours() -> None:
    # Of the 99 neighbours of node 0 all but node 100 are adjacent to node 1.
    edges = [(0, v, 0) for v in range(1, 101)] + [(1, v, 0) for v in range(2, 100)] + [(1, 2, 1)]
    graphs = graphs_of(edges, 101)
    listed = all_edges(graphs)
    corners = open_corners(graphs, listed)
    own = corners[(listed.first[corners // 2] == 0) & (listed.second[corners // 2] == 1) & (corners % 2 == 0)]
    found = draw_triads(graphs, listed, own, 500, 1)
    assert set(zip(found.centre, found.a, found.b, strict=True)) == {(0, 1, 100)}


def test_edges_of_the_last_step_are_in_no_triad() -> None:
    assert _triads([(0, 1, 0), (0, 2, 0)], 3, 5).size == 0
    assert _triads([(0, 1, 0), (1, 2, 1), (0, 2, 1)], 3, 5).size == 0


def test_draws_do_not_depend_on_the_number_of_threads() -> None:
    edges = random_edges(30, 5, 300)
    one, many = (_triads(edges, 30, 1000, threads=threads) for threads in (1, 4))
    assert all(np.array_equal(x, y) for x, y in zip(one, many, strict=True))


def _square(weights: list[float] | None = None) -> tuple[StepGraphs, Triads]:
    """Both triads of the square, closed by 0-1."""
    graphs = graphs_of(SQUARE, 4)
    if weights is not None:
        graphs = graphs._replace(weights=np.array(weights, dtype=np.float32))
    t, c, a, b = (np.array(x, dtype=np.int32) for x in ([0, 0], [2, 3], [0, 0], [1, 1]))
    ones = np.ones(2, dtype=np.float32)
    return graphs, Triads(t, c, a, b, ones, ones, np.ones(2, dtype=np.bool_))


def _scores(steps: int = 2) -> NDArray[np.float32]:
    return np.tile(PLACES @ THETA, (steps, 1)).astype(np.float32)


def test_coefficients_of_the_square_are_those_worked_out_by_hand() -> None:
    found = closing_coefficients(*_square(), _scores(), 0.0)
    assert found == pytest.approx([0.247264, 0.202443], abs=1e-6)


def test_a_single_common_neighbour_closed_the_triad() -> None:
    graphs = graphs_of([(0, 2, 0), (1, 2, 0), (0, 1, 1)], 4)
    triads = _square()[1].part(slice(1))
    found = closing_coefficients(graphs, triads, _scores(), 0.3)
    assert 0 <= found[0] <= 1e-5


def test_a_triad_that_stays_open_has_the_coefficient_one() -> None:
    graphs, triads = _square()
    found = closing_coefficients(graphs, triads._replace(closes=np.zeros(2, dtype=np.bool_)), _scores(), 0.0)
    assert found.tolist() == [1, 1]


def test_coefficients_agree_with_a_plain_loop_over_common_neighbours() -> None:
    rng = np.random.default_rng(5)
    edges = random_edges(25, 4, 500)
    near, graphs = adjacency(edges, 25), graphs_of(edges, 25)
    listed = all_edges(graphs)
    weigh = np.triu(rng.random((4, 25, 25)).astype(np.float32) + 0.5, 1)
    weigh += weigh.transpose(0, 2, 1)
    rows = np.repeat(np.arange(25), np.diff(graphs.indptr))
    steps = np.concatenate([np.repeat(np.arange(4), np.diff(graphs.offsets[v])) for v in range(25)])
    graphs = graphs._replace(weights=weigh[steps, rows, graphs.neighbours])
    triads = draw_triads(graphs, listed, open_corners(graphs, listed), 300, 2)
    assert np.array_equal(triads.to_a, weigh[triads.steps, triads.centre, triads.a])
    assert np.array_equal(triads.to_b, weigh[triads.steps, triads.centre, triads.b])
    scores, bias = rng.normal(size=(4, 25)).astype(np.float32), 0.2

    def chance(t: int, c: int, a: int, b: int) -> float:
        s = scores[t].astype(np.float64)
        z = weigh[t, c, a] * (s[c] - s[a]) + weigh[t, c, b] * (s[c] - s[b]) + bias
        return float(1 / (1 + np.exp(-z)))

    wanted = []
    for t, c, a, b, *_, closes in zip(*(x.tolist() for x in triads), strict=True):
        nobody = math.prod(1 - chance(t, k, a, b) for k in range(25) if near[t, a, k] and near[t, b, k])
        wanted.append(1 - chance(t, c, a, b) / (1 - nobody + 1e-6) if closes else 1.0)
    assert triads.closes.sum() > 20
    assert closing_coefficients(graphs, triads, scores, bias) == pytest.approx(wanted, abs=1e-5)


def test_of_two_hubs_only_some_common_neighbours_count_the_centre_always() -> None:
    many = kernels._COMMON + 50
    edges = [(hub, 2 + k, 0) for k in range(many) for hub in range(2)] + [(0, 1, 1)]
    triads = _square()[1].part(slice(1))._replace(centre=np.array([many + 1], dtype=np.int32))
    scores = np.full((2, many + 2), -5, dtype=np.float32)
    scores[:, :2] = 0
    found = closing_coefficients(graphs_of(edges, many + 2), triads, scores, 0.0)
    chance = 1 / (1 + np.exp(10))
    assert found[0] == pytest.approx(1 - chance / (1 - (1 - chance) ** kernels._COMMON + 1e-6), abs=1e-5)
