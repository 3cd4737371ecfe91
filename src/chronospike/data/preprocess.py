"""Standardising features: one mean and one standard deviation per step, over the whole node × feature block.

Works on rows of a memory map a few megabytes at a time, so that features larger than the memory are neither
copied nor held: `block_statistics` once, then `apply` on whatever part is needed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from chronospike.errors import GraphError
from chronospike.threads import run_chunks

# Values handled at a time by one thread: 8 MiB in double precision, which stays near the processor's cache.
CHUNK_VALUES = 1 << 20


def block_statistics(
    features: NDArray[Any], first_steps: NDArray[np.integer[Any]] | None = None
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(`[T]` mean, `[T]` population standard deviation) of each step's block; `[N, d]` counts as one step.

    A standard deviation of exactly 0 marks a block whose values are all the same.

    Args:
        first_steps: `[N]` the step from which on each node counts; by default all count at every step. Nodes that are
            still to come then change nothing, not even the order in which the others are added up.
    """
    if features.ndim not in (2, 3):
        raise GraphError(f"features have shape {list(features.shape)}, expected [N, d] or [T, N, d]")
    blocks = features if features.ndim == 3 else features[None]
    mean, std = np.zeros(len(blocks)), np.zeros(len(blocks))
    for step in range(len(blocks)):
        rows = None if first_steps is None else np.flatnonzero(first_steps <= step)
        mean[step], std[step] = _one_block(blocks[step], rows)
    return mean, std


def apply(block: NDArray[Any], mean: float, std: float) -> NDArray[np.float32]:
    """`(block - mean) / std` for any rows `[..., d]` of a step, in single precision; a constant block becomes zeros."""
    out = np.empty(block.shape, dtype=np.float32)
    scale = 1.0 / std if std > 0 else 0.0

    def work(start: int, stop: int) -> None:
        for low, high in _row_ranges(block, start, stop):
            # Subtracting in double precision: a mean far from zero would cost half and single their digits.
            out[low:high] = (block[low:high].astype(np.float64) - mean) * scale

    run_chunks(work, len(block))
    return out


def _one_block(block: NDArray[Any], rows: NDArray[np.int64] | None) -> tuple[float, float]:
    """Mean and population standard deviation of all values, or those of some rows, in one pass."""
    ranges = list(_row_ranges(block, 0, len(block) if rows is None else len(rows)))
    # Count, mean, sum of squared deviations, smallest and largest value of each range.
    parts = np.zeros((len(ranges), 5))

    def work(start: int, stop: int) -> None:
        for i in range(start, stop):
            part = slice(*ranges[i])
            values = block[part if rows is None else rows[part]].astype(np.float64)
            mean = values.mean()
            low, high = values.min(), values.max()
            values -= mean
            parts[i] = values.size, mean, np.vdot(values, values), low, high

    # Ranges are the same whatever the number of threads, and so is the sum over them.
    run_chunks(work, len(ranges))
    count, means, squares, low, high = parts.T
    if len(ranges) == 0 or low.min() == high.max():
        return float(means[0]) if len(ranges) else 0.0, 0.0
    total = float(count @ means / count.sum())
    variance = (squares.sum() + count @ (means - total) ** 2) / count.sum()
    return total, float(np.sqrt(variance))


def _row_ranges(block: NDArray[Any], start: int, stop: int) -> list[tuple[int, int]]:
    """Consecutive (low, high) row ranges of about `CHUNK_VALUES` values."""
    per_row = max(1, int(np.prod(block.shape[1:])))
    rows = max(1, CHUNK_VALUES // per_row)
    return [(low, min(low + rows, stop)) for low in range(start, stop, rows)]
