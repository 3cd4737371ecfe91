"""Gradient boosting of small trees on histograms, compiled: in each round a tree for every class.

Newton's method in the space of functions: a tree fits -g / h of the softmax loss, leaf by leaf, and grows where the
loss falls most, until it has its leaves. Values are sorted into bins once, so that the best split of a leaf is found
from sums per bin. The trees of a round are grown side by side, each by one thread, so that the result has the same bits
on any number of threads, and no thread waits for another within a tree, which beside other busy programs takes long.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from chronospike.compiled import njit
from chronospike.threads import run_chunks
from chronospike.training.forest import Forest

Rows = NDArray[np.float32]

_BINS = 128
_LEAST_CURVATURE = 1e-3
# Columns that are added up at once: an addition waits for the one before it to the same bin, not for other columns.
_AT_ONCE = 4


def fit_boosting(
    rows: Rows,
    codes: NDArray[np.int64],
    rounds: int,
    leaves: int,
    learning_rate: float,
    leaf_nodes: int = 20,
    penalty: float = 0.0,
    columns_share: float = 1.0,
    seed: int = 0,
) -> Forest:
    """Fit to rows `[K, d]` and codes `[K]` that all occur, at least two of them.

    Args:
        rounds: trees for each class, of two classes for the second alone.
        leaves: of a tree, at most.
        learning_rate: share of each tree.
        leaf_nodes: fewest rows in a leaf.
        penalty: on the squares of the leaves' values.
        columns_share: of the columns that a tree may split by, drawn for each tree.
    """
    classes = int(codes.max()) + 1
    columns = 1 if classes == 2 else classes
    edges, binned = _bin(rows)
    shares = np.bincount(codes) / len(codes)
    baseline = np.log(shares[1:] / shares[0]) if columns == 1 else np.log(shares)
    raw = np.repeat(baseline[:, None], len(rows), axis=1)
    gradient, curvature = np.empty((2, *raw.shape), dtype=np.float32)
    size = 2 * leaves - 1
    trees = np.zeros((rounds, columns), dtype=np.int32)
    feature = np.full((rounds, columns, size), -1, dtype=np.int32)
    split, left = np.zeros_like(feature), np.zeros_like(feature)
    value = np.zeros((rounds, columns, size))
    width = len(binned)
    bins = np.array([len(one) + 1 for one in edges])
    some = max(1, round(columns_share * width))
    for number in range(rounds):
        run_chunks(lambda low, high: _derivatives(raw, codes, gradient, curvature, low, high), len(rows))

        def grow(low: int, high: int, number: int = number) -> None:
            for column in range(low, high):
                tree = (feature[number, column], split[number, column], left[number, column], value[number, column])
                drawn = np.sort(np.random.default_rng((seed, number, column)).permutation(width)[:some])
                # No column of a single value splits a leaf; the first one gives the sums of all rows.
                drawn = drawn[(bins[drawn] > 1) | (drawn == drawn[0])]
                # The last again and again, which is no better than once.
                drawn = np.pad(drawn, (0, -len(drawn) % _AT_ONCE), mode="edge")
                ends = np.cumsum(np.append(0, bins[drawn]))
                inputs = (binned, drawn, ends, gradient[column], curvature[column], raw[column])
                trees[number, column] = _grow(*inputs, *tree, leaves, leaf_nodes, learning_rate, penalty + 1e-15)

        run_chunks(grow, columns)
    return _forest(edges, trees, feature, split, left, value, baseline)


def _bin(rows: Rows) -> tuple[list[Rows], NDArray[np.uint8]]:
    """Ascending edges of the bins of each column, and the bin `[d, K]` of each value: that of the first edge not below.

    Edges lie between neighbouring values, or at quantiles where there are many.
    """
    count, width = rows.shape
    edges: list[Rows] = [rows[:0, 0]] * width
    binned = np.empty((width, count), dtype=np.uint8)

    def work(low: int, high: int) -> None:
        for column in range(low, high):
            values = np.ascontiguousarray(rows[:, column])
            ordered = np.sort(values)
            distinct = ordered[np.append(True, ordered[1:] != ordered[:-1])]
            if len(distinct) <= _BINS:
                # Added after halving, since the sum of two large values may not be finite.
                found = distinct[:-1] / 2 + distinct[1:] / 2
            else:
                found = np.unique(ordered[np.arange(1, _BINS) * count // _BINS])
            edges[column] = found.astype(np.float32)
            binned[column] = np.searchsorted(edges[column], values)

    run_chunks(work, width)
    return edges, binned


@njit
def _derivatives(raw: Any, codes: Any, gradient: Any, curvature: Any, low: int, high: int) -> None:
    """Of the loss of rows `low`..`high` by sums `raw [C, K]`; a single sum is that of the second of two classes."""
    columns = raw.shape[0]
    for i in range(low, high):
        if columns == 1:
            share = 1 / (1 + np.exp(-raw[0, i]))
            gradient[0, i] = share - codes[i]
            curvature[0, i] = share * (1 - share)
            continue
        largest = raw[0, i]
        for c in range(1, columns):
            largest = max(largest, raw[c, i])
        total = 0.0
        for c in range(columns):
            total += np.exp(raw[c, i] - largest)
        for c in range(columns):
            share = np.exp(raw[c, i] - largest) / total
            gradient[c, i] = share - (codes[i] == c)
            curvature[c, i] = share * (1 - share)


@njit
def _add_up(
    binned: Any, drawn: Any, ends: Any, rows: Any, gradient: Any, curvature: Any, sums: Any, counts: Any
) -> None:
    """`sums [Σ B, 2]` of gradient and curvature and `counts [Σ B]` of some `rows`, one `drawn` column after another."""
    g, h = gradient[rows], curvature[rows]
    sums[:] = 0.0
    counts[:] = 0
    for column in range(0, len(drawn), _AT_ONCE):
        one, two, three, four = drawn[column : column + _AT_ONCE]
        of_one, of_two, of_three, of_four = binned[one], binned[two], binned[three], binned[four]
        at_one, at_two, at_three, at_four = ends[column : column + _AT_ONCE]
        for k in range(len(rows)):
            row = np.uint64(rows[k])
            for place in (at_one + of_one[row], at_two + of_two[row], at_three + of_three[row], at_four + of_four[row]):
                # Numba has to allow for negative places otherwise.
                place = np.uint64(place)
                sums[place, 0] += g[k]
                sums[place, 1] += h[k]
                counts[place] += 1


@njit
def _best_split(ends: Any, sums: Any, counts: Any, rows: int, leaf_nodes: int, penalty: float) -> Any:
    """The fall of the loss (twice it), the column, the last bin on the left, and how many rows are there."""
    whole_g, whole_h = 0.0, 0.0
    for place in range(ends[1]):
        whole_g += sums[place, 0]
        whole_h += sums[place, 1]
    before = whole_g * whole_g / (whole_h + penalty)
    best = (0.0, -1, 0, 0)
    if rows < 2 * leaf_nodes:
        return best
    for column in range(len(ends) - 1):
        g, h, count = 0.0, 0.0, 0
        for place in range(ends[column], ends[column + 1]):
            if counts[place] == 0:
                continue
            g += sums[place, 0]
            h += sums[place, 1]
            count += counts[place]
            if rows - count < leaf_nodes:
                break
            if count < leaf_nodes or h < _LEAST_CURVATURE:
                continue
            if whole_h - h < _LEAST_CURVATURE:
                break
            gain = g * g / (h + penalty) + (whole_g - g) ** 2 / (whole_h - h + penalty) - before
            if gain > best[0]:
                best = (gain, column, place - ends[column], count)
    return best


@njit
def _grow(
    binned: Any, drawn: Any, ends: Any, gradient: Any, curvature: Any, raw: Any,
    feature: Any, split: Any, left: Any, value: Any,
    leaves: int, leaf_nodes: int, learning_rate: float, penalty: float,
) -> Any:  # fmt: skip
    """Write a tree over the `drawn` columns, whose bins end at `ends[1:]`, and return how many nodes it has.

    `raw` gets its values. The right child follows the left one.
    """
    count = binned.shape[1]
    rows, moved = np.arange(count), np.empty(count, np.int64)
    # Of each leaf: its node, its rows, its best split, and where its sums are.
    node, first, last = np.zeros(leaves, np.int64), np.zeros(leaves, np.int64), np.zeros(leaves, np.int64)
    sums, counts = np.empty((leaves, ends[-1], 2)), np.empty((leaves, ends[-1]), np.int32)
    gain, column = np.zeros(leaves), np.zeros(leaves, np.int64)
    place, size, slot = np.zeros(leaves, np.int64), np.zeros(leaves, np.int64), np.arange(leaves)
    last[0] = count
    _add_up(binned, drawn, ends, rows, gradient, curvature, sums[0], counts[0])
    gain[0], column[0], place[0], size[0] = _best_split(ends, sums[0], counts[0], count, leaf_nodes, penalty)
    used, nodes = 1, 1
    while used < leaves:
        leaf = int(np.argmax(gain[:used]))
        if not gain[leaf] > 0:
            break
        start, stop, middle = first[leaf], last[leaf], first[leaf] + size[leaf]
        one, other = start, middle
        of_column = binned[drawn[column[leaf]]]
        for k in range(start, stop):
            if of_column[rows[k]] <= place[leaf]:
                moved[one] = rows[k]
                one += 1
            else:
                moved[other] = rows[k]
                other += 1
        rows[start:stop] = moved[start:stop]
        parent = node[leaf]
        feature[parent], split[parent], left[parent] = drawn[column[leaf]], place[leaf], nodes
        new = used
        node[leaf], node[new] = nodes, nodes + 1
        first[new], last[new], last[leaf] = middle, stop, middle
        nodes, used = nodes + 2, used + 1
        if used < leaves:
            # The smaller child is counted, the other is what is left.
            is_left_small = middle - start <= stop - middle
            small, large = (leaf, new) if is_left_small else (new, leaf)
            if is_left_small:
                slot[leaf], slot[new] = slot[new], slot[leaf]
            of_small, of_large = slot[small], slot[large]
            some = rows[first[small] : last[small]]
            _add_up(binned, drawn, ends, some, gradient, curvature, sums[of_small], counts[of_small])
            sums[of_large] -= sums[of_small]
            counts[of_large] -= counts[of_small]
            for one_of in (leaf, new):
                own = slot[one_of]
                gain[one_of], column[one_of], place[one_of], size[one_of] = _best_split(
                    ends, sums[own], counts[own], last[one_of] - first[one_of], leaf_nodes, penalty
                )
    for leaf in range(used):
        g, h = 0.0, 0.0
        for k in range(first[leaf], last[leaf]):
            g += gradient[rows[k]]
            h += curvature[rows[k]]
        step = -learning_rate * g / (h + penalty)
        value[node[leaf]] = step
        for k in range(first[leaf], last[leaf]):
            raw[rows[k]] += step
    return nodes


def _forest(
    edges: list[Rows],
    trees: NDArray[np.int32],
    feature: NDArray[np.int32],
    split: NDArray[np.int32],
    left: NDArray[np.int32],
    value: NDArray[np.float64],
    baseline: NDArray[np.float64],
) -> Forest:
    """The trees, `trees [rounds, columns]` nodes each, in one set of arrays."""
    rounds, columns = trees.shape
    sizes = trees.reshape(-1).astype(np.int64)
    roots = np.cumsum(sizes) - sizes
    there = (np.arange(feature.shape[2]) < trees[..., None]).reshape(-1)
    feature, split, left = (array.reshape(-1)[there] for array in (feature, split, left))
    is_leaf = feature < 0
    starts = np.concatenate([[0], np.cumsum([len(one) for one in edges])])
    every = np.concatenate([*edges, np.zeros(1, dtype=np.float32)])
    threshold = np.where(is_leaf, np.float32(0), every[np.where(is_leaf, -1, starts[feature] + split)])
    places = np.where(is_leaf, np.cumsum(is_leaf) - 1, left + np.repeat(roots, sizes)).astype(np.int32)
    return Forest(
        kind="sigmoid" if columns == 1 else "softmax",
        width=len(edges),
        feature=feature,
        threshold=threshold,
        left=places,
        right=np.where(is_leaf, 0, places + 1).astype(np.int32),
        value=value.reshape(-1)[there][is_leaf][:, None],
        roots=roots,
        column=np.tile(np.arange(columns, dtype=np.int32), rounds),
        baseline=baseline,
    )
