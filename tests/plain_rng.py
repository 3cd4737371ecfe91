"""The draws of `chronospike.rng` in plain Python: what the compiled forms must agree with."""

from __future__ import annotations


def below(word: int, bound: int) -> int:
    """A uniform integer in 0..bound-1 from the upper half of a 64-bit `word`."""
    return ((word >> 32) * bound) >> 32


def chance(word: int, threshold: int) -> bool:
    """Whether the lower half of a 64-bit `word` is under `threshold`."""
    return word % 2**32 < threshold
