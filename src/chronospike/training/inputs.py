"""From sampled trees to what the network reads: standardised features, and labels of neighbours if asked for."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from chronospike.data.attributes import AttributeEncoder
from chronospike.data.graph import DynamicGraph
from chronospike.data.preprocess import apply, block_statistics
from chronospike.nn.tree_features import TreeFeatures
from chronospike.rng import derive, derive_torch, signed, threshold
from chronospike.sampling.tree import NeighbourTree
from chronospike.training.device import free_bytes
from chronospike.training.host_table import HostTable

# Features up to this size are standardised once and kept; larger ones stay on disk and are read row by row.
RESIDENT_BYTES = 6 * 1024**3
# The part of a GPU's free memory that features may take; larger ones stay in host memory.
_GPU_SHARE = 0.6


def input_width(graph: DynamicGraph) -> int:
    """What `TreeInputs` of the graph would give for each node; 0 without features."""
    own = 0 if graph.features is None else AttributeEncoder.fit(graph.features, graph.columns).width
    return own + sum(int(made.shape[-1]) for made in graph.made_features)


class TreeInputs:
    """The features `[T, M, D]` of a tree: the nodes' own attributes, encoded column by column, then the made features.

    Each step of a made feature set is standardised over its whole node × feature block (the paper, appendix).

    Args:
        graph: with features.
        device: where the network is.
        dtype: float32, or float16 to halve what a GPU holds.
        table: `[T, N, D]`, or `[1, N, D]` for all steps, to be used as it is instead of the graph's features.
        encoder: of the attributes, from an earlier fit; by default it is fitted on this graph's.
        over_all: standardise over all nodes, as the paper does, and not only over those seen by each step. Nodes
            that are still to come then have a say.

    Attributes:
        encoder: of the attributes, if the graph has any.
        notes: what a user should be told of them, a sentence each.
    """

    def __init__(
        self,
        graph: DynamicGraph,
        device: torch.device,
        dtype: torch.dtype = torch.float32,
        table: Tensor | None = None,
        encoder: AttributeEncoder | None = None,
        over_all: bool = False,
    ) -> None:
        self.device = device
        self._block_numbers: dict[tuple[int, ...], Tensor] = {}
        self._table = table
        self.host: HostTable | None = None
        self.encoder: AttributeEncoder | None = None
        self.notes: list[str] = []
        if table is not None:
            self.width, self.static = table.shape[-1], len(table) == 1
            return
        graph.require(features=True)
        self._read_sources(graph, encoder, over_all)
        blocks = 1 if self.static else graph.num_steps
        size = blocks * graph.num_nodes * self.width * dtype.itemsize
        room = _GPU_SHARE * free_bytes(device) if device.type == "cuda" else RESIDENT_BYTES
        if size <= room:
            self._table = self._resident(device, dtype, blocks, graph.num_nodes)
        elif device.type == "cuda":
            degrees = graph.history.step_offsets[:, -1]
            on_host = self._resident(torch.device("cpu"), dtype, blocks, graph.num_nodes)
            self.host = HostTable(on_host, degrees, int(room) // 2, device)

    def _read_sources(self, graph: DynamicGraph, encoder: AttributeEncoder | None, over_all: bool) -> None:
        self._own, self._made, self._binding = graph.features, graph.made_features, None
        if self._own is not None:
            self.encoder = encoder or AttributeEncoder.fit(self._own, graph.columns)
            self._binding = self.encoder.bind(graph.columns, None if encoder is None else self._own)
            self.notes = self._binding.notes
        counted = None if over_all else graph.first_steps
        self._statistics = [block_statistics(made, counted) for made in self._made]
        own_width = 0 if self._binding is None else len(self._binding.start)
        self.width = own_width + sum(made.shape[-1] for made in self._made)
        self.static = not self._made and self._own is not None and self._own.ndim == 2

    def _rows_of(self, step: int, nodes: NDArray[Any] | slice) -> NDArray[np.float32]:
        """`[K, D]` what the network reads of `nodes` at `step`."""
        parts = []
        if self._own is not None and self._binding is not None:
            own = self._own if self._own.ndim == 2 else self._own[step]
            parts.append(self._binding.encode(own[nodes]))
        for made, (mean, std) in zip(self._made, self._statistics, strict=True):
            parts.append(apply(made[step][nodes], float(mean[step]), float(std[step])))
        return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)

    def _resident(self, device: torch.device, dtype: torch.dtype, blocks: int, nodes: int) -> Tensor:
        table = torch.empty((blocks, nodes, self.width), dtype=dtype, device=device)
        for step in range(blocks):
            table[step].copy_(torch.from_numpy(self._rows_of(step, slice(None))))
        return table

    @property
    def resident(self) -> bool:
        """Whether all features are in the device's memory."""
        return self._table is not None

    def rows(self, tree: NeighbourTree) -> TreeFeatures:
        """The features of a tree: by reference where they are in memory, else read from disk."""
        sizes = tuple(tree.hop(hop).shape[1] for hop in range(tree.num_hops + 1))
        steps = (0,) * len(tree.steps) if self.static else tree.steps
        if self.host is not None:
            return TreeFeatures(self.host.rows(tree.nodes, self._blocks_of(steps)), sizes)
        if self._table is None:
            return TreeFeatures(self._rows_from_disk(tree, steps), sizes)
        return TreeFeatures(self._table, sizes, tree.nodes, self._blocks_of(steps))

    def _blocks_of(self, steps: tuple[int, ...]) -> Tensor:
        # The same steps come with every batch; on a GPU a copy each time would wait for it.
        if steps not in self._block_numbers:
            self._block_numbers[steps] = torch.tensor(steps, device=self.device)
        return self._block_numbers[steps]

    def _rows_from_disk(self, tree: NeighbourTree, steps: tuple[int, ...]) -> Tensor:
        rows = np.empty((*tree.nodes.shape, self.width), dtype=np.float32)
        nodes = tree.nodes.cpu().numpy()
        for i, step in enumerate(steps):
            rows[i] = self._rows_of(step, nodes[i])
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
