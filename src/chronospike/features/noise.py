"""The distribution negatives are drawn from: visits to the 3/4th power, as in word2vec.

word2vec counts its corpus, and here there is none: walks are consumed as they are made. The expected count is known
without one. Spreading one unit of mass from every start through the walk's transition matrix, `length - 1` times, and
adding up what passes each node is exact in expectation for any graph and costs `length` passes over the edges, about
as much as making the walks once and far less than training on them. Walks with a memory would need as many masses as
there are pairs of neighbours: of these, one from each node is made and counted.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import uint64
from numpy.typing import NDArray

from chronospike.compiled import njit
from chronospike.features.biased_walks import Bias, random_walks
from chronospike.features.walks import Snapshot, walk_starts
from chronospike.rng_kernels import below_numba

POWER = 0.75
_LOWER_BITS = np.uint64(2**31 - 1)
_COUNTED_TOKENS = 2**22


class NoiseTable(NamedTuple):
    """Walker's alias table in whole numbers, so that every backend draws the same node from the same bits.

    It has a slot for each of the V nodes that are visited at all, so that nodes not seen yet change no draw.

    Attributes:
        thresholds: `[V]` a slot stands for its own node if the lower 31 random bits are below this,
        nodes: `[V]` which is this one,
        aliases: `[V]` and for this node otherwise.
    """

    thresholds: NDArray[np.int32]
    nodes: NDArray[np.int32]
    aliases: NDArray[np.int32]


def expected_visits(snapshot: Snapshot, length: int) -> NDArray[np.float64]:
    """`[N]` expected number of visits in walks of `length` nodes, one from each node that has a neighbour."""
    mass = (snapshot.degrees > 0).astype(np.float64)
    visits = mass.copy()
    spread = np.empty_like(mass)
    for _ in range(length - 1):
        _spread(*snapshot.rows, mass, spread)
        visits += spread
        mass, spread = spread, mass
    return visits


def counted_visits(
    snapshot: Snapshot, length: int, bias: Bias, key: int, threads: int | None = None
) -> NDArray[np.float64]:
    """`[N]` visits of one biased walk of `length` nodes from each node that has a neighbour."""
    starts, visits = walk_starts(snapshot, key), np.zeros(len(snapshot.degrees))
    chunk = max(1, _COUNTED_TOKENS // length)
    for first in range(0, len(starts), chunk):
        walks = random_walks(snapshot, starts[first : first + chunk], length, key, bias, threads)
        visits += np.bincount(walks[walks >= 0], minlength=len(visits))
    return visits


def noise_table(visits: NDArray[np.float64]) -> NoiseTable:
    """An alias table for the distribution ∝ visits^0.75; `visits` must not be all zero."""
    nodes = np.flatnonzero(visits).astype(np.int32)
    weights = visits[nodes] ** POWER
    thresholds = np.empty(len(weights), dtype=np.int32)
    aliases = np.empty(len(weights), dtype=np.int32)
    _fill_alias(weights * (len(weights) / weights.sum()), thresholds, aliases)
    return NoiseTable(thresholds, nodes, nodes[aliases])


@njit
def _spread(indptr: Any, degrees: Any, neighbours: Any, mass: Any, out: Any) -> None:
    """One step of the walk for all the mass at once."""
    out[:] = 0.0
    for node in range(len(degrees)):
        if degrees[node] > 0 and mass[node] > 0.0:
            share = mass[node] / degrees[node]
            start = indptr[node]
            for edge in range(start, start + degrees[node]):
                out[neighbours[edge]] += share


@njit
def _fill_alias(scaled: Any, thresholds: Any, aliases: Any) -> None:
    """Vose's construction, in slots; `scaled` has mean 1 and is used up."""
    n = len(scaled)
    small, large = np.empty(n, np.int32), np.empty(n, np.int32)
    num_small = num_large = 0
    for i in range(n):
        aliases[i] = i
        thresholds[i] = 2**31 - 1
        if scaled[i] < 1.0:
            small[num_small] = i
            num_small += 1
        else:
            large[num_large] = i
            num_large += 1
    while num_small > 0 and num_large > 0:
        num_small -= 1
        low, high = small[num_small], large[num_large - 1]
        thresholds[low] = np.int32(scaled[low] * (2.0**31 - 1.0))
        aliases[low] = high
        scaled[high] -= 1.0 - scaled[low]
        if scaled[high] < 1.0:
            num_large -= 1
            small[num_small] = high
            num_small += 1


@njit
def draw_noise(bits: Any, thresholds: Any, nodes: Any, aliases: Any) -> Any:
    """The node that 64 random bits stand for."""
    slot = below_numba(bits, len(aliases))
    own = (bits & _LOWER_BITS) < uint64(thresholds[slot])
    return nodes[slot] if own else aliases[slot]
