"""Adding up the parts that many programs have left, in one order, so that the result is the same in every run.

Import this module only where Triton is installed. With TRITON_INTERPRET=1 it runs on the CPU, for tests.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from chronospike.triton_common import on

_PARTS, _COLUMNS = 32, 64


@triton.jit
def _add_up_kernel(parts, total, count, size, PARTS: tl.constexpr, COLUMNS: tl.constexpr):  # type: ignore[no-untyped-def]
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    inside = (column < size)[None, :]
    row = tl.arange(0, PARTS)
    sums = tl.zeros([PARTS, COLUMNS], dtype=tl.float32)
    for first in range(0, count, PARTS):
        place = (first + row).to(tl.int64)[:, None] * size + column[None, :]
        sums += tl.load(parts + place, mask=(first + row < count)[:, None] & inside, other=0.0)
    tl.store(total + column, tl.sum(sums, axis=0), mask=column < size)


def add_up(parts: Tensor) -> Tensor:
    """The sum of `parts [P, ...]`, contiguous and in single precision, over the first dimension."""
    total = torch.empty(parts.shape[1:], dtype=torch.float32, device=parts.device)
    if total.numel():
        with on(parts.device):
            _add_up_kernel[(triton.cdiv(total.numel(), _COLUMNS),)](
                parts, total, len(parts), total.numel(), PARTS=_PARTS, COLUMNS=_COLUMNS
            )
    return total
