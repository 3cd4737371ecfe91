"""One step of DeepWalk, as it is made after any tables of the step before."""

from __future__ import annotations

from chronospike.data.graph import DynamicGraph
from chronospike.features.deepwalk import DeepWalkSteps, Tables
from chronospike.features.options import DeepWalk, Start


def deepwalk_step(
    graph: DynamicGraph,
    step: int,
    options: DeepWalk,
    previous: Tables | None = None,
    device: str = "cpu",
    start: Start | None = None,
) -> Tables:
    steps = DeepWalkSteps(graph, options, device, start=start)
    steps.previous = previous
    return steps.tables(step)
