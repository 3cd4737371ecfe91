"""ChronoSpike as a method: the paper's network with the interface that all methods share."""

from __future__ import annotations

from typing import Any, Self

import torch

from chronospike.data.graph import DynamicGraph
from chronospike.data.label_sequences import share_near_known
from chronospike.methods.chronospike.distil import Student, read_targets
from chronospike.methods.chronospike.memory import lower_what, require_memory
from chronospike.methods.chronospike.network import ChronoSpikeNetwork
from chronospike.methods.chronospike.root_table import root_widths
from chronospike.methods.chronospike.settings import ChronoSpikeSettings
from chronospike.training.bagging import BagFitted
from chronospike.training.gradient import GradientFitted, GradientLearner
from chronospike.training.learner import FitContext
from chronospike.training.run_folder import RunFolder
from chronospike.training.task import Task
from chronospike.training.weights import description, load_weights

# Where fewer nodes have a neighbour with a known label, inputs made of labels teach more about the few that have one
# than about the many that have none.
LEAST_NEAR = 0.5
_WITHOUT_LABELS = {"label_sequences": False, "label_features": False}
_WITHOUT_ROOT_INPUTS = {**_WITHOUT_LABELS, "activity": False}


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
            suited = self._suited(task, context or FitContext())
            return super(ChronoSpikeLearner, suited).fit(task, context)
        return Student(self.settings, read_targets(run.soft_targets, task.graph)).fit(task, context)

    def load(self, task: Task, run: RunFolder) -> GradientFitted | BagFitted:
        # What the network was found to do without when it was trained, it does without.
        found = description(load_weights(run.weights)[1])
        without, graph = self.settings.change(**_WITHOUT_LABELS), task.graph
        widths = root_widths(without, graph.num_classes, graph.directed)
        is_without = (found.get("met", 0), found.get("numbers", 0)) == widths
        return super(ChronoSpikeLearner, type(self)(without) if is_without else self).load(task, run)

    def _suited(self, task: Task, context: FitContext) -> Self:
        """The same learner, without labels as inputs where most nodes would meet none or only one step is read."""
        s = self.settings
        if s.static and any(getattr(s, name) for name in _WITHOUT_ROOT_INPUTS):
            context.note(f"with static=true the network reads none of {', '.join(_WITHOUT_ROOT_INPUTS)}")
            return type(self)(s.change(**_WITHOUT_ROOT_INPUTS))
        if not s.label_sequences and not s.label_features:
            return self
        meets = share_near_known(task.graph, task.known, task.last_step)
        if meets >= LEAST_NEAR:
            return self
        context.note(f"only {meets:.0%} of the nodes have a neighbour with a known label: the network reads no labels")
        return type(self)(s.change(**_WITHOUT_LABELS))

    def check(self, graph: DynamicGraph) -> None:
        graph.require(steps=1 if self.settings.static else 2, classes=2)

    def require_memory(self, graph: DynamicGraph, to_make: int, train: int, device: torch.device) -> None:
        require_memory(graph, self.settings, to_make, train, device)

    def estimate(self, graph: DynamicGraph, width: int) -> dict[str, Any]:
        from chronospike.methods.chronospike.estimate import estimate

        return dict(estimate(graph, self.settings, width))
