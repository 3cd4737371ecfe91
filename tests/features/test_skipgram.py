from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import spearmanr

from benchmarks.features import train_on_walks
from chronospike.features.biased_walks import random_walks, walk_bias
from chronospike.features.noise import NoiseTable, expected_visits, noise_table
from chronospike.features.skipgram import MeanLoss, Schedule, initial_tables, train_on_graph
from chronospike.features.walks import Snapshot, cumulative_snapshot, derive_key, sorted_rows, walk_starts
from tests.features import reference
from tests.features.test_biased_walks import random_snapshot
from tests.six_nodes import six_nodes


def always(node: int, count: int) -> NoiseTable:
    """Noise that is always the same node."""
    return NoiseTable(
        np.zeros(count, dtype=np.int32), np.arange(count, dtype=np.int32), np.full(count, node, dtype=np.int32)
    )


def random_tables(count: int, dimension: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    rng = np.random.default_rng(4)
    return tuple(rng.normal(0, 0.4, (count, dimension)).astype(np.float32) for _ in range(2))  # type: ignore[return-value]


def test_one_step_gives_the_known_answer() -> None:
    # The walk 0, 1 with window 1 has two pairs: input row 1 with output row 0, then input row 0 with output row 1.
    # The noise is always node 2. Input row 0 is zero, so only the first pair changes input row 1 and output row 0.
    inputs = np.array([[0, 0], [0.1, -0.2], [0, 0]], dtype=np.float32)
    outputs = np.array([[0.3, 0.4], [0, 0], [-0.5, 0.1]], dtype=np.float32)
    walks = np.array([[0, 1]], dtype=np.int32)
    train_on_walks((inputs, outputs), walks, always(2, 3), Schedule(1, 1, 0, 0.025, 0.0), threads=1)
    assert inputs[1] == pytest.approx([0.109875, -0.196081], abs=1e-6)
    assert outputs[0] == pytest.approx([0.301281, 0.397438], abs=1e-6)
    assert outputs[2] == pytest.approx([-0.501206, 0.102413], abs=1e-6)


def test_loss_gives_the_known_answer() -> None:
    loss = reference.sgns_loss(np.array([0.1, -0.2]), np.array([0.3, 0.4]), np.array([[-0.5, 0.1]]))
    assert loss == pytest.approx(1.377219, abs=1e-6)


def test_initial_loss_is_ln_2_per_output() -> None:
    inputs, outputs = initial_tables(np.arange(7), 16, seed=0)
    loss = reference.sgns_loss(inputs[0].astype(float), outputs[1].astype(float), outputs[2:7].astype(float))
    assert loss == pytest.approx(6 * math.log(2), abs=1e-12)


def test_initial_rows_are_uniform_within_half_over_d() -> None:
    inputs, outputs = initial_tables(np.arange(1000), 20, seed=0)
    assert np.abs(inputs).max() <= 0.5 / 20
    assert inputs.std() == pytest.approx(1 / 20 / math.sqrt(12), rel=0.02)
    assert not outputs.any()


def test_an_initial_row_is_a_function_of_the_seed_and_the_id() -> None:
    keys = np.array([3, -8, 2**62])
    rows, _ = initial_tables(keys, 6, seed=1)
    assert (initial_tables(keys[1:], 6, seed=1)[0] == rows[1:]).all()
    assert not np.isclose(rows[0], initial_tables(keys, 6, seed=2)[0][0]).any()
    assert len(np.unique(rows)) == rows.size


def test_a_negative_that_equals_the_positive_is_skipped() -> None:
    inputs, outputs = random_tables(2, 4)
    expected = inputs.astype(float), outputs.astype(float)
    gains = [1 - 1 / (1 + math.exp(-expected[0][j] @ expected[1][1 - j])) for j in (0, 1)]
    # In the walk 0, 1 the noise is node 0: skipped for centre 0, and pushed away from input row 0 for centre 1.
    train_on_walks((inputs, outputs), np.array([[0, 1]], np.int32), always(0, 2), Schedule(1, 1, 0, 0.1, 0.0), 1)
    assert inputs[1] == pytest.approx(expected[0][1] + 0.1 * gains[1] * expected[1][0], abs=1e-6)
    assert not np.allclose(inputs[0], expected[0][0] + 0.1 * gains[0] * expected[1][1], atol=1e-3)


def test_scores_of_a_triangle_tend_to_ln_3() -> None:
    """ln 3 = 1.0986 where colliding negatives are skipped, ln 1.5 = 0.4055 where they are kept."""
    neighbours = np.array([1, 2, 0, 2, 0, 1], np.int32)
    triangle = Snapshot(np.array([0, 2, 4, 6]), np.full(3, 2, np.int32), neighbours, np.arange(3))
    noise = noise_table(expected_visits(triangle, 10))
    tables = initial_tables(np.arange(3), 8, seed=0)
    starts = np.arange(3, dtype=np.int32)
    for number, rate in enumerate((0.1, 0.05, 0.02, 0.01, 0.005, 0.002)):
        for turn in range(4):
            schedule = Schedule(1, 1, derive_key(number, turn), rate, 0.0)
            walks = np.concatenate(
                [random_walks(triangle, starts, 10, derive_key(1, number, turn, i)) for i in range(1000)]
            )
            train_on_walks(tables, walks, noise, schedule, threads=1)
    scores = tables[0] @ tables[1].T
    off_diagonal = scores[~np.eye(3, dtype=bool)]
    assert off_diagonal.mean() == pytest.approx(math.log(3), abs=0.1)
    assert off_diagonal == pytest.approx(np.full(6, math.log(3)), abs=0.3)
    assert np.diag(scores).max() < -2


@pytest.mark.parametrize("negatives", [1, 2, 5])
@pytest.mark.parametrize("window", [1, 3, 10])
@pytest.mark.parametrize("dimension", [3, 16, 37])
def test_kernel_agrees_with_the_reference(negatives: int, window: int, dimension: int) -> None:
    snapshot = cumulative_snapshot(six_nodes(), 3)._replace(keys=np.array([9, -4, 0, 2**62, -(2**63), 5]))
    starts, length = walk_starts(snapshot, 3), 12
    noise = noise_table(expected_visits(snapshot, length))
    schedule = Schedule(window, negatives, 77, 0.05, 0.003)
    tables = random_tables(6, dimension)
    plain = tables[0].astype(float), tables[1].astype(float)
    for order, start in enumerate(starts):
        nodes = reference.walk(snapshot, int(start), length, schedule.key)
        reference.train_walk(*plain, nodes, length, noise, schedule, int(snapshot.keys[start]), order)
    before = tables[0].copy()
    train_on_graph(tables, snapshot, starts, length, noise, schedule, threads=1)
    assert np.abs(tables[0] - before).max() > 0.01
    assert tables[0] == pytest.approx(plain[0], abs=2e-5)
    assert tables[1] == pytest.approx(plain[1], abs=2e-5)


def test_short_walks_in_a_matrix_end_at_minus_one() -> None:
    walks = np.array([[0, 1, 2, -1, -1], [3, -1, -1, -1, -1]], dtype=np.int32)
    noise, schedule = noise_table(np.ones(5)), Schedule(4, 2, 9, 0.1, 0.01)
    tables = random_tables(5, 6)
    plain = tables[0].astype(float), tables[1].astype(float)
    train_on_walks(tables, walks, noise, schedule, threads=1)
    reference.train_walk(*plain, [0, 1, 2], 5, noise, schedule, 0, 0)
    reference.train_walk(*plain, [3], 5, noise, schedule, 1, 1)
    assert tables[0] == pytest.approx(plain[0], abs=1e-5)
    assert tables[1] == pytest.approx(plain[1], abs=1e-5)


def test_large_scores_saturate_and_stay_finite() -> None:
    inputs = np.full((2, 4), 30, dtype=np.float32)
    outputs = np.full((2, 4), -30, dtype=np.float32)
    train_on_walks((inputs, outputs), np.array([[0, 1]], np.int32), always(0, 2), Schedule(1, 1, 0, 0.1, 0.0), 1)
    # The gain of a pair that should score high and scores -3600 is 1 times the rate.
    assert inputs[1] == pytest.approx(np.full(4, 30 - 0.1 * 30), abs=1e-3)


def test_progress_counts_every_walk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chronospike.features.skipgram._CHUNK_TOKENS", 12)
    snapshot = cumulative_snapshot(six_nodes(), 3)
    noise, seen = noise_table(expected_visits(snapshot, 4)), list[int]()
    starts = np.tile(walk_starts(snapshot, 0), 2)
    train_on_graph(random_tables(6, 4), snapshot, starts, 4, noise, Schedule(1, 1, 0, 0.1, 0.0), 1, seen.append)
    assert seen == [3, 6, 9, 10]


def test_walks_with_a_memory_are_trained_on_like_any_other() -> None:
    snapshot, bias = sorted_rows(cumulative_snapshot(six_nodes(), 3)), walk_bias(0.5, 4)
    starts, length, schedule = walk_starts(snapshot, 3), 12, Schedule(3, 2, 77, 0.05, 0.003)
    noise, tables = noise_table(np.ones(6)), random_tables(6, 8)
    plain = tables[0].astype(float), tables[1].astype(float)
    for order, start in enumerate(starts):
        nodes = reference.biased_walk(snapshot, int(start), length, schedule.key, bias)
        reference.train_walk(*plain, nodes, length, noise, schedule, int(start), order)
    train_on_graph(tables, snapshot, starts, length, noise, schedule, threads=1, bias=bias)
    assert tables[0] == pytest.approx(plain[0], abs=2e-5)


def test_measured_loss_is_that_of_the_reference() -> None:
    snapshot, length = cumulative_snapshot(six_nodes(), 3), 12
    starts, schedule, loss = walk_starts(snapshot, 3), Schedule(4, 3, 77, 1e-9, 0.0), MeanLoss(every=2)
    noise, tables = noise_table(expected_visits(snapshot, length)), random_tables(6, 8)
    plain = tables[0].astype(float), tables[1].astype(float)
    train_on_graph(tables, snapshot, starts, length, noise, schedule, threads=1, loss=loss)
    parts = []
    for start in starts[::2]:
        nodes = reference.walk(snapshot, int(start), length, schedule.key)
        parts.append(reference.walk_loss(*plain, nodes, length, noise, schedule, int(start)))
    assert loss.pairs == sum(pairs for _, pairs in parts)
    assert loss.total == pytest.approx(sum(total for total, _ in parts), rel=1e-6)


def test_measuring_the_loss_changes_nothing_that_is_learned() -> None:
    snapshot, schedule = cumulative_snapshot(six_nodes(), 3), Schedule(4, 3, 77, 0.1, 0.001)
    starts, noise = walk_starts(snapshot, 3), noise_table(np.ones(6))
    one, other = random_tables(6, 8), random_tables(6, 8)
    train_on_graph(one, snapshot, starts, 12, noise, schedule, threads=1)
    train_on_graph(other, snapshot, starts, 12, noise, schedule, threads=1, loss=MeanLoss(every=1))
    assert (one[0] == other[0]).all()


@pytest.mark.parametrize("negatives", [1, 5])
def test_measured_loss_begins_at_ln_2_per_output(negatives: int) -> None:
    """The noise is a node that no walk comes to, so that none of it is skipped."""
    snapshot, loss = cumulative_snapshot(six_nodes(), 3), MeanLoss(every=1)
    start, schedule = walk_starts(snapshot, 3)[:1], Schedule(4, negatives, 77, 0.1, 0.001)
    train_on_graph(initial_tables(np.arange(6), 8, 0), snapshot, start, 12, always(5, 6), schedule, 1, loss=loss)
    assert loss.mean == pytest.approx((1 + negatives) * math.log(2), rel=1e-12)


def test_a_loss_without_pairs_is_zero() -> None:
    assert MeanLoss().mean == 0


def test_scores_rank_as_the_closed_form_does() -> None:
    """Of walks on a graph with transitions P, degrees D and volume v, log(v/K Σ_r c_r P^r D⁻¹) for windows up to w.

    A window is drawn from 1..w, so distances r share the pairs by c_r ∝ w - r + 1.
    """
    snapshot, window, length, passes = random_snapshot(30, 60, False), 3, 40, 1500
    adjacency = np.zeros((30, 30))
    for node in range(30):
        adjacency[node, reference.row(snapshot, node)] = 1
    degrees = adjacency.sum(axis=1)
    step = adjacency / degrees[:, None]
    shares = np.arange(window, 0, -1) / np.arange(1, window + 1).sum()
    powers = sum(share * np.linalg.matrix_power(step, r + 1) for r, share in enumerate(shares))
    wanted = degrees.sum() * powers / degrees
    tables, noise = initial_tables(np.arange(30), 32, seed=0), noise_table(expected_visits(snapshot, length))
    drop = (0.1 - 1e-3) / (30 * passes)
    for number in range(passes):
        key = derive_key(4, number)
        schedule = Schedule(window, 1, key, 0.1 - drop * 30 * number, drop)
        train_on_graph(tables, snapshot, walk_starts(snapshot, key), length, noise, schedule, threads=1)
    scores = tables[0] @ tables[1].T
    # Nodes that are never within a window of each other have no finite score; nor has a node that is its own noise.
    met = (wanted > 0) & ~np.eye(30, dtype=bool)
    assert spearmanr(scores[met], np.log(wanted[met])).statistic > 0.95
