from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from chronospike.data.build import build_graph
from chronospike.data.events import Events, Steps
from chronospike.data.feature_store import list_features, open_features
from chronospike.data.graph import DynamicGraph
from chronospike.data.ids import NodeIds
from chronospike.data.ingest import import_graph
from chronospike.errors import InputError
from chronospike.features.deepwalk import DeepWalk, Start, deepwalk_step, write_deepwalk
from chronospike.features.skipgram import initial_tables
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
    calls: list[tuple[int, int]] = []
    deepwalk_step(six_nodes(), 3, SMALL, on_tokens=lambda done, total: calls.append((done, total)))
    # Three passes over the five nodes that have a neighbour, ten nodes a walk.
    assert calls == [(50, 150), (100, 150), (150, 150)]


class Stop(Exception):
    pass


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_a_resumed_warm_start_gives_the_same_bits(tmp_path: Path, dtype: str) -> None:
    graph = six_nodes()
    options = DeepWalk(**{**vars(SMALL), "warm_start": True})
    whole = write_deepwalk(tmp_path / "whole", "walks", graph, options, "key", dtype)

    def stop_in_step_2(step: int, done: int, total: int) -> None:
        if step == 2:
            raise Stop

    with pytest.raises(Stop):
        write_deepwalk(tmp_path / "parts", "walks", graph, options, "key", dtype, on_tokens=stop_in_step_2)
    made: list[int] = []
    parts = write_deepwalk(
        tmp_path / "parts", "walks", graph, options, "key", dtype, on_step=lambda step, _: made.append(step)
    )
    assert made == [2, 3]
    assert (parts / "values.npy").read_bytes() == (whole / "values.npy").read_bytes()
    assert sorted(path.name for path in parts.iterdir()) == ["meta.json", "values.npy"]


def test_cold_steps_do_not_depend_on_each_other(tmp_path: Path) -> None:
    graph = six_nodes()
    write_deepwalk(tmp_path, "walks", graph, SMALL, "key")
    assert (open_features(tmp_path, "walks")[3] == deepwalk_step(graph, 3, SMALL)[0]).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dimension": 0}, "dimension is 0, and must be at least 1"),
        ({"length": 1}, "length is 1, and must be at least 2"),
        ({"threads": 0}, "threads is 0"),
        ({"learning_rate": 1e-5}, "falls from 1e-05 to 0.0001"),
        ({"unseen": "ones"}, "unseen is 'ones'"),
    ],
)
def test_bad_options_are_named(options: dict, message: str) -> None:
    with pytest.raises(InputError, match=message):
        DeepWalk(**options)


def test_read_only_arrays_give_the_same_bits() -> None:
    graph, opened = six_nodes(), six_nodes()
    for array in (opened.history.indptr, opened.history.step_offsets, opened.history.neighbours):
        array.flags.writeable = False
    assert (deepwalk_step(graph, 3, SMALL)[0] == deepwalk_step(opened, 3, SMALL)[0]).all()


def grown() -> tuple[DynamicGraph, DynamicGraph]:
    """A graph, and the same with a new node whose id comes first and an edge more, a step later."""
    pairs = [(a, b) for a in range(1, 13) for b in range(1, a)]
    edges = [(a, b, 0) for a, b in pairs]
    later = [*edges, (0, 3, 1), (1, 14, 1), (14, 3, 1)]
    graphs = []
    for rows in (edges, later):
        source, target, time = (np.array(column) for column in zip(*rows, strict=True))
        graphs.append(import_graph((source, target, time)))
    return graphs[0], graphs[1]


def test_features_of_another_graph_are_found_by_id_and_those_of_new_nodes_are_not_there() -> None:
    old, new = grown()
    features = np.arange(len(old.ids) * 8, dtype=np.float32).reshape(1, -1, 8)
    known, rows = Start(old, features, "k").rows(new, 1)
    assert [new.ids[int(v)] for v in np.flatnonzero(known)] == list(old.ids)
    np.testing.assert_array_equal(rows, features[0])


def test_a_start_keeps_the_directions_of_the_features_it_begins_with() -> None:
    """Cosine of a node's own vectors before and after: with a start near one, without as good as random."""
    old, new = grown()
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


def test_the_record_tells_where_features_began(tmp_path: Path) -> None:
    old, new = grown()
    start = Start(old, np.zeros((1, len(old.ids), 8), dtype=np.float32), "abc")
    write_deepwalk(tmp_path, "f", new, SMALL, "key", start=start)
    assert list_features(tmp_path)[0].recipe["start"] == "abc"
    with pytest.raises(InputError, match="is there with start 'abc', and None is asked for"):
        write_deepwalk(tmp_path, "f", new, SMALL, "key")
