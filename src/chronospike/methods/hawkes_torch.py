"""What HTNE and M2DNE share in torch, for GPUs: the nodes of records, and `hawkes_kernels` for many records at once."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from numpy.typing import NDArray
from torch import Tensor

from chronospike.features.noise import NoiseTable
from chronospike.methods.event_history import EventRecords
from chronospike.rng import below_torch, derive_torch, signed

_SMALL = 1e-6
_LOW_31 = 2**31 - 1


class TensorSlots(NamedTuple):
    """The nodes of B records on a device; see `hawkes_kernels.fill_slots`, S sides and h neighbours.

    Attributes:
        nodes: `[B, 2 + S K + S h]`.
        gaps: `[B, S, h]` time since each neighbour was met.
        present: `[B, S, h]` 1 for a neighbour that is real, 0 for one that stands for none.
        moments: `[B]` index of each record's time.
    """

    nodes: Tensor
    gaps: Tensor
    present: Tensor
    moments: Tensor

    def part(self, low: int, high: int) -> TensorSlots:
        return TensorSlots(*(tensor[low:high] for tensor in self))


class DeviceRecords:
    """Records and noise in the memory of a device, with the draws of the compiled functions."""

    def __init__(self, records: EventRecords, noise: NoiseTable, device: torch.device) -> None:
        def upload(array: NDArray[Any]) -> Tensor:
            return torch.from_numpy(array).to(device)

        self.node, self.neighbour, self.moment = (upload(a) for a in (records.node, records.neighbour, records.moment))
        self.indptr, self.mirror, self.times = (upload(a) for a in (records.indptr, records.mirror, records.times))
        self.thresholds, self.noise_nodes, self.aliases = (upload(array) for array in noise)

    def slots(self, places: Tensor, key: int, sides: int, negatives: int, history: int) -> TensorSlots:
        """What `hawkes_kernels.fill_slots` finds for the records `places`."""
        place = places.long()
        noise = self.draw(place, key, sides * negatives)
        views = torch.stack([place, self.mirror[place].long()][:sides], dim=1)  # [B, S]
        length = views - self.indptr[self.node[views].long()]
        back = 1 + torch.arange(history, device=place.device)
        present = back <= length[:, :, None]
        before = (views[:, :, None] - back).clamp(min=0)
        past = torch.where(present, self.neighbour[before], 0)
        now = self.times[self.moment[place].long()].view(-1, 1, 1)
        gaps = torch.where(present, now - self.times[self.moment[before].long()], now)
        ends = torch.stack([self.node[place], self.neighbour[place]], dim=1)
        nodes = torch.cat([ends, noise, past.flatten(1)], dim=1)
        return TensorSlots(nodes.long(), gaps, present.to(gaps.dtype), self.moment[place].long())

    def draw(self, place: Tensor, key: int, count: int) -> Tensor:
        """`[B, count]` noise nodes: `draw_noise`."""
        own = derive_torch(torch.tensor(signed(key), device=place.device), place)
        words = derive_torch(own[:, None], torch.arange(count, device=place.device))
        slot = below_torch(words, len(self.aliases))
        stays = (words & _LOW_31) < self.thresholds[slot]
        return torch.where(stays, self.noise_nodes[slot], self.aliases[slot])


class Side(NamedTuple):
    """`hawkes_kernels.intensities` and `spread_gains` in torch, for B records at once.

    Attributes:
        candidates, neighbours: `[B, C, d]` and `[B, h, d]`, as seen from the node.
        near, far: `[B, C]` and `[B, h]` their squared lengths.
    """

    candidates: Tensor
    neighbours: Tensor
    near: Tensor
    far: Tensor

    @classmethod
    def of(cls, own: Tensor, candidates: Tensor, neighbours: Tensor) -> Side:
        """Of `own [B, d]`."""
        candidates, neighbours = candidates - own[:, None], neighbours - own[:, None]
        return cls(candidates, neighbours, candidates.square().sum(2), neighbours.square().sum(2))

    def mean(self, weights: Tensor) -> Tensor:
        """`[B, d]` Σ u_i h_i."""
        return torch.bmm(weights[:, None], self.neighbours).squeeze(1)

    def intensities(self, weights: Tensor) -> Tensor:
        """`[B, C]` of `weights [B, h]`."""
        product = torch.bmm(self.candidates, self.mean(weights)[:, :, None]).squeeze(2)
        return 2 * product - (1 + weights.sum(1, True)) * self.near - (weights * self.far).sum(1, True)

    def gradients(self, weights: Tensor, gains: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Of Σ gains · lambda, `gains [B, C]`: to the node, the candidates, the neighbours and the weights."""
        pull = torch.bmm(gains[:, None], self.candidates)  # [B, 1, d]
        moved, mean = gains.sum(1, True), self.mean(weights)[:, None]
        total = 1 + weights.sum(1, True)
        candidates = 2 * gains[:, :, None] * (mean - total[:, :, None] * self.candidates)
        neighbours = 2 * weights[:, :, None] * (pull - moved[:, :, None] * self.neighbours)
        product = torch.bmm(self.neighbours, pull.transpose(1, 2)).squeeze(2)
        influence = 2 * product - moved * self.far - (gains * self.near).sum(1, True)
        return 2 * pull.squeeze(1), candidates, neighbours, influence


def through_softmax(shares: Tensor, gradient: Tensor) -> Tensor:
    """The gradient with respect to scores, of that with respect to their softmax over the last dimension."""
    return shares * (gradient - (shares * gradient).sum(-1, True))


def attract(intensity: Tensor) -> tuple[Tensor, Tensor]:
    """-log(sigmoid + 1e-6) and its derivative."""
    p = intensity.sigmoid()
    return -(p + _SMALL).log(), -p * (-intensity).sigmoid() / (p + _SMALL)
