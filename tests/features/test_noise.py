from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from chronospike.features import noise
from chronospike.features.biased_walks import random_walks, walk_bias
from chronospike.features.deepwalk import CpuTrainer
from chronospike.features.noise import (
    NoiseTable,
    counted_visits,
    draw_noise,
    expected_visits,
    noise_table,
)
from chronospike.features.skipgram import initial_tables
from chronospike.features.walks import Snapshot, cumulative_snapshot, derive_key, sorted_rows, walk_starts
from chronospike.rng import derive
from tests.path_of_four import path_of_four
from tests.six_nodes import six_nodes


def test_expected_visits_on_a_path_of_four_worked_by_hand() -> None:
    # One walk of three nodes from each of 0-1-2-3. Start: 1 1 1 1. After one move: 1/2 3/2 3/2 1/2.
    # After two: node 0 gets half of node 1's 3/2; node 1 gets all of node 0's 1/2 and half of node 2's 3/2.
    visits = expected_visits(cumulative_snapshot(path_of_four(), 0), 3)
    assert visits == pytest.approx([1 + 0.5 + 0.75, 1 + 1.5 + 1.25, 1 + 1.5 + 1.25, 1 + 0.5 + 0.75])


def test_expected_visits_are_the_mean_of_counted_ones() -> None:
    snapshot = cumulative_snapshot(six_nodes(), 3)
    rounds = 4000
    keys = [derive_key(1, i) for i in range(rounds)]
    counts = sum(np.bincount(random_walks(snapshot, walk_starts(snapshot, k), 6, k).ravel(), minlength=6) for k in keys)
    assert counts / rounds == pytest.approx(expected_visits(snapshot, 6), abs=0.1)


def test_visits_of_walks_with_a_memory_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(noise, "_COUNTED_TOKENS", 20)
    snapshot, bias = sorted_rows(cumulative_snapshot(six_nodes(directed=True), 3)), walk_bias(0.5, 2, directed=True)
    walks = random_walks(snapshot, walk_starts(snapshot, 7), 10, 7, bias)
    visits = CpuTrainer(snapshot, initial_tables(snapshot.keys, 4, 0), 10, 1, bias, 7).visits
    assert visits.tolist() == [int((walks == node).sum()) for node in range(6)]
    assert (visits == counted_visits(snapshot, 10, bias, 7, threads=2)).all()


def test_visits_of_uniform_walks_are_expected_ones() -> None:
    snapshot = cumulative_snapshot(six_nodes(), 3)
    trainer = CpuTrainer(snapshot, initial_tables(snapshot.keys, 4, 0), 10, 1)
    assert (trainer.visits == expected_visits(snapshot, 10)).all()


def test_a_node_never_visited_has_no_expected_visits() -> None:
    assert expected_visits(cumulative_snapshot(six_nodes(), 3), 10)[5] == 0


def test_mass_is_lost_only_where_walks_end() -> None:
    # 0 -> 1 and nothing leaves 1: the walk from 0 visits both, whatever its length.
    snapshot = Snapshot(
        np.array([0, 1, 1]), np.array([1, 0], dtype=np.int32), np.array([1], dtype=np.int32), np.arange(2)
    )
    assert expected_visits(snapshot, 50).tolist() == [1, 1]


def table_probabilities(table: NoiseTable, num_nodes: int) -> NDArray[np.float64]:
    """`[N]` the probability with which each node is drawn."""
    own = np.where(table.aliases == table.nodes, 1.0, table.thresholds / 2.0**31)
    drawn = np.bincount(table.nodes, own, num_nodes) + np.bincount(table.aliases, 1.0 - own, num_nodes)
    return np.asarray(drawn / len(own))


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=40).filter(lambda weights: max(weights) > 1e-3))
def test_the_alias_table_holds_the_distribution(visits: list[float]) -> None:
    weights = np.array(visits) ** 0.75
    table = noise_table(np.array(visits))
    assert table_probabilities(table, len(visits)) == pytest.approx(weights / weights.sum(), abs=1e-8)


def test_a_node_without_visits_has_no_slot() -> None:
    some, all_of_them = noise_table(np.array([0.0, 3.0, 0.0, 1.0, 9.0])), noise_table(np.array([3.0, 1.0, 9.0]))
    place = np.array([1, 3, 4])
    assert some.nodes.tolist() == [1, 3, 4]
    assert (some.thresholds == all_of_them.thresholds).all()
    assert (some.aliases == place[all_of_them.aliases]).all()


def test_draws_follow_the_three_quarter_power() -> None:
    # 16^0.75 = 8 and 1^0.75 = 1; a node without visits is never drawn.
    table = noise_table(np.array([16.0, 0.0, 1.0]))
    drawn = [draw_noise(np.uint64(derive(3, i)), *table) for i in range(20000)]
    counts = np.bincount(drawn, minlength=3)
    assert counts[1] == 0
    assert counts[0] / 20000 == pytest.approx(8 / 9, abs=0.01)
