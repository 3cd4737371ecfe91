"""The compiled part of `chronospike.training.forest`: tree traversal."""

from __future__ import annotations

from typing import Any

import numpy as np

from chronospike.compiled import njit

# The rows that one tree after the other is applied to: so many that loading a tree costs little beside following it,
# and so few that they stay in the cache, where 500 columns of 4,096 rows would not.
_BLOCK = 512


@njit
def add_trees(
    rows: Any, feature: Any, threshold: Any, left: Any, right: Any, value: Any, roots: Any, column: Any, sums: Any
) -> None:
    """Add the leaves that each of `rows [n, d]` comes to to `sums [n, S]`."""
    for start in range(0, len(rows), _BLOCK):
        stop = min(start + _BLOCK, len(rows))
        for tree in range(len(roots)):
            for i in range(start, stop):
                node = roots[tree]
                while feature[node] >= 0:
                    node = np.int64(left[node] if rows[i, feature[node]] <= threshold[node] else right[node])
                leaf = left[node]
                for k in range(value.shape[1]):
                    sums[i, column[tree] + k] += value[leaf, k]
