"""Which fused kernel of the neighbour attention fits a tensor, if any; the meaning is `AttentiveAggregator`'s."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from chronospike.nn.rows import TreeRows
from chronospike.optional import has_triton

Kernels = Literal["auto", "plain", "shapes"]
"""Fused where there is a kernel, never, or only the memory that the GPU's would take (`nn/shapes.py`)."""

# Rows that no GPU's registers would hold need not be tried.
_WIDEST = 512


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


def fused_attention(x: TreeRows, weights: AttentionWeights) -> Tensor | None:
    """`[T, n, C]` as `aggregate_tree` means it, or None where no kernel fits."""
    if x.values.is_cuda and x.values.dtype in (torch.float32, torch.float16) and has_triton():
        from chronospike.nn.kernels import attention as on_gpu

        half = torch.get_float32_matmul_precision() != "highest"
        if x.width <= _WIDEST and on_gpu.fits(x, weights, half):
            return on_gpu.attend(x, weights, half)
        return None
    if x.values.device.type == "cpu":
        from chronospike.nn.cpu import attention as on_cpu

        if on_cpu.fits(x, weights):
            return on_cpu.attend(x, weights)
    return None
