"""From the spikes of all steps to logits and embeddings on a GPU: the Transformer layer, the readout, the classifier.

The meaning is that of `chronospike.nn.temporal.TemporalTransformer` and of the layers after it in `ChronoSpike`. As
torch operations these are some hundred small kernels, and their number, not their work, is what they cost.

Import this module only where Triton is installed. With TRITON_INTERPRET=1 it runs on the CPU, for tests.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
import triton
from torch import Tensor, nn

from chronospike.nn.dropout import limit, new_key, scale
from chronospike.nn.kernels import readout_kernels as kernels
from chronospike.nn.kernels.sums import add_up
from chronospike.nn.temporal import TemporalTransformer
from chronospike.triton_common import on, padded, single, tried

# Nodes a program takes at a time, and programs that share all of them on the way back.
_NODES, _PROGRAMS = 16, 128
# Wider layers, or steps times channels, do not fit the registers of a program; each up to its next power of two.
_WIDEST, _MOST_VALUES = 256, 1 << 14


@dataclass(frozen=True)
class _Sizes:
    steps: int
    nodes: int
    channels: int
    heads: int
    wide: int
    classes: int
    dropout: float
    eps: float
    half: bool

    @property
    def constants(self) -> dict[str, Any]:
        return {
            "CHANNELS": self.channels, "HEADS": self.heads, "HALF": self.half, "BM": _NODES,
            "BC": padded(self.channels), "BH": padded(self.channels // self.heads),
        }  # fmt: skip

    @property
    def all_constants(self) -> dict[str, Any]:
        more = {"WIDE": self.wide, "CLASSES": self.classes}
        return {**self.constants, **more, "BF": padded(self.wide), "BK": padded(self.classes)}

    @property
    def pool_constants(self) -> dict[str, Any]:
        return {
            "CHANNELS": self.channels, "HEADS": self.heads,
            "BT": triton.next_power_of_2(self.steps), "BC": triton.next_power_of_2(self.channels),
        }  # fmt: skip

    @property
    def drop(self) -> tuple[int, float]:
        return limit(self.dropout), scale(self.dropout)

    @property
    def blocks(self) -> int:
        return -(-self.nodes // _NODES)

    @property
    def rate(self) -> float:
        return 1 / math.sqrt(self.channels // self.heads)


class TritonReadout(torch.autograd.Function):
    """Spikes `[T, B, C]`, positions `[T, C]` and the weights to logits `[B, classes]` and embeddings `[B, C]`."""

    @staticmethod
    def forward(
        ctx: Any, s: _Sizes, keys: Tensor, spikes: Tensor, positions: Tensor, *weights: Tensor
    ) -> tuple[Tensor, Tensor]:
        spikes, positions, *weights = (value.detach().contiguous() for value in (spikes, positions, *weights))  # type: ignore[assignment]
        queries, pooled = (single(spikes, s.nodes, s.heads, s.channels) for _ in range(2))
        totals, z = single(spikes, s.nodes, s.heads), single(spikes, s.nodes, s.channels)
        logits = single(spikes, s.nodes, s.classes)
        if s.nodes:
            with on(spikes.device):
                kernels.fold_kernel[(s.blocks,)](
                    spikes, positions, *weights[:2], queries, s.nodes, s.steps, s.rate, **s.constants
                )
                kernels.pool_kernel[(s.nodes,)](
                    spikes, positions, queries, pooled, totals, keys, *s.drop, s.nodes, s.steps, **s.pool_constants
                )
                kernels.read_kernel[(s.blocks,)](
                    spikes, positions, pooled, totals, *weights, logits, z, keys, *s.drop, s.nodes, s.steps, s.eps,
                    **s.all_constants,
                )  # fmt: skip
        ctx.save_for_backward(keys, spikes, positions, queries, pooled, totals, *weights)
        ctx.sizes = s
        return logits, z

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        keys, spikes, positions, queries, pooled, totals, *weights = ctx.saved_tensors
        s: _Sizes = ctx.sizes
        if not s.nodes:
            return None, None, *(torch.zeros_like(value) for value in (spikes, positions, *weights))
        sizes = [weight.numel() for weight in weights]
        programs = min(_PROGRAMS, s.blocks)
        parts = single(spikes, programs, sum(sizes))
        grad_pooled, grad_totals, grad_queries = (torch.empty_like(like) for like in (pooled, totals, queries))
        grad_last, grad_rows = single(spikes, s.nodes, s.channels), torch.empty_like(spikes)
        by_logits, by_z = (grad.contiguous() for grad in grads)
        with on(spikes.device):
            kernels.read_back_kernel[(programs,)](
                spikes, positions, pooled, totals, *weights, by_logits, by_z, grad_pooled, grad_totals, grad_last,
                parts, keys, *s.drop, s.nodes, s.steps, programs, s.eps, sum(sizes), **s.all_constants, num_stages=1,
            )  # fmt: skip
            kernels.pool_back_kernel[(s.nodes,)](
                spikes, positions, queries, grad_pooled, grad_totals, grad_rows, grad_queries,
                keys, *s.drop, s.nodes, s.steps, **s.pool_constants,
            )  # fmt: skip
            kernels.fold_back_kernel[(programs,)](
                spikes, positions, *weights[:2], grad_queries, grad_last, grad_rows, parts,
                s.nodes, s.steps, programs, s.rate, sum(sizes), **s.constants, num_stages=1,
            )  # fmt: skip
        by_weights = [part.view_as(weight) for part, weight in zip(add_up(parts).split(sizes), weights, strict=True)]
        return None, None, grad_rows, add_up(grad_rows, dim=1), *by_weights


def read(
    temporal: TemporalTransformer, readout: nn.Sequential, classifier: nn.Linear, spikes: Tensor, half: bool
) -> tuple[Tensor, Tensor]:
    """Logits `[B, classes]` and embeddings `[B, C]`, with products of TF32 operands if `half`."""
    steps, nodes, channels = spikes.shape
    weights = _weights(temporal, readout, classifier)
    dropout = temporal.dropout if temporal.training else 0.0
    s = _Sizes(
        steps, nodes, channels, temporal.heads, temporal.expand.out_features, classifier.out_features, dropout,
        temporal.norm_attention.eps, half,
    )  # fmt: skip
    # One for the attention, three for the rows.
    keys = new_key(spikes.device, 4) if dropout else torch.zeros(4, dtype=torch.int64, device=spikes.device)
    logits, z = TritonReadout.apply(s, keys, spikes, temporal.position_table(steps), *weights)  # type: ignore[no-untyped-call]
    return logits, z


def _weights(temporal: TemporalTransformer, readout: nn.Sequential, classifier: nn.Linear) -> list[Tensor]:
    """In the order of the kernels' arguments."""
    t = temporal
    layers: list[Any] = [t.out, t.norm_attention, t.expand, t.contract, t.norm_feedforward, readout[0], readout[2]]
    pairs = ((layer.weight, layer.bias) for layer in [*layers, classifier])
    return [t.in_weight, t.in_bias, *(value for pair in pairs for value in pair)]


_Kind = tuple[torch.device, int, int, int, int, int, bool]


def fits(temporal: TemporalTransformer, classifier: nn.Linear, spikes: Tensor, half: bool) -> bool:
    """Whether the kernels can do it on this device; tried once for each kind."""
    steps, _, channels = spikes.shape
    wide, classes = temporal.expand.out_features, classifier.out_features
    padded = triton.next_power_of_2(steps) * triton.next_power_of_2(channels)
    if temporal.positions is None or max(channels, wide, classes) > _WIDEST or padded > _MOST_VALUES:
        return False
    kind = (spikes.device, triton.next_power_of_2(steps), channels, temporal.heads, wide, classes, half)
    return _try(kind)


@cache
def _try(kind: _Kind) -> bool:
    device, steps, channels, heads, wide, classes, half = kind
    with torch.enable_grad(), torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        temporal = TemporalTransformer(channels, heads, wide, max_steps=steps).to(device)
        width = (channels, channels)
        readout = nn.Sequential(nn.Linear(*width), nn.Tanh(), nn.Linear(*width)).to(device)
        classifier = nn.Linear(channels, classes).to(device)
        spikes = torch.zeros(steps, 2 * _NODES, channels, device=device, requires_grad=True)

        def trial() -> None:
            logits, z = read(temporal, readout, classifier, spikes, half)
            (logits.sum() + z.sum()).backward()

        return tried("the kernels of the readout", trial)
