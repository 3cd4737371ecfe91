"""Which fused kernel fits a tensor, if any: of the neighbour attention, and of all that follows the neurons.

The meaning is that of `AttentiveAggregator`, and of `ChronoSpike.read`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor, nn

from chronospike.nn.tree_features import TreeFeatures
from chronospike.optional import triton_works

if TYPE_CHECKING:
    from chronospike.nn.temporal import TemporalTransformer

Kernels = Literal["auto", "plain", "shapes"]
"""Fused where there is a kernel, never, or only the memory that the GPU's would take (`nn/shapes.py`)."""


@dataclass(frozen=True)
class AttentionWeights:
    """The parameters of an `AttentiveAggregator` with D inputs, C channels and H heads.

    Attributes:
        self_weight, neighbour_weight: `[C, D]`; their biases `[C]`.
        attend_self, attend_neighbour: `[H, C / H]`, a_l and a_r of Eq. 9.
        slope: of the LeakyReLU below zero.
    """

    self_weight: Tensor
    self_bias: Tensor
    neighbour_weight: Tensor
    neighbour_bias: Tensor
    attend_self: Tensor
    attend_neighbour: Tensor
    slope: float

    @property
    def heads(self) -> int:
        return len(self.attend_self)

    @property
    def channels(self) -> int:
        return len(self.self_weight)


def fused_attention(x: TreeFeatures, weights: AttentionWeights) -> Tensor | None:
    """`[T, n, C]` as `aggregate_tree` means it, or None where no kernel fits."""
    if x.values.is_cuda and x.values.dtype in (torch.float32, torch.float16) and triton_works(x.values.device):
        from chronospike.nn.kernels import attention as on_gpu

        half = takes_half()
        if on_gpu.fits(x, weights, half):
            return on_gpu.attend(x, weights, half)
        return None
    if x.values.device.type == "cpu":
        from chronospike.nn.cpu import attention as on_cpu

        if on_cpu.fits(x, weights):
            return on_cpu.attend(x, weights)
    return None


def fused_readout(
    temporal: TemporalTransformer, readout: nn.Sequential, classifier: nn.Linear, spikes: Tensor
) -> tuple[Tensor, Tensor] | None:
    """Logits `[B, classes]` and embeddings `[B, C]`, or None where no kernel fits."""
    if not (spikes.is_cuda and spikes.dtype == torch.float32 and triton_works(spikes.device)):
        return None
    from chronospike.nn.kernels import readout as on_gpu

    half = takes_half()
    if not on_gpu.fits(temporal, classifier, spikes, half):
        return None
    return on_gpu.read(temporal, readout, classifier, spikes, half)


def takes_half() -> bool:
    """Whether products may be taken of operands in less than single precision."""
    return torch.get_float32_matmul_precision() != "highest"


@contextmanager
def half_products(allowed: bool) -> Iterator[None]:
    """Meanwhile `takes_half` answers `allowed`, and torch's own products follow it too."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if allowed else "highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
