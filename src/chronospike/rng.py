"""Counter-based random numbers: every draw is a function of what it is for, not of what was drawn before.

A *key* names a stream and `derive(key, i)` is its i-th 64-bit word, which can be a random draw or the key of
a stream below it, so `derive(derive(key, root), step)` names one stream per (key, root, step). The words of a stream
are those of SplitMix64 started at the key. The topmost key comes from `stream`: no two purposes share words.

The forms of `derive` for torch tensors, and for numba in `rng_kernels`, agree with the plain one to the bit. torch has
no unsigned 64-bit arithmetic: its form keeps the same bits in int64, whose products wrap.
"""

from __future__ import annotations

import operator
from hashlib import blake2b
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

_MASK = 2**64 - 1
_GOLDEN = 0x9E3779B97F4A7C15
_FIRST = 0xBF58476D1CE4E5B9
_SECOND = 0x94D049BB133111EB
_HALF = 2**32


def stream(seed: int, purpose: str, *indices: int, rank: int = 0) -> int:
    """The key of what `seed` gives one purpose ("dropout", "batches", …), of its epoch, batch … `indices`.

    Processes that work together draw different words: each gives its `rank`, one that works alone has rank 0.
    """
    salt = int.from_bytes(blake2b(purpose.encode(), digest_size=8).digest(), "big")
    key = derive(derive(seed, salt), rank)
    for index in indices:
        key = derive(key, index)
    return key


def derive(key: int, index: int) -> int:
    """The 64-bit word number `index` (from 0) of the stream `key`; both are taken modulo 2^64."""
    # Those of numpy would overflow.
    z = (operator.index(key) + (operator.index(index) + 1) * _GOLDEN) & _MASK
    z = ((z ^ (z >> 30)) * _FIRST) & _MASK
    z = ((z ^ (z >> 27)) * _SECOND) & _MASK
    return z ^ (z >> 31)


def threshold(p: float) -> int:
    """The probability `p` in units of 2^-32: never true at 0, always at 1."""
    return round(p * _HALF)


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


def below_torch(word: torch.Tensor, bound: torch.Tensor | int) -> torch.Tensor:
    """A uniform integer in 0..bound-1 from the upper half of each word; `bound` is at most 2^31."""
    return (_shift_right(word, 32) * bound) >> 32


def _shift_right(word: torch.Tensor, bits: int) -> torch.Tensor:
    # torch shifts the sign in; the mask takes it out again.
    return (word >> bits) & ((1 << (64 - bits)) - 1)
