"""How many of a node's neighbours are neighbours of each other."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from chronospike.data.graph import DynamicGraph
from chronospike.threads import default_threads, run_chunks

# Each thread counts on its own, with two numbers for every node.
_THREADS = 4


def share_closed(graph: DynamicGraph, last_step: int) -> NDArray[np.float64]:
    """`[N]` the share of pairs of neighbours up to `last_step` that have met, too; zero with fewer than two neighbours.

    This is the local clustering coefficient. The direction of edges is ignored.
    """
    # Here, so that what reads no activity does not wait for the compiler.
    from chronospike.data.triangle_kernel import count_triangles

    nodes, ends = graph.num_nodes, _distinct_pairs(graph, last_step)
    degree = np.bincount(ends.reshape(-1), minlength=nodes)
    # Every edge leads to the end of higher degree: then no row is longer than the square root of twice the edges, and
    # a hub costs no more than anybody else.
    rank = np.empty(nodes, dtype=np.int32)
    rank[np.argsort(degree, kind="stable")] = np.arange(nodes)
    low, high = np.sort(rank[ends], axis=0)
    order = np.argsort(low, kind="stable")
    indptr = np.zeros(nodes + 1, dtype=np.int64)
    np.cumsum(np.bincount(low, minlength=nodes), out=indptr[1:])
    higher, counts = high[order], []

    def work(first: int, last: int) -> None:
        found = np.zeros(nodes, dtype=np.int64)
        count_triangles(indptr, higher, np.full(nodes, -1, dtype=np.int32), found, first, last)
        counts.append(found)

    run_chunks(work, nodes, min(_THREADS, default_threads()))
    triangles = sum(counts, np.zeros(nodes, dtype=np.int64))[rank]
    pairs = degree * (degree - 1) // 2
    return np.asarray(triangles / np.maximum(1, pairs))


def _distinct_pairs(graph: DynamicGraph, last_step: int) -> NDArray[np.integer[Any]]:
    """`[2, E]` both ends of every edge up to `last_step`, each pair of nodes once."""
    rows, step, neighbours = graph.history.entries()
    seen = step <= last_step
    if graph.directed:
        rows, neighbours = rows[seen], neighbours[seen]
        keys = np.minimum(rows, neighbours).astype(np.int64) * graph.num_nodes + np.maximum(rows, neighbours)
        # Not by np.unique, which hashes first and is many times slower on millions of keys.
        keys.sort()
        return np.stack(np.divmod(keys[np.diff(keys, prepend=-1) > 0], graph.num_nodes))
    # Both directions are stored.
    seen &= rows < neighbours
    return np.stack([rows[seen], neighbours[seen]])
