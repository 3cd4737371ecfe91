from __future__ import annotations

from typing import Any

import pytest
import torch

from chronospike.bench import measure, roofline
from chronospike.bench.roofline import STAGES
from chronospike.training.loop import Trainer
from tests.small_runs import CPU, small_graph, small_network, small_settings


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    patch = pytest.MonkeyPatch()
    patch.setattr(roofline, "_COPY_BYTES", {"cpu": 1 << 16})
    patch.setattr(roofline, "_PRODUCT_SIZE", {"cpu": 64})
    result = measure.bench(small_graph(), small_settings(feature_dimension=16), CPU, epochs=2, say=lambda _: None)
    patch.undo()
    return result


def test_every_stage_has_a_time_and_a_floor(found: dict[str, Any]) -> None:
    rows = {row["stage"]: row for row in found["stages"]}
    assert set(rows) == {*STAGES, "all"}
    assert all(row["seconds"] > 0 and row["floor_seconds"] > 0 for row in rows.values())
    assert rows["all"]["seconds"] == pytest.approx(sum(rows[name]["seconds"] for name in STAGES))


def test_the_plan_of_kernels_is_part_of_it(found: dict[str, Any]) -> None:
    assert found["kernels"]["neurons"] == {"implementation": "numba", "why": "compiled for the CPU"}


def test_training_is_the_median_of_the_epochs(found: dict[str, Any]) -> None:
    training = found["training"]
    assert training["seconds_per_epoch"] == pytest.approx(sum(training["epochs"]) / 2)
    assert training["batches"] == 3
    assert found["floor"]["ratio"] == pytest.approx(training["seconds_per_epoch"] / found["floor"]["seconds_per_epoch"])


def test_inference_counts_all_nodes(found: dict[str, Any]) -> None:
    assert found["inference"]["nodes_timed"] == small_graph().num_nodes == found["graph"]["nodes"]
    assert found["peak_memory_bytes"] > 1 << 20


def test_stages_in_order_are_the_step_itself() -> None:
    """The same losses and the same gradients as the training step gives for the same batch."""
    networks = [small_network(dropout=0.0, temporal_dropout=0.0, contrastive=0.0) for _ in range(2)]
    trainers = [Trainer(network, network.settings) for network in networks]
    roots = networks[0].task.split.train[:20]
    flow = measure.Flow()
    for _, work in measure._parts(trainers[0], networks[0], roots):
        work(flow)
    trainers[1].model.train()
    assert torch.equal(flow.losses.detach(), trainers[1].batch(roots, 0, 0))
    for one, other in zip(trainers[0].model.parameters(), trainers[1].model.parameters(), strict=True):
        assert torch.equal(one, other)


def test_too_many_features_for_the_memory_become_one_block(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = small_graph(nodes=1200)
    settings = small_settings(feature_dimension=8)
    assert len(measure.random_features(graph, settings, CPU, False)) == graph.num_steps
    wide = settings.change(feature_dimension=40_000_000 // graph.num_nodes)
    monkeypatch.setattr(torch, "empty", lambda *shape, **_: torch.zeros(shape[0], 1, 1))
    assert len(measure.random_features(graph, wide, CPU, False)) == graph.num_steps
    wider = settings.change(feature_dimension=1024**3 // graph.num_nodes)
    assert len(measure.random_features(graph, wider, CPU, False)) == 1
