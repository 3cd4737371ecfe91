"""A graph of six nodes over four steps, small enough to work out by hand.

step 0: 0-1  0-1 (repeat)
step 1: 0-2  1-2  3-3 (self-loop)
step 2: 0-1  0-3
step 3: 0-4  2-3
node 5 appears only in a self-loop, so it is isolated.
"""

from __future__ import annotations

import numpy as np

from chronospike.data.build import build_graph
from chronospike.data.events import Events, Steps
from chronospike.data.graph import DynamicGraph
from chronospike.data.ids import NodeIds

EDGES = [
    (0, 1, 0),
    (1, 0, 0),
    (0, 2, 1),
    (1, 2, 1),
    (3, 3, 1),
    (0, 1, 2),
    (3, 0, 2),
    (0, 4, 3),
    (2, 3, 3),
    (5, 5, 3),
]


def six_nodes(directed: bool = False) -> DynamicGraph:
    source, target, step = (np.array(column) for column in zip(*EDGES, strict=True))
    times = np.array([10, 20, 30, 40])
    events = Events(source, target, times[step], NodeIds.range(6))
    return build_graph(events, Steps(step.astype(np.int32), times, times), directed=directed)
