"""What all Triton kernels share: the random words of `chronospike.rng`, products, sums, launching on the right device.

Triton compiles a kernel again for numbers that are one or multiples of sixteen, unless told not to specialise them.
Most of ours do not gain by it, and a trial (`trial_error`) and all batches that follow, of any number of steps and
classes, then share what was compiled.

Import this module only where Triton is installed. With TRITON_INTERPRET=1 kernels run on the CPU, for tests.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Literal

import torch
import triton
import triton.language as tl
from triton.runtime.errors import OutOfResources

# The constants of chronospike.rng.
GOLDEN = tl.constexpr(0x9E3779B97F4A7C15)
_FIRST = tl.constexpr(0xBF58476D1CE4E5B9)
_SECOND = tl.constexpr(0x94D049BB133111EB)
# Parts and columns that a program takes at a time: many columns, or many parts where there are few columns.
_WIDE, _TALL = (32, 64), (256, 8)


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


@triton.jit
def product(a, b, HALF: tl.constexpr):  # type: ignore[no-untyped-def]
    """A product of float32 blocks, of TF32 operands if `HALF`: half precision would lose small gradients."""
    return tl.dot(a, b, input_precision="tf32") if HALF else tl.dot(a, b, input_precision="ieee")


def padded(size: int) -> int:
    """The next power of two; a product takes at least sixteen of everything."""
    return max(16, int(triton.next_power_of_2(size)))


def single(like: torch.Tensor, *shape: int) -> torch.Tensor:
    """A tensor in single precision, not filled, on the device of another."""
    return torch.empty(shape, dtype=torch.float32, device=like.device)


def on(device: torch.device) -> AbstractContextManager[Any]:
    """Triton launches on the current device, which need not be this one."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()


@triton.jit(do_not_specialize=["count"])
def _add_up_kernel(parts, total, count, size, PARTS: tl.constexpr, COLUMNS: tl.constexpr):  # type: ignore[no-untyped-def]
    """One block of columns of one group: `parts [groups, count, size]`."""
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    group = tl.program_id(1).to(tl.int64)
    inside = (column < size)[None, :]
    row = tl.arange(0, PARTS)
    sums = tl.zeros([PARTS, COLUMNS], dtype=tl.float32)
    for first in range(0, count, PARTS):
        place = (group * count + first + row)[:, None] * size + column[None, :]
        sums += tl.load(parts + place, mask=(first + row < count)[:, None] & inside, other=0.0)
    tl.store(total + group * size + column, tl.sum(sums, axis=0), mask=column < size)


def add_up(parts: torch.Tensor, dim: Literal[0, 1] = 0) -> torch.Tensor:
    """The sum of `parts [P, ...]` or `[G, P, ...]`, contiguous and in single precision, over dimension `dim`.

    Parts that many programs have left are added in one order, so that the result is the same in every run.
    """
    total = single(parts, *parts.shape[:dim], *parts.shape[dim + 1 :])
    if total.numel():
        groups = len(parts) if dim else 1
        size = total.numel() // groups
        rows, columns = _WIDE if size >= 128 * _WIDE[1] else _TALL
        with on(parts.device):
            _add_up_kernel[(triton.cdiv(size, columns), groups)](
                parts, total, parts.shape[dim], size, PARTS=rows, COLUMNS=columns
            )
    return total


def trial_error(what: str, device: torch.device, work: Callable[[], object]) -> str | None:
    """Why `work` does not run on this device, or None; a warning says so too. Generators are left as they were.

    A compiler or a GPU we have not seen may refuse a kernel. That one has too little room for a wide one is expected.
    """
    try:
        with torch.enable_grad(), torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            work()
    except OutOfResources:
        return "does not fit this GPU's registers and shared memory"
    except torch.OutOfMemoryError:
        raise
    except Exception as error:
        lines = str(error).strip().splitlines()
        reason = lines[0] if lines else type(error).__name__
        warnings.warn(
            f"{what} cannot be used here ({reason}); falling back to plain torch, which is slower", stacklevel=2
        )
        return reason
    return None


@triton.jit
def _smallest_kernel(x):  # type: ignore[no-untyped-def]
    tl.store(x, 1.0)


def launch_smallest(device: torch.device) -> None:
    """Compile and launch the smallest kernel there is."""
    with on(device):
        _smallest_kernel[(1,)](torch.zeros(1, device=device))
