"""The features of sampled trees as the network reads them: as rows, or by reference to a table of all nodes."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import NamedTuple

import torch
from torch import Tensor

from chronospike.nn.roots import NOTHING, RootInputs


class Span(NamedTuple):
    """A hop that has neighbours: its first target, how many there are, their first neighbour, and how many of each."""

    start: int
    targets: int
    neighbours: int
    fanout: int


@dataclass(frozen=True)
class TreeFeatures:
    """Features of B trees at T steps, hop after hop; M = B (1 + S1 + S1 S2 + …).

    The neighbours of position i of a hop are the positions i S … (i + 1) S - 1 of the next.

    Attributes:
        values: `[T, M, D]`, or with `nodes` the table `[K, N, D]` they are to be gathered from, which gets no gradient.
        sizes: columns of each hop: (B, B S1, B S1 S2, …).
        nodes: `[T, M]` int32, the node at each position.
        blocks: `[T]` int64, which of the K blocks of the table each step reads.
        roots: what is read of the B roots beside their trees.
    """

    values: Tensor
    sizes: tuple[int, ...]
    nodes: Tensor | None = None
    blocks: Tensor | None = None
    roots: RootInputs = NOTHING

    def __post_init__(self) -> None:
        if self.nodes is not None and self.values.requires_grad:
            raise ValueError("a table of features gets no gradient: detach it, or give the rows themselves")

    @property
    def steps(self) -> int:
        return len(self.values) if self.nodes is None else len(self.nodes)

    @property
    def width(self) -> int:
        return self.values.shape[-1]

    @property
    def targets(self) -> int:
        """Positions that have neighbours: all but the last hop's."""
        return sum(self.sizes[:-1])

    @property
    def fanouts(self) -> tuple[int, ...]:
        """(S1, S2, …)."""
        return tuple(following // max(1, size) for size, following in pairwise(self.sizes))

    def spans(self) -> list[Span]:
        """Where the targets of each hop are, and their neighbours."""
        starts = accumulate(self.sizes, initial=0)
        places = zip(pairwise(starts), self.sizes, self.fanouts, strict=False)
        return [Span(start, size, following, fanout) for (start, following), size, fanout in places]

    def dense(self) -> Tensor:
        """`[T, M, D]`, in single precision at least."""
        rows = self.values if self.nodes is None else self._gathered(self.nodes)
        return rows if rows.dtype == torch.float64 else rows.float()

    def _gathered(self, nodes: Tensor) -> Tensor:
        assert self.blocks is not None
        if self.values.is_cuda:
            return self.values.flatten(0, 1)[nodes.long() + self.blocks.unsqueeze(1) * self.values.shape[1]]
        # Step by step: on the CPU a gather is bound by memory, and a small index stays in the cache.
        rows = self.values.new_empty((*nodes.shape, self.width))
        for step, block in enumerate(self.blocks.tolist()):
            torch.index_select(self.values[block], 0, nodes[step], out=rows[step])
        return rows

    def hops(self) -> list[Tensor]:
        """`[T, B, D]`, `[T, B S1, D]`, …: views of one tensor."""
        return list(self.dense().split(self.sizes, dim=1))
