"""From sampled trees to the network's inputs: features by reference, and labels of neighbours if asked for."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from chronospike.device import free_bytes
from chronospike.methods.chronospike.host_table import HostTable
from chronospike.nn.dispatch import Implementation
from chronospike.nn.tree_features import TreeFeatures
from chronospike.rng import derive_torch, signed, stream, threshold
from chronospike.sampling.tree import NeighbourTree
from chronospike.training.node_features import NodeFeatures

# Features up to this size are encoded once and kept; larger ones stay on disk and are read row by row.
RESIDENT_BYTES = 6 * 1024**3
# The part of a GPU's free memory that features may take; larger ones stay in host memory.
_GPU_SHARE = 0.6


class TreeInputs:
    """The features `[T, M, D]` of a tree.

    Args:
        features: of all nodes.
        degrees: `[N]`, how often each node is likely to be met.
        device: where the network is.
        dtype: float32, or float16 to halve what a GPU holds.
    """

    host: HostTable | None
    _table: Tensor | None
    _block_numbers: dict[tuple[int, ...], Tensor]

    def __init__(
        self, features: NodeFeatures, degrees: NDArray[Any], device: torch.device, dtype: torch.dtype = torch.float32
    ) -> None:
        self._prepare(features.width, features.static, device, features)
        size = features.blocks * features.num_nodes * features.width * dtype.itemsize
        room = _GPU_SHARE * free_bytes(device) if device.type == "cuda" else RESIDENT_BYTES
        if size <= room:
            self._table = features.table(device, dtype)
        elif device.type == "cuda":
            on_host = features.table(torch.device("cpu"), dtype)
            self.host = HostTable(on_host, degrees, int(room) // 2, device)

    @classmethod
    def of_table(cls, table: Tensor) -> TreeInputs:
        """Of a table `[T, N, D]`, or `[1, N, D]` for all steps, to be used as it is."""
        inputs = cls.__new__(cls)
        inputs._prepare(table.shape[-1], len(table) == 1, table.device)
        inputs._table = table
        return inputs

    def _prepare(self, width: int, static: bool, device: torch.device, features: NodeFeatures | None = None) -> None:
        self.width, self.static, self.device = width, static, device
        self._features, self.host, self._table = features, None, None
        self._block_numbers = {}

    @property
    def resident(self) -> bool:
        """Whether all features are in the device's memory."""
        return self._table is not None

    def rows(self, tree: NeighbourTree, fetch: Implementation = "plain") -> TreeFeatures:
        """The features of a tree: by reference where they are in memory, else fetched from the host's or from disk."""
        sizes = tuple(tree.hop(hop).shape[1] for hop in range(tree.num_hops + 1))
        steps = (0,) * len(tree.steps) if self.static else tree.steps
        if self.host is not None:
            return TreeFeatures(self.host.rows(tree.nodes, self._blocks_of(steps), fetch), sizes)
        if self._table is None:
            return TreeFeatures(self._rows_from_disk(tree, steps), sizes)
        return TreeFeatures(self._table, sizes, tree.nodes, self._blocks_of(steps))

    def _blocks_of(self, steps: tuple[int, ...]) -> Tensor:
        # The same steps come with every batch; on a GPU a copy each time would wait for it.
        if steps not in self._block_numbers:
            self._block_numbers[steps] = torch.tensor(steps, device=self.device)
        return self._block_numbers[steps]

    def _rows_from_disk(self, tree: NeighbourTree, steps: tuple[int, ...]) -> Tensor:
        assert self._features is not None
        rows = np.empty((*tree.nodes.shape, self.width), dtype=np.float32)
        nodes = tree.nodes.cpu().numpy()
        for i, step in enumerate(steps):
            rows[i] = self._features.at(step, nodes[i])
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
        return signed(stream(self.seed, "label mask", epoch))

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
