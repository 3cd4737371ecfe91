"""The random words of `chronospike.rng` for functions that numba compiles, and keys made of text."""

from __future__ import annotations

from typing import Any

import numpy as np

from chronospike.compiled import njit

# The constants of chronospike.rng, here as well: the cache of compiled functions notices changes of modules like this.
_U_GOLDEN, _U_FIRST, _U_SECOND = (
    np.uint64(constant) for constant in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
)
_U_LOW = np.uint64(2**32 - 1)
_FNV_OFFSET, _FNV_PRIME = np.uint64(0xCBF29CE484222325), np.uint64(0x100000001B3)
_U1, _U27, _U30, _U31, _U32 = (np.uint64(n) for n in (1, 27, 30, 31, 32))


@njit
def derive_numba(key: Any, index: Any) -> Any:
    """`derive` of two uint64."""
    z = key + (np.uint64(index) + _U1) * _U_GOLDEN
    z = (z ^ (z >> _U30)) * _U_FIRST
    z = (z ^ (z >> _U27)) * _U_SECOND
    return z ^ (z >> _U31)


@njit
def below_numba(word: Any, bound: Any) -> Any:
    """A uniform integer in 0..bound-1 from the upper half of `word`, as int64; `bound` is at most 2^31."""
    return np.int64(((word >> _U32) * np.uint64(bound)) >> _U32)


@njit
def chance_numba(word: Any, threshold: Any) -> Any:
    """True with the probability that a uint64 `threshold` stands for, from the lower half of `word`."""
    return (word & _U_LOW) < threshold


@njit
def hash_texts(text: Any, offsets: Any, hashes: Any) -> None:
    """Fill `hashes [N]` with FNV-1a of each slice of the bytes `text`, the same in every process and on every machine.

    Mixed once more: the last letter reaches few bits of FNV. `offsets [N + 1]` says where each slice starts.
    """
    for i in range(len(hashes)):
        word = _FNV_OFFSET
        for place in range(offsets[i], offsets[i + 1]):
            word = (word ^ np.uint64(text[place])) * _FNV_PRIME
        hashes[i] = np.int64(derive_numba(word, 0))
