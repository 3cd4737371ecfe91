"""Activity features: how often, how recently and how regularly a node has had edges by each step.

The values mean the same on other graphs, so that a model that reads them can be used there.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from chronospike.data.activity import activity_summary, degrees_per_step
from chronospike.data.feature_store import StepMaker
from chronospike.data.graph import DynamicGraph
from chronospike.features.options import Progress


class ActivitySteps(StepMaker):
    """Makes the features of one step after another."""

    def __init__(self, graph: DynamicGraph, on_progress: Progress | None = None) -> None:
        self.graph, self.on_progress = graph, on_progress
        self.degrees = degrees_per_step(graph)

    def make_step(self, step: int) -> NDArray[np.float32]:
        """`[N, 9]` log(1 + degree) in `step`, then `activity_summary` up to it; zero for nodes without an edge yet."""
        until = self.degrees[:, : step + 1]
        table = np.column_stack([np.log1p(until[:, step]), activity_summary(self.graph, until)])
        table[until.sum(axis=1) == 0] = 0
        if self.on_progress is not None:
            self.on_progress(step, step + 1, self.graph.num_steps)
        return table.astype(np.float32)
