"""Counter-based random numbers: every draw is a function of what it is for, not of what was drawn before.

A *key* names a stream and `derive(key, i)` is its i-th 64-bit word, which can be a random draw or the key of
a stream below it, so `derive(derive(derive(seed, epoch), root), step)` names one stream per (seed, epoch, root,
step). The words of a stream are those of SplitMix64 started at the key.

Each function comes in three forms that agree to the bit: plain Python integers (the reference), numba, and torch
tensors. torch has no unsigned 64-bit arithmetic: its form keeps the same bits in int64, whose products wrap.

Numba does not notice a change in this file when it looks for a cached kernel of another file: after editing the
compiled forms here, delete the caches (`__pycache__/*.nbi`) of the kernels that call them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numba import njit

if TYPE_CHECKING:
    import torch

_MASK = 2**64 - 1
_GOLDEN = 0x9E3779B97F4A7C15
_FIRST = 0xBF58476D1CE4E5B9
_SECOND = 0x94D049BB133111EB
_HALF = 2**32


def derive(key: int, index: int) -> int:
    """The 64-bit word number `index` (from 0) of the stream `key`; both are taken modulo 2^64."""
    z = (key + (index + 1) * _GOLDEN) & _MASK
    z = ((z ^ (z >> 30)) * _FIRST) & _MASK
    z = ((z ^ (z >> 27)) * _SECOND) & _MASK
    return z ^ (z >> 31)


def below(word: int, bound: int) -> int:
    """A uniform integer in 0..bound-1 from the upper half of `word`; `bound` is at most 2^31."""
    return ((word >> 32) * bound) >> 32


def chance(word: int, threshold: int) -> bool:
    """True with the probability that `threshold` stands for, from the lower half of `word`."""
    return (word & (_HALF - 1)) < threshold


def threshold(p: float) -> int:
    """The probability `p` in units of 2^-32: never true at 0, always at 1."""
    return round(p * _HALF)


_U_GOLDEN, _U_FIRST, _U_SECOND = np.uint64(_GOLDEN), np.uint64(_FIRST), np.uint64(_SECOND)
_U_LOW = np.uint64(_HALF - 1)
_U1, _U27, _U30, _U31, _U32 = (np.uint64(n) for n in (1, 27, 30, 31, 32))


@njit(nogil=True, cache=True)
def derive_numba(key: Any, index: Any) -> Any:
    """`derive` of two uint64."""
    z = key + (np.uint64(index) + _U1) * _U_GOLDEN
    z = (z ^ (z >> _U30)) * _U_FIRST
    z = (z ^ (z >> _U27)) * _U_SECOND
    return z ^ (z >> _U31)


@njit(nogil=True, cache=True)
def below_numba(word: Any, bound: Any) -> Any:
    """`below`, as int64."""
    return np.int64(((word >> _U32) * np.uint64(bound)) >> _U32)


@njit(nogil=True, cache=True)
def chance_numba(word: Any, threshold: Any) -> Any:
    """`chance` with a uint64 threshold."""
    return (word & _U_LOW) < threshold


def signed(word: int) -> int:
    """The same 64 bits as an int64, the form torch holds them in."""
    word &= _MASK
    return word - 2**64 if word >= 2**63 else word


def derive_torch(key: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    """`derive` of two int64 tensors that broadcast."""
    z = key + (index + 1) * signed(_GOLDEN)
    z = (z ^ _shift_right(z, 30)) * signed(_FIRST)
    z = (z ^ _shift_right(z, 27)) * signed(_SECOND)
    return z ^ _shift_right(z, 31)


def below_torch(word: torch.Tensor, bound: torch.Tensor) -> torch.Tensor:
    """`below`; the product of 32 and 31 bits stays positive in int64."""
    return (_shift_right(word, 32) * bound) >> 32


def chance_torch(word: torch.Tensor, threshold: int) -> torch.Tensor:
    """`chance`, as bool."""
    return (word & (_HALF - 1)) < threshold


def _shift_right(word: torch.Tensor, bits: int) -> torch.Tensor:
    # torch shifts the sign in; the mask takes it out again.
    return (word >> bits) & ((1 << (64 - bits)) - 1)
