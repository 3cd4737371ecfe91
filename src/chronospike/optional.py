"""Packages that may or may not be there."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


@cache
def has_triton() -> bool:
    """Whether Triton is installed."""
    return find_spec("triton") is not None


@cache
def triton_works(device: torch.device) -> bool:
    """Whether Triton is installed and can compile for this device, tried once; if it cannot, a warning says why.

    It wants a C compiler on the machine and a GPU that it knows.
    """
    if not has_triton():
        return False
    import torch

    from chronospike.nn.kernels.sums import add_up
    from chronospike.triton_common import tried

    return tried("Triton's kernels", lambda: add_up(torch.zeros(2, 2, device=device)))
