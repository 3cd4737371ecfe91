"""What all Triton kernels share: the random words of `chronospike.rng`, and launching on the right device.

Import this module only where Triton is installed. With TRITON_INTERPRET=1 kernels run on the CPU, for tests.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import triton
import triton.language as tl

# The constants of chronospike.rng.
GOLDEN = tl.constexpr(0x9E3779B97F4A7C15)
_FIRST = tl.constexpr(0xBF58476D1CE4E5B9)
_SECOND = tl.constexpr(0x94D049BB133111EB)


@triton.jit
def mix(z):  # type: ignore[no-untyped-def]
    """The last part of `derive`: a word from the state of a stream."""
    z = (z ^ (z >> 30)) * _FIRST
    z = (z ^ (z >> 27)) * _SECOND
    return z ^ (z >> 31)


@triton.jit
def derive(key, index):  # type: ignore[no-untyped-def]
    """`chronospike.rng.derive` of a uint64 and an index that is not negative."""
    return mix(key + (index.to(tl.uint64) + 1) * GOLDEN)


def on(device: torch.device) -> AbstractContextManager[Any]:
    """Triton launches on the current device, which need not be this one."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()
