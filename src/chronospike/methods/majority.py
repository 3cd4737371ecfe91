"""Predicts the class frequencies of the known nodes for every node: the lower bound for any method."""

from __future__ import annotations

import numpy as np

from chronospike.config import Settings
from chronospike.methods.simple import Answer, SimpleLearner
from chronospike.training.task import Nodes, Task


class Majority(SimpleLearner[Settings]):
    name = "majority"
    title = "majority class"
    summary = "the class frequencies of the labelled nodes, for every node"
    needs_features = False

    def answer(self, task: Task, known: Nodes) -> Answer:
        shares = np.bincount(task.labels(known), minlength=task.graph.num_classes) / max(1, len(known))
        return Answer(np.broadcast_to(shares, (task.graph.num_nodes, len(shares))))
