"""ChronoSpike as a method: the paper's network behind the protocol that all methods share."""

from __future__ import annotations

from typing import Any

import torch

from chronospike.data.graph import DynamicGraph
from chronospike.methods.chronospike.distil import Student, read_targets
from chronospike.methods.chronospike.memory import lower_what, require_memory
from chronospike.methods.chronospike.network import ChronoSpikeNetwork
from chronospike.methods.chronospike.settings import ChronoSpikeSettings
from chronospike.training.bagging import BagFitted
from chronospike.training.gradient import GradientFitted, GradientLearner
from chronospike.training.learner import FitContext
from chronospike.training.task import Task


class ChronoSpikeLearner(GradientLearner[ChronoSpikeSettings]):
    name = "chronospike"
    title = "ChronoSpike"
    summary = "attention over sampled neighbours, adaptive spiking neurons, a Transformer over the steps"
    settings_type = ChronoSpikeSettings

    @property
    def memory_advice(self) -> str:
        return lower_what(self.settings)

    def network(self, task: Task, training: bool = True) -> ChronoSpikeNetwork:
        return ChronoSpikeNetwork(task, self.settings, training=training)

    def fit(self, task: Task, context: FitContext | None = None) -> GradientFitted | BagFitted:
        run = None if context is None else context.run
        if run is None or run.teacher is None:
            return super().fit(task, context)
        return Student(self.settings, read_targets(run.soft_targets, task.graph)).fit(task, context)

    def check(self, graph: DynamicGraph) -> None:
        graph.require(steps=1 if self.settings.static else 2, classes=2)

    def require_memory(self, graph: DynamicGraph, to_make: int, train: int, device: torch.device) -> None:
        require_memory(graph, self.settings, to_make, train, device)

    def estimate(self, graph: DynamicGraph, width: int) -> dict[str, Any]:
        from chronospike.methods.chronospike.estimate import estimate

        return dict(estimate(graph, self.settings, width))
