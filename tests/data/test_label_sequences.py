from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from chronospike.data.build import build_graph
from chronospike.data.events import Events, Steps
from chronospike.data.graph import DynamicGraph
from chronospike.data.ids import NodeIds
from chronospike.data.label_sequences import label_counts, share_near_known
from tests.six_nodes import six_nodes
from tests.small_runs import small_graph, with_other_future

KNOWN, LABELS = np.array([0, 2, 3]), np.array([0, 1, 1])
# A row per node and step: neighbours of class a, of class b, and without a known label.
SIX = [
    [[0, 0, 1], [0, 1, 0], [0, 1, 1], [0, 0, 1]],
    [[1, 0, 0], [0, 1, 0], [1, 0, 0], [0, 0, 0]],
    [[0, 0, 0], [1, 0, 1], [0, 0, 0], [0, 1, 0]],
    [[0, 0, 0], [0, 0, 0], [1, 0, 0], [0, 1, 0]],
    [[0, 0, 0], [0, 0, 0], [0, 0, 0], [1, 0, 0]],
    [[0, 0, 0], [0, 0, 0], [0, 0, 0], [0, 0, 0]],
]


def _six(directed: bool = False) -> DynamicGraph:
    return six_nodes(directed).with_labels(np.array([0, 0, 1, 1, 0, 1]), ("a", "b"))


def test_six_nodes_by_hand() -> None:
    assert label_counts(_six(), KNOWN, LABELS).tolist() == SIX


def test_of_directed_edges_both_ends_count() -> None:
    """0-1 goes both ways at step 0, which makes it two edges; all else is as in the undirected graph."""
    expected = np.array(SIX)
    expected[0, 0], expected[1, 0] = [0, 0, 2], [2, 0, 0]
    assert label_counts(_six(directed=True), KNOWN, LABELS).tolist() == expected.tolist()


@pytest.mark.parametrize("directed", [False, True])
def test_as_of_a_step_there_are_the_steps_up_to_it(directed: bool) -> None:
    whole = label_counts(_six(directed), KNOWN, LABELS)
    assert np.array_equal(label_counts(_six(directed), KNOWN, LABELS, last_step=1), whole[:, :2])


def test_as_of_a_step_nothing_later_matters() -> None:
    graph, known = small_graph(), np.arange(60)
    labels = np.asarray(graph.labels)[known]
    one, other = (label_counts(g, known, labels, last_step=2) for g in (graph, with_other_future(graph, 2)))
    assert np.array_equal(one, other)


def test_with_no_known_label_every_neighbour_is_unlabelled() -> None:
    found = label_counts(_six(), KNOWN[:0], LABELS[:0])
    assert not found[:, :, :2].any()
    assert np.array_equal(found[:, :, 2], np.array(SIX).sum(axis=2))


def _random(seed: int, directed: bool) -> tuple[DynamicGraph, NDArray[np.int64]]:
    rng = np.random.default_rng(seed)
    source, target = rng.integers(0, 30, (2, 150))
    step, times = rng.integers(0, 4, 150).astype(np.int32), np.arange(4)
    events = Events(source, target, times[step], NodeIds.range(30))
    labels = rng.integers(0, 3, 30)
    return build_graph(events, Steps(step, times, times), directed=directed).with_labels(labels, tuple("abc")), labels


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_a_nodes_own_label_changes_its_neighbours_rows_and_never_its_own(seed: int, directed: bool) -> None:
    graph, labels = _random(seed, directed)
    known = np.arange(30)
    before = label_counts(graph, known, labels)
    rows, _, neighbours = graph.snapshot.entries()
    for node in known:
        other = labels.copy()
        other[node] = (other[node] + 1) % 3
        changed = np.flatnonzero((label_counts(graph, known, other) != before).any(axis=(1, 2)))
        met = {*neighbours[rows == node].tolist(), *rows[neighbours == node].tolist()}
        assert set(changed.tolist()) == met - {node}


def test_more_neighbours_than_sixteen_bits_hold_are_capped() -> None:
    leaves = 32_770
    hub, others = np.zeros(leaves, dtype=np.int64), np.arange(1, leaves + 1)
    events = Events(hub, others, np.zeros(leaves), NodeIds.range(leaves + 1))
    graph = build_graph(events, Steps(np.zeros(leaves, dtype=np.int32), np.array([0]), np.array([0])))
    graph = graph.with_labels(np.zeros(leaves + 1, dtype=np.int64), ("a", "b"))
    assert label_counts(graph, others[:5], np.zeros(5, dtype=np.int64))[0, 0].tolist() == [5, 0, 32_765]
    assert label_counts(graph, others[:2], np.zeros(2, dtype=np.int64))[0, 0].tolist() == [2, 0, 32_767]


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize(
    ("known", "last", "share"),
    [
        # Five nodes have an edge: all the others have met node 0, and node 4 has met node 0 alone.
        ([0], None, 4 / 5),
        ([4], None, 1 / 5),
        ([0, 1], None, 1),
        ([5], None, 0),
        ([], None, 0),
        # By step 1 there are edges of nodes 0, 1 and 2.
        ([0], 1, 2 / 3),
        ([4], 1, 0),
        ([0], 0, 1 / 2),
    ],
)
def test_the_share_of_nodes_near_a_known_label_by_hand(
    known: list[int], last: int | None, share: float, directed: bool
) -> None:
    assert share_near_known(_six(directed), np.array(known, dtype=np.int64), last) == pytest.approx(share)


def test_where_nobody_has_an_edge_yet_nobody_is_near() -> None:
    times = np.arange(2)
    events = Events(np.array([0]), np.array([1]), np.array([1]), NodeIds.range(2))
    graph = build_graph(events, Steps(np.array([1], dtype=np.int32), times, times))
    assert share_near_known(graph, np.array([0, 1]), last_step=0) == 0
    assert share_near_known(graph, np.array([0, 1])) == 1


@pytest.mark.parametrize("directed", [False, True])
def test_it_agrees_with_counting_edge_by_edge(directed: bool) -> None:
    graph, labels = _random(5, directed)
    known = np.arange(0, 30, 2)
    kinds, expected = np.where(np.arange(30) % 2, 3, labels), np.zeros((30, 4, 4), dtype=np.int16)
    for row, step, neighbour in zip(*graph.snapshot.entries(), strict=True):
        expected[row, step, kinds[neighbour]] += 1
        if directed:
            expected[neighbour, step, kinds[row]] += 1
    found = label_counts(graph, known, labels[known])
    assert found.dtype == np.int16
    assert np.array_equal(found, expected)


def test_counts_end_at_the_largest_of_sixteen_bits() -> None:
    others = np.arange(1, 40_001)
    events = Events(np.zeros_like(others), others, np.zeros_like(others), NodeIds.range(40_001))
    steps = Steps(np.zeros(40_000, dtype=np.int32), np.arange(1), np.arange(1))
    graph = build_graph(events, steps, directed=False).with_labels(np.zeros(40_001, dtype=np.int64), ("a",))
    assert label_counts(graph, others, 0 * others)[0].tolist() == [[2**15 - 1, 0]]
