"""Rows of a table in host memory, read by the GPU itself over the bus; those of a few nodes from its own memory.

Import this module only where Triton is installed. With TRITON_INTERPRET=1 it runs on the CPU, for tests.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from chronospike.triton_common import on

_ROWS = 32


# Not specialised: see `chronospike.triton_common`.
@triton.jit(do_not_specialize=["count", "hot_count", "columns", "rows"])
def _fetch_kernel(  # type: ignore[no-untyped-def]
    host, hot, slots, nodes, blocks, out, count, hot_count, columns, rows,
    WIDTH: tl.constexpr, ROWS: tl.constexpr, BD: tl.constexpr,
):  # fmt: skip
    r = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    inside = r < rows
    block = tl.load(blocks + r // columns, mask=inside, other=0)
    node = tl.load(nodes + r, mask=inside, other=0).to(tl.int64)
    slot = tl.load(slots + node, mask=inside, other=-1).to(tl.int64)
    d = tl.arange(0, BD)
    column = (d < WIDTH)[None, :]
    is_hot = inside & (slot >= 0)
    near = tl.load(
        hot + (block * hot_count + slot)[:, None] * WIDTH + d[None, :], mask=is_hot[:, None] & column, other=0.0
    )
    far = tl.load(
        host + (block * count + node)[:, None] * WIDTH + d[None, :],
        mask=(inside & (slot < 0))[:, None] & column, other=0.0,
    )  # fmt: skip
    value = tl.where(is_hot[:, None], near, far)
    tl.store(out + r[:, None] * WIDTH + d[None, :], value, mask=inside[:, None] & column)


def fetch(host: Tensor, hot: Tensor, slots: Tensor, nodes: Tensor, blocks: Tensor) -> Tensor:
    """`[T, M, D]` the features of `nodes [T, M]`, step t from block `blocks[t]`, where the nodes are.

    Args:
        host: `[K, N, D]` in memory that the device can read.
        hot: `[K, L, D]` the rows of L nodes, on the device.
        slots: `[N]` int32, the place of a node in `hot`, or -1.
    """
    out = torch.empty((*nodes.shape, host.shape[-1]), dtype=host.dtype, device=nodes.device)
    if nodes.numel():
        with on(nodes.device):
            _fetch_kernel[(triton.cdiv(nodes.numel(), _ROWS),)](
                host, hot, slots, nodes, blocks, out, host.shape[1], hot.shape[1], nodes.shape[1], nodes.numel(),
                WIDTH=host.shape[-1], ROWS=_ROWS, BD=triton.next_power_of_2(host.shape[-1]),
            )  # fmt: skip
    return out
