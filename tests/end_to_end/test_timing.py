"""Classes that differ only in when their nodes are active: a model that ignores time must fail."""

from __future__ import annotations

from typing import Any

import pytest

from chronospike.data.graph import DynamicGraph
from chronospike.data.synthetic import synthetic_graph
from tests.small_runs import small_trainer


@pytest.fixture(scope="module")
def graph() -> DynamicGraph:
    return synthetic_graph(
        nodes=800, steps=9, classes=2, structure=0.0, timing=1.0, feature_dim=8, feature_noise=0.4, seed=0
    )


def micro_f1(graph: DynamicGraph, **values: Any) -> float:
    """On half of the nodes, so that a guess is all but surely under 60 %."""
    learning: dict[str, Any] = {"epochs": 20, "patience": 20, "batch_size": 16, "learning_rate": 0.01}
    trainer = small_trainer(graph, dropout=0.1, ratio=0.5, **learning, **values)
    model, task = trainer.run(), trainer.network.task
    predicted = trainer.network.infer(model, task.split.test)[0].argmax(dim=1).numpy()
    return float((predicted == task.labels(task.split.test)).mean())


def test_chronospike_tells_classes_apart_by_their_timing(graph: DynamicGraph) -> None:
    assert micro_f1(graph) > 0.9


def test_the_static_ablation_cannot(graph: DynamicGraph) -> None:
    assert micro_f1(graph, static=True) < 0.6
