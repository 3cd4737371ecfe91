"""The samples of DynamicTriad for an iteration: the edges of every step, corrupted edges and open triads.

An *open triad* of a step is a centre c with two neighbours a and b that are not adjacent. It closes if a-b is an edge
of the next step. Which of the common neighbours of a and b closed it is hidden, so that a closed triad counts by how
likely its centre did (the E-step of an expectation-maximisation).

Draws are counter-based (`chronospike.rng`): each is a function of the key and its number, not of the threads.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from chronospike.compiled import njit
from chronospike.methods.step_graphs import Edges, StepGraphs, degree_at, find_entry
from chronospike.rng_kernels import below_numba, derive_numba
from chronospike.threads import run_chunks

# A neighbour of the centre is drawn so often before all of them are looked at.
_TRIES = 5
# Of the common neighbours of two hubs only so many may have closed their triad.
_COMMON = 200
# So that a closed triad whose centre almost surely did not close it divides by no zero.
_EPSILON = 1e-6


class Triads(NamedTuple):
    """Open triads in the order of their steps.

    Attributes:
        steps, centre, a, b: `[P]` step and nodes.
        to_a, to_b: `[P]` weights of the edges from the centre.
        closes: `[P]` whether a-b is an edge of the next step.
    """

    steps: NDArray[np.int32]
    centre: NDArray[np.int32]
    a: NDArray[np.int32]
    b: NDArray[np.int32]
    to_a: NDArray[np.float32]
    to_b: NDArray[np.float32]
    closes: NDArray[np.bool_]

    @property
    def size(self) -> int:
        return len(self.steps)

    def part(self, some: slice) -> Triads:
        """Those of a slice."""
        return Triads(
            self.steps[some], self.centre[some], self.a[some], self.b[some],
            self.to_a[some], self.to_b[some], self.closes[some],
        )  # fmt: skip


def corrupted(
    graphs: StepGraphs, edges: Edges, key: int, threads: int | None = None
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """`[P]` both ends of each edge after a coin has chosen which to replace: -1 where there is none to replace it with.

    The new end is uniform over the nodes that are not adjacent to the one that stays, at that step.
    """
    first, second = np.empty_like(edges.first), np.empty_like(edges.second)

    def work(low: int, high: int) -> None:
        _corrupt(*graphs[:3], *edges[:3], np.uint64(key), first, second, low, high)

    run_chunks(work, edges.size, threads)
    return first, second


def open_corners(graphs: StepGraphs, edges: Edges, threads: int | None = None) -> NDArray[np.int64]:
    """Where an edge has an open triad: twice the number of the edge, plus 1 where its second end is the centre.

    Edges of the last step have none: nobody knows whether they close.
    """
    some = int(np.searchsorted(edges.steps, graphs.num_steps - 1))
    is_open = np.zeros((some, 2), dtype=np.bool_)

    def work(low: int, high: int) -> None:
        _mark_open(*graphs[:3], *edges[:3], is_open, low, high)

    run_chunks(work, some, threads)
    return np.flatnonzero(is_open)


def draw_triads(
    graphs: StepGraphs,
    edges: Edges,
    corners: NDArray[np.int64],
    count: int,
    key: int,
    threads: int | None = None,
) -> Triads:
    """So many open triads in the order of their steps; none if there is no open one.

    The corners (see `open_corners`) are gone through in order, all of them about as often as one another, and each time
    the third node is drawn from those that leave the triad open.
    """
    count = count if len(corners) else 0
    steps, centre, a, b = (np.empty(count, dtype=np.int32) for _ in range(4))
    to_a, to_b = (np.ones(count, dtype=np.float32) for _ in range(2))
    triads = Triads(steps, centre, a, b, to_a, to_b, np.empty(count, dtype=np.bool_))

    def work(low: int, high: int) -> None:
        _draw_triads(*graphs, *edges[:3], corners, np.uint64(key), *triads, low, high)

    run_chunks(work, count, threads)
    return triads


def closing_coefficients(
    graphs: StepGraphs, triads: Triads, scores: NDArray[np.float32], bias: float, threads: int | None = None
) -> NDArray[np.float32]:
    """`[P]` the E-step: 1 for a triad that stays open, else 1 minus the share of its centre in having closed it.

    Args:
        scores: `[T, N]` products of theta with every embedding.
        bias: theta_0.
    """
    coefficients = np.ones(triads.size, dtype=np.float32)

    def work(low: int, high: int) -> None:
        _coefficients(*graphs, *triads, scores, float(bias), coefficients, low, high)

    run_chunks(work, triads.size, threads)
    return coefficients


@njit
def _stranger(indptr: Any, offsets: Any, neighbours: Any, step: Any, node: Any, word: Any) -> Any:
    """A node, uniform over those that are neither `node` nor adjacent to it; -1 if there is none.

    The r-th number that is missing in a sorted row is r plus how many entries of the row lie below it.
    """
    start = indptr[node]
    begin, degree = start + offsets[node, step], np.int64(degree_at(offsets, step, node))
    others = len(offsets) - 1 - degree
    if others <= 0:
        return np.int64(-1)
    rank = below_numba(word, others)
    low, high = np.int64(0), degree
    while low < high:
        middle = (low + high) // 2
        if neighbours[begin + middle] < node:
            low = middle + 1
        else:
            high = middle
    # The node itself is missing in its row, too.
    if rank >= node - low:
        rank += 1
    low, high = np.int64(0), degree
    while low < high:
        middle = (low + high) // 2
        if neighbours[begin + middle] - middle <= rank:
            low = middle + 1
        else:
            high = middle
    return rank + low


@njit
def _corrupt(
    indptr: Any, offsets: Any, neighbours: Any, steps: Any, first: Any, second: Any, key: Any,
    out_first: Any, out_second: Any, low: Any, high: Any,
) -> None:  # fmt: skip
    for i in range(low, high):
        word = derive_numba(key, i)
        # `_stranger` uses the upper half of the word.
        keeps_first = word & np.uint64(1) == np.uint64(0)
        kept = np.int64(first[i]) if keeps_first else np.int64(second[i])
        other = _stranger(indptr, offsets, neighbours, steps[i], kept, word)
        kept = kept if other >= 0 else np.int64(-1)
        out_first[i] = kept if keeps_first else other
        out_second[i] = other if keeps_first else kept


@njit
def _opens(indptr: Any, offsets: Any, neighbours: Any, step: Any, end: Any, third: Any) -> Any:
    """Whether a neighbour `third` of the centre makes an open triad with the neighbour `end`."""
    return third != end and find_entry(indptr, offsets, neighbours, step, end, third) < 0


@njit
def _mark_open(
    indptr: Any, offsets: Any, neighbours: Any, steps: Any, first: Any, second: Any, is_open: Any, low: Any, high: Any
) -> None:
    for i in range(low, high):
        step = steps[i]
        for side in range(2):
            centre, end = (second[i], first[i]) if side else (first[i], second[i])
            start = indptr[centre]
            for entry in range(start + offsets[centre, step], start + offsets[centre, step + 1]):
                if _opens(indptr, offsets, neighbours, step, end, neighbours[entry]):
                    is_open[i, side] = True
                    break


@njit
def _draw_triads(
    indptr: Any, offsets: Any, neighbours: Any, weights: Any, steps: Any, first: Any, second: Any, corners: Any,
    key: Any, out_steps: Any, out_centre: Any, out_a: Any, out_b: Any, to_a: Any, to_b: Any, closes: Any,
    low: Any, high: Any,
) -> None:  # fmt: skip
    for i in range(low, high):
        own = derive_numba(key, i)
        # One corner from the share of them that belongs to this triad, so that the steps ascend.
        corner = corners[(i * len(corners) + below_numba(derive_numba(own, 0), len(corners))) // len(closes)]
        edge, side = corner // 2, corner % 2
        centre, a = (second[edge], first[edge]) if side else (first[edge], second[edge])
        step = steps[edge]
        entry = _third(indptr, offsets, neighbours, step, centre, a, own)
        b = neighbours[entry]
        out_steps[i], out_centre[i], out_a[i], out_b[i] = step, centre, a, b
        closes[i] = find_entry(indptr, offsets, neighbours, step + 1, a, b) >= 0
        if len(weights) > 0:
            to_a[i] = weights[find_entry(indptr, offsets, neighbours, step, centre, a)]
            to_b[i] = weights[entry]


@njit
def _third(indptr: Any, offsets: Any, neighbours: Any, step: Any, centre: Any, a: Any, key: Any) -> Any:
    """The entry of a neighbour of `centre`, uniform over those that make an open triad with `a`; there is one."""
    begin = indptr[centre] + offsets[centre, step]
    degree = degree_at(offsets, step, centre)
    for i in range(_TRIES):
        entry = begin + below_numba(derive_numba(key, 1 + i), degree)
        if _opens(indptr, offsets, neighbours, step, a, neighbours[entry]):
            return entry
    count = 0
    for entry in range(begin, begin + degree):
        count += _opens(indptr, offsets, neighbours, step, a, neighbours[entry])
    rank = below_numba(derive_numba(key, 1 + _TRIES), count)
    for entry in range(begin, begin + degree):
        if _opens(indptr, offsets, neighbours, step, a, neighbours[entry]):
            if rank == 0:
                return entry
            rank -= 1
    return np.int64(-1)


@njit
def _chance(score: Any, score_a: Any, score_b: Any, to_a: Any, to_b: Any, bias: Any) -> Any:
    """The probability that a node closes the triad that it is the centre of."""
    z = to_a * (score - score_a) + to_b * (score - score_b) + bias
    return 1 / (1 + np.exp(-z))


@njit
def _coefficients(
    indptr: Any, offsets: Any, neighbours: Any, weights: Any, steps: Any, centres: Any, firsts: Any, seconds: Any,
    to_a: Any, to_b: Any, closes: Any, scores: Any, bias: Any, coefficients: Any, low: Any, high: Any,
) -> None:  # fmt: skip
    for i in range(low, high):
        if not closes[i]:
            continue
        step, centre, a, b = steps[i], centres[i], firsts[i], seconds[i]
        if degree_at(offsets, step, a) > degree_at(offsets, step, b):
            a, b = b, a
        score_a, score_b = scores[step, a], scores[step, b]
        # The centre comes first: the others may be too many.
        of_a, of_b = (to_a[i], to_b[i]) if a == firsts[i] else (to_b[i], to_a[i])
        own = _chance(scores[step, centre], score_a, score_b, of_a, of_b, bias)
        nobody, count = 1 - own, 1
        start = indptr[a]
        for entry in range(start + offsets[a, step], start + offsets[a, step + 1]):
            other = neighbours[entry]
            if other == centre:
                continue
            place = find_entry(indptr, offsets, neighbours, step, b, other)
            if place < 0:
                continue
            if len(weights) > 0:
                of_a, of_b = weights[entry], weights[place]
            nobody *= 1 - _chance(scores[step, other], score_a, score_b, of_a, of_b, bias)
            count += 1
            if count >= _COMMON:
                break
        coefficients[i] = 1 - own / (1 - nobody + _EPSILON)
