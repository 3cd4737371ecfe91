"""Diffusing the labels of all folds at once on a GPU: the Triton form of `label_kernel`.

Import this module only where Triton is installed. With TRITON_INTERPRET=1 it runs on the CPU, for tests.
"""

from __future__ import annotations

import numpy as np
import torch
import triton
import triton.language as tl
from numpy.typing import NDArray

from chronospike.data.label_propagation import Operator
from chronospike.triton_common import on

_MOST_COLUMNS = 256


@triton.jit(do_not_specialize=["rows", "width"])
def _spread_kernel(  # type: ignore[no-untyped-def]
    indptr, indices, weights, values, out, sums, shares, rows, width, SUMS: tl.constexpr, COLUMNS: tl.constexpr
):
    """A block of columns of one row; its entries are added up in their order."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside = column < width
    total = tl.zeros([COLUMNS], dtype=tl.float32)
    for entry in range(tl.load(indptr + row), tl.load(indptr + row + 1)):
        neighbour = tl.load(indices + entry).to(tl.int64)
        total += tl.load(weights + entry) * tl.load(values + neighbour * width + column, mask=inside, other=0.0)
    tl.store(out + row * width + column, total, mask=inside)
    for k in tl.static_range(SUMS):
        share = tl.load(shares + k)
        if share != 0:
            place = sums + (k * rows + row) * width + column
            tl.store(place, tl.load(place, mask=inside, other=0.0) + share * total, mask=inside)


def spread_on_gpu(
    operator: Operator, values: NDArray[np.float32], coefficients: NDArray[np.float32], device: torch.device
) -> NDArray[np.float32]:
    """See `chronospike.data.label_features.spread`."""
    indptr, indices, weights = (
        torch.from_numpy(array).to(device)
        for array in (operator.indptr.astype(np.int64), operator.indices, operator.data.astype(np.float32))
    )
    now, shares = torch.from_numpy(values).to(device), torch.from_numpy(coefficients.T.copy()).to(device)
    following = torch.empty_like(now)
    sums = shares[0][:, None, None] * now
    rows, width = now.shape
    columns = min(_MOST_COLUMNS, triton.next_power_of_2(width))
    with on(device):
        for of_round in shares[1:]:
            _spread_kernel[(rows, triton.cdiv(width, columns))](
                indptr, indices, weights, now, following, sums, of_round, rows, width,
                SUMS=len(coefficients), COLUMNS=columns,
            )  # fmt: skip
            now, following = following, now
    found: NDArray[np.float32] = sums.cpu().numpy()
    return found
