"""Huffman's tree over the visited nodes, for hierarchical softmax: often visited nodes have short paths."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from chronospike.compiled import njit
from chronospike.errors import GraphError


class HuffmanTree(NamedTuple):
    """A path goes from a leaf up to the root, over inner nodes, each with a row in the table of outputs.

    Attributes:
        leaves: `[N]` the place of each node's leaf, -1 for one that is never visited.
        parents: `[2 V - 1]` the inner node above each leaf (0..V-1) and each inner node (V..2 V - 2), as a row
            0..V-2 of the table; -1 above the root.
        bits: `[2 V - 1]` whether it is the second child there.
        depth: edges of the longest path.
    """

    leaves: NDArray[np.int32]
    parents: NDArray[np.int32]
    bits: NDArray[np.int8]
    depth: int


def huffman_tree(visits: NDArray[np.float64]) -> HuffmanTree:
    """The tree for nodes that are visited so often; those without visits have no leaf."""
    nodes = np.flatnonzero(visits)
    if len(nodes) < 2:
        raise GraphError("hierarchical softmax needs two nodes that walks come to")
    # Stable, so that equal counts stand in the order of their nodes, whatever others there are.
    order = np.argsort(visits[nodes], kind="stable")
    leaves = np.full(len(visits), -1, dtype=np.int32)
    leaves[nodes[order]] = np.arange(len(nodes))
    parents, bits = np.full(2 * len(nodes) - 1, -1, np.int32), np.zeros(2 * len(nodes) - 1, np.int8)
    depth = _merge(visits[nodes[order]], parents, bits)
    return HuffmanTree(leaves, parents, bits, depth)


@njit
def _merge(counts: Any, parents: Any, bits: Any) -> Any:
    """Join the two rarest until one is left, and return how deep the tree is.

    Inner nodes come up in ascending order, so two queues do for a heap.
    """
    size = len(counts)
    weights, heights = np.empty(size - 1), np.ones(size - 1, np.int64)
    leaf = inner = 0
    for new in range(size - 1):
        weights[new] = 0.0
        for child in range(2):
            if leaf < size and (inner == new or counts[leaf] <= weights[inner]):
                chosen = leaf
                weights[new] += counts[leaf]
                leaf += 1
            else:
                chosen = size + inner
                weights[new] += weights[inner]
                heights[new] = max(heights[new], heights[inner] + 1)
                inner += 1
            parents[chosen], bits[chosen] = new, child
    return heights[-1]
