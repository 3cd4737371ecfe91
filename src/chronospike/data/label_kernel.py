"""The compiled part of `chronospike.data.label_features`: diffusing the labels of all folds at once."""

from __future__ import annotations

from typing import Any

from chronospike.compiled import njit


@njit(fastmath={"contract"})
def spread_rows(
    indptr: Any, indices: Any, weights: Any, values: Any, out: Any, sums: Any, shares: Any, first: int, last: int
) -> None:
    """Rows `first`..`last` of `out [N, K]` = S `values [N, K]`; `sums [D, N, K]` get `shares [D]` of it each."""
    width = values.shape[1]
    for row in range(first, last):
        for column in range(width):
            out[row, column] = 0.0
        for entry in range(indptr[row], indptr[row + 1]):
            weight, neighbour = weights[entry], indices[entry]
            for column in range(width):
                out[row, column] += weight * values[neighbour, column]
        for k in range(len(shares)):
            share = shares[k]
            if share != 0:
                for column in range(width):
                    sums[k, row, column] += share * out[row, column]
