"""Spatial aggregation over a sampled neighbourhood (Eq. 8-9), and two simpler aggregators.

Each aggregator turns targets `[..., D]` and their S neighbours `[..., S, D]` into inputs `[..., C]` for the
neurons:  h_v = W_s x_v + b_s + Σ_u w_vu (W_n x_u + b_n).  They differ in the weights w: learned attention,
1/S (mean), or 1 (sum, as injective as Theorem 4 asks).
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from chronospike.nn.dispatch import KernelPlan
from chronospike.nn.tree_features import TreeFeatures


class AttentionWeights(NamedTuple):
    """The parameters of an `AttentiveAggregator` with D inputs, C channels and H heads, as the kernels take them.

    Attributes:
        slope: of the LeakyReLU below zero.
        self_weight, neighbour_weight: `[C, D]`; their biases `[C]`.
        attend_self, attend_neighbour: `[H, C / H]`, a_l and a_r of Eq. 9.
    """

    slope: float
    self_weight: Tensor
    self_bias: Tensor
    neighbour_weight: Tensor
    neighbour_bias: Tensor
    attend_self: Tensor
    attend_neighbour: Tensor

    @property
    def heads(self) -> int:
        return len(self.attend_self)

    @property
    def channels(self) -> int:
        return len(self.self_weight)


def aggregate_tree(aggregator: Aggregator, x: TreeFeatures, plan: KernelPlan) -> Tensor:
    """The neurons' inputs `[T, n, C]` at the n positions of `x` that have neighbours, every step at once."""
    if isinstance(aggregator, AttentiveAggregator) and plan.attention.implementation == "numba":
        from chronospike.nn.cpu import attention as on_cpu

        return on_cpu.attend(x, aggregator.attention_weights())
    if isinstance(aggregator, AttentiveAggregator) and plan.attention.implementation == "triton":
        from chronospike.nn.kernels import attention as on_gpu

        return on_gpu.attend(x, aggregator.attention_weights(), plan.half)
    pairs = pairwise(x.hops())
    return torch.cat([aggregator(own, near.unflatten(1, (own.shape[1], -1))) for own, near in pairs], dim=1)


class Aggregator(nn.Module):
    """The two projections that all aggregators share; both have a bias."""

    def __init__(self, inputs: int, channels: int) -> None:
        super().__init__()
        self.self_projection = nn.Linear(inputs, channels)
        self.neighbour_projection = nn.Linear(inputs, channels)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        for projection in (self.self_projection, self.neighbour_projection):
            nn.init.xavier_uniform_(projection.weight)
            nn.init.zeros_(projection.bias)


class MeanAggregator(Aggregator):
    """w = 1/S: the ablation "w/o Attention"."""

    def forward(self, target: Tensor, neighbours: Tensor) -> Tensor:
        result: Tensor = self.self_projection(target) + self.neighbour_projection(neighbours.mean(dim=-2))
        return result


class SumAggregator(Aggregator):
    """w = 1: keeps multiplicities, as GIN does."""

    def forward(self, target: Tensor, neighbours: Tensor) -> Tensor:
        summed = F.linear(neighbours.sum(dim=-2), self.neighbour_projection.weight)
        result: Tensor = self.self_projection(target) + summed + neighbours.shape[-2] * self.neighbour_projection.bias
        return result


class AttentiveAggregator(Aggregator):
    """Additive attention in H heads (Eq. 9).

    Per head, the logit of neighbour u is LeakyReLU(a_l · (W_s x_v) + a_r · (W_n x_u)), normalised over the
    sampled neighbourhood.
    """

    def __init__(self, inputs: int, channels: int, heads: int = 4, slope: float = 0.2) -> None:
        super().__init__(inputs, channels)
        if channels % heads:
            raise ValueError(f"{channels} channels cannot be split into {heads} heads")
        self.heads = heads
        self.slope = slope
        self.attend_self = nn.Parameter(torch.empty(heads, channels // heads))
        self.attend_neighbour = nn.Parameter(torch.empty(heads, channels // heads))
        nn.init.xavier_uniform_(self.attend_self)
        nn.init.xavier_uniform_(self.attend_neighbour)

    def attention_weights(self) -> AttentionWeights:
        """What a kernel takes."""
        own, near = self.self_projection, self.neighbour_projection
        return AttentionWeights(
            self.slope, own.weight, own.bias, near.weight, near.bias, self.attend_self, self.attend_neighbour
        )

    def root_weights(self, x: TreeFeatures) -> Tensor:
        """Attention of the roots over their neighbours, `[T, B, S, H]`."""
        own, near = x.hops()[:2]
        return self.weights(own, near.unflatten(1, (own.shape[1], -1)))

    def weights(self, target: Tensor, neighbours: Tensor) -> Tensor:
        """Attention over the neighbours, `[..., S, H]`."""
        return self._attention(*self._projections(target, neighbours))

    def forward(self, target: Tensor, neighbours: Tensor) -> Tensor:
        own, projected = self._projections(target, neighbours)
        pooled = (self._attention(own, projected).unsqueeze(-1) * projected).sum(dim=-3)
        return (own + pooled).flatten(-2)

    def _projections(self, target: Tensor, neighbours: Tensor) -> tuple[Tensor, Tensor]:
        """Head by head: the targets' `[..., H, C / H]`, and their neighbours' `[..., S, H, C / H]`."""
        own, projected = self.self_projection(target), self.neighbour_projection(neighbours)
        return own.unflatten(-1, (self.heads, -1)), projected.unflatten(-1, (self.heads, -1))

    def _attention(self, own: Tensor, projected: Tensor) -> Tensor:
        logits = (own * self.attend_self).sum(-1).unsqueeze(-2) + (projected * self.attend_neighbour).sum(-1)
        return F.leaky_relu(logits, self.slope).softmax(dim=-2)
