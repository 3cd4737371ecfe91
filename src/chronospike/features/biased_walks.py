"""Second-order random walks as in node2vec, and uniform ones, many at a time.

Having come from t to v, a walk goes on to a neighbour x of v with a weight of 1/p if x is t, 1 if x is a neighbour of
t, and 1/q otherwise; the first move is uniform. A neighbour is proposed and accepted by its share of the largest
weight, which is exact and needs no table for each edge. What makes that quick:

* The weight of a return counts apart. Where 1/p is more than max(1, 1/q), the excess is a slot of its own behind those
  of the neighbours, and the others are not turned down more often for it.
* One random word holds the proposal in its upper half and its acceptance in the lower one. Most words decide without
  a look at the neighbours of t; only those between the weights of near and far search its row.
* After as many proposals as there are neighbours, one is drawn by counting all of them, which is exact as well. So no
  p and q, however far from 1, cost more than about twice the better of the two ways.
* A thread makes 16 walks side by side, so that the memory for one is under way while it works on the others.

Step i takes word i of the walk's own stream, and a proposal after the first its word 2^32 further on, so that uniform
walks, p = q = 1, take one word a step. In a directed graph x counts as a neighbour of t if a walk can go from t to x.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from chronospike.cache_hints import prefetch
from chronospike.compiled import njit
from chronospike.features.walks import Snapshot
from chronospike.rng_kernels import below_numba, derive_numba
from chronospike.threads import run_chunks

Walks = NDArray[np.int32]

_UNIT = 2**32
_LANES = 16
_U32 = np.uint64(32)
_U11 = np.uint64(11)
_LOW = np.uint64(2**32 - 1)


class Bias(NamedTuple):
    """The weights of a second-order walk, in units of 2^-32 of max(1, 1/q).

    No weight is below one unit: where a walk has no other way, the least likely one is taken.

    Attributes:
        returns: of a return, all of it: more than one where p is small.
        near: of a neighbour of the node before.
        far: of any other neighbour.
        excess: by how many slots a return weighs more than one.
        mutual: whether the node before is always a neighbour, as in an undirected graph.
    """

    returns: int
    near: int
    far: int
    excess: float
    mutual: bool

    @property
    def is_uniform(self) -> bool:
        return self.returns == self.near == self.far


def walk_bias(p: float, q: float, directed: bool = False) -> Bias:
    """The weights for a return parameter p and an in-out parameter q, either of which may be infinite."""
    largest = max(1.0, 1 / q)
    returns, near, far = (max(1, round(weight / largest * _UNIT)) for weight in (1 / p, 1.0, 1 / q))
    return Bias(returns, near, far, max(0.0, 1 / p / largest - 1), not directed)


UNIFORM = walk_bias(1, 1)


def fill_walks(
    walks: Walks, snapshot: Snapshot, starts: NDArray[np.int32], key: int, bias: Bias = UNIFORM, threads: int | None = 1
) -> None:
    """Fill `walks [W, L]` with one from each of `starts [W]`, and -1 after one that met a node without neighbours.

    The rows of the snapshot must ascend (see `sorted_rows`), unless the walks are uniform.
    """
    base, keys = np.uint64(key), snapshot.keys[starts]
    run_chunks(
        lambda low, high: _fill(walks, *snapshot.rows, starts, keys, base, *bias, low, high), len(starts), threads
    )


def random_walks(
    snapshot: Snapshot,
    starts: NDArray[np.int32],
    length: int,
    key: int,
    bias: Bias = UNIFORM,
    threads: int | None = None,
) -> Walks:
    """`[W, length]`, see `fill_walks`."""
    walks = np.empty((len(starts), length), dtype=np.int32)
    fill_walks(walks, snapshot, starts, key, bias, threads)
    return walks


@njit
def _fill(
    walks: Any, indptr: Any, degrees: Any, neighbours: Any, starts: Any, keys: Any, base: Any,
    returns: Any, near: Any, far: Any, excess: Any, mutual: Any, low: Any, high: Any,
) -> None:  # fmt: skip
    """The walks low..high-1. A lane has a key, a word and its slot, a node and its row, the one before and its row."""
    own, words, slots = np.empty(_LANES, np.uint64), np.empty(_LANES, np.uint64), np.empty(_LANES, np.int64)
    nodes, firsts, counts = np.empty(_LANES, np.int64), np.empty(_LANES, np.int64), np.empty(_LANES, np.int64)
    old_nodes, old_firsts, old_counts = (
        np.empty(_LANES, np.int64),
        np.empty(_LANES, np.int64),
        np.empty(_LANES, np.int64),
    )
    extra = np.zeros(_LANES, np.float64)
    for group in range(low, high, _LANES):
        lanes = min(_LANES, high - group)
        for lane in range(lanes):
            own[lane] = derive_numba(base, keys[group + lane])
            nodes[lane] = walks[group + lane, 0] = starts[group + lane]
        for i in range(1, walks.shape[1]):
            for lane in range(lanes):
                node = nodes[lane]
                if node < 0:
                    continue
                first, count = indptr[node], degrees[node]
                firsts[lane], counts[lane], words[lane] = first, count, derive_numba(own[lane], i)
                extra[lane] = 0.0 if i == 1 or count <= 1 else excess
                if extra[lane] > 0.0 and not mutual and not contains(neighbours, first, count, old_nodes[lane]):
                    extra[lane] = 0.0
                slots[lane] = _slot(words[lane], count, extra[lane])
                prefetch(neighbours, first + slots[lane])
            for lane in range(lanes):
                if nodes[lane] < 0 or counts[lane] == 0:
                    nodes[lane] = walks[group + lane, i] = -1
                    continue
                if i == 1 or counts[lane] == 1:
                    chosen = np.int64(neighbours[firsts[lane] + slots[lane]])
                else:
                    chosen = _move(
                        neighbours, firsts[lane], counts[lane], old_nodes[lane], old_firsts[lane], old_counts[lane],
                        own[lane], i, words[lane], slots[lane], extra[lane], returns, near, far,
                    )  # fmt: skip
                old_nodes[lane], old_firsts[lane], old_counts[lane] = nodes[lane], firsts[lane], counts[lane]
                nodes[lane] = walks[group + lane, i] = chosen
                prefetch(indptr, chosen)
                prefetch(degrees, chosen)


@njit(forceinline=True)
def _slot(word: Any, count: Any, excess: Any) -> Any:
    """A place in a row, or `count` for the excess of a return. The floats are those of every device: none are fused."""
    if excess == 0.0:
        return below_numba(word, count)
    return min(np.int64(np.float64(word >> _U32) * (np.float64(count) + excess) * 2.0**-32), np.int64(count))


@njit(forceinline=True)
def _move(
    neighbours: Any, first: Any, count: Any, old: Any, old_first: Any, old_count: Any,
    key: Any, i: Any, word: Any, slot: Any, excess: Any, returns: Any, near: Any, far: Any,
) -> Any:  # fmt: skip
    """The node after one with several neighbours, `word` and `slot` being the first proposal."""
    sure, possible = min(near, far), max(near, far)
    for tries in range(1, count + 1):
        if slot == count:
            return old
        node = np.int64(neighbours[first + slot])
        chance = np.int64(word & _LOW)
        if node == old:
            if chance < returns:
                return node
        elif chance < sure or (chance < possible and contains(neighbours, old_first, old_count, node) == (near > far)):
            return node
        word = derive_numba(key, np.uint64(i) + (np.uint64(tries) << _U32))
        slot = _slot(word, count, excess)
    return _counted(neighbours, first, count, old, old_first, old_count, word, returns, near, far)


@njit
def _counted(
    neighbours: Any, first: Any, count: Any, old: Any, old_first: Any, old_count: Any,
    word: Any, returns: Any, near: Any, far: Any,
) -> Any:  # fmt: skip
    """A neighbour by its weight: all are counted, the return first, then those that are near, then the others."""
    back = many = np.int64(0)
    for edge in range(first, first + count):
        if neighbours[edge] == old:
            back += 1
        elif contains(neighbours, old_first, old_count, neighbours[edge]):
            many += 1
    total = back * returns + many * near + (count - back - many) * far
    # 53 random bits are as many as a float64 holds.
    place = min(np.int64(np.float64(word >> _U11) * 2.0**-53 * np.float64(total)), total - 1) - back * returns
    if place < 0:
        return old
    is_near = place < many * near
    rank = place // near if is_near else (place - many * near) // far
    for edge in range(first, first + count):
        node = np.int64(neighbours[edge])
        if node != old and contains(neighbours, old_first, old_count, node) == is_near:
            if rank == 0:
                return node
            rank -= 1
    return old


@njit(forceinline=True)
def contains(neighbours: Any, first: Any, count: Any, node: Any) -> Any:
    """Whether `node` is in an ascending row. The search has no branch to guess wrong."""
    left = np.int64(count)
    while left > 1:
        half = left >> 1
        first = first + half if neighbours[first + half] <= node else first
        left -= half
    return left == 1 and neighbours[first] == node
