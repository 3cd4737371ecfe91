"""Choosing a device, and preparing the process for it."""

from __future__ import annotations

import ctypes
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from threading import RLock

import torch

from chronospike.errors import InputError

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_turn = RLock()
# The processes that have computed: this one, or those that it was forked from.
_computed: set[int] = set()


def choose_device(name: str = "auto") -> torch.device:
    """`auto` is the first GPU if there is one, else the CPU."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except (RuntimeError, TypeError) as error:
        raise InputError(f"device '{name}' is not known. Use auto, cpu, cuda or cuda:N") from error
    if device.type == "cuda":
        if not torch.cuda.is_available():
            raise InputError(f"device '{name}': there is no GPU that torch can use here. Run with --device cpu")
        if (device.index or 0) >= torch.cuda.device_count():
            raise InputError(f"device '{name}': there are {torch.cuda.device_count()} GPUs, counted from 0")
    elif device.type != "cpu":
        raise InputError(f"device '{name}' is not supported. Use auto, cpu, cuda or cuda:N")
    return device


def keep_freed_memory() -> bool:
    """Have the C library keep large freed blocks instead of handing them back to the system after each batch.

    On the CPU fresh memory costs more than arithmetic: every page of a new tensor is a fault. Returns whether it
    took effect (it does with glibc).
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    largest = 2**31 - 1
    return bool(mallopt(_M_MMAP_THRESHOLD, largest)) and bool(mallopt(_M_TRIM_THRESHOLD, largest))


@contextmanager
def own_torch() -> Iterator[None]:
    """Torch as a program finds it at its start, whatever the caller has set, which comes back afterwards.

    Generators, the default dtype and a module's mode belong to the whole process, so that threads take turns. A process
    forked from one that has computed uses one thread from then on.
    """
    with _turn:
        if _computed - {os.getpid()}:
            # OpenMP's threads do not survive a fork, and torch would wait for them forever.
            torch.set_num_threads(1)
        _computed.add(os.getpid())
        is_usual = torch.get_default_device().type == "cpu"
        before = torch.get_default_dtype()
        torch.set_default_dtype(torch.float32)
        try:
            with (
                # A device that is set, even the CPU, costs every operation some time.
                nullcontext() if is_usual else torch.device("cpu"),
                # With gradients, too.
                torch.inference_mode(False),
                torch.autocast("cpu", enabled=False),
                torch.autocast("cuda", enabled=False),
            ):
                yield
        finally:
            torch.set_default_dtype(before)


def settle(device: torch.device) -> None:
    """Wait for a GPU to be done."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def free_bytes(device: torch.device) -> int:
    """Memory of a GPU that nobody uses; what torch has set aside for itself and holds nothing counts as free."""
    free, _ = torch.cuda.mem_get_info(device)
    return free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)


def peak_memory(device: torch.device) -> int:
    """Bytes allocated on the GPU at most, or resident in this process."""
    if device.type == "cuda":
        return int(torch.cuda.max_memory_allocated(device))
    status = Path("/proc/self/status")
    for line in status.read_text(encoding="ascii").splitlines() if status.is_file() else ():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    # Where the system does not say: this counts what the process was before it became this program, too.
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
