"""Nodes in batches, in an order that depends only on the seed and the epoch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from chronospike.errors import InputError
from chronospike.rng import stream


def batches(nodes: NDArray[np.integer[Any]], size: int, seed: int, epoch: int) -> Iterator[NDArray[np.integer[Any]]]:
    """Yield `nodes [K]`, shuffled, in batches of `size`, the last one shorter."""
    if size < 1:
        raise InputError(f"batch size {size} is below 1")
    order = np.random.Generator(np.random.Philox(key=stream(seed, "batches", epoch))).permutation(nodes)
    for first in range(0, len(order), size):
        yield order[first : first + size]


def num_batches(count: int, size: int) -> int:
    """How many batches of `size` there are in `count` nodes."""
    return -(-count // size)
