"""The output of a sampler: the neighbourhoods of a batch at every step, as one tensor."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

import torch


@dataclass(frozen=True)
class NeighbourTree:
    """Sampled neighbourhoods of B roots at T steps.

    Attributes:
        nodes: `[T, M]` node indices with M = B·(1 + S1 + S1·S2 + …), hop after hop: first the B roots, then
            their neighbours, and so on. The neighbours of position k of hop h are the positions
            k·S … k·S + S - 1 of hop h + 1, where S is the fan-out of hop h.
        fanouts: (S1, S2, …).
        steps: the step of each row of `nodes`.
    """

    nodes: torch.Tensor
    fanouts: tuple[int, ...]
    steps: tuple[int, ...]

    @property
    def num_hops(self) -> int:
        return len(self.fanouts)

    @property
    def batch_size(self) -> int:
        return self.nodes.shape[1] // sum(widths(self.fanouts))

    def hop(self, hop: int) -> torch.Tensor:
        """`[T, B·S1·…·Sh]` nodes of hop h, a view; hop 0 holds the roots."""
        start = self.batch_size * sum(widths(self.fanouts)[:hop])
        return self.nodes.narrow(1, start, self.batch_size * widths(self.fanouts)[hop])

    def neighbours(self, hop: int) -> torch.Tensor:
        """`[T, B·S1·…·Sh, S]` the sampled neighbours of each position of hop h, a view."""
        return self.hop(hop + 1).view(len(self.steps), -1, self.fanouts[hop])

    def to(self, device: torch.device | str, non_blocking: bool = False) -> NeighbourTree:
        """The same tree on another device."""
        return replace(self, nodes=self.nodes.to(device, non_blocking=non_blocking))


def widths(fanouts: tuple[int, ...]) -> tuple[int, ...]:
    """Positions per root in each hop: (1, S1, S1·S2, …)."""
    return tuple(prod(fanouts[:hop]) for hop in range(len(fanouts) + 1))
