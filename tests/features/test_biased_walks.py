from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from chronospike.features.biased_walks import UNIFORM, Bias, contains, random_walks, walk_bias
from chronospike.features.walks import Snapshot, cumulative_snapshot, derive_key, sorted_rows, walk_starts
from tests.features import reference
from tests.features.test_walks import graphs, snapshot_of
from tests.six_nodes import six_nodes

# A triangle 0-1-2 with the pendant 1-3.
PENDANT = [[1, 2], [0, 2, 3], [0, 1], [1]]
PARAMETERS = [(0.25, 4.0), (0.5, 2.0), (1.0, 0.5), (4.0, 0.25), (1.0, 1.0), (50.0, 50.0), (0.01, 1.0), (3.0, 1e-3)]


def random_snapshot(nodes: int, edges: int, directed: bool, seed: int = 0) -> Snapshot:
    """Without nodes that have no neighbour, so that no walk ends."""
    rng = np.random.default_rng(seed)
    rows = [{(v + 1) % nodes} for v in range(nodes)]
    for a, b in rng.integers(0, nodes, (edges, 2)).tolist():
        if a != b:
            rows[a].add(b)
    if not directed:
        for v, row in enumerate(rows):
            for x in list(row):
                rows[x].add(v)
    return snapshot_of([sorted(row) for row in rows])


def moves(snapshot: Snapshot, bias: Bias, length: int) -> dict[tuple[int, int], np.ndarray]:
    """How often long walks went on to each node, by the one before and the one they were at."""
    walks = random_walks(snapshot, np.arange(len(snapshot.degrees), dtype=np.int32), length, 12345, bias, 2)
    size = len(snapshot.degrees)
    codes = (walks[:, :-2].astype(np.int64) * size + walks[:, 1:-1]) * size + walks[:, 2:]
    counts = np.bincount(codes.ravel(), minlength=size**3).reshape(size, size, size)
    return {(t, v): counts[t, v] for t in range(size) for v in range(size) if counts[t, v].sum()}


def test_moves_after_a_triangle_give_the_known_answer() -> None:
    counts = moves(snapshot_of(PENDANT), walk_bias(0.25, 4), 2_000_000)[0, 1]
    assert counts.sum() > 10**6
    expected = np.array([0.761905, 0, 0.190476, 0.047619])
    deviation = np.sqrt(expected * (1 - expected) / counts.sum())
    assert (np.abs(counts / counts.sum() - expected) <= 3 * deviation + 1e-6).all()


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize(("p", "q"), PARAMETERS)
def test_every_move_has_its_probability(p: float, q: float, directed: bool) -> None:
    """Over all pairs of nodes at once: the sum of independent chi-squares is one."""
    snapshot = random_snapshot(9, 12, directed)
    statistic, freedom = 0.0, 0
    for (t, v), counts in moves(snapshot, walk_bias(p, q, directed), 60_000).items():
        wanted = reference.move_probabilities(snapshot, t, v, p, q)
        expected = np.array(list(wanted.values())) * counts.sum()
        found = counts[list(wanted)]
        assert found.sum() == counts.sum()
        many = expected >= 5
        if many.sum() > 1:
            # The rare ones together, so that both sides add up to the same.
            rest = [expected[~many].sum()] if expected[~many].sum() >= 5 else []
            found = np.append(found[many], found[~many].sum() if rest else [])
            expected = np.append(expected[many], rest)
            statistic += ((found - expected) ** 2 / expected).sum()
            freedom += len(expected) - 1
    assert statistic < freedom + 5 * math.sqrt(2 * freedom)


@settings(max_examples=40)
@given(graphs(), st.integers(0, 2**64 - 1), st.sampled_from(PARAMETERS))
def test_compiled_walks_equal_the_plain_ones(graph, key: int, parameters: tuple[float, float]) -> None:  # type: ignore[no-untyped-def]
    snapshot = sorted_rows(cumulative_snapshot(graph, graph.num_steps - 1))
    bias, starts = walk_bias(*parameters, graph.directed), walk_starts(snapshot, key)
    walks = random_walks(snapshot, starts, 12, key, bias, threads=1)
    plain = [reference.biased_walk(snapshot, int(start), 12, key, bias) for start in starts]
    assert [walk[walk >= 0].tolist() for walk in walks] == plain


@pytest.mark.parametrize("directed", [False, True])
def test_p_and_q_of_one_give_the_uniform_walks(directed: bool) -> None:
    snapshot = random_snapshot(40, 90, directed)
    starts = walk_starts(snapshot, 3)
    plain = [reference.walk(snapshot, int(start), 50, 77) for start in starts]
    assert random_walks(snapshot, starts, 50, 77, walk_bias(1, 1, directed)).tolist() == plain


def test_walks_do_not_depend_on_the_threads() -> None:
    snapshot, bias = random_snapshot(70, 200, False), walk_bias(0.5, 2)
    starts = walk_starts(snapshot, 1)
    one, three = (random_walks(snapshot, starts, 30, 8, bias, threads) for threads in (1, 3))
    assert (one == three).all()


def test_an_infinite_p_goes_back_only_from_a_dead_end() -> None:
    for (old, _), counts in moves(snapshot_of(PENDANT), walk_bias(math.inf, 1), 20_000).items():
        others = np.delete(counts, old)
        assert counts[old] == 0 or others.sum() == 0


def test_an_infinite_q_stays_among_the_neighbours_of_the_node_before() -> None:
    snapshot = random_snapshot(9, 8, False)
    for (old, _), counts in moves(snapshot, walk_bias(1, math.inf), 20_000).items():
        near = {old, *reference.row(snapshot, old)}
        assert set(np.flatnonzero(counts).tolist()) <= near


def test_a_small_p_goes_to_and_fro() -> None:
    walks = random_walks(random_snapshot(30, 90, False), np.arange(30, dtype=np.int32), 50, 5, walk_bias(1e-9, 1))
    assert all((walk[::2] == walk[0]).all() and (walk[1::2] == walk[1]).all() for walk in walks)


def test_a_directed_walk_does_not_go_back_where_no_edge_leads() -> None:
    """0 -> 1 -> 2 -> 0 and 1 -> 3 -> 0: however small p is, there is no way back."""
    snapshot = snapshot_of([[1], [2, 3], [0], [0]])
    walks = random_walks(snapshot, np.arange(4, dtype=np.int32), 1000, 1, walk_bias(1e-6, 1, directed=True))
    allowed = {(0, 1), (1, 2), (1, 3), (2, 0), (3, 0)}
    assert {move for walk in walks.tolist() for move in pairwise(walk)} == allowed
    counts = np.bincount(walks[:, 2:][walks[:, 1:-1] == 1], minlength=4)
    assert chisquare(counts[2:]).pvalue > 1e-3


def test_a_walk_ends_at_a_node_without_neighbours() -> None:
    walks = random_walks(snapshot_of([[1], [2], []]), np.array([0, 2], np.int32), 5, 0, walk_bias(0.5, 2, True))
    assert walks.tolist() == [[0, 1, 2, -1, -1], [2, -1, -1, -1, -1]]


def test_two_nodes_go_to_and_fro() -> None:
    walks = random_walks(snapshot_of([[1], [0]]), np.array([0], np.int32), 5, 9, walk_bias(100, 100))
    assert walks.tolist() == [[0, 1, 0, 1, 0]]


@given(st.sets(st.integers(0, 50)), st.integers(-1, 51))
def test_a_neighbour_is_found_in_a_row(row: set[int], node: int) -> None:
    rows = np.array([-5, *sorted(row), 99], dtype=np.int32)
    assert contains(rows, 1, len(row), node) == (node in row)


def test_weights_are_shares_of_the_larger_of_near_and_far() -> None:
    assert walk_bias(0.5, 4) == (2**33, 2**32, 2**30, 1.0, True)
    assert walk_bias(8, 0.5, directed=True) == (2**28, 2**31, 2**32, 0.0, False)
    assert walk_bias(math.inf, math.inf)[:3] == (1, 2**32, 1)


def test_only_equal_weights_are_uniform() -> None:
    assert UNIFORM.is_uniform
    assert not walk_bias(1, 2).is_uniform
    assert not walk_bias(0.5, 1).is_uniform


def test_later_edges_are_left_out_of_sorted_rows() -> None:
    snapshot = sorted_rows(cumulative_snapshot(six_nodes(), 2), threads=2)
    assert [reference.row(snapshot, v) for v in range(6)] == [[1, 2, 3], [0, 2], [0, 1], [0], [], []]
    assert snapshot.indptr.tolist() == [0, 3, 5, 7, 8, 8, 8]
    assert len(snapshot.neighbours) == 8


def test_a_pass_of_another_key_makes_other_walks() -> None:
    snapshot, bias = random_snapshot(30, 90, False), walk_bias(0.5, 2)
    starts = np.arange(30, dtype=np.int32)
    one, other = (random_walks(snapshot, starts, 20, derive_key(0, i), bias) for i in range(2))
    assert (one != other).any(axis=1).mean() > 0.9
