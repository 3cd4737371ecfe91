from __future__ import annotations

import math

import numpy as np
import pytest

from chronospike.features.fastrp import FastRPSteps, propagate, sparse_projection
from chronospike.features.options import FastRP
from chronospike.features.walks import cumulative_snapshot, derive_key
from chronospike.rng import derive
from tests.path_of_four import path_of_four
from tests.plain_rng import below
from tests.six_nodes import six_nodes


def test_path_of_four_worked_by_hand() -> None:
    # 0-1-2-3, degrees 1 2 2 1 of 6 in all; normalization -1 scales the rows by 6, 3, 3, 6.
    projection = np.array([[1, 0], [0, 1], [1, 0], [0, 1]], dtype=np.float32)
    # Scaled: (6,0) (0,3) (3,0) (0,6). One hop: row 1's, the mean of rows 0 and 2, the mean of 1 and 3, row 2's.
    first = np.array([[0, 3], [4.5, 0], [0, 4.5], [3, 0]])
    # Two hops: row 1 of those, the mean of (0,3) and (0,4.5), the mean of (4.5,0) and (3,0), row 2.
    second = np.array([[4.5, 0], [0, 3.75], [3.75, 0], [0, 4.5]])
    total = 2 * first / np.abs(first).max(axis=1, keepdims=True) + 5 * second / np.abs(second).max(
        axis=1, keepdims=True
    )
    snapshot = cumulative_snapshot(path_of_four(), 0)
    assert propagate(snapshot, projection, (2.0, 5.0), -1.0) == pytest.approx(total, abs=1e-5)


def test_normalization_decides_how_much_a_hub_counts() -> None:
    # Node 2 averages its neighbours 1 (degree 2) and 3 (degree 1): scales 2^b and 1 before the row gets length one.
    projection = np.array([[0, 0], [1, 0], [0, 0], [0, 1]], dtype=np.float32)
    row = propagate(cumulative_snapshot(path_of_four(), 0), projection, (1.0,), -0.5)[2]
    assert row[0] / row[1] == pytest.approx(2**-0.5, abs=1e-5)


def test_later_edges_do_not_count() -> None:
    projection = np.eye(4, dtype=np.float32)
    snapshot = cumulative_snapshot(path_of_four(steps=(0, 1, 1), count=2), 0)
    result = propagate(snapshot, projection, (1.0,), 0.0)
    assert result == pytest.approx(np.array([[0, 1, 0, 0], [1, 0, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0]]))


def test_projection_is_very_sparse_with_unit_variance() -> None:
    projection = sparse_projection(np.arange(3000), 40, seed=1)
    values, counts = np.unique(projection, return_counts=True)
    assert values == pytest.approx([-math.sqrt(3), 0, math.sqrt(3)])
    assert counts / counts.sum() == pytest.approx([1 / 6, 2 / 3, 1 / 6], abs=0.01)


def test_a_row_of_the_projection_is_six_sided_dice_of_the_seed_and_the_id() -> None:
    row = sparse_projection(np.array([4, -9]), 30, seed=2)[1]
    dice = [below(derive(derive(derive_key(2), -9), d), 6) for d in range(30)]
    assert row == pytest.approx([{0: math.sqrt(3), 1: -math.sqrt(3)}.get(die, 0) for die in dice])


def test_the_same_seed_gives_the_same_bits_for_any_threads() -> None:
    graph = six_nodes()
    one = FastRPSteps(graph, FastRP(dimension=8, threads=1)).make_step(3)
    assert (one == FastRPSteps(graph, FastRP(dimension=8, threads=3)).make_step(3)).all()


def test_another_seed_gives_another_result() -> None:
    graph = six_nodes()
    one, other = (FastRPSteps(graph, FastRP(dimension=8, seed=seed)).make_step(3) for seed in (0, 1))
    assert not np.allclose(one, other)


def test_nodes_without_an_edge_are_zero() -> None:
    assert not FastRPSteps(six_nodes(), FastRP(dimension=8)).make_step(0)[2:].any()
