"""Random walks on a GPU, one per lane: identical to the walks of `biased_walks.py`.

Import this module only where Triton is installed. With TRITON_INTERPRET=1 it runs on the CPU, for tests.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl
from numpy.typing import NDArray

from chronospike.features.biased_walks import UNIFORM, Bias
from chronospike.features.walks import Snapshot, walk_starts
from chronospike.rng import signed
from chronospike.triton_common import GOLDEN, derive, mix, on

_WALKS_PER_PROGRAM = 128
# Lanes of a program wait for one another until all proposals are settled, so here a program is a single warp.
_BIASED_PER_PROGRAM = 32
_COUNTED_WALKS = 2**18
_SCALE_32, _SCALE_53 = tl.constexpr(2.0**-32), tl.constexpr(2.0**-53)


@triton.jit
def _walk_kernel(  # type: ignore[no-untyped-def]
    walks, indptr, degrees, neighbours, keys, starts, key, count, LENGTH: tl.constexpr, BLOCK: tl.constexpr
):
    """One walk a lane. `walks` comes filled with -1."""
    w = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    alive = w < count
    node = tl.load(starts + w, mask=alive, other=0)
    own = tl.load(keys + node, mask=alive, other=0).to(tl.uint64)
    state = derive(tl.load(key).to(tl.uint64), own) + GOLDEN
    row = walks + w.to(tl.int64) * LENGTH
    tl.store(row, node, mask=alive)
    for i in range(1, LENGTH):
        state = state + GOLDEN
        degree = tl.load(degrees + node, mask=alive, other=0)
        alive = alive & (degree > 0)
        index = ((mix(state) >> 32) * degree.to(tl.uint64)) >> 32
        first = tl.load(indptr + node, mask=alive, other=0)
        node = tl.load(neighbours + first + index.to(tl.int64), mask=alive, other=0)
        tl.store(row + i, node, mask=alive)


@triton.jit
def _contains(neighbours, first, count, node, asked):  # type: ignore[no-untyped-def]
    """`biased_walks.contains` for the lanes that are asked, False for the others."""
    left = tl.where(asked, count, 0)
    place = first
    while tl.max(left, axis=0) > 1:
        half = left >> 1
        value = tl.load(neighbours + place + half, mask=left > 1, other=0)
        place = tl.where((left > 1) & (value <= node), place + half, place)
        left = left - half
    return (left > 0) & (tl.load(neighbours + place, mask=left > 0, other=-1) == node)


@triton.jit
def _counted(  # type: ignore[no-untyped-def]
    neighbours, first, count, old, old_first, old_count, word, returns, near, far, asked
):
    """`biased_walks._counted` for the lanes that are asked."""
    longest = tl.max(tl.where(asked, count, 0), axis=0)
    back = count * 0
    many = count * 0
    edge = 0
    while edge < longest:
        inside = asked & (edge < count)
        node = tl.load(neighbours + first + edge, mask=inside, other=-1)
        other = inside & (node != old)
        back += (inside & (node == old)).to(tl.int64)
        many += _contains(neighbours, old_first, old_count, node, other).to(tl.int64)
        edge += 1
    total = back * returns + many * near + (count - back - many) * far
    place = ((word >> 11).to(tl.float64) * _SCALE_53 * total.to(tl.float64)).to(tl.int64)
    place = tl.minimum(place, total - 1) - back * returns
    is_near = place < many * near
    rank = tl.where(is_near, place // near, (place - many * near) // far)
    chosen = old
    edge = 0
    while edge < longest:
        inside = asked & (edge < count)
        node = tl.load(neighbours + first + edge, mask=inside, other=-1)
        other = inside & (node != old) & (place >= 0)
        fits = other & (_contains(neighbours, old_first, old_count, node, other) == is_near)
        chosen = tl.where(fits & (rank == 0), node, chosen)
        rank -= fits.to(tl.int64)
        edge += 1
    return chosen


@triton.jit
def _biased_kernel(  # type: ignore[no-untyped-def]
    walks, indptr, degrees, neighbours, keys, starts, key, weights, excess, count,
    LENGTH: tl.constexpr, EXCESS: tl.constexpr, MUTUAL: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One walk a lane, see `biased_walks._fill`. `walks` comes filled with -1."""
    w = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    alive = w < count
    node = tl.load(starts + w, mask=alive, other=0)
    own = derive(tl.load(key).to(tl.uint64), tl.load(keys + node, mask=alive, other=0).to(tl.uint64))
    returns, near, far = tl.load(weights), tl.load(weights + 1), tl.load(weights + 2)
    sure, possible = tl.minimum(near, far), tl.maximum(near, far)
    row = walks + w.to(tl.int64) * LENGTH
    tl.store(row, node, mask=alive)
    old = tl.full([BLOCK], -1, dtype=tl.int32)
    old_first = tl.zeros([BLOCK], dtype=tl.int64)
    old_count = tl.zeros([BLOCK], dtype=tl.int64)
    for i in range(1, LENGTH):
        many = tl.load(degrees + node, mask=alive, other=0).to(tl.int64)
        alive = alive & (many > 0)
        first = tl.load(indptr + node, mask=alive, other=0)
        free = (many == 1) | (old < 0)
        if EXCESS:
            extra = tl.where(free, 0.0, tl.load(excess))
            if not MUTUAL:
                extra = tl.where(_contains(neighbours, first, many, old, alive & (extra > 0.0)), extra, 0.0)
        chosen = node
        tries = tl.zeros([BLOCK], dtype=tl.int64)
        waiting = alive
        left_over = alive & (many == 0)
        while tl.max(waiting.to(tl.int32), axis=0) > 0:
            word = mix(own + ((tries << 32) + (i + 1)).to(tl.uint64) * GOLDEN)
            slot = (((word >> 32) * many.to(tl.uint64)) >> 32).to(tl.int64)
            if EXCESS:
                wide = ((word >> 32).to(tl.float64) * (many.to(tl.float64) + extra) * _SCALE_32).to(tl.int64)
                slot = tl.where(extra > 0.0, tl.minimum(wide, many), slot)
            is_back = slot == many
            drawn = tl.load(neighbours + first + slot, mask=waiting & (slot < many), other=0)
            drawn = tl.where(is_back, old, drawn)
            chance = (word & 0xFFFFFFFF).to(tl.int64)
            is_open = waiting & (drawn != old) & (chance >= sure) & (chance < possible) & (old >= 0)
            is_near = _contains(neighbours, old_first, old_count, drawn, is_open)
            fits = (chance < sure) | (is_open & (is_near == (near > far)))
            taken = free | is_back | tl.where(drawn == old, chance < returns, fits)
            chosen = tl.where(waiting & taken, drawn, chosen)
            tries += 1
            waiting = waiting & (taken == 0)
            left_over = left_over | (waiting & (tries >= many))
            waiting = waiting & (tries < many)
        if tl.max(left_over.to(tl.int32), axis=0) > 0:
            word = mix(own + ((many << 32) + (i + 1)).to(tl.uint64) * GOLDEN)
            weighed = _counted(neighbours, first, many, old, old_first, old_count, word, returns, near, far, left_over)
            chosen = tl.where(left_over, weighed, chosen)
        tl.store(row + i, chosen, mask=alive)
        old, old_first, old_count, node = node, first, many, chosen


class DeviceSnapshot:
    """A cumulative snapshot in device memory."""

    def __init__(self, snapshot: Snapshot, device: torch.device) -> None:
        self.device = device
        self.indptr, self.degrees, self.neighbours, self.keys = (upload(array, device) for array in snapshot)

    def random_walks(self, starts: torch.Tensor, length: int, key: int, bias: Bias = UNIFORM) -> torch.Tensor:
        """`[W, length]` int32, the walks of `biased_walks.fill_walks`; -1 after the end of a short one."""
        walks = torch.full((len(starts), length), -1, dtype=torch.int32, device=self.device)
        arrays = walks, self.indptr, self.degrees, self.neighbours, self.keys, starts, key_tensor(key, self.device)
        with on(self.device):
            if bias.is_uniform:
                _walk_kernel[(triton.cdiv(len(starts), _WALKS_PER_PROGRAM),)](
                    *arrays, len(starts), LENGTH=length, BLOCK=_WALKS_PER_PROGRAM
                )
            else:
                # In memory, since Triton takes a number for a float32.
                weights = torch.tensor(bias[:3], dtype=torch.int64, device=self.device)
                excess = torch.tensor([bias.excess], dtype=torch.float64, device=self.device)
                _biased_kernel[(triton.cdiv(len(starts), _BIASED_PER_PROGRAM),)](
                    *arrays, weights, excess, len(starts),
                    LENGTH=length, EXCESS=bias.excess > 0, MUTUAL=bias.mutual, BLOCK=_BIASED_PER_PROGRAM, num_warps=1,
                )  # fmt: skip
        return walks

    def expected_visits(self, length: int) -> torch.Tensor:
        """`[N]` float64, those of `noise.expected_visits`."""
        degrees = self.degrees.long()
        owner = torch.repeat_interleave(torch.arange(len(degrees), device=self.device), degrees)
        within = torch.arange(len(owner), device=self.device) - (torch.cumsum(degrees, 0) - degrees)[owner]
        target = self.neighbours[self.indptr[owner] + within].long()
        mass = (degrees > 0).double()
        visits = mass.clone()
        for _ in range(length - 1):
            mass = torch.zeros_like(mass).index_add_(0, target, (mass / degrees.clamp(min=1))[owner])
            visits += mass
        return visits

    def counted_visits(self, snapshot: Snapshot, length: int, bias: Bias, key: int) -> torch.Tensor:
        """`[N]` float64, those of `noise.counted_visits`; `snapshot` is the same on the CPU."""
        starts, visits = upload(walk_starts(snapshot, key), self.device), torch.zeros_like(self.degrees).double()
        for first in range(0, len(starts), _COUNTED_WALKS):
            walks = self.random_walks(starts[first : first + _COUNTED_WALKS], length, key, bias)
            visits += torch.bincount(walks[walks >= 0], minlength=len(visits))
        return visits


def upload(array: NDArray[Any], device: torch.device) -> torch.Tensor:
    """A copy even on the CPU: the tables of the caller stay as they are, and a memory map may be read only."""
    return torch.from_numpy(np.array(array)).to(device)


def key_tensor(key: int, device: torch.device) -> torch.Tensor:
    """In memory rather than as an argument: Triton compiles again for the type and divisibility of a number."""
    return torch.tensor([signed(key)], dtype=torch.int64, device=device)
