from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chronospike.data.csr import _sorted_unique, history_and_snapshot, smallest_int
from tests.six_nodes import six_nodes

# What node 0 knew before each step, and what it saw at each step, read off the list in six_nodes.
KNOWN_BEFORE = {0: [], 1: [1], 2: [1, 2], 3: [1, 2, 3], 4: [1, 2, 3, 4]}
SEEN_AT = {0: [1], 1: [2], 2: [1, 3], 3: [4]}


@pytest.mark.parametrize(("step", "neighbours"), KNOWN_BEFORE.items())
def test_history_prefix_holds_each_neighbour_once_from_its_first_step(step: int, neighbours: list[int]) -> None:
    assert six_nodes().history.before(0, step).tolist() == neighbours


@pytest.mark.parametrize(("step", "neighbours"), SEEN_AT.items())
def test_snapshot_slice_holds_exactly_the_edges_of_the_step(step: int, neighbours: list[int]) -> None:
    assert six_nodes().snapshot.at(0, step).tolist() == neighbours


def test_every_row_of_the_six_node_graph() -> None:
    graph = six_nodes()
    known_at_the_end = [graph.history.before(v, 4).tolist() for v in range(6)]
    assert known_at_the_end == [[1, 2, 3, 4], [0, 2], [0, 1, 3], [0, 2], [0], []]
    seen = [[graph.snapshot.at(v, t).tolist() for t in range(4)] for v in range(1, 6)]
    assert seen == [
        [[0], [2], [0], []],
        [[], [0, 1], [], [3]],
        [[], [], [0], [2]],
        [[], [], [], [0]],
        [[], [], [], []],
    ]


def test_entries_are_the_inverse_of_building() -> None:
    graph = six_nodes()
    rows, steps, neighbours = graph.snapshot.entries()
    again = history_and_snapshot(rows, neighbours, steps, 6, 4)
    assert np.array_equal(again[1].neighbours, graph.snapshot.neighbours)
    assert np.array_equal(again[0].step_offsets, graph.history.step_offsets)


def test_degrees_count_the_row_entries() -> None:
    assert six_nodes().history.degrees().tolist() == [4, 2, 3, 2, 1, 0]


@pytest.mark.parametrize(
    ("largest", "kind"), [(32767, np.int16), (32768, np.int32), (2**31 - 1, np.int32), (2**31, np.int64)]
)
def test_integers_are_as_narrow_as_they_can_be(largest: int, kind: type) -> None:
    assert smallest_int(largest) is kind


def test_a_hub_wider_than_int16_keeps_its_offsets() -> None:
    leaves = np.arange(1, 40_001)
    rows = np.concatenate([np.zeros(40_000, dtype=np.int64), leaves])
    neighbours = np.concatenate([leaves, np.zeros(40_000, dtype=np.int64)])
    history, _ = history_and_snapshot(rows, neighbours, np.zeros(80_000, dtype=np.int32), 40_001, 2)
    assert history.step_offsets.dtype == np.int32
    assert history.step_offsets[0].tolist() == [0, 40_000, 40_000]


entries = st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7), st.integers(0, 4)), min_size=1, max_size=60)


@given(entries)
def test_both_views_equal_sets_built_one_entry_at_a_time(listed: list[tuple[int, int, int]]) -> None:
    rows, neighbours, steps = (np.array(column) for column in zip(*listed, strict=True))
    history, snapshot = history_and_snapshot(rows, neighbours, steps, 8, 5)
    for v in range(8):
        for t in range(6):
            assert sorted(history.before(v, t)) == sorted({u for r, u, s in listed if r == v and s < t})
        for t in range(5):
            assert snapshot.at(v, t).tolist() == sorted({u for r, u, s in listed if r == v and s == t})


@given(entries)
def test_sorting_without_a_packed_key_gives_the_same(listed: list[tuple[int, int, int]]) -> None:
    rows, neighbours, steps = (np.array(column) for column in zip(*listed, strict=True))
    packed = _sorted_unique(rows, steps, neighbours, 5, 8)
    # So many nodes that (row, step, neighbour) does not fit one 64-bit key.
    loose = _sorted_unique(rows, steps, neighbours, 5, 2**31 - 1)
    for a, b in zip(packed, loose, strict=True):
        assert np.array_equal(a, b)
