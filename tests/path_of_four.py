"""The path 0-1-2-3, its three edges at steps of your choice."""

from __future__ import annotations

import numpy as np

from chronospike.data.build import build_graph
from chronospike.data.events import Events, Steps
from chronospike.data.graph import DynamicGraph
from chronospike.data.ids import NodeIds


def path_of_four(steps: tuple[int, int, int] = (0, 0, 0), count: int = 1, directed: bool = False) -> DynamicGraph:
    source, target = np.array([0, 1, 2]), np.array([1, 2, 3])
    times = np.arange(count)
    index = np.array(steps, dtype=np.int32)
    events = Events(source, target, times[index], NodeIds.range(4))
    return build_graph(events, Steps(index, times, times), directed=directed)
