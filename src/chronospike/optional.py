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
def triton_trouble(device: torch.device) -> str | None:
    """Why Triton cannot be used on this device, tried once, or None. It wants a C compiler and a GPU that it knows."""
    if not has_triton():
        return "Triton is not installed"
    from chronospike.triton_common import launch_smallest, trial_error

    error = trial_error("Triton's kernels", device, lambda: launch_smallest(device))
    return error and f"Triton does not work here: {error}"
