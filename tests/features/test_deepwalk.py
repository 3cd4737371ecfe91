from __future__ import annotations

import numpy as np
import pytest

from chronospike.data.build import build_graph
from chronospike.data.events import Events, Steps
from chronospike.data.graph import DynamicGraph
from chronospike.data.ids import NodeIds
from chronospike.features.deepwalk import DeepWalkSteps
from chronospike.features.options import DeepWalk, Start
from chronospike.features.skipgram import initial_tables
from tests.features.one_step import deepwalk_step
from tests.growing import clique_that_grew
from tests.six_nodes import six_nodes

SMALL = DeepWalk(dimension=8, walks=3, length=10, window=3, threads=1)


def two_cliques(size: int = 12) -> DynamicGraph:
    """Two cliques joined by one edge; the second clique is only there from step 1 on."""
    pairs = [(a, b) for a in range(size) for b in range(a)]
    edges = [(a, b, 0) for a, b in pairs] + [(a + size, b + size, 1) for a, b in pairs] + [(0, size, 1)]
    source, target, step = (np.array(column) for column in zip(*edges, strict=True))
    times = np.arange(2)
    return build_graph(
        Events(source, target, times[step], NodeIds.range(2 * size)), Steps(step.astype(np.int32), times, times)
    )


def test_same_seed_same_bits_with_one_thread() -> None:
    one, other = (deepwalk_step(six_nodes(), 3, SMALL) for _ in range(2))
    assert (one[0] == other[0]).all()
    assert (one[1] == other[1]).all()


def test_another_seed_differs() -> None:
    other = DeepWalk(**{**vars(SMALL), "seed": 1})
    assert not np.allclose(deepwalk_step(six_nodes(), 3, SMALL)[0], deepwalk_step(six_nodes(), 3, other)[0])


def test_neighbours_end_up_closer_than_strangers() -> None:
    graph = two_cliques()
    table, _ = deepwalk_step(graph, 1, DeepWalk(dimension=16, walks=20, length=20, window=3, epochs=4, threads=2))
    table = table / np.linalg.norm(table, axis=1, keepdims=True)
    cosine = table @ table.T
    assert cosine[:12, :12].mean() > cosine[:12, 12:].mean() + 0.3


def test_unseen_nodes_keep_their_initial_noise() -> None:
    table, _ = deepwalk_step(two_cliques(), 0, SMALL)
    noise, _ = initial_tables(np.arange(24), 8, SMALL.seed)
    assert (table[12:] == noise[12:]).all()
    assert not np.allclose(table[:12], noise[:12])


def test_unseen_nodes_can_be_zero() -> None:
    table, _ = deepwalk_step(two_cliques(), 0, DeepWalk(**{**vars(SMALL), "unseen": "zero"}))
    assert not table[12:].any()
    assert table[:12].all(axis=1).all()


def test_a_step_without_edges_is_left_at_its_start() -> None:
    times = np.arange(2)
    events = Events(np.array([2, 0]), np.array([2, 1]), times, NodeIds.range(3))
    graph = build_graph(events, Steps(times.astype(np.int32), times, times))
    assert (deepwalk_step(graph, 0, SMALL)[0] == initial_tables(np.arange(3), 8, 0)[0]).all()


def test_warm_start_begins_at_the_previous_tables() -> None:
    graph = two_cliques()
    slow = DeepWalk(**{**vars(SMALL), "warm_start": True, "learning_rate": 1e-6, "min_learning_rate": 1e-6})
    previous = tuple(np.random.default_rng(i).normal(size=(24, 8)).astype(np.float32) for i in (1, 2))
    table, outputs = deepwalk_step(graph, 1, slow, previous)  # type: ignore[arg-type]
    assert table[:12] == pytest.approx(previous[0][:12], abs=1e-3)
    assert outputs == pytest.approx(previous[1], abs=1e-3)


def test_warm_start_gives_new_nodes_fresh_noise() -> None:
    graph = two_cliques()
    slow = DeepWalk(**{**vars(SMALL), "warm_start": True, "learning_rate": 1e-6, "min_learning_rate": 1e-6})
    previous = np.ones((24, 8), dtype=np.float32), np.ones((24, 8), dtype=np.float32)
    table, _ = deepwalk_step(graph, 1, slow, previous)
    assert table[12:] == pytest.approx(initial_tables(np.arange(24), 8, 0)[0][12:], abs=1e-3)


def test_progress_ends_at_the_total() -> None:
    calls: list[tuple[int, int, int]] = []
    DeepWalkSteps(six_nodes(), SMALL, on_progress=lambda *now: calls.append(now)).make_step(3)
    # Three passes with walks of ten from the 2, 3, 4 and now 5 nodes that have a neighbour.
    before = 3 * 10 * (2 + 3 + 4)
    assert calls == [(3, before + done, before + 150) for done in (50, 100, 150)]


def test_read_only_arrays_give_the_same_bits() -> None:
    graph, opened = six_nodes(), six_nodes()
    for array in (opened.history.indptr, opened.history.step_offsets, opened.history.neighbours):
        array.flags.writeable = False
    assert (deepwalk_step(graph, 3, SMALL)[0] == deepwalk_step(opened, 3, SMALL)[0]).all()


def test_a_start_keeps_the_directions_of_the_features_it_begins_with() -> None:
    """Cosine of a node's own vectors before and after: with a start near one, without as good as random."""
    old, new = clique_that_grew()
    options = DeepWalk(**{**vars(SMALL), "dimension": 32, "walks": 20})
    before = deepwalk_step(old, 0, options)[0]
    start = Start(old, before[None], "k")
    places = new.ids.lookup(old.ids.values)

    def kept(seed: int, start: Start | None) -> float:
        after = deepwalk_step(new, 1, DeepWalk(**{**vars(options), "seed": seed}), start=start)[0][places]
        norms = np.linalg.norm(before, axis=1) * np.linalg.norm(after, axis=1)
        return float(((before * after).sum(axis=1) / norms).mean())

    assert kept(1, start) > 0.9
    assert abs(kept(1, None)) < 0.5
