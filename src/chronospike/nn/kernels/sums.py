"""Adding up the parts that many programs have left, in one order, so that the result is the same in every run.

Import this module only where Triton is installed. With TRITON_INTERPRET=1 it runs on the CPU, for tests.
"""

from __future__ import annotations

from typing import Literal

import torch
import triton
import triton.language as tl
from torch import Tensor

from chronospike.triton_common import on

# Parts and columns that a program takes at a time: many columns, or many parts where there are few columns.
_WIDE, _TALL = (32, 64), (256, 8)


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


def add_up(parts: Tensor, dim: Literal[0, 1] = 0) -> Tensor:
    """The sum of `parts [P, ...]` or `[G, P, ...]`, contiguous and in single precision, over dimension `dim`."""
    total = torch.empty((*parts.shape[:dim], *parts.shape[dim + 1 :]), dtype=torch.float32, device=parts.device)
    if total.numel():
        groups = len(parts) if dim else 1
        size = total.numel() // groups
        rows, columns = _WIDE if size >= 128 * _WIDE[1] else _TALL
        with on(parts.device):
            _add_up_kernel[(triton.cdiv(size, columns), groups)](
                parts, total, parts.shape[dim], size, PARTS=rows, COLUMNS=columns
            )
    return total
