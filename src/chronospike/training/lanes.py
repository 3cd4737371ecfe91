"""Bit-identical results for a node in any batch.

Matrix products may round differently when their shapes differ, or where a row lies in memory, and a threshold turns a
rounding into a spike. So a module always sees lanes of one fixed size, the last one padded, of rows that begin at whole
multiples of 32 bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from chronospike.training.learner import Progress
from chronospike.training.task import Nodes

# Floats in 32 bytes.
_ALIGNED = 8


def aligned(rows: Tensor) -> Tensor:
    """`[..., F]` with zeros behind each row, so that all begin at whole multiples of 32 bytes."""
    missing = -rows.shape[-1] % _ALIGNED
    return functional.pad(rows, (0, missing)) if missing else rows


def aligned_width(width: int) -> int:
    """Of rows of `width` numbers once they are `aligned`."""
    return width + -width % _ALIGNED


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """The module in evaluation mode meanwhile."""
    was_training = module.training
    module.eval()
    try:
        yield
    finally:
        module.train(was_training)


@torch.no_grad()
def in_lanes(
    answer: Callable[[Nodes], tuple[Tensor, Tensor]],
    nodes: Nodes,
    lane: int,
    widths: tuple[int, int],
    on_nodes: Progress | None = None,
) -> tuple[Tensor, Tensor]:
    """`[K, C]` and `[K, d]`, on the CPU, what is answered for `nodes [K]`.

    Args:
        answer: of exactly `lane` nodes.
        widths: C and d, for no nodes at all.
    """
    whole: list[Tensor] = []
    for start in range(0, len(nodes), lane):
        some = nodes[start : start + lane]
        found = answer(np.pad(some, (0, lane - len(some)), mode="edge"))
        whole = whole or [values.new_empty(len(nodes), values.shape[1]) for values in found]
        for values, all_values in zip(found, whole, strict=True):
            all_values[start : start + len(some)] = values[: len(some)]
        if on_nodes is not None:
            on_nodes(start + len(some), len(nodes))
    if not whole:
        return torch.empty(0, widths[0]), torch.empty(0, widths[1])
    # Brought over at the end: a GPU need not wait after each lane.
    return whole[0].cpu(), whole[1].cpu()
