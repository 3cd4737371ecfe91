"""Three classifiers on the known labels around a node and on its activity: the strongest simple method we know."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from chronospike.config import AtLeastZero, Count, Positive, Settings
from chronospike.data.activity import profile_width
from chronospike.data.graph import DynamicGraph
from chronospike.data.label_features import DIFFUSIONS, RECENCIES, columns_per_class, label_features
from chronospike.memory import require_bytes
from chronospike.methods.simple import Answer, SimpleLearner
from chronospike.training.label_tables import folds_by_id
from chronospike.training.second_stage import ALONE, StageSettings, fit_second_stage
from chronospike.training.task import Nodes, Task

if TYPE_CHECKING:
    import torch

Rows = NDArray[np.float32]


class LabelsSettings(Settings):
    """What is read of the labels around a node, and the three classifiers."""

    folds: Annotated[int, Field(ge=2, le=1000)] = Field(
        10, description="number of folds; a labelled node reads only the labels of the other folds"
    )
    recencies: tuple[AtLeastZero, ...] = Field(
        RECENCIES, description="an edge at step t weighs exp(-recency (1 - t / (T - 1))); labels are read for each"
    )
    diffusions: tuple[tuple[Annotated[float, Field(ge=0, lt=1)], Count], ...] = Field(
        DIFFUSIONS, description="[alpha, rounds] of each diffusion of the labels, in addition to one and two hops"
    )
    strength: Positive = Field(1.0, description="logistic regression: inverse penalty")
    trees: Count = Field(200, description="extra trees: number of trees")
    leaf_nodes: Count = Field(ALONE.leaf_nodes, description="extra trees: minimum training nodes in a leaf")
    boosting_rounds: Count = Field(60, description="gradient boosting: rounds, each with a tree per class")
    boosting_leaves: Annotated[int, Field(ge=2, lt=2**31)] = Field(15, description="gradient boosting: leaves per tree")
    learning_rate: Positive = Field(0.1, description="gradient boosting: learning rate")
    max_nodes: Count = Field(50_000, description="maximum number of training nodes; more are subsampled by class")


class Labels(SimpleLearner[LabelsSettings]):
    name = "labels"
    title = "label features"
    summary = "logistic regression, extra trees and gradient boosting on the labels around a node and its degrees"
    settings_type = LabelsSettings
    needs_features = False
    is_quick = False

    def answer(self, task: Task, known: Nodes) -> Answer:
        s, labels = self.settings, task.labels(known)
        rows = self._inputs(task, known)
        sizes = StageSettings(
            strength=s.strength,
            trees=s.trees,
            leaf_nodes=s.leaf_nodes,
            rounds=s.boosting_rounds,
            leaves=s.boosting_leaves,
            learning_rate=s.learning_rate,
            max_nodes=s.max_nodes,
        )
        stage = fit_second_stage(rows[known], labels, task.graph.num_classes, "mean", task.seed, sizes)
        facts = {"training_nodes": min(len(known), s.max_nodes)}
        return Answer(lambda nodes: stage.probabilities(rows[nodes]), rows, stage.parameters, facts)

    @property
    def memory_advice(self) -> str:
        return "Lower the number of recencies or diffusions, or import the graph with fewer steps"

    def require_memory(self, graph: DynamicGraph, to_make: int, train: int, device: torch.device) -> None:
        s = self.settings
        around = columns_per_class(len(s.recencies), len(s.diffusions), graph.directed) * graph.num_classes
        columns = around + profile_width(graph.directed)
        # The inputs stand twice while they are put together.
        require_bytes(8.0 * graph.num_nodes * columns, "the method 'labels' on this graph", self.memory_advice)

    def _inputs(self, task: Task, known: Nodes) -> Rows:
        """`[N, d]` label features, out of fold for the known nodes, then activity."""
        s, labels = self.settings, task.labels(known)
        around = task.tables.features_of(known, s.folds, s.recencies, s.diffusions)
        if around is None:
            folds = folds_by_id(task.graph, known, s.folds, task.seed)
            around = label_features(
                task.graph,
                known,
                labels,
                folds,
                recencies=s.recencies,
                diffusions=s.diffusions,
                last_step=task.last_step,
                device=task.device,
            )
        return np.concatenate([around, task.tables.activity], axis=1)
