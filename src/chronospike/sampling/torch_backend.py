"""The sampler in plain torch, for the CPU and for the GPU that holds the graph."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from chronospike import rng
from chronospike.data.csr import IntArray, TimeSlicedCSR
from chronospike.data.graph import DynamicGraph
from chronospike.sampling.settings import SamplingSettings


@dataclass(frozen=True)
class _View:
    """A time-sliced CSR as tensors, in the dtypes it is stored in."""

    indptr: torch.Tensor
    step_offsets: torch.Tensor
    neighbours: torch.Tensor

    @classmethod
    def of(cls, view: TimeSlicedCSR, device: torch.device) -> _View:
        # Masked lanes read neighbour 0, so there must be one.
        neighbours = view.neighbours if len(view.neighbours) else np.zeros(1, dtype=np.int32)
        return cls(*(_tensor(array, device) for array in (view.indptr, view.step_offsets, neighbours)))

    def offset(self, nodes: torch.Tensor, steps: torch.Tensor) -> torch.Tensor:
        """int64 count of the neighbours of `nodes` before `steps`; the two broadcast."""
        width = self.step_offsets.shape[1]
        return self.step_offsets.view(-1)[nodes * width + steps].long()


class TorchBackend:
    """Samples with whole-tensor operations; the only loops are over the hops and the slots of a fan-out.

    A hop is held as `[W, T, B]`, its W positions per root first, so that what depends on the position alone
    or on the root alone broadcasts over whole planes.
    """

    def __init__(self, graph: DynamicGraph, device: torch.device) -> None:
        self.history, self.snapshot = _View.of(graph.history, device), _View.of(graph.snapshot, device)
        self.keys = _tensor(graph.node_keys, device)
        self.device = device

    def sample(
        self, settings: SamplingSettings, key: int, roots: NDArray[np.int64], steps: NDArray[np.int64]
    ) -> torch.Tensor:
        """`[T, M]` int32 nodes of the tree."""
        root = torch.from_numpy(roots).to(self.device)
        step = torch.from_numpy(steps).to(self.device)[:, None]
        epoch_key = torch.tensor(rng.signed(key), device=self.device)
        keys = rng.derive_torch(rng.derive_torch(epoch_key, self.keys[root]), step)
        parents = root.expand(1, len(steps), -1)
        hops, slot = [parents], 1
        for fanout, history_slots in zip(settings.fanouts, settings.history_slots, strict=True):
            slots = torch.arange(slot, slot + len(parents) * fanout, device=self.device).view(-1, fanout).T
            words = rng.derive_torch(keys, slots[..., None, None])
            if history_slots >= 0:
                views = (_column(fanout, self.device) < history_slots).expand_as(words)
            else:
                views = rng.chance_torch(words, settings.threshold)
            parents = self._neighbours(settings, parents, step, words, views)
            hops.append(parents)
            slot += len(parents)
        return torch.cat([hop.permute(1, 2, 0).flatten(1).int() for hop in hops], dim=1)

    def _neighbours(
        self,
        settings: SamplingSettings,
        parents: torch.Tensor,
        step: torch.Tensor,
        words: torch.Tensor,
        views: torch.Tensor,
    ) -> torch.Tensor:
        """`[W·S, T, B]` neighbours of `parents [W, T, B]`.

        Args:
            step: `[T, 1]`.
            words: `[S, W, T, B]` the random word of each slot.
            views: `[S, W, T, B]` True where the slot takes the history.
        """
        earlier = self.snapshot.offset(parents, step)
        known = self.history.offset(parents, step + settings.lag)
        active = self.snapshot.offset(parents, step + 1) - earlier
        history_row = self.history.indptr[parents].long()
        snapshot_row = self.snapshot.indptr[parents] + earlier
        # The node itself is the last neighbour in either view, at the index after the stored ones.
        stored = torch.where(views, known, active)
        picks = rng.below_torch(words, stored + 1) if settings.replace else _distinct(words, views, stored + 1)
        itself = picks == stored
        of_history = (history_row + picks).masked_fill_(itself | ~views, 0)
        of_snapshot = (snapshot_row + picks).masked_fill_(itself | views, 0)
        sampled = torch.where(views, self.history.neighbours[of_history], self.snapshot.neighbours[of_snapshot])
        return torch.where(itself, parents, sampled).transpose(0, 1).flatten(0, 1)


def _distinct(words: torch.Tensor, views: torch.Tensor, degree: torch.Tensor) -> torch.Tensor:
    """`[S, W, T, B]` index of a neighbour in the view of each slot, repeating none that need not be repeated.

    The slots of one view share its `degree` neighbours: if there are no more of them than slots, each comes once
    and the slots left over draw freely; otherwise Floyd's algorithm draws one subset.
    """
    fanout = len(words)
    through = views.cumsum(0)
    # `rank` counts the slots before each one, of `slots` in all, that take the same view.
    rank = torch.where(views, through - 1, _column(fanout, words.device) - through)
    slots = torch.where(views, through[-1], fanout - through[-1])
    few = degree <= slots
    newest = degree - slots + rank
    drawn = rng.below_torch(words, torch.where(few, degree, newest + 1))
    picks = torch.where(few & (rank < degree), rank, drawn)
    # A tag tells the picks of the two views apart. Each draw admits one index more than the one before, and a
    # repeat becomes the newly admitted index.
    tags, fallback = 2 * picks + views, 2 * newest + views
    for j in range(1, fanout):
        repeat = (tags[:j] == tags[j]).any(0) & ~few[j]
        tags[j] = torch.where(repeat, fallback[j], tags[j])
    return tags >> 1


def _column(count: int, device: torch.device) -> torch.Tensor:
    """0, 1, … along the first of four dimensions."""
    return torch.arange(count, device=device)[:, None, None, None]


def _tensor(array: IntArray, device: torch.device) -> torch.Tensor:
    """The array on the device; on the CPU it shares the memory, mapped read-only or not."""
    with warnings.catch_warnings():
        # Nothing here writes to the graph.
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.from_numpy(np.ascontiguousarray(array)).to(device)
