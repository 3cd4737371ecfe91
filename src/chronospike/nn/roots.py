"""Inputs about a root itself: the label sequence of its neighbours, and features that describe it.

Only roots have them. A neighbour's would hand the root its own label back.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class RootInputs:
    """Of B roots.

    Attributes:
        counts: `[B, T, K]` neighbours of each kind in each snapshot, whole numbers; None if they are not read.
        numbers: `[B, F]` label features and activity; None if there are none.
    """

    counts: Tensor | None = None
    numbers: Tensor | None = None


NOTHING = RootInputs()


def sequences(counts: Tensor) -> Tensor:
    """`[T, B, 2 (K + 1)]` log(1 + count) of each kind and of all, in each snapshot and added up so far."""
    met = counts.float().transpose(0, 1)
    met = torch.cat([met, met.sum(dim=-1, keepdim=True)], dim=-1)
    return torch.cat([met, met.cumsum(dim=0)], dim=-1).log1p()


class SequenceReader(nn.Module):
    """A gated recurrent unit over the steps, read at the last one and by attention: `[T, B, W]` to `[B, 2 C]`."""

    def __init__(self, inputs: int, channels: int) -> None:
        super().__init__()
        self.recurrent = nn.GRU(inputs, channels)
        self.attend = nn.Linear(channels, 1)

    def forward(self, sequence: Tensor) -> Tensor:
        states: Tensor = self.recurrent(sequence)[0]
        weights = self.attend(states).softmax(dim=0)
        return torch.cat([states[-1], (weights * states).sum(dim=0)], dim=-1)


class Standardise(nn.Module):
    """Numbers `[B, F]` by the mean and the deviation that they had over the nodes of the fit."""

    mean: Tensor
    deviation: Tensor

    def __init__(self, width: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(width))
        self.register_buffer("deviation", torch.ones(width))

    def fit(self, rows: Tensor) -> None:
        """Take mean and deviation from `rows [K, F]`, if any; a column that does not vary is only centred."""
        if not len(rows):
            return
        mean, deviation = rows.double().mean(dim=0), rows.double().std(dim=0, correction=0)
        self.mean.copy_(mean)
        self.deviation.copy_(torch.where(deviation > 1e-6, deviation, 1.0))

    def forward(self, rows: Tensor) -> Tensor:
        # A column that hardly varied in the fit may be far outside on a later graph.
        return ((rows - self.mean) / self.deviation).clamp(-10, 10)
