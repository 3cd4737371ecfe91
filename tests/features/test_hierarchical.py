from __future__ import annotations

import math

import numpy as np
import pytest

from chronospike.features.biased_walks import walk_bias
from chronospike.features.deepwalk import CpuTrainer
from chronospike.features.skipgram import MeanLoss, Schedule, initial_tables
from chronospike.features.walks import Snapshot, cumulative_snapshot, sorted_rows, walk_starts
from tests.features import reference
from tests.features.test_huffman import path
from tests.features.test_skipgram import random_tables
from tests.six_nodes import six_nodes


def trainer_on(snapshot: Snapshot, dimension: int, length: int = 12) -> CpuTrainer:
    """With random tables, the inner nodes' among them."""
    tables = random_tables(len(snapshot.degrees), dimension)
    trainer = CpuTrainer(snapshot, tables, length, threads=1, hierarchical=True)
    assert trainer.inner is not None
    trainer.inner[:] = np.random.default_rng(9).normal(0, 0.4, trainer.inner.shape)
    return trainer


def plain_tables(trainer: CpuTrainer) -> tuple[reference.Array, reference.Array, reference.Paths]:
    """The inner rows stand behind the output rows."""
    assert trainer.tree is not None
    assert trainer.inner is not None
    nodes = len(trainer.tables[0])
    visited = [node for node in range(nodes) if trainer.tree.leaves[node] >= 0]
    paths = {node: [(nodes + row, bit) for row, bit in path(trainer.tree, node)] for node in visited}
    outputs = np.concatenate([trainer.tables[1], trainer.inner]).astype(float)
    return trainer.tables[0].astype(float), outputs, paths


@pytest.mark.parametrize("negatives", [0, 1, 2, 5])
@pytest.mark.parametrize("window", [1, 3, 10])
@pytest.mark.parametrize("dimension", [3, 37])
def test_kernel_agrees_with_the_reference(negatives: int, window: int, dimension: int) -> None:
    snapshot, length = cumulative_snapshot(six_nodes(), 3), 12
    trainer, schedule = trainer_on(snapshot, dimension), Schedule(window, negatives, 77, 0.05, 0.003)
    inputs, outputs, paths = plain_tables(trainer)
    before, starts, loss = trainer.learned["inner"].copy(), walk_starts(snapshot, 3), MeanLoss(every=100)
    walks = [reference.walk(snapshot, int(start), length, schedule.key) for start in starts]
    expected = reference.walk_loss(
        inputs, outputs, walks[0], length, trainer.noise, schedule, int(starts[0]), paths
    )  # fmt: skip
    for order, (start, walk) in enumerate(zip(starts, walks, strict=True)):
        reference.train_walk(inputs, outputs, walk, length, trainer.noise, schedule, int(start), order, paths)
    trainer.train_pass(starts, schedule, None, loss)
    learned = trainer.learned
    assert np.abs(learned["inner"] - before).max() > 0.01
    assert learned["inputs"] == pytest.approx(inputs, abs=2e-5)
    assert learned["outputs"] == pytest.approx(outputs[:6], abs=2e-5)
    assert learned["inner"] == pytest.approx(outputs[6:], abs=2e-5)
    assert (loss.total, loss.pairs) == pytest.approx(expected, rel=1e-6)


def test_loss_begins_at_ln_2_per_turn() -> None:
    """Two nodes share one turn, whichever is predicted."""
    snapshot = Snapshot(np.array([0, 1, 2]), np.ones(2, np.int32), np.array([1, 0], np.int32), np.arange(2))
    trainer = CpuTrainer(snapshot, initial_tables(np.arange(2), 8, 0), 12, 1, hierarchical=True)
    loss = MeanLoss(every=1)
    trainer.train_pass(np.array([0], np.int32), Schedule(3, 0, 1, 0.1, 0.0), None, loss)
    assert loss.mean == pytest.approx(math.log(2), rel=1e-12)


def test_the_tree_is_that_of_counted_walks_where_these_have_a_memory() -> None:
    snapshot, bias = sorted_rows(cumulative_snapshot(six_nodes(), 3)), walk_bias(0.1, 8)
    trainer = CpuTrainer(snapshot, random_tables(6, 4), 12, 1, bias, key=5, hierarchical=True)
    assert (trainer.visits == np.round(trainer.visits)).all()
    assert trainer.visits.sum() == 5 * 12


def test_a_node_that_no_counted_walk_met_is_no_target() -> None:
    snapshot = cumulative_snapshot(six_nodes(), 3)
    trainer = trainer_on(snapshot, 4)
    assert trainer.tree is not None
    trainer.tree.leaves[2] = -1
    trainer.train_pass(walk_starts(snapshot, 3), Schedule(3, 0, 77, 0.05, 0.0), None, loss := MeanLoss(every=1))
    assert math.isfinite(loss.mean)
