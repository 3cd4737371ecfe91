"""Label propagation: the known labels diffused over the edges, without learned parameters."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from chronospike.config import AtLeastZero, Count, Settings
from chronospike.data.label_propagation import label_propagation
from chronospike.methods.simple import Answer, SimpleLearner
from chronospike.training.task import Nodes, Task


class LabelPropagationSettings(Settings):
    """How far labels travel, and how much recent edges count."""

    recency: AtLeastZero = Field(3.0, description="an edge at step t weighs exp(-recency (1 - t / (T - 1)))")
    alpha: Annotated[float, Field(ge=0, lt=1)] = Field(0.9, description="weight of the neighbours in each round")
    rounds: Count = 50


class LabelPropagation(SimpleLearner[LabelPropagationSettings]):
    name = "label-propagation"
    title = "label propagation"
    summary = "known labels diffused over the edges, recent ones counting more"
    settings_type = LabelPropagationSettings
    needs_features = False

    def answer(self, task: Task, known: Nodes) -> Answer:
        s, last = self.settings, task.last_step
        return Answer(
            label_propagation(task.graph, known, recency=s.recency, alpha=s.alpha, rounds=s.rounds, last_step=last)
        )


class UnweightedSettings(LabelPropagationSettings):
    """The same with all edges alike."""

    recency: AtLeastZero = Field(0.0, description="an edge at step t weighs exp(-recency (1 - t / (T - 1)))")


class UnweightedLabelPropagation(LabelPropagation):
    name = "label-propagation-unweighted"
    title = "label propagation, unweighted"
    summary = "known labels diffused over the edges, all weighted equally"
    settings_type = UnweightedSettings
