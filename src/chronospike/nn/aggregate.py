"""Spatial aggregation over a sampled neighbourhood (Eq. 8-9), and the two it is compared with.

Each aggregator turns targets `[..., D]` and their S neighbours `[..., S, D]` into inputs `[..., C]` for the
neurons:  h_v = W_s x_v + b_s + Σ_u w_vu (W_n x_u + b_n).  They differ in the weights w: learned attention,
1/S (mean), or 1 (sum, as injective as Theorem 4 asks).
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from chronospike.nn import shapes
from chronospike.nn.dispatch import AttentionWeights, Kernels, fused_attention
from chronospike.nn.tree_features import TreeFeatures


def aggregate_tree(aggregator: Aggregator, x: TreeFeatures, kernels: Kernels = "auto") -> Tensor:
    """The neurons' inputs `[T, n, C]` at the n positions of `x` that have neighbours, every step at once."""
    if isinstance(aggregator, AttentiveAggregator):
        if kernels == "plain":
            return _over_pairs(aggregator.forward_plain, x)
        weights = aggregator.attention_weights()
        fused = shapes.attend(x, weights) if kernels == "shapes" else fused_attention(x, weights)
        if fused is not None:
            return fused
    return _over_pairs(aggregator, x)


def _over_pairs(aggregate: Callable[[Tensor, Tensor], Tensor], x: TreeFeatures) -> Tensor:
    pairs = pairwise(x.hops())
    return torch.cat([aggregate(own, near.unflatten(1, (own.shape[1], -1))) for own, near in pairs], dim=1)


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
    sampled neighbourhood. The weighted sum is taken before W_n is applied: Σ α W x = W Σ α x, and
    a_r · W_n x = (W_nᵀ a_r) · x, so that the projection costs one row per target instead of S. `forward_plain`
    is the same in the order of the paper.
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

    def _neighbour_logit_weights(self) -> tuple[Tensor, Tensor]:
        """`[D, H]` and `[H]`: what a_r · (W_n x + b_n) is, written as a linear map of x."""
        weight = self.neighbour_projection.weight.unflatten(0, (self.heads, -1))
        bias = self.neighbour_projection.bias.unflatten(0, (self.heads, -1))
        folded = torch.einsum("hcd,hc->dh", weight, self.attend_neighbour)
        return folded, (bias * self.attend_neighbour).sum(dim=-1)

    def _attention(self, own: Tensor, neighbours: Tensor) -> Tensor:
        """`[..., S, H]` from the targets' projections `[..., C]` and the raw neighbours `[..., S, D]`."""
        by_self = (own.unflatten(-1, (self.heads, -1)) * self.attend_self).sum(dim=-1)
        weight, bias = self._neighbour_logit_weights()
        logits = by_self.unsqueeze(-2) + neighbours @ weight + bias
        return F.leaky_relu(logits, self.slope).softmax(dim=-2)

    def attention_weights(self) -> AttentionWeights:
        """What a fused kernel takes."""
        own, near = self.self_projection, self.neighbour_projection
        return AttentionWeights(
            own.weight, own.bias, near.weight, near.bias, self.attend_self, self.attend_neighbour, self.slope
        )

    def root_weights(self, x: TreeFeatures) -> Tensor:
        """Attention of the roots over their neighbours, `[T, B, S, H]`."""
        own, near = x.hops()[:2]
        return self.weights(own, near.unflatten(1, (own.shape[1], -1)))

    def weights(self, target: Tensor, neighbours: Tensor) -> Tensor:
        """Attention over the neighbours, `[..., S, H]`."""
        return self._attention(self.self_projection(target), neighbours)

    def forward(self, target: Tensor, neighbours: Tensor) -> Tensor:
        own: Tensor = self.self_projection(target)
        attention = self._attention(own, neighbours)
        pooled = attention.transpose(-1, -2) @ neighbours
        weight = self.neighbour_projection.weight.unflatten(0, (self.heads, -1))
        # The weights of a neighbourhood add up to one, so the bias passes through unchanged.
        mixed = torch.einsum("...hd,hcd->...hc", pooled, weight).flatten(-2)
        return own + mixed + self.neighbour_projection.bias

    def forward_plain(self, target: Tensor, neighbours: Tensor) -> Tensor:
        """Project every neighbour, then attend: Eq. 8-9 as written."""
        own = self.self_projection(target).unflatten(-1, (self.heads, -1))
        projected = self.neighbour_projection(neighbours).unflatten(-1, (self.heads, -1))
        logits = (own * self.attend_self).sum(-1).unsqueeze(-2) + (projected * self.attend_neighbour).sum(-1)
        attention = F.leaky_relu(logits, self.slope).softmax(dim=-2)
        pooled = (attention.unsqueeze(-1) * projected).sum(dim=-3)
        result: Tensor = (own + pooled).flatten(-2)
        return result
