"""What this machine can do at best: bytes copied and operations multiplied per second, measured."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

_COPY_BYTES = {"cpu": 1 << 28, "cuda": 1 << 30}
_PRODUCT_SIZE = {"cpu": 1536, "cuda": 8192}


@dataclass(frozen=True)
class Machine:
    """`bandwidth` in bytes per second, reads and writes counted alike; `rate` in operations per second."""

    bandwidth: float
    rate: float


def measure_machine(device: torch.device, half: bool = False, repeats: int = 5) -> Machine:
    """The best of a few copies and products; `half` is the precision the network's products are taken in."""
    values = torch.ones(_COPY_BYTES[device.type] // 4, device=device)
    target = torch.empty_like(values)
    copy = min(timings(lambda: target.copy_(values), device, repeats))
    size = _PRODUCT_SIZE[device.type]
    dtype = torch.float16 if half else torch.float32
    left = torch.ones(size, size, device=device, dtype=dtype)
    result = torch.empty_like(left)
    product = min(timings(lambda: torch.mm(left, left, out=result), device, repeats))
    return Machine(2 * values.numel() * 4 / copy, 2 * size**3 / product)


def timings(work: Callable[[], object], device: torch.device, repeats: int) -> list[float]:
    """Seconds of each of some runs, after one that does not count."""
    work()
    result = []
    for _ in range(repeats):
        settle(device)
        began = time.perf_counter()
        work()
        settle(device)
        result.append(time.perf_counter() - began)
    return result


def settle(device: torch.device) -> None:
    """Wait for a GPU to be done."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
