"""The mean of given values over the neighbours of a node."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from chronospike.data.graph import DynamicGraph

Nodes = NDArray[np.integer[Any]]
# Values are rounded to multiples of 1 / this, so that sums are exact: nodes numbered otherwise give the same bits.
_UNIT = 2.0**20


def neighbour_means(
    graph: DynamicGraph, last_step: int, nodes: Nodes, values: Callable[[Nodes], NDArray[Any]]
) -> NDArray[np.float32]:
    """`[K, V]` means over the distinct neighbours of `nodes` up to `last_step`; zero without any.

    Of a directed graph `[K, 2 V]`: over the sources of edges into a node, then over the targets of edges from it.

    Args:
        values: called with nodes `[M]` in ascending order, returns `[M, V]`.
    """
    rows, steps, neighbours = graph.history.entries()
    wanted, back = np.unique(nodes, return_inverse=True)
    seen, place = steps <= last_step, np.full(graph.num_nodes, -1)
    place[wanted] = np.arange(len(wanted))
    found = []
    for ends, others in ((rows, neighbours), (neighbours, rows)) if graph.directed else ((rows, neighbours),):
        here = seen & (place[ends] >= 0)
        at, (met, other) = place[ends[here]], np.unique(others[here], return_inverse=True)
        count = np.maximum(1, np.bincount(at, minlength=len(wanted)))
        for column in values(met).T:
            whole = np.rint(column * _UNIT)
            found.append(np.bincount(at, whole[other], minlength=len(wanted)) / (_UNIT * count))
    return np.array(found, dtype=np.float32).reshape(len(found), len(wanted)).T[back]
