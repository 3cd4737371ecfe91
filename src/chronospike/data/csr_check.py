"""Checks of what samplers assume of the two views of a graph, before anything indexes with them.

Compiled kernels index without bounds checks, so that a wrong neighbour or offset would end the process.
"""

from __future__ import annotations

import numpy as np

from chronospike.data.csr import TimeSlicedCSR, history_and_snapshot
from chronospike.errors import GraphError

_VIEWS = ("history", "snapshot")
# Entries up to which a rebuilt copy is compared; with more, the compiled pass is quicker and takes less memory.
_FEW = 1_000_000


def check_views(history: TimeSlicedCSR, snapshot: TimeSlicedCSR, directed: bool) -> None:
    """Raise `GraphError` naming the first fault of two views of one graph.

    Both: row starts ascend from 0 to the number of entries, step offsets from 0 to the length of the row, neighbours
    are nodes and no self-loops, and within a row and step they ascend. The history holds the first occurrence of each
    neighbour in the snapshot, in the same order, and nothing else. Undirected edges stand in both rows.
    """
    nodes = _check_shapes(history, snapshot)
    for name, view in zip(_VIEWS, (history, snapshot), strict=True):
        if len(view.neighbours) and not 0 <= view.neighbours.min() <= view.neighbours.max() < nodes:
            raise GraphError(f"the {name} names a neighbour outside 0..{nodes - 1}")
        if view.indptr[0] != 0 or view.indptr[-1] != len(view.neighbours):
            raise GraphError(f"the row starts of the {name} do not ascend from 0 to {len(view.neighbours)}")
    if len(snapshot.neighbours) <= _FEW and _is_what_it_would_be_built_as(history, snapshot, directed):
        return
    from chronospike.data.csr_kernel import faults_and_balance

    found, balance = faults_and_balance(history, snapshot)
    if found:
        row, fault = min(found)
        raise GraphError(_sentence(fault, row, history, snapshot))
    if not directed and balance:
        raise GraphError("an edge of the undirected graph is in the row of only one of its nodes")


def _is_what_it_would_be_built_as(history: TimeSlicedCSR, snapshot: TimeSlicedCSR, directed: bool) -> bool:
    """Whether both views equal those built from the snapshot's own entries: the slow twin of the compiled pass.

    On few entries it takes less time than loading the compiler; what is wrong, the pass then finds and names.
    """
    for view in (history, snapshot):
        offsets, starts = view.step_offsets.astype(np.int64), view.indptr.astype(np.int64)
        lengths = np.diff(starts)
        if (lengths < 0).any() or offsets[:, 0].any() or (offsets[:, -1] != lengths).any():
            return False
        if (np.diff(offsets, axis=1) < 0).any():
            return False
    rows, steps, neighbours = snapshot.entries()
    if (rows == neighbours).any():
        return False
    if not directed:
        # Where both rows hold each edge already, the reverse of all adds nothing.
        rows, neighbours = np.concatenate([rows, neighbours]), np.concatenate([neighbours, rows])
        steps = np.concatenate([steps, steps])
    built = history_and_snapshot(rows, neighbours, steps, snapshot.num_nodes, snapshot.num_steps)
    return all(
        np.array_equal(getattr(view, part), getattr(wanted, part))
        for view, wanted in zip((history, snapshot), built, strict=True)
        for part in ("indptr", "step_offsets", "neighbours")
    )


def _check_shapes(history: TimeSlicedCSR, snapshot: TimeSlicedCSR) -> int:
    """The number of nodes of both views."""
    sizes = []
    for name, view in zip(_VIEWS, (history, snapshot), strict=True):
        for part, dimensions in (("indptr", 1), ("step_offsets", 2), ("neighbours", 1)):
            array = getattr(view, part)
            if array.ndim != dimensions or array.dtype.kind != "i" or not array.dtype.isnative:
                kind = f"{array.dtype} with {array.ndim} dimension(s)"
                raise GraphError(f"{part} of the {name} is {kind}; signed integers with {dimensions} are needed")
        if view.num_nodes < 1 or view.num_steps < 1 or len(view.indptr) != view.num_nodes + 1:
            raise GraphError(
                f"the {name} has {len(view.indptr)} row starts for {view.num_nodes} nodes and {view.num_steps} steps"
            )
        sizes.append((view.num_nodes, view.num_steps))
    (nodes, steps), (others, more) = sizes
    if (nodes, steps) != (others, more):
        raise GraphError(
            f"the history covers {nodes} nodes and {steps} steps, the snapshot {others} nodes and {more} steps"
        )
    if nodes >= 2**31:
        raise GraphError(f"{nodes:,} nodes; at most 2^31 - 1 are supported")
    return nodes


def _sentence(fault: int, row: int, history: TimeSlicedCSR, snapshot: TimeSlicedCSR) -> str:
    from chronospike.data.csr_kernel import DISAGREE, ORDER, ROW_STARTS, SELF_LOOP

    if fault < SELF_LOOP:
        name, view = _VIEWS[fault % 2], (history, snapshot)[fault % 2]
        if fault - fault % 2 == ROW_STARTS:
            return f"the row starts of the {name} do not ascend from 0 to {len(view.neighbours)} (row {row})"
        return f"the step offsets of the {name} do not ascend from 0 to the row length (row {row})"
    return {
        SELF_LOOP: f"row {row} of the snapshot contains the node itself",
        ORDER: f"the neighbours in row {row} of the snapshot do not ascend within each step",
        DISAGREE: f"row {row} of the history does not match the snapshot (each neighbour once, at its first step)",
    }[fault]
