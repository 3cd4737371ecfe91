"""The compiled part of `chronospike.data.triangles`."""

from __future__ import annotations

from typing import Any

from chronospike.compiled import njit


@njit
def count_triangles(indptr: Any, higher: Any, mark: Any, found: Any, first: int, last: int) -> None:
    """Add the triangles whose lowest node is in `first`..`last` to all three of their nodes in `found [N]`.

    Row v of `indptr [N + 1]` and `higher [E]` holds the neighbours above v. `mark [N]` holds no node number.
    """
    for low in range(first, last):
        for entry in range(indptr[low], indptr[low + 1]):
            mark[higher[entry]] = low
        for entry in range(indptr[low], indptr[low + 1]):
            middle = higher[entry]
            for other in range(indptr[middle], indptr[middle + 1]):
                top = higher[other]
                if mark[top] == low:
                    found[low] += 1
                    found[middle] += 1
                    found[top] += 1
