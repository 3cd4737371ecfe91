"""The Triton kernels, in Triton's interpreter where there is no GPU."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from chronospike.errors import ChronoSpikeError, InputError
from chronospike.features.biased_walks import random_walks, walk_bias
from chronospike.features.noise import counted_visits, expected_visits, noise_table
from chronospike.features.options import DeepWalk
from chronospike.features.skipgram import MeanLoss, Schedule, initial_tables, train_on_graph
from chronospike.features.walks import Snapshot, cumulative_snapshot, sorted_rows, walk_starts
from chronospike.rng import derive
from tests.features import reference
from tests.features.one_step import deepwalk_step
from tests.features.test_biased_walks import PARAMETERS, random_snapshot
from tests.features.test_walks import snapshot_of
from tests.growing import grown
from tests.path_of_four import path_of_four
from tests.six_nodes import six_nodes

pytest.importorskip("triton", reason="triton is not installed")
gpu = pytest.importorskip("chronospike.features.gpu")

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
pytestmark = [pytest.mark.device, pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")]


def ring(size: int) -> Snapshot:
    """Every node has an edge to the next one only, so that a walk comes back to no node; ids count from -100."""
    nodes = np.arange(size)
    indptr = np.arange(size + 1, dtype=np.int64)
    return Snapshot(indptr, np.ones(size, dtype=np.int32), ((nodes + 1) % size).astype(np.int32), nodes - 100)


def random_tables(count: int, dimension: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    rng = np.random.default_rng(4)
    return tuple(rng.normal(0, 0.4, (count, dimension)).astype(np.float32) for _ in range(2))  # type: ignore[return-value]


@pytest.mark.parametrize("key", [0, 12345, 2**63 + 7, 2**64 - 1])
@pytest.mark.parametrize("directed", [False, True])
def test_walks_equal_those_of_the_cpu(key: int, directed: bool) -> None:
    snapshot = cumulative_snapshot(six_nodes(directed), 3)
    starts = np.tile(walk_starts(snapshot, 1), 30)
    snapshot = snapshot._replace(keys=np.array([5, -1, 2**62, 0, 77, -(2**63)]))
    walks = gpu.DeviceSnapshot(snapshot, torch.device(DEVICE)).random_walks(torch.from_numpy(starts).to(DEVICE), 9, key)
    assert (walks.cpu().numpy() == random_walks(snapshot, starts, 9, key)).all()


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize(("p", "q"), PARAMETERS)
def test_walks_with_a_memory_equal_those_of_the_cpu(p: float, q: float, directed: bool) -> None:
    snapshot, bias = random_snapshot(40, 150, directed), walk_bias(p, q, directed)
    snapshot = snapshot._replace(keys=np.arange(40) * 2**57 - 2**62)
    starts = walk_starts(snapshot, 1)
    device = gpu.DeviceSnapshot(snapshot, torch.device(DEVICE))
    walks = device.random_walks(torch.from_numpy(starts).to(DEVICE), 12, 2**63 + 9, bias)
    assert (walks.cpu().numpy() == random_walks(snapshot, starts, 12, 2**63 + 9, bias)).all()


def test_a_walk_with_a_memory_ends_where_that_of_the_cpu_does() -> None:
    snapshot, bias = snapshot_of([[1, 2], [0, 2, 3], [1, 3], []]), walk_bias(0.5, 2, directed=True)
    starts = np.array([0, 3, 2, 1], dtype=np.int32)
    device = gpu.DeviceSnapshot(snapshot, torch.device(DEVICE))
    walks = device.random_walks(torch.from_numpy(starts).to(DEVICE), 9, 4, bias).cpu().numpy()
    assert (walks == random_walks(snapshot, starts, 9, 4, bias)).all()
    assert walks[1].tolist() == [3] + [-1] * 8


def test_counted_visits_equal_those_of_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chronospike.features.gpu_walks._COUNTED_WALKS", 15)
    snapshot, bias = random_snapshot(40, 90, False), walk_bias(0.5, 2)
    visits = gpu.DeviceSnapshot(snapshot, torch.device(DEVICE)).counted_visits(snapshot, 6, bias, 5)
    assert (visits.cpu().numpy() == counted_visits(snapshot, 6, bias, 5)).all()


@pytest.mark.parametrize("directed", [False, True])
def test_expected_visits_equal_those_of_the_cpu(directed: bool) -> None:
    for step in range(4):
        snapshot = cumulative_snapshot(six_nodes(directed), step)
        visits = gpu.DeviceSnapshot(snapshot, torch.device(DEVICE)).expected_visits(7)
        assert visits.cpu().numpy() == pytest.approx(expected_visits(snapshot, 7))


@pytest.mark.parametrize(("negatives", "window", "dimension"), [(1, 2, 8), (1, 5, 20), (3, 5, 20)])
def test_one_walk_agrees_with_the_reference(negatives: int, window: int, dimension: int) -> None:
    size, length = 500, 8
    snapshot, schedule = ring(size), Schedule(window, negatives, 2**63 + 5, 0.2, 0.0)
    tables, start = random_tables(size, dimension), 17
    plain = tables[0].astype(float), tables[1].astype(float)
    noise = noise_table(expected_visits(snapshot, length))
    own = derive(schedule.key, start - 100)
    for i in range(length):
        words = [derive(own, length + i * (1 + negatives) + 1 + k) for k in range(negatives)]
        # The kernel takes repeated negatives one after the other, so the comparison must be free of them.
        assert len({reference.negative(noise, word) for word in words}) == negatives
    trainer = gpu.GpuTrainer(snapshot, tables, length, DEVICE)
    trainer.train_pass(np.array([start], dtype=np.int32), schedule, None)
    nodes = reference.walk(snapshot, start, length, schedule.key)
    reference.train_walk(*plain, nodes, length, noise, schedule, start - 100, 0)
    inputs, outputs = trainer.finish()
    assert np.abs(inputs - tables[0]).max() > 0.01
    assert inputs == pytest.approx(plain[0], abs=1e-5)
    assert outputs == pytest.approx(plain[1], abs=1e-5)


def test_later_nodes_change_nothing() -> None:
    past, future = [("c", "e", 0), ("e", "12", 3), ("c", "x", 5)], [("a", "d", 11), ("zz", "e", 12), ("12", "d", 25)]
    graphs, tables = grown(past, future, now=10), []
    for graph in graphs.past, graphs.whole:
        snapshot = cumulative_snapshot(graph, 0)
        start, _ = initial_tables(graph.node_keys, 6, seed=3)
        trainer = gpu.GpuTrainer(snapshot, (start, start), 5, DEVICE)
        for node in walk_starts(snapshot, 8):
            # One at a time: on a GPU the order of those that run at once is open.
            trainer.train_pass(np.array([node], dtype=np.int32), Schedule(2, 1, 8, 0.1, 0.0), None)
        tables.append(trainer.finish()[0])
    assert tables[1][graphs.place] == pytest.approx(tables[0], abs=1e-6)
    assert np.abs(tables[0] - initial_tables(graphs.past.node_keys, 6, seed=3)[0]).max() > 1e-3


def test_one_walk_after_the_other_agrees_with_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chronospike.features.gpu.walks_together", lambda *_: 1)
    snapshot, schedule = ring(40), Schedule(2, 1, 9, 0.1, 0.01)
    starts = np.array([0, 10, 20, 30], dtype=np.int32)
    tables = random_tables(40, 6)
    noise = noise_table(expected_visits(snapshot, 5))
    trainer = gpu.GpuTrainer(snapshot, tables, 5, DEVICE)
    trainer.train_pass(starts, schedule, None)
    train_on_graph(tables, snapshot, starts, 5, noise, schedule, threads=1)
    assert trainer.finish()[0] == pytest.approx(tables[0], abs=1e-5)


def test_fewer_walks_run_at_once_around_a_hub() -> None:
    """With a window of 10 a walk writes to 12 rows, so 50 writers on a row with a tenth of the visits are 41 walks."""
    assert gpu.walks_together(0.1, window=10, resident=2112) == 41
    assert gpu.walks_together(1.0, window=100, resident=2112) == 1


def test_without_a_hub_a_launch_is_not_cut() -> None:
    assert gpu.walks_together(1e-3, window=10, resident=2112) == 2**18


def test_a_table_that_diverged_is_an_error() -> None:
    trainer = gpu.GpuTrainer(ring(10), random_tables(10, 4), 3, DEVICE)
    trainer.inputs[3, 1] = float("nan")
    with pytest.raises(ChronoSpikeError, match="diverged"):
        trainer.finish()


def test_a_walk_that_ends_early_agrees_with_the_reference() -> None:
    snapshot, schedule = cumulative_snapshot(path_of_four(directed=True), 0), Schedule(3, 1, 5, 0.1, 0.0)
    tables = random_tables(4, 6)
    plain = tables[0].astype(float), tables[1].astype(float)
    trainer = gpu.GpuTrainer(snapshot, tables, 9, DEVICE)
    trainer.train_pass(np.array([3], dtype=np.int32), schedule, None)
    noise = noise_table(expected_visits(snapshot, 9))
    reference.train_walk(*plain, [3, 2, 1, 0], 9, noise, schedule, 3, 0)
    assert trainer.finish()[0] == pytest.approx(plain[0], abs=1e-5)


@pytest.mark.parametrize(("p", "q"), [(1.0, 1.0), (0.5, 2.0)])
def test_measured_loss_is_that_of_the_reference(p: float, q: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chronospike.features.gpu._MEASURED_SCORES", 300)
    snapshot = sorted_rows(cumulative_snapshot(six_nodes(directed=True), 3))
    schedule, bias, length = Schedule(3, 2, 2**63 + 5, 1e-7, 0.0), walk_bias(p, q, directed=True), 7
    tables, starts, loss = random_tables(6, 5), walk_starts(snapshot, 2), MeanLoss(every=1)
    trainer = gpu.GpuTrainer(snapshot, tables, length, DEVICE, bias, key=3)
    trainer.train_pass(starts, schedule, None, loss)
    noise = noise_table(expected_visits(snapshot, length) if p == q else counted_visits(snapshot, length, bias, 3))
    plain = tables[0].astype(float), tables[1].astype(float)
    parts = [
        reference.walk_loss(*plain, walk[walk >= 0].tolist(), length, noise, schedule, int(walk[0]))
        for walk in random_walks(snapshot, starts, length, schedule.key, bias)
    ]
    assert loss.pairs == sum(pairs for _, pairs in parts)
    assert loss.total == pytest.approx(sum(total for total, _ in parts), rel=1e-5)


def test_loss_is_measured_several_times_in_a_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chronospike.features.gpu._MEASURED_LAUNCH", 4)
    seen, loss = list[int](), MeanLoss(every=2)
    trainer = gpu.GpuTrainer(ring(10), random_tables(10, 4), 3, DEVICE)
    trainer.train_pass(np.arange(10, dtype=np.int32), Schedule(1, 1, 0, 0.1, 0.0), seen.append, loss)
    assert seen == [4, 8, 10]
    # Five walks of three nodes with two pairs of neighbours each, both ways.
    assert loss.pairs == 5 * 4


def test_progress_counts_every_walk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chronospike.features.gpu._WALKS_PER_LAUNCH", 4)
    seen: list[int] = []
    trainer = gpu.GpuTrainer(ring(10), random_tables(10, 4), 3, DEVICE)
    trainer.train_pass(np.arange(10, dtype=np.int32), Schedule(1, 1, 0, 0.1, 0.0), seen.append)
    assert seen == [4, 8, 10]


@pytest.mark.skipif(DEVICE == "cuda", reason="there is a GPU")
def test_a_missing_gpu_is_one_line() -> None:
    with pytest.raises(InputError, match="no GPU that torch can use here. Run with --device cpu"):
        deepwalk_step(six_nodes(), 3, DeepWalk(dimension=4, walks=1, length=4), device="cuda")
