"""The compiled part of `chronospike.data.attributes`: encoding rows of attributes."""

from __future__ import annotations

from typing import Any

import numpy as np

from chronospike.compiled import njit


@njit
def encode_rows(
    rows: Any, out: Any, start: Any, scale: Any, source: Any, is_category: Any, first: Any, last: Any, place: Any,
    missing: Any, knots: Any, scores: Any, codes: Any,
) -> None:  # fmt: skip
    """Fill `out [K, width]` from `rows [K, c]`; the rest is the plan of a `Binding`, an entry per encoded column."""
    for i in range(len(rows)):
        out[i] = start
        for k in range(len(source)):
            value = rows[i, source[k]]
            if np.isnan(value):
                if missing[k] >= 0:
                    out[i, missing[k]] += scale
            elif is_category[k]:
                column = codes[first[k] + np.int64(value)]
                if column >= 0:
                    out[i, column] += scale
            else:
                low, high = first[k], last[k] - 1
                if value <= knots[low]:
                    score = scores[low]
                elif value >= knots[high]:
                    score = scores[high]
                else:
                    while high - low > 1:
                        middle = (low + high) // 2
                        if knots[middle] <= value:
                            low = middle
                        else:
                            high = middle
                    part = (value - knots[low]) / (knots[high] - knots[low])
                    score = scores[low] + part * (scores[high] - scores[low])
                out[i, place[k]] += scale * score
