"""The neighbour attention of `AttentiveAggregator` on the CPU, whole and in single precision.

Two ways that mean the same: each distinct node of a step is projected once and its projection used wherever it occurs
(`projected`), or the neighbours of a target are pooled before they are projected (`pooled`). Dense rows are always
pooled; of rows by reference, the way that takes fewer operations is chosen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from chronospike.nn.aggregate import AttentionWeights
from chronospike.nn.cpu import pooled, projected
from chronospike.nn.cpu.attention_common import Sums, Tree
from chronospike.nn.cpu.projected import Distinct, distinct_nodes
from chronospike.nn.tree_features import TreeFeatures


def attend(x: TreeFeatures, weights: AttentionWeights) -> Tensor:
    """`[T, n, C]`: the neurons' inputs at the n positions that have neighbours, every step at once."""
    slope, *tensors = weights
    is_training = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)
    result: Tensor = _Attention.apply(x.values, *tensors, x, slope, is_training)  # type: ignore[no-untyped-call]
    return result


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, *arguments: Any) -> Tensor:
        *tensors, x, slope, is_training = arguments
        tree, weights = Tree.of(x), _detached(tensors, slope)
        out = torch.empty(tree.steps, tree.targets, weights.channels)
        attention = torch.empty(tree.steps, sum(x.sizes[1:]), weights.heads)
        near, ctx.distinct = None, worthwhile(x, tree, is_training) if x.nodes is not None else None
        if ctx.distinct is not None:
            near = projected.forward(tree, ctx.distinct, weights, out, attention)
        else:
            pooled.forward(tree, weights, out, attention)
        ctx.save_for_backward(values, attention, near, *tensors)
        # Without the rows, which would otherwise outlive the backward pass.
        ctx.x, ctx.slope = replace(x, values=values.new_empty(0)), slope
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        values, attention, near, *tensors = ctx.saved_tensors
        tree, weights = Tree.of(replace(ctx.x, values=values)), _detached(tensors, ctx.slope)
        sums = Sums.zeros(tree.steps, weights, tree.width)
        grad, grad_values = grads[0].contiguous(), None
        if ctx.needs_input_grad[0]:
            grad_values = torch.empty_like(values, memory_format=torch.contiguous_format)
        if ctx.distinct is not None:
            projected.backward(tree, ctx.distinct, weights, near, attention, grad, sums)
        else:
            pooled.backward(tree, weights, attention, grad, sums, grad_values)
        return grad_values, *sums.gradients(weights), None, None, None


def _detached(tensors: Sequence[Any], slope: float) -> AttentionWeights:
    return AttentionWeights(slope, *(tensor.detach().contiguous() for tensor in tensors))


def worthwhile(x: TreeFeatures, tree: Tree, is_training: bool) -> Distinct | None:
    """The distinct nodes of each step, if projecting them takes fewer operations than pooling first.

    Outside training they are taken regardless: what a node gets must not depend on the rest of its batch, and the two
    ways round differently.
    """
    distinct = distinct_nodes(tree.nodes, tree.targets, x.values.shape[1])
    # In products of a row and a weight matrix, both passes. Projected: two for a distinct node as a neighbour and two
    # as a target. Pooled: two for each target forward and three backward.
    by_node = 2 * int(distinct.counts.sum() + distinct.targets.sum())
    return distinct if not is_training or by_node < 5 * tree.steps * tree.targets else None
