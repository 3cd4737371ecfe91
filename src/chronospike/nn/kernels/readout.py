"""From the spikes of all steps to logits and embeddings on a GPU: the Transformer layer, the readout, the classifier.

The meaning is that of `chronospike.nn.temporal.TemporalTransformer` and of the layers after it in `ChronoSpike`. As
torch operations these are some hundred small kernels, and their number, not their work, is what they cost.

Import this module only where Triton is installed. With TRITON_INTERPRET=1 it runs on the CPU, for tests.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import torch
import triton
from torch import Tensor, nn

from chronospike.nn.dropout import limit, new_key, scale
from chronospike.nn.kernels import readout_kernels as kernels
from chronospike.nn.temporal import TemporalTransformer
from chronospike.triton_common import add_up, on, padded, single, trial_error

# Nodes a program takes at a time, and programs that share all of them on the way back.
_NODES, _PROGRAMS = 16, 128
# Steps up to this many share one kernel.
_STEPS = 32
# Wider layers, or steps times channels, do not fit the registers of a program; each up to its next power of two.
_WIDEST, _MOST_VALUES = 256, 1 << 14


class _Sizes:
    """Sizes, and what each kernel is compiled for."""

    def __init__(self, temporal: TemporalTransformer, classes: int, spikes: Tensor, half: bool) -> None:
        self.steps, self.nodes, self.channels = spikes.shape
        self.heads, self.classes, self.eps = temporal.heads, classes, temporal.norm_attention.eps
        wide, part = temporal.expand.out_features, self.channels // self.heads
        self.dropout = temporal.dropout if temporal.training else 0.0
        self.drop, self.rate = (limit(self.dropout), scale(self.dropout)), 1 / math.sqrt(part)
        self.blocks = int(triton.cdiv(self.nodes, _NODES))
        common = {"CHANNELS": self.channels, "HEADS": self.heads}
        self.pool = {**common, "BT": _padded_steps(self.steps), "BC": triton.next_power_of_2(self.channels)}
        self.fold = {**common, "HALF": half, "BM": _NODES, "BC": padded(self.channels), "BH": padded(part)}
        self.read = {**self.fold, "WIDE": wide, "BF": padded(wide), "BK": padded(classes)}


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
                    spikes, positions, *weights[:2], queries, s.nodes, s.steps, s.rate, **s.fold
                )
                kernels.pool_kernel[(s.nodes,)](
                    spikes, positions, queries, pooled, totals, keys, *s.drop, s.nodes, s.steps, **s.pool
                )
                kernels.read_kernel[(s.blocks,)](
                    spikes, positions, pooled, totals, *weights, logits, z, keys, *s.drop, s.nodes, s.steps, s.classes,
                    s.eps, **s.read,
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
        # In whole sixteens, whatever the classes: what adds them up is compiled for that.
        parts = single(spikes, programs, -(-sum(sizes) // 16) * 16)
        grad_pooled, grad_totals, grad_queries = (torch.empty_like(like) for like in (pooled, totals, queries))
        grad_last, grad_rows = single(spikes, s.nodes, s.channels), torch.empty_like(spikes)
        grad_logits, grad_z = (grad.contiguous() for grad in grads)
        with on(spikes.device):
            kernels.read_back_kernel[(programs,)](
                spikes, positions, pooled, totals, *weights, grad_logits, grad_z, grad_pooled, grad_totals, grad_last,
                parts, keys, *s.drop, s.nodes, s.steps, s.classes, programs, s.eps, parts.shape[1], **s.read,
                num_stages=1,
            )  # fmt: skip
            kernels.pool_back_kernel[(s.nodes,)](
                spikes, positions, queries, grad_pooled, grad_totals, grad_rows, grad_queries,
                keys, *s.drop, s.nodes, s.steps, **s.pool,
            )  # fmt: skip
            kernels.fold_back_kernel[(programs,)](
                spikes, positions, *weights[:2], grad_queries, grad_last, grad_rows, parts,
                s.nodes, s.steps, programs, s.rate, parts.shape[1], **s.fold, num_stages=1,
            )  # fmt: skip
        sums = add_up(parts)[: sum(sizes)].split(sizes)
        grad_weights = [part.view_as(weight) for part, weight in zip(sums, weights, strict=True)]
        return None, None, grad_rows, add_up(grad_rows, dim=1), *grad_weights


def read(
    temporal: TemporalTransformer, readout: nn.Sequential, classifier: nn.Linear, spikes: Tensor, half: bool
) -> tuple[Tensor, Tensor]:
    """Logits `[B, classes]` and embeddings `[B, C]`, with products of TF32 operands if `half`."""
    s = _Sizes(temporal, classifier.out_features, spikes, half)
    # One for the attention, three for the rows.
    keys = new_key(spikes.device, 4) if s.dropout else torch.zeros(4, dtype=torch.int64, device=spikes.device)
    positions, weights = temporal.position_table(s.steps), _weights(temporal, readout, classifier)
    logits, z = TritonReadout.apply(s, keys, spikes, positions, *weights)  # type: ignore[no-untyped-call]
    return logits, z


def _weights(temporal: TemporalTransformer, readout: nn.Sequential, classifier: nn.Linear) -> list[Tensor]:
    """In the order of the kernels' arguments."""
    t = temporal
    layers: list[Any] = [t.out, t.norm_attention, t.expand, t.contract, t.norm_feedforward, readout[0], readout[2]]
    pairs = ((layer.weight, layer.bias) for layer in [*layers, classifier])
    return [t.in_weight, t.in_bias, *(value for pair in pairs for value in pair)]


def _padded_steps(steps: int) -> int:
    return max(_STEPS, int(triton.next_power_of_2(steps)))


def refusal(
    device: torch.device, steps: int, channels: int, heads: int, wide: int, classes: int, half: bool, training: bool
) -> str | None:
    """Why the kernels cannot be used on this device, or None; tried once for each kind."""
    if max(channels, wide, classes) > _WIDEST:
        return f"over {_WIDEST} channels or classes do not fit a GPU's registers"
    if _padded_steps(steps) * triton.next_power_of_2(channels) > _MOST_VALUES:
        return f"{steps} steps of {channels} channels do not fit a GPU's registers"
    return _try(device, _padded_steps(steps), channels, heads, wide, padded(classes), half, training)


@cache
def _try(
    device: torch.device, steps: int, channels: int, heads: int, wide: int, classes: int, half: bool, training: bool
) -> str | None:
    def work() -> None:
        temporal = TemporalTransformer(channels, heads, wide, max_steps=steps).to(device).train(training)
        width = (channels, channels)
        readout = nn.Sequential(nn.Linear(*width), nn.Tanh(), nn.Linear(*width)).to(device)
        classifier = nn.Linear(channels, classes).to(device)
        spikes = torch.zeros(steps, 2 * _NODES, channels, device=device, requires_grad=training)
        logits, z = read(temporal, readout, classifier, spikes, half)
        if training:
            (logits.sum() + z.sum()).backward()

    return trial_error("the kernels of the readout", device, work)
