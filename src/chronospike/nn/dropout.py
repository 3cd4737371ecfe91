"""Dropout that is a function of a key and a position, so that every kernel can make the same mask by itself.

One 64-bit word (see `chronospike.rng`) serves four neighbours in memory, sixteen bits each: element i of a tensor laid
flat is kept if bits 16 (i mod 4) … of word ⌊i / 4⌋ are at least `limit(share)`. What is kept is divided by the share
kept, so that the mean stays.
"""

from __future__ import annotations

import torch
from torch import Tensor

from chronospike.rng import derive_torch


def limit(share: float) -> int:
    """The share to drop in units of 2^-16."""
    return round(share * 2**16)


def scale(share: float) -> float:
    """What is kept is multiplied by this: exactly the inverse of the probability to be kept."""
    return 2**16 / (2**16 - limit(share))


def new_key(device: torch.device, count: int = 1) -> Tensor:
    """`[count]` int64: keys drawn from the device's generator, so that `torch.manual_seed` decides."""
    return torch.randint(2**62, (count,), device=device)


def keep_mask(key: Tensor, shape: tuple[int, ...] | torch.Size, share: float) -> Tensor:
    """Boolean mask of `shape`, True where an element is kept; the kernels' slow twin."""
    count = torch.Size(shape).numel()
    words = derive_torch(key, torch.arange((count + 3) // 4, device=key.device))
    shifts = torch.arange(0, 64, 16, device=key.device)
    random_bits = (words.unsqueeze(1) >> shifts) & 0xFFFF
    return (random_bits.flatten()[:count] >= limit(share)).view(shape)
