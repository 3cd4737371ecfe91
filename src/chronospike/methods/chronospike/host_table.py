"""Features that do not fit the GPU: they stay in host memory, with the most requested rows on the GPU.

The GPU reads single rows over the bus, so a batch costs what it uses and not the whole table. A sampled neighbour is
met in proportion to its degree, so the most connected nodes are the ones worth keeping.
"""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from chronospike.errors import ChronoSpikeError
from chronospike.nn.dispatch import Implementation


class HostTable:
    """`[K, N, D]` features in host memory, for a network on `device`.

    Args:
        table: on the CPU; it is locked in memory while this object lives.
        degrees: `[N]`, how often each node is likely to be met.
        hot_bytes: memory of the device for the rows of the most connected nodes.
    """

    def __init__(self, table: Tensor, degrees: NDArray[Any], hot_bytes: int, device: torch.device) -> None:
        self.table = table
        self.device = device
        blocks, nodes, width = table.shape
        self.hot_nodes = min(nodes, hot_bytes // max(1, blocks * width * table.element_size()))
        chosen = np.argsort(-degrees, kind="stable")[: self.hot_nodes].copy()
        self._hot = table[:, torch.from_numpy(chosen)].to(device)
        slots = torch.full((nodes,), -1, dtype=torch.int32)
        slots[torch.from_numpy(chosen)] = torch.arange(self.hot_nodes, dtype=torch.int32)
        self._slots = slots.to(device)
        if device.type == "cuda":
            _lock(self, table)

    def rows(self, nodes: Tensor, blocks: Tensor, implementation: Implementation = "plain") -> Tensor:
        """`[T, M, D]` on the device for `nodes [T, M]`, step t from block `blocks[t]`.

        With `"triton"` the GPU reads them itself; else they are gathered by the CPU and copied.
        """
        if implementation == "triton":
            from chronospike.nn.kernels.fetch import fetch

            return fetch(self.table, self._hot, self._slots, nodes, blocks)
        where = nodes.cpu().long() + blocks.cpu().unsqueeze(1) * self.table.shape[1]
        return self.table.flatten(0, 1)[where].to(self.device)

    def describe(self) -> str:
        """What a user is told."""
        size = self.table.numel() * self.table.element_size() / 1e9
        return (
            f"the features ({size:.1f} GB) do not fit the GPU and stay in host memory; "
            f"the rows of the {self.hot_nodes:,} most connected nodes are kept on the GPU"
        )


def _lock(owner: HostTable, table: Tensor) -> None:
    """Let the GPU read `table` where it is, until `owner` is gone."""
    # Not torch's pinned memory, which is handed out in powers of two.
    runtime: Any = torch.cuda.cudart()
    status = runtime.cudaHostRegister(table.data_ptr(), table.numel() * table.element_size(), 0)
    if int(status) != 0:
        raise ChronoSpikeError(
            f"the features ({table.numel() * table.element_size() / 1e9:.1f} GB) fit neither the GPU nor page-locked "
            f"host memory (CUDA error {int(status)}). Run with --device cpu"
        )
    weakref.finalize(owner, runtime.cudaHostUnregister, table.data_ptr())
