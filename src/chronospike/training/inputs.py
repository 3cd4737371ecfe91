"""From sampled trees to what the network reads: standardised features, and labels of neighbours if asked for."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from chronospike.data.graph import DynamicGraph
from chronospike.data.preprocess import apply, block_statistics
from chronospike.nn.rows import TreeRows
from chronospike.rng import derive, derive_torch, signed, threshold
from chronospike.sampling.tree import NeighbourTree
from chronospike.training.device import free_bytes
from chronospike.training.host_table import HostTable

# Features up to this size are standardised once and kept; larger ones stay on disk and are read row by row.
RESIDENT_BYTES = 6 * 1024**3
# The part of a GPU's free memory that features may take; larger ones stay in host memory.
_GPU_SHARE = 0.6


class TreeInputs:
    """The features `[T, M, D]` of a tree.

    Each step is standardised over its whole node × feature block.

    Args:
        graph: with features.
        device: where the network is.
        dtype: float32, or float16 to halve what a GPU holds.
        table: `[T, N, D]`, or `[1, N, D]` for all steps, to be used as it is instead of the graph's features.
    """

    def __init__(
        self,
        graph: DynamicGraph,
        device: torch.device,
        dtype: torch.dtype = torch.float32,
        table: Tensor | None = None,
    ) -> None:
        self.device = device
        self._block_numbers: dict[tuple[int, ...], Tensor] = {}
        self._table = table
        self.host: HostTable | None = None
        if table is not None:
            self.width, self.static = table.shape[-1], len(table) == 1
            return
        graph.require(features=True)
        assert graph.features is not None
        self.width = graph.num_features
        self.static = graph.features.ndim == 2
        self._blocks = graph.features[None] if self.static else graph.features
        self._mean, self._std = block_statistics(self._blocks)
        size = self._blocks.size * dtype.itemsize
        room = _GPU_SHARE * free_bytes(device) if device.type == "cuda" else RESIDENT_BYTES
        if size <= room:
            self._table = self._standardised(device, dtype)
        elif device.type == "cuda":
            degrees = graph.history.step_offsets[:, -1]
            self.host = HostTable(self._standardised(torch.device("cpu"), dtype), degrees, int(room) // 2, device)

    def _standardised(self, device: torch.device, dtype: torch.dtype) -> Tensor:
        table = torch.empty(self._blocks.shape, dtype=dtype, device=device)
        for step, block in enumerate(self._blocks):
            rows = apply(block, float(self._mean[step]), float(self._std[step]))
            table[step].copy_(torch.from_numpy(rows))
        return table

    @property
    def resident(self) -> bool:
        """Whether all features are in the device's memory."""
        return self._table is not None

    def rows(self, tree: NeighbourTree) -> TreeRows:
        """The features of a tree: by reference where they are in memory, else read from disk."""
        sizes = tuple(tree.hop(hop).shape[1] for hop in range(tree.num_hops + 1))
        steps = (0,) * len(tree.steps) if self.static else tree.steps
        if self.host is not None:
            return TreeRows(self.host.rows(tree.nodes, self._blocks_of(steps)), sizes)
        if self._table is None:
            return TreeRows(self._rows_from_disk(tree, steps), sizes)
        return TreeRows(self._table, sizes, tree.nodes, self._blocks_of(steps))

    def _blocks_of(self, steps: tuple[int, ...]) -> Tensor:
        # The same steps come with every batch; on a GPU a copy each time would wait for it.
        if steps not in self._block_numbers:
            self._block_numbers[steps] = torch.tensor(steps, device=self.device)
        return self._block_numbers[steps]

    def _rows_from_disk(self, tree: NeighbourTree, steps: tuple[int, ...]) -> Tensor:
        rows = np.empty((*tree.nodes.shape, self.width), dtype=np.float32)
        nodes = tree.nodes.cpu().numpy()
        for i, step in enumerate(steps):
            apply(self._blocks[step][nodes[i]], float(self._mean[step]), float(self._std[step]), rows[i])
        return torch.from_numpy(rows).to(self.device)


class LabelInputs:
    """Training labels of the sampled nodes as C further channels, one-hot; zero where a label is hidden.

    A node must never see its own label: every occurrence of a root in its own tree is hidden, always. In
    training the labels of all roots of the batch are hidden too, and a random share of the others, so that the
    network learns to do without.
    """

    def __init__(
        self, labels: NDArray[np.int64], train: NDArray[Any], classes: int, mask: float, seed: int, device: torch.device
    ) -> None:
        known = np.full(len(labels), classes, dtype=np.int64)
        known[train] = labels[train]
        self.classes = classes
        self.mask = threshold(mask)
        self.seed = seed
        self._known = torch.from_numpy(known).to(device)
        self._one_hot = torch.eye(classes + 1, classes, device=device)

    def channels(self, tree: NeighbourTree, epoch: int | None) -> list[Tensor]:
        """`[T, n, C]` for each hop. `epoch` is None at inference, where only a root's own label is hidden."""
        key = None if epoch is None else torch.tensor([self.epoch_key(epoch)], device=self._known.device)
        return self.channels_for(tree, key)

    def epoch_key(self, epoch: int) -> int:
        """Decides which labels are hidden in an epoch; as int64."""
        return signed(derive(derive(self.seed, 0x1ABE1), epoch))

    def channels_for(self, tree: NeighbourTree, key: Tensor | None) -> list[Tensor]:
        """The same for an epoch's key `[1]` on the device."""
        known = self._known
        roots = tree.hop(0)[0].long()
        if key is not None:
            word = derive_torch(key, torch.arange(len(known), device=known.device))
            hidden = (word & (2**32 - 1)) < self.mask
            known = known.masked_fill(hidden.index_fill(0, roots, True), self.classes)
        result = []
        for hop in range(tree.num_hops + 1):
            nodes = tree.hop(hop).long()
            own = roots.repeat_interleave(nodes.shape[1] // len(roots))
            result.append(self._one_hot[known[nodes].masked_fill(nodes == own, self.classes)])
        return result
