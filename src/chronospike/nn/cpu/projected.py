"""The neighbour attention of a tree that repeats nodes: project each distinct (step, node) once, then attend.

Most positions of a tree repeat nodes: early in time a node knows few others, and often only itself. On DBLP a
batch has seven times as many positions as distinct (step, node) pairs, and each needs to be projected only once.

Besides the result, the forward pass gives what the backward pass needs: the projections of the distinct nodes as
neighbours, and the attention weights. The sums of the backward pass are those of `Sums`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from chronospike.compiled import njit
from chronospike.nn.aggregate import AttentionWeights
from chronospike.nn.cpu.attention_common import BLOCK, REASSOCIATE, Sums, Tree, for_each, gather, softmax, softmax_back
from chronospike.threads import run_chunks


@dataclass(frozen=True)
class Distinct:
    """Distinct nodes of a tree `[T, M]` at each step, those that are targets first.

    Attributes:
        nodes: `[T, M]` int32, of which the first `counts[t]` of a row are meant.
        slots: `[T, M]` int32, where in `nodes[t]` the node of each position is.
        counts: `[T]` int64 distinct nodes.
        targets: `[T]` int64 distinct nodes among the targets.
    """

    nodes: NDArray[np.int32]
    slots: NDArray[np.int32]
    counts: NDArray[np.int64]
    targets: NDArray[np.int64]


def distinct_nodes(nodes: NDArray[np.int32], targets: int, table_rows: int) -> Distinct:
    """Of the tree `nodes [T, M]`, whose first `targets` columns have neighbours; all are below `table_rows`."""
    found = Distinct(np.empty_like(nodes), np.empty_like(nodes), *(np.empty(len(nodes), np.int64) for _ in range(2)))

    def work(first: int, last: int) -> None:
        place = np.full(table_rows, -1, dtype=np.int32)
        _find(nodes, targets, place, found.nodes, found.slots, found.counts, found.targets, first, last)

    run_chunks(work, len(nodes))
    return found


def forward(tree: Tree, distinct: Distinct, weights: AttentionWeights, out: Tensor, attention: Tensor) -> Tensor:
    """Fill `out [T, n, C]` and `attention [T, M - B, H]`; returns the projections `[…, C]` that `backward` wants."""
    w, heads = weights, weights.heads
    starts, kernel = _starts(distinct), attend_rows(heads, w.channels // heads)
    near = torch.empty(starts[-1], w.channels)
    bias = (w.self_bias + w.neighbour_bias).numpy()
    offsets = [
        (bias.view(heads, -1) * attend).sum(dim=1).numpy()
        for bias, attend in ((w.self_bias, w.attend_self), (w.neighbour_bias, w.attend_neighbour))
    ]

    def new_worker() -> Callable[[int], None]:
        most = _most(starts)
        x, own = torch.zeros(BLOCK, tree.width), torch.empty(most, w.channels)
        logits = np.empty((2, most, heads), dtype=np.float32)

        def step(t: int) -> None:
            count, targets = int(distinct.counts[t]), int(distinct.targets[t])
            mine = near[starts[t] : starts[t + 1]]
            for low in range(0, count, BLOCK):
                gather(tree.table, tree.bases[t], distinct.nodes[t], low, min(low + BLOCK, count), x.numpy())
                torch.mm(x, w.neighbour_weight.t(), out=mine[low : low + BLOCK])
                if low < targets:
                    torch.mm(x, w.self_weight.t(), out=own[low : low + BLOCK])
            head_sums(own.numpy(), w.attend_self.numpy(), offsets[0], targets, logits[0])
            head_sums(mine.numpy(), w.attend_neighbour.numpy(), offsets[1], count, logits[1])
            kernel(
                tree.spans, distinct.slots[t], own.numpy(), mine.numpy(), bias, logits[0], logits[1],
                np.float32(w.slope), out[t].numpy(), attention[t].numpy(),
            )  # fmt: skip

        return step

    for_each(new_worker, tree.steps)
    return near


def backward(
    tree: Tree, distinct: Distinct, weights: AttentionWeights, near: Tensor, attention: Tensor, grad: Tensor, sums: Sums
) -> None:
    """Fill `sums` from `grad [T, n, C]`."""
    starts, kernel = _starts(distinct), attend_rows_back(weights.heads, weights.channels // weights.heads)

    def new_worker() -> Callable[[int], None]:
        most = _most(starts)
        x = torch.empty(most, tree.width)
        grad_near, grad_own = torch.empty(most, weights.channels), torch.empty(most, weights.channels)
        grad_logit_near, grad_logit_own = torch.empty(most, weights.heads), torch.empty(most, weights.heads)

        def step(t: int) -> None:
            count, targets = int(distinct.counts[t]), int(distinct.targets[t])
            gather(tree.table, tree.bases[t], distinct.nodes[t], 0, count, x.numpy())
            parts = grad_near[:count], grad_own[:targets], grad_logit_near[:count], grad_logit_own[:targets]
            for part in parts:
                part.zero_()
            kernel(
                tree.spans, distinct.slots[t], near[starts[t] : starts[t + 1]].numpy(), grad[t].numpy(),
                attention[t].numpy(), np.float32(weights.slope), *(part.numpy() for part in parts),
            )  # fmt: skip
            torch.mm(parts[0].t(), x[:count], out=sums.near[t])
            torch.mm(parts[1].t(), x[:targets], out=sums.own[t])
            torch.mm(parts[2].t(), x[:count], out=sums.grad_logit_near[t])
            torch.mm(parts[3].t(), x[:targets], out=sums.grad_logit_own[t])
            torch.sum(parts[1], dim=0, out=sums.bias[t])
            torch.sum(parts[3], dim=0, out=sums.grad_logit[t])

        return step

    for_each(new_worker, tree.steps)


def _starts(distinct: Distinct) -> list[int]:
    """Where the projections of each step begin, and where the last ends: whole blocks for each."""
    return [0, *accumulate(-(-int(count) // BLOCK) * BLOCK for count in distinct.counts)]


def _most(starts: list[int]) -> int:
    return max(high - low for low, high in pairwise(starts))


@njit(fastmath=REASSOCIATE)
def head_sums(rows: Any, weights: Any, const: Any, count: int, out: Any) -> None:
    """`out[i, h] = const[h] + Σ_c weights[h, c] rows[i, h, c]`."""
    heads, width = weights.shape
    for i in range(count):
        for h in range(heads):
            row, weight = rows[i, h * width : (h + 1) * width], weights[h]
            total = np.float32(0)
            for c in range(width):
                total += row[c] * weight[c]
            out[i, h] = total + const[h]


@njit
def _find(
    nodes: Any, targets: int, place: Any, found: Any, slots: Any, counts: Any, target_counts: Any, first: int, last: int
) -> None:
    """`place [N]` comes and leaves as -1: where a node of this step was put."""
    for t in range(first, last):
        count = 0
        for i in range(nodes.shape[1]):
            if i == targets:
                target_counts[t] = count
            node = nodes[t, i]
            if place[node] < 0:
                place[node] = count
                found[t, count] = node
                count += 1
            slots[t, i] = place[node]
        counts[t] = count
        if targets == nodes.shape[1]:
            target_counts[t] = count
        for i in range(count):
            place[found[t, i]] = -1


# The kernels below are compiled for a number of heads and a width of each: loops as short as a head vectorise only
# where their length is known.


@njit
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

    @njit(fastmath=REASSOCIATE, error_model="numpy")
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

    @njit(fastmath=REASSOCIATE)
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
