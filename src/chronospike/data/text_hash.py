"""A 64-bit hash of text ids that is the same in every process and on every machine."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from chronospike.compiled import njit
from chronospike.rng_kernels import derive_numba

_FNV_OFFSET, _FNV_PRIME = np.uint64(0xCBF29CE484222325), np.uint64(0x100000001B3)


def hash_texts(text: NDArray[np.uint8], offsets: NDArray[np.int64]) -> NDArray[np.int64]:
    """`[N]` FNV-1a of each slice of `text`, mixed once more: the last letter reaches few bits of FNV.

    Args:
        text: the UTF-8 bytes of all slices.
        offsets: `[N + 1]` where each slice starts.
    """
    hashes = np.empty(len(offsets) - 1, dtype=np.int64)
    _hash_slices(np.ascontiguousarray(text), np.ascontiguousarray(offsets, dtype=np.int64), hashes)
    return hashes


@njit
def _hash_slices(text: Any, offsets: Any, hashes: Any) -> None:
    for i in range(len(hashes)):
        word = _FNV_OFFSET
        for place in range(offsets[i], offsets[i + 1]):
            word = (word ^ np.uint64(text[place])) * _FNV_PRIME
        hashes[i] = np.int64(derive_numba(word, 0))
