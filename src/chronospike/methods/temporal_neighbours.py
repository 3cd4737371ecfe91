"""Sampled neighbours of nodes as of a time, for attention over several hops.

A *target* is a node at a step of query. It knows the events strictly before that step, which are a prefix of its row in
the time-sliced CSR. A neighbour that was met at step t is a target with the query t in its turn.

What is drawn for a target is a function of the key, the layer, the node's id and the length of its history. Targets
that are met several times in a batch are computed once, and what is drawn does not depend on the rest of the batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from chronospike.data.graph import DynamicGraph
from chronospike.methods.step_graphs import step_graphs
from chronospike.rng import below_torch, derive, derive_torch, signed


class Targets(NamedTuple):
    """U nodes and the steps they are queried at, both `[U]`."""

    nodes: Tensor
    queries: Tensor


class SampledEvents(NamedTuple):
    """n events of each of U targets; all `[U, n]`.

    Attributes:
        nodes, steps: whom the target met, and when; 0 where there is no event.
        present: whether there is one.
    """

    nodes: Tensor
    steps: Tensor
    present: Tensor


class Hop(NamedTuple):
    """What a layer reads for U targets, as rows of what the layer before it gave (of the features, for the first).

    Attributes:
        own: `[U]` rows of the targets themselves.
        neighbours: `[U, n]` rows of those they met.
        gaps: `[U, n]` steps from the event to the query, at least 1; 0 where there is no event.
        present: `[U, n]` whether there is an event.
    """

    own: Tensor
    neighbours: Tensor
    gaps: Tensor
    present: Tensor

    def parts(self, size: int) -> Iterator[Hop]:
        """Pieces of exactly `size` targets, the last one filled up with targets that have met nobody."""
        missing = -len(self.own) % size
        filled = (torch.cat([field, field.new_zeros(missing, *field.shape[1:])]) for field in self)
        return (Hop(*fields) for fields in zip(*(field.split(size) for field in filled), strict=True))


class Neighbourhood(NamedTuple):
    """The hops of a batch, the layer nearest to the features first.

    Attributes:
        offsets: gaps are smaller than this.
    """

    hops: tuple[Hop, ...]
    offsets: int


class TemporalNeighbours:
    """The events of a graph in the memory of a device; the direction of edges is left out.

    Attributes:
        num_nodes, num_steps: of the graph.
    """

    def __init__(self, graph: DynamicGraph, device: torch.device) -> None:
        def upload(array: NDArray[Any]) -> Tensor:
            return torch.from_numpy(np.array(array)).to(device)

        graphs = step_graphs(graph, graph.num_steps - 1)
        self.num_nodes, self.num_steps, self._device = graphs.num_nodes, graphs.num_steps, device
        per_step = np.diff(graphs.offsets, axis=1).reshape(-1)
        steps = np.repeat(np.tile(np.arange(graphs.num_steps, dtype=np.int32), graphs.num_nodes), per_step)
        # One more place, to point at where there is no event.
        self._nodes, self._steps = (upload(np.append(x, np.int32(0))) for x in (graphs.neighbours, steps))
        self._starts, self._lengths = upload(graphs.indptr[:-1]), upload(graphs.offsets)
        self._node_keys = upload(graph.node_keys)

    def sample(self, targets: Targets, count: int, key: int, recent: bool) -> SampledEvents:
        """`count` events before each query: drawn with replacement, or the last ones, the latest first."""
        length = self._lengths[targets.nodes, targets.queries].long()[:, None]
        slots = torch.arange(count, device=self._device)
        if recent:
            position, present = length - 1 - slots, slots < length
        else:
            own = derive_torch(torch.tensor(signed(key), device=self._device), self._node_keys[targets.nodes])
            words = derive_torch(derive_torch(own[:, None], length), slots)
            position = below_torch(words, length)
            present = (length > 0).expand(-1, count)
        place = torch.where(present, self._starts[targets.nodes][:, None] + position, len(self._nodes) - 1)
        return SampledEvents(self._nodes[place].long(), self._steps[place].long(), present)

    def hops(
        self, roots: Tensor, last_step: int, layers: int, count: int, key: int, recent: bool = False,
        static: bool = False,
    ) -> Neighbourhood:  # fmt: skip
        """What `layers` layers read for `roots [B]`, which know everything up to `last_step`.

        The first reads rows of the features `[T N, F]`, step after step, or `[N, F]` if `static`. Those of a neighbour
        are of the step at which it was met, those of a root of the last.
        """
        targets, found = Targets(roots, torch.full_like(roots, last_step + 1)), []
        for layer in range(layers, 0, -1):
            events = self.sample(targets, count, derive(key, layer), recent)
            nodes = torch.cat([targets.nodes, events.nodes.flatten()])
            queries = torch.cat([targets.queries, events.steps.flatten()])
            if layer == 1:
                rows = nodes if static else queries.clamp(max=last_step) * self.num_nodes + nodes
            else:
                # Each target once, in the order of the nodes.
                unique, rows = torch.unique(nodes * (last_step + 2) + queries, return_inverse=True)
            gaps = torch.where(events.present, targets.queries[:, None] - events.steps, 0)
            own, neighbours = rows[: len(gaps)], rows[len(gaps) :].view_as(gaps)
            found.append(Hop(own, neighbours, gaps, events.present))
            if layer > 1:
                targets = Targets(unique // (last_step + 2), unique % (last_step + 2))
        return Neighbourhood(tuple(reversed(found)), last_step + 2)
