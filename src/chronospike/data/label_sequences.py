"""The known labels of a node's neighbours, step by step.

Kept as counts: of the neighbours of each class in each snapshot, and of those without a known label. What is read of
them, log(1 + count) in the snapshot and added up so far, is made for a batch at a time. One hop never leads back to a
node, so nobody reads their own label.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from chronospike.data.graph import DynamicGraph

Nodes = NDArray[np.integer[Any]]


def share_near_known(graph: DynamicGraph, known: Nodes, last_step: int | None = None) -> float:
    """The share of nodes, among those with an edge by then, that have a neighbour among the `known`."""
    is_known = np.zeros(graph.num_nodes, dtype=bool)
    is_known[known] = True
    rows, step, neighbours = graph.history.entries()
    keep = step <= (graph.num_steps - 1 if last_step is None else last_step)
    rows, neighbours = rows[keep], neighbours[keep]
    seen, near = np.zeros((2, graph.num_nodes), dtype=bool)
    for one, other in ((rows, neighbours), (neighbours, rows)):
        seen[one] = True
        near[one[is_known[other]]] = True
    return float(near.sum() / max(1, seen.sum()))


def label_counts(graph: DynamicGraph, known: Nodes, labels: Nodes, last_step: int | None = None) -> NDArray[np.int16]:
    """`[N, T, C + 1]` neighbours of each class at each step, the unlabelled last; at most 32,767.

    The direction of edges is ignored.

    Args:
        known, labels: `[K]` nodes and their classes; all other nodes are unlabelled.
        last_step: T - 1; by default the graph's.
    """
    steps, kinds = graph.num_steps if last_step is None else last_step + 1, graph.num_classes + 1
    kind_of = np.full(graph.num_nodes, graph.num_classes, dtype=np.int64)
    kind_of[known] = labels
    rows, step, neighbours = graph.snapshot.entries()
    keep = step < steps
    rows, step, neighbours = rows[keep].astype(np.int64), step[keep], neighbours[keep]
    shape = (graph.num_nodes, steps, kinds)
    cells = [(rows * steps + step) * kinds + kind_of[neighbours]]
    if graph.directed:
        cells.append((neighbours.astype(np.int64) * steps + step) * kinds + kind_of[rows])
    # Runs of equal cells, not np.bincount: most cells are empty, and it would hold eight bytes for each.
    found = np.concatenate(cells)
    found.sort()
    starts = np.flatnonzero(np.diff(found, prepend=-1))
    counts = np.zeros(shape, dtype=np.int16)
    counts.reshape(-1)[found[starts]] = np.minimum(np.diff(starts, append=len(found)), np.iinfo(np.int16).max)
    return counts
