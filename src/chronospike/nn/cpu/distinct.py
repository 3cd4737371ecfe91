"""The distinct nodes of a sampled tree, step by step.

Most positions of a tree repeat nodes: early in time a node knows few others, and often only itself. On DBLP a
batch has seven times as many positions as distinct (step, node) pairs, and each needs to be projected only once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from chronospike.compiled import njit
from chronospike.threads import run_chunks


@dataclass(frozen=True)
class Distinct:
    """Distinct nodes of a tree `[T, M]` at each step, those that are targets first.

    Attributes:
        nodes: `[T, M]` int32, of which the first `counts[t]` of a row are meant.
        slots: `[T, M]` int32, where in `nodes[t]` the node of each position is.
        counts: `[T]` int64 distinct nodes.
        targets: `[T]` int64 distinct nodes among the targets.
    """

    nodes: NDArray[np.int32]
    slots: NDArray[np.int32]
    counts: NDArray[np.int64]
    targets: NDArray[np.int64]


def distinct_nodes(nodes: NDArray[np.int32], targets: int, table_rows: int) -> Distinct:
    """Of the tree `nodes [T, M]`, whose first `targets` columns have neighbours; all are below `table_rows`."""
    found = Distinct(np.empty_like(nodes), np.empty_like(nodes), *(np.empty(len(nodes), np.int64) for _ in range(2)))

    def work(first: int, last: int) -> None:
        place = np.full(table_rows, -1, dtype=np.int32)
        _find(nodes, targets, place, found.nodes, found.slots, found.counts, found.targets, first, last)

    run_chunks(work, len(nodes))
    return found


@njit(nogil=True, cache=True)
def _find(
    nodes: Any, targets: int, place: Any, found: Any, slots: Any, counts: Any, target_counts: Any, first: int, last: int
) -> None:
    """`place [N]` comes and leaves as -1: where a node of this step was put."""
    for t in range(first, last):
        count = 0
        for i in range(nodes.shape[1]):
            if i == targets:
                target_counts[t] = count
            node = nodes[t, i]
            if place[node] < 0:
                place[node] = count
                found[t, count] = node
                count += 1
            slots[t, i] = place[node]
        counts[t] = count
        if targets == nodes.shape[1]:
            target_counts[t] = count
        for i in range(count):
            place[found[t, i]] = -1
