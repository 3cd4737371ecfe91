"""The input features of nodes: own attributes, encoded column by column, then computed features, standardised."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from chronospike.data.attributes import AttributeEncoder
from chronospike.data.graph import DynamicGraph
from chronospike.data.neighbour_means import neighbour_means
from chronospike.data.preprocess import apply, block_statistics


def input_width(graph: DynamicGraph) -> int:
    """What `NodeFeatures` of the graph would give for each node; 0 without features."""
    own = 0 if graph.features is None else AttributeEncoder.fit(graph.features, graph.columns).width
    return own + sum(int(made.shape[-1]) for made in graph.made_features)


def is_static(graph: DynamicGraph) -> bool:
    """Whether `NodeFeatures` of the graph are the same at all steps."""
    return graph.features is not None and graph.features.ndim == 2 and not graph.made_features


class NodeFeatures:
    """The features of all nodes at all steps, read where they lie (in memory or on disk) and encoded on the way.

    Each step of a made feature set is standardised over its whole node × feature block (the paper, appendix).

    Args:
        graph: with features.
        encoder: of the attributes, from an earlier fit; by default it is fitted on this graph's.
        over_all: standardise over all nodes, as the paper does, and not only over those seen by each step. Nodes
            that are still to come then have a say.

    Attributes:
        width: values per node; `own_width` of them are own attributes.
        static: whether all steps are the same.
        encoder: of the attributes, if the graph has any.
        notes: what a user should be told of them, a sentence each.
    """

    def __init__(self, graph: DynamicGraph, encoder: AttributeEncoder | None = None, over_all: bool = False) -> None:
        graph.require(features=True)
        self.num_nodes, self.num_steps = graph.num_nodes, graph.num_steps
        self._graph = graph
        self._own, self._made, self._binding = graph.features, graph.made_features, None
        self.encoder: AttributeEncoder | None = None
        self.notes: list[str] = []
        if self._own is not None:
            self.encoder = encoder or AttributeEncoder.fit(self._own, graph.columns)
            self._binding = self.encoder.bind(graph.columns, None if encoder is None else self._own)
            self.notes = self._binding.notes
        counted = None if over_all else graph.first_steps
        self._statistics = [block_statistics(made, counted) for made in self._made]
        self.own_width = 0 if self._binding is None else len(self._binding.start)
        self.width = self.own_width + sum(int(made.shape[-1]) for made in self._made)
        self.static = not self._made and self._own is not None and self._own.ndim == 2

    @property
    def blocks(self) -> int:
        """How many steps differ: 1 where all are the same."""
        return 1 if self.static else self.num_steps

    def own(self, step: int, nodes: NDArray[Any] | slice = slice(None)) -> NDArray[np.float32] | None:
        """`[K, d]` the attributes of `nodes` at `step`, encoded; None if there are none."""
        if self._own is None or self._binding is None:
            return None
        return self._binding.encode((self._own if self._own.ndim == 2 else self._own[step])[nodes])

    def own_of_neighbours(self, step: int, nodes: NDArray[Any]) -> NDArray[np.float32] | None:
        """The means of `own` over the neighbours of `nodes` up to `step`: see `neighbour_means`."""
        if self._own is None:
            return None

        def encoded(neighbours: NDArray[Any]) -> NDArray[np.float32]:
            found = self.own(step, neighbours)
            assert found is not None
            return found

        return neighbour_means(self._graph, step, nodes, encoded)

    def at(self, step: int, nodes: NDArray[Any] | slice = slice(None)) -> NDArray[np.float32]:
        """`[K, D]` of `nodes`, by default all, at `step`."""
        own = self.own(step, nodes)
        parts = [] if own is None else [own]
        for made, (mean, std) in zip(self._made, self._statistics, strict=True):
            parts.append(apply(made[step][nodes], float(mean[step]), float(std[step])))
        return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)

    def table(self, device: torch.device, dtype: torch.dtype = torch.float32, width: int | None = None) -> Tensor:
        """`[blocks, N, D]` on a device; rows that are to be wider are filled up with zeros."""
        shape = (self.blocks, self.num_nodes, width or self.width)
        table = (torch.empty if shape[2] == self.width else torch.zeros)(shape, dtype=dtype, device=device)
        for step in range(self.blocks):
            table[step, :, : self.width].copy_(torch.from_numpy(self.at(step)))
        return table
