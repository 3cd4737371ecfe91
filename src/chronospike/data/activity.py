"""How much a node does, and when."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from chronospike.data.graph import DynamicGraph


def activity(graph: DynamicGraph, last_step: int | None = None) -> NDArray[np.float32]:
    """`[N, T + 3]` log(1 + degree) at each of T steps and in all, and the first and the last step with an edge.

    Edges count at both ends. The first step of a node without an edge is T, its last one -1.

    Args:
        last_step: T - 1; by default the graph's.
    """
    steps = graph.num_steps if last_step is None else last_step + 1
    degrees = np.diff(graph.snapshot.step_offsets[:, : steps + 1], axis=1).astype(np.int64)
    if graph.directed:
        _, step, sources = graph.snapshot.entries()
        keep = step < steps
        cells = sources[keep].astype(np.int64) * steps + step[keep]
        degrees += np.bincount(cells, minlength=degrees.size).reshape(degrees.shape)
    active = degrees > 0
    seen = active.any(axis=1)
    first = np.where(seen, active.argmax(axis=1), steps)
    last = np.where(seen, steps - 1 - active[:, ::-1].argmax(axis=1), -1)
    in_all = np.log1p(degrees.sum(axis=1))
    return np.column_stack([np.log1p(degrees, dtype=np.float32), in_all, first, last]).astype(np.float32)
