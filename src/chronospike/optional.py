"""Optional packages."""

from __future__ import annotations

from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from threading import Thread
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


def start_gpu(device: torch.device) -> None:
    """Let CUDA and Triton start in a thread while a graph is being read. On a CPU there is nothing to start.

    Of Triton it is the hash of its own source, which every process takes before it looks for a compiled kernel.
    """

    def work() -> None:
        import torch

        # Whatever is wrong shows where it is needed.
        with suppress(Exception):
            torch.cuda.init()
            from triton.runtime.cache import triton_key

            triton_key()

    if device.type == "cuda":
        Thread(target=work, daemon=True).start()
