"""SpikeNet's own neighbour sampler, on the device in plain torch.

A node has two views of its neighbours at every step: all so far, and those of the step itself. In both it is a
neighbour of itself. Of a fan-out S, ⌊S p⌋ slots (at least one) draw from the first view and the rest from the second.
Rows are in the order of the node indices. For k slots and a row of D neighbours, the node itself counted:

    D <= k: every neighbour once, then k - D repeats drawn at random
    D > k:  Floyd's method, as the published program has it: for j = D - k … D - 1 draw r from 0 … j - 1 and take r,
            or j if r is taken. Floyd draws r from 0 … j.

So the first D - k neighbours of a row are met with probability k / (D - 1) and the last k with (k - 1) / (D - 1): a
single slot never meets the last one. That is the published behaviour, and scores depend on it. What differs is the
source of random numbers, which there is libc's `rand()`, never seeded. Here a draw is a function of (seed, purpose,
epoch, the root's id, step, slot): the tree of a root is the same in any batch and on any device.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from chronospike.data.csr import history_and_snapshot
from chronospike.data.graph import DynamicGraph
from chronospike.methods.step_graphs import StepGraphs, step_graphs
from chronospike.rng import below_torch, derive_torch, signed
from chronospike.sampling.hybrid import SamplingSettings
from chronospike.sampling.tree import NeighbourTree, widths
from chronospike.training.task import Nodes


def official_picks(words: Tensor, degree: Tensor) -> Tensor:
    """`[..., k]` which of `degree [...]` neighbours, the node itself counted, the `words [..., k]` choose."""
    count = words.shape[-1]
    has_few, picks = degree <= count, list[Tensor]()
    for slot in range(count):
        newest = degree - count + slot
        drawn = below_torch(words[..., slot], torch.where(has_few, degree, newest))
        is_taken = torch.zeros_like(has_few)
        for earlier in picks:
            is_taken |= drawn == earlier
        floyd = torch.where(is_taken, newest, drawn)
        picks.append(torch.where(has_few, torch.where(degree > slot, slot, drawn), floyd))
    return torch.stack(picks, dim=-1)


class View:
    """The rows of one view at all steps, on a device."""

    def __init__(self, graphs: StepGraphs, device: torch.device) -> None:
        def upload(array: NDArray[Any]) -> Tensor:
            return torch.from_numpy(np.array(array)).to(device)

        self._columns = graphs.num_steps + 1
        self._starts, self._offsets = upload(graphs.indptr[:-1]), upload(graphs.offsets.reshape(-1))
        # One more place at both ends: a pick is looked up together with the entry before it.
        self._entries = upload(np.pad(graphs.neighbours, 1))

    def draw(self, nodes: Tensor, steps: Tensor, words: Tensor) -> Tensor:
        """`[T, P, k]` neighbours of `nodes [T, P]` at `steps [T]`, drawn by `words [T, P, k]`."""
        cell = nodes * self._columns + steps[:, None]
        first, end = self._offsets[cell].long(), self._offsets[cell + 1].long()
        stored = end - first
        picks = official_picks(words, stored + 1)
        place = (self._starts[nodes] + first)[..., None] + picks
        # The row does not hold the node itself. Put where its index belongs, it moves those after it by one.
        node, before, at = nodes[..., None], self._entries[place], self._entries[place + 1]
        comes_later = (picks > 0) & (before > node)
        comes_earlier = (picks < stored[..., None]) & (at < node)
        return torch.where(comes_later, before, torch.where(comes_earlier, at, node))


class OfficialSampler:
    """Samples the trees of a batch at all steps; the direction of edges is left out.

    Args:
        settings: `history="inclusive"` and `mix="split"` are what this sampler does.
        device: where graph and trees lie.
    """

    def __init__(self, graph: DynamicGraph, settings: SamplingSettings, device: torch.device) -> None:
        self.settings, self._device, last = settings, device, graph.num_steps - 1
        self._cumulative = View(step_graphs(graph, last, "cumulative"), device)
        self._evolving = View(step_graphs(graph, last, "evolving"), device)
        self._node_keys = torch.from_numpy(np.array(graph.node_keys)).to(device)

    def sample(self, roots: Nodes, epoch: int, steps: Iterable[int], purpose: str = "sampler") -> NeighbourTree:
        """The tree of `roots [B]` at `steps`; nothing later than a step is read for it."""
        s, span = self.settings, tuple(steps)
        # A GPU need not wait for copies as small as these.
        step = torch.tensor(span).to(self._device, non_blocking=True)
        root = torch.from_numpy(roots.astype(np.int64)).to(self._device, non_blocking=True)
        key = torch.full((), signed(s.key(epoch, purpose)), device=self._device)
        # The stream of each root at each step, [T, B].
        keys = derive_torch(derive_torch(key, self._node_keys[root]), step[:, None])
        hops, base = [root.expand(len(span), -1)], 1
        for width, fanout, fixed in zip(widths(s.fanouts), s.fanouts, s.history_slots, strict=False):
            slots = base + torch.arange(width * fanout, device=self._device)
            words = derive_torch(keys[:, :, None], slots).view(len(span), -1, fanout)
            drawn = [self._cumulative.draw(hops[-1], step, words[..., :fixed])]
            if fixed < fanout:
                drawn.append(self._evolving.draw(hops[-1], step, words[..., fixed:]))
            hops.append(torch.cat(drawn, dim=-1).flatten(1))
            base += width * fanout
        return NeighbourTree(torch.cat(hops, dim=1), s.fanouts, span)


def sampler_bytes(graph: DynamicGraph) -> int:
    """What an `OfficialSampler` holds."""
    sides, nodes, steps = 2 if graph.directed else 1, graph.num_nodes, graph.num_steps
    cumulative = int(np.asarray(graph.history.step_offsets[:, 1:]).sum(dtype=np.int64))
    entries = sides * (cumulative + len(graph.snapshot.neighbours))
    return 4 * entries + 2 * 4 * nodes * (steps + 1) + 3 * 8 * nodes


def undirected(graph: DynamicGraph) -> DynamicGraph:
    """The same graph with every edge in both rows, for samplers that read rows alone."""
    if not graph.directed:
        return graph
    rows, steps, neighbours = graph.snapshot.entries()
    ends = np.append(rows, neighbours), np.append(neighbours, rows), np.append(steps, steps)
    history, snapshot = history_and_snapshot(*ends, graph.num_nodes, graph.num_steps)
    return replace(graph, history=history, snapshot=snapshot, directed=False)
