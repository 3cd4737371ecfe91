"""The neighbour attention of a tree whose rows are mostly different: pool the neighbours of a target, then project.

Targets are taken in blocks, so that what is gathered and pooled for a block stays in the caches between the compiled
loops and the matrix products; nothing of the size of all neighbours is ever written, except their gradients where
they are asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from chronospike.compiled import njit
from chronospike.nn.aggregate import AttentionWeights
from chronospike.nn.cpu.attention_common import BLOCK, REASSOCIATE, Sums, Tree, for_each, gather, softmax, softmax_back


def forward(tree: Tree, weights: AttentionWeights, out: Tensor, attention: Tensor) -> None:
    """Fill `out [T, n, C]` and `attention [T, M - B, H]`."""
    w = weights
    folded, offset = (part.numpy() for part in fold(w.neighbour_weight, w.neighbour_bias, w.attend_neighbour))
    own_weight, attend, slope = w.self_weight.t(), w.attend_self.numpy(), np.float32(w.slope)
    near_weight = w.neighbour_weight.view(w.heads, -1, tree.width).transpose(1, 2)
    bias, results, weightings = w.neighbour_bias.numpy(), out.numpy(), attention.numpy()

    def new_worker() -> Callable[[int], None]:
        x, own = torch.zeros(BLOCK, tree.width), torch.empty(BLOCK, w.channels)
        pooled = torch.zeros(w.heads, BLOCK, tree.width)
        mixed = torch.empty(w.heads, BLOCK, w.channels // w.heads)
        rows, owns, pools, mixes = (part.numpy() for part in (x, own, pooled, mixed))

        def step(t: int) -> None:
            base, nodes = tree.bases[t], tree.nodes[t]
            for low in range(0, tree.targets, BLOCK):
                high = min(low + BLOCK, tree.targets)
                gather(tree.table, base, nodes, low, high, rows)
                torch.addmm(w.self_bias, x, own_weight, out=own)
                _pool(
                    tree.spans, tree.table, base, nodes, owns, attend, folded, offset, slope, low, high, pools,
                    weightings[t],
                )  # fmt: skip
                torch.bmm(pooled, near_weight, out=mixed)
                _finish(owns, mixes, bias, low, high, results[t])

        return step

    for_each(new_worker, tree.steps)


def backward(
    tree: Tree, weights: AttentionWeights, attention: Tensor, grad: Tensor, sums: Sums, grad_values: Tensor | None
) -> None:
    """Fill `sums` from `grad [T, n, C]`, and `grad_values [T, M, D]` if the rows are not gathered by reference."""
    w = weights
    folded = fold(w.neighbour_weight, w.neighbour_bias, w.attend_neighbour)[0].numpy()
    # ∂L/∂x of a target, from the gradients of its result and of its logits side by side.
    to_own = torch.cat([w.self_weight, fold(w.self_weight, w.self_bias, w.attend_self)[0]])
    near_weight, slope = w.neighbour_weight.view(w.heads, -1, tree.width), np.float32(w.slope)
    grad_rows = np.empty((tree.steps, 0, tree.width), np.float32) if grad_values is None else grad_values.numpy()
    grads, weightings, grad_logit_near = grad.numpy(), attention.numpy(), sums.grad_logit_near.numpy()

    def new_worker() -> Callable[[int], None]:
        x, grad_targets = torch.empty(BLOCK, tree.width), torch.empty(BLOCK, w.channels + w.heads)
        pooled, grad_pooled = (torch.empty(w.heads, BLOCK, tree.width) for _ in range(2))
        own = torch.empty(w.channels + w.heads, tree.width)
        rows, target_grads, pools, grad_pools = (part.numpy() for part in (x, grad_targets, pooled, grad_pooled))

        def step(t: int) -> None:
            base, nodes = tree.bases[t], tree.nodes[t]
            near, total = sums.near[t].view_as(near_weight), torch.zeros(w.channels + w.heads)
            own.zero_()
            # Every other position is somebody's neighbour, once, and written as such.
            grad_rows[t, : tree.spans[0, 1]] = 0
            for low in range(0, tree.targets, BLOCK):
                high = min(low + BLOCK, tree.targets)
                count = high - low
                gather(tree.table, base, nodes, low, high, rows)
                parts = grad[t, low:high].view(count, w.heads, -1).transpose(0, 1)
                torch.bmm(parts, near_weight, out=grad_pooled[:, :count])
                _pool_back(
                    tree.spans, tree.table, base, nodes, folded, slope, weightings[t], grads[t], grad_pools, low, high,
                    pools, target_grads, grad_logit_near[t], grad_rows[t],
                )  # fmt: skip
                near.baddbmm_(parts.transpose(1, 2), pooled[:, :count])
                own.addmm_(grad_targets[:count].t(), x[:count])
                total += grad_targets[:count].sum(dim=0)
                if grad_values is not None:
                    grad_values[t, low:high].addmm_(grad_targets[:count], to_own)
            sums.own[t], sums.grad_logit_own[t] = own[: w.channels], own[w.channels :]
            sums.bias[t], sums.grad_logit[t] = total[: w.channels], total[w.channels :]

        return step

    for_each(new_worker, tree.steps)


def fold(weight: Tensor, bias: Tensor, attend: Tensor) -> tuple[Tensor, Tensor]:
    """`[H, D]` and `[H]`: what a · (W x + b) is, written as a linear map of x."""
    rows = weight.view(*attend.shape, -1)
    return torch.einsum("hcd,hc->hd", rows, attend), (bias.view(attend.shape) * attend).sum(dim=1)


@njit(fastmath=REASSOCIATE)
def _pool(
    spans: Any, table: Any, base: int, nodes: Any, own: Any, attend: Any, folded: Any, offset: Any, slope: Any,
    low: int, high: int, pooled: Any, attention: Any,
) -> None:  # fmt: skip
    """The pooled neighbours `[H, block, D]` of the targets `low` … `high`, and the attention over them."""
    heads, channels = attend.shape
    width, roots = table.shape[1], spans[0, 1]
    for span in range(len(spans)):
        first, targets, start, fanout = spans[span]
        for i in range(max(low, first), min(high, first + targets)):
            neighbours = start + (i - first) * fanout
            weights = attention[neighbours - roots : neighbours - roots + fanout]
            for h in range(heads):
                row, vector = own[i - low, h * channels : (h + 1) * channels], attend[h]
                mine = offset[h]
                for c in range(channels):
                    mine += row[c] * vector[c]
                vector = folded[h]
                for s in range(fanout):
                    row, total = table[base + nodes[neighbours + s]], np.float32(0)
                    for d in range(width):
                        total += row[d] * vector[d]
                    weights[s, h] = mine + total
            softmax(weights, slope)
            _weighted_sum(table, base, nodes, neighbours, weights, pooled, i - low)


@njit(fastmath=REASSOCIATE)
def _weighted_sum(table: Any, base: int, nodes: Any, neighbours: int, weights: Any, pooled: Any, target: int) -> None:
    for h in range(weights.shape[1]):
        result = pooled[h, target]
        result[:] = 0
        for s in range(len(weights)):
            weight, row = abs(weights[s, h]), table[base + nodes[neighbours + s]]
            for d in range(len(result)):
                result[d] += weight * row[d]


@njit
def _finish(own: Any, mixed: Any, bias: Any, low: int, high: int, out: Any) -> None:
    """Add up a block of results: `own [block, C]`, `mixed [H, block, C / H]` and the bias of the neighbours."""
    heads, _, width = mixed.shape
    for i in range(low, high):
        for h in range(heads):
            place = slice(h * width, (h + 1) * width)
            result, mine, theirs, offset = out[i, place], own[i - low, place], mixed[h, i - low], bias[place]
            for c in range(width):
                result[c] = mine[c] + theirs[c] + offset[c]


@njit(fastmath=REASSOCIATE)
def spread(weights: Any, grad_logits: Any, grad_pooled: Any, folded: Any, target: int, grad_rows: Any) -> None:
    """Gradients of the neighbours of one target, `[S, D]`, from `grad_logits [S, H]`, those of their logits."""
    for s in range(len(grad_rows)):
        result = grad_rows[s]
        result[:] = 0
        for h in range(len(folded)):
            weight, vector = abs(weights[s, h]), grad_pooled[h, target]
            grad_logit, logit_weight = grad_logits[s, h], folded[h]
            for d in range(len(result)):
                result[d] += weight * vector[d] + grad_logit * logit_weight[d]


@njit(fastmath=REASSOCIATE)
def _pool_back(
    spans: Any, table: Any, base: int, nodes: Any, folded: Any, slope: Any, attention: Any, grad: Any, grad_pooled: Any,
    low: int, high: int, pooled: Any, grad_targets: Any, grad_logit_near: Any, grad_rows: Any,
) -> None:  # fmt: skip
    """What the targets `low` … `high` receive.

    `grad_targets [block, C + H]`: the gradients of their results and, summed over the neighbours, of their logits;
    `grad_logit_near [H, D]` is added to; `grad_rows [M, D]`, unless empty, is written at the neighbours.
    """
    heads, width = folded.shape
    channels, roots = grad.shape[1], spans[0, 1]
    for span in range(len(spans)):
        first, targets, start, fanout = spans[span]
        grad_logits = np.empty((fanout, heads), dtype=np.float32)
        for i in range(max(low, first), min(high, first + targets)):
            neighbours = start + (i - first) * fanout
            weights = attention[neighbours - roots : neighbours - roots + fanout]
            _weighted_sum(table, base, nodes, neighbours, weights, pooled, i - low)
            for h in range(heads):
                vector = grad_pooled[h, i - low]
                for s in range(fanout):
                    row, total = table[base + nodes[neighbours + s]], np.float32(0)
                    for d in range(width):
                        total += row[d] * vector[d]
                    grad_logits[s, h] = total
            softmax_back(weights, grad_logits, slope)
            grad_targets[i - low, :channels] = grad[i]
            for h in range(heads):
                grad_targets[i - low, channels + h] = 0
                result = grad_logit_near[h]
                for s in range(fanout):
                    row, grad_logit = table[base + nodes[neighbours + s]], grad_logits[s, h]
                    grad_targets[i - low, channels + h] += grad_logit
                    for d in range(width):
                        result[d] += grad_logit * row[d]
            if len(grad_rows):
                spread(weights, grad_logits, grad_pooled, folded, i - low, grad_rows[neighbours : neighbours + fanout])
