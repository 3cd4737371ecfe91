"""The neighbour attention of a tree that repeats nodes: project each distinct (step, node) once, then attend.

Besides the result, the forward pass gives what the backward pass needs: the projections of the distinct nodes as
neighbours, and the attention weights. The sums of the backward pass are those of `Sums`.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from chronospike.compiled import njit
from chronospike.nn.aggregate import AttentionWeights
from chronospike.nn.cpu.attention_common import BLOCK, REASSOCIATE, Sums, Tree, gather
from chronospike.nn.cpu.distinct import Distinct
from chronospike.nn.cpu.projected_kernels import attend_rows, attend_rows_back
from chronospike.nn.cpu.schedule import for_each


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


@njit(nogil=True, cache=True, fastmath=REASSOCIATE)
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
