"""Attending over neighbours that are projected already, and back.

The kernels are compiled for a number of heads and a width of each: loops as short as a head vectorise only where their
length is known.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numba import njit

from chronospike.nn.cpu.attention_common import REASSOCIATE, softmax, softmax_back


@njit(nogil=True, cache=True)
def _all_one(slots: Any) -> bool:
    """Whether all neighbours are one node: then the weights add up to one and do not matter."""
    for s in range(1, len(slots)):  # noqa: SIM110 - compiled
        if slots[s] != slots[0]:
            return False
    return True


@cache
def attend_rows(heads: int, width: int) -> Any:
    """The forward kernel."""
    channels = heads * width

    @njit(nogil=True, cache=True, fastmath=REASSOCIATE, error_model="numpy")
    def attend(
        spans: Any, slots: Any, own: Any, near: Any, bias: Any, own_logits: Any, near_logits: Any, slope: Any,
        out: Any, attention: Any,
    ) -> None:  # fmt: skip
        roots = spans[0, 1]
        for span in range(len(spans)):
            first, targets, start, fanout = spans[span]
            for i in range(first, first + targets):
                neighbours = start + (i - first) * fanout
                row, result = own[slots[i]], out[i]
                weights = attention[neighbours - roots : neighbours - roots + fanout]
                if _all_one(slots[neighbours : neighbours + fanout]):
                    other = near[slots[neighbours]]
                    for c in range(channels):
                        result[c] = row[c] + bias[c] + other[c]
                    continue
                for s in range(fanout):
                    for h in range(heads):
                        logit = own_logits[slots[i], h] + near_logits[slots[neighbours + s], h]
                        weights[s, h] = logit
                softmax(weights, slope)
                for c in range(channels):
                    result[c] = row[c] + bias[c]
                for s in range(fanout):
                    row = near[slots[neighbours + s]]
                    for h in range(heads):
                        weight = abs(weights[s, h])
                        for c in range(h * width, (h + 1) * width):
                            result[c] += weight * row[c]

    return attend


@cache
def attend_rows_back(heads: int, width: int) -> Any:
    """The backward kernel."""
    channels = heads * width

    @njit(nogil=True, cache=True, fastmath=REASSOCIATE)
    def back(
        spans: Any, slots: Any, near: Any, grad: Any, attention: Any, slope: Any,
        by_near: Any, by_own: Any, lean_near: Any, lean_own: Any,
    ) -> None:  # fmt: skip
        roots = spans[0, 1]
        for span in range(len(spans)):
            first, targets, start, fanout = spans[span]
            along = np.empty((fanout, heads), dtype=np.float32)
            for i in range(first, first + targets):
                neighbours = start + (i - first) * fanout
                arriving, mine = grad[i], by_own[slots[i]]
                weights = attention[neighbours - roots : neighbours - roots + fanout]
                for c in range(channels):
                    mine[c] += arriving[c]
                if _all_one(slots[neighbours : neighbours + fanout]):
                    theirs = by_near[slots[neighbours]]
                    for c in range(channels):
                        theirs[c] += arriving[c]
                    continue
                for s in range(fanout):
                    row, theirs = near[slots[neighbours + s]], by_near[slots[neighbours + s]]
                    for h in range(heads):
                        weight, total = abs(weights[s, h]), np.float32(0)
                        for c in range(h * width, (h + 1) * width):
                            total += arriving[c] * row[c]
                        for c in range(h * width, (h + 1) * width):
                            theirs[c] += weight * arriving[c]
                        along[s, h] = total
                softmax_back(weights, along, slope)
                for s in range(fanout):
                    for h in range(heads):
                        lean_near[slots[neighbours + s], h] += along[s, h]
                        lean_own[slots[i], h] += along[s, h]

    return back
