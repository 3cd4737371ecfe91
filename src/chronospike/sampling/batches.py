"""Nodes in batches, in an order that depends on the seed and the epoch alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from chronospike.errors import InputError


def batches(
    nodes: NDArray[np.integer[Any]],
    size: int,
    seed: int,
    epoch: int,
    shuffle: bool = True,
    drop_last: bool = False,
    start: int = 0,
) -> Iterator[NDArray[np.integer[Any]]]:
    """Yield `nodes [K]` in batches of `size`, the last one shorter or dropped.

    A run that stopped after k batches of an epoch goes on with `start=k`: the batches are those it would have had.
    """
    if size < 1:
        raise InputError(f"batch size {size} is below 1")
    if start < 0:
        raise InputError(f"start {start} is below 0")
    nodes = np.asarray(nodes)
    order = _order(seed, epoch).permutation(nodes) if shuffle else nodes
    for first in range(start * size, num_batches(len(nodes), size, drop_last) * size, size):
        yield order[first : first + size]


def num_batches(count: int, size: int, drop_last: bool = False) -> int:
    """How many batches of `size` there are in `count` nodes."""
    return count // size if drop_last else -(-count // size)


def _order(seed: int, epoch: int) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(np.random.SeedSequence([seed % 2**64, epoch])))
