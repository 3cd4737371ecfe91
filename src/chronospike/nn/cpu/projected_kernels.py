"""Attending over neighbours that are projected already, and back.

The kernels are compiled for a number of heads and a width of each: loops as short as a head vectorise only where their
length is known.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from chronospike.compiled import njit
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
        grad_near: Any, grad_own: Any, grad_logit_near: Any, grad_logit_own: Any,
    ) -> None:  # fmt: skip
        roots = spans[0, 1]
        for span in range(len(spans)):
            first, targets, start, fanout = spans[span]
            grad_logits = np.empty((fanout, heads), dtype=np.float32)
            for i in range(first, first + targets):
                neighbours = start + (i - first) * fanout
                grad_row, own_row = grad[i], grad_own[slots[i]]
                weights = attention[neighbours - roots : neighbours - roots + fanout]
                for c in range(channels):
                    own_row[c] += grad_row[c]
                if _all_one(slots[neighbours : neighbours + fanout]):
                    near_row = grad_near[slots[neighbours]]
                    for c in range(channels):
                        near_row[c] += grad_row[c]
                    continue
                for s in range(fanout):
                    row, near_row = near[slots[neighbours + s]], grad_near[slots[neighbours + s]]
                    for h in range(heads):
                        weight, total = abs(weights[s, h]), np.float32(0)
                        for c in range(h * width, (h + 1) * width):
                            total += grad_row[c] * row[c]
                        for c in range(h * width, (h + 1) * width):
                            near_row[c] += weight * grad_row[c]
                        grad_logits[s, h] = total
                softmax_back(weights, grad_logits, slope)
                for s in range(fanout):
                    for h in range(heads):
                        grad_logit_near[slots[neighbours + s], h] += grad_logits[s, h]
                        grad_logit_own[slots[i], h] += grad_logits[s, h]

    return back
