"""DeepWalk on a GPU: Triton kernels for the walks and for skip-gram, one program per walk.

The conventions and every random draw are those of `walks.py` and `skipgram.py`. What differs: programs add to the
tables atomically in whatever order they run, and a context's input row is read and changed at once for each centre
instead of being kept while it is in reach (the same thing unless a walk comes back to a node within a window).

Import this module only where Triton is installed. With TRITON_INTERPRET=1 it runs on the CPU, for tests.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl
from numpy.typing import NDArray

from chronospike.device import choose_device
from chronospike.errors import ChronoSpikeError
from chronospike.features.noise import noise_table
from chronospike.features.skipgram import OnWalks, Schedule, Table
from chronospike.features.walks import Snapshot
from chronospike.rng import signed
from chronospike.triton_common import GOLDEN, derive, mix, on

_LOWER_BITS = tl.constexpr(2**31 - 1)

_WALKS_PER_PROGRAM = 128
_WALKS_PER_LAUNCH = 2**18
_WARPS = 4
# How many programs may add to one row at the same time. Each adds what would be right if it were alone; where
# hundreds do, as around the hub of a small graph, the sum overshoots. By this
# count DBLP reaches 55 and trains well; patent12k reaches 1,800 and diverged.
_WRITERS_PER_ROW = 50


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


# The number of slots grows from step to step, and is no reason to compile again.
@triton.jit(do_not_specialize=["slots"])
def _skipgram_kernel(  # type: ignore[no-untyped-def]
    inputs, outputs, walks, keys, thresholds, noise_nodes, aliases, slots, key, first, rate, drop,
    DIM: tl.constexpr, LENGTH: tl.constexpr, WINDOW: tl.constexpr, NEGATIVES: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """One walk a program: for each centre all contexts of its window at once, `[ROWS, COLUMNS]`."""
    w = tl.program_id(0)
    walk = walks + w.to(tl.int64) * LENGTH
    own = derive(tl.load(key).to(tl.uint64), tl.load(keys + tl.load(walk)).to(tl.uint64))
    # The walk itself has used the words below LENGTH.
    state = own + (own * 0 + LENGTH) * GOLDEN
    step = rate - drop * (first + w).to(tl.float32)
    rows = tl.arange(0, ROWS)
    columns = tl.arange(0, COLUMNS)
    wide = columns < DIM
    for i in range(LENGTH):
        state = state + GOLDEN
        reach = 1 + ((mix(state) >> 32) * WINDOW >> 32).to(tl.int32)
        centre = tl.load(walk + i)
        position = i - WINDOW + rows
        # Past the end of a short walk the window is empty.
        reach = tl.where(centre >= 0, reach, 0)
        near = (position >= 0) & (position < LENGTH) & (position != i)
        near = near & (position >= i - reach) & (position <= i + reach)
        context = tl.load(walk + position, mask=near, other=-1)
        near = near & (context >= 0)
        block = near[:, None] & wide[None, :]
        cells = inputs + tl.where(near, context, 0).to(tl.int64)[:, None] * DIM + columns[None, :]
        x = tl.load(cells, mask=block, other=0.0)

        alive = columns < tl.where(centre >= 0, DIM, 0)
        target = outputs + tl.maximum(centre, 0).to(tl.int64) * DIM + columns
        z = tl.load(target, mask=alive, other=0.0)
        gain = step * (1.0 - 1.0 / (1.0 + tl.exp(-tl.sum(x * z[None, :], axis=1))))
        gain = tl.where(near, gain, 0.0)
        change = gain[:, None] * z[None, :]
        tl.atomic_add(target, tl.sum(gain[:, None] * x, axis=0), mask=alive, sem="relaxed")
        for _ in tl.static_range(NEGATIVES):
            state = state + GOLDEN
            word = mix(state)
            slot = ((word >> 32) * slots.to(tl.uint64) >> 32).to(tl.int32)
            stays = (word & _LOWER_BITS) < tl.load(thresholds + slot).to(tl.uint64)
            noise = tl.where(stays, tl.load(noise_nodes + slot), tl.load(aliases + slot))
            # A negative that equals the positive is skipped.
            counts = columns < tl.where((noise != centre) & (centre >= 0), DIM, 0)
            fall = tl.where(noise != centre, -step, 0.0)
            target = outputs + noise.to(tl.int64) * DIM + columns
            z = tl.load(target, mask=counts, other=0.0)
            gain = tl.where(near, fall / (1.0 + tl.exp(-tl.sum(x * z[None, :], axis=1))), 0.0)
            change += gain[:, None] * z[None, :]
            tl.atomic_add(target, tl.sum(gain[:, None] * x, axis=0), mask=counts, sem="relaxed")
        tl.atomic_add(cells, change, mask=block, sem="relaxed")


class DeviceSnapshot:
    """A cumulative snapshot in device memory."""

    def __init__(self, snapshot: Snapshot, device: torch.device) -> None:
        self.device = device
        self.indptr, self.degrees, self.neighbours, self.keys = (_upload(array, device) for array in snapshot)

    def random_walks(self, starts: torch.Tensor, length: int, key: int) -> torch.Tensor:
        """`[W, length]` int32, the walks of `walks.walk_into`; -1 after the end of a short one."""
        walks = torch.full((len(starts), length), -1, dtype=torch.int32, device=self.device)
        with on(self.device):
            _walk_kernel[(triton.cdiv(len(starts), _WALKS_PER_PROGRAM),)](
                walks, self.indptr, self.degrees, self.neighbours, self.keys, starts, _key(key, self.device),
                len(starts), LENGTH=length, BLOCK=_WALKS_PER_PROGRAM,
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


class GpuTrainer:
    """One step of DeepWalk on a GPU (see `deepwalk.CpuTrainer`)."""

    def __init__(self, snapshot: Snapshot, tables: tuple[Table, Table], length: int, device: str) -> None:
        self.device = choose_device(device)
        self.length = length
        self.snapshot = DeviceSnapshot(snapshot, self.device)
        visits = self.snapshot.expected_visits(length).cpu().numpy()
        noise = noise_table(visits)
        self.busiest = float(visits.max() / visits[noise.nodes].sum())
        self.noise = tuple(_upload(array, self.device) for array in noise)
        self.inputs, self.outputs = (_upload(table, self.device) for table in tables)

    def train_pass(self, starts: NDArray[np.int32], schedule: Schedule, on_walks: OnWalks | None) -> None:
        nodes = _upload(starts, self.device)
        together = walks_together(self.busiest, schedule.window, _resident_programs(self.device))
        for first in range(0, len(starts), _WALKS_PER_LAUNCH):
            walks = self.snapshot.random_walks(nodes[first : first + _WALKS_PER_LAUNCH], self.length, schedule.key)
            for low in range(0, len(walks), together):
                self.train_on_walks(walks[low : low + together], schedule, first + low)
            if on_walks:
                if self.device.type == "cuda":
                    torch.cuda.synchronize(self.device)
                on_walks(first + len(walks))

    def train_on_walks(self, walks: torch.Tensor, schedule: Schedule, first: int = 0) -> None:
        """Train on `[W, L]` walks that stand at `first`, `first + 1`, … in the schedule."""
        dimension = self.inputs.shape[1]
        with on(self.device):
            _skipgram_kernel[(len(walks),)](
                self.inputs, self.outputs, walks, self.snapshot.keys, *self.noise, len(self.noise[0]),
                _key(schedule.key, self.device), first, float(schedule.rate), float(schedule.drop),
                DIM=dimension, LENGTH=walks.shape[1], WINDOW=schedule.window, NEGATIVES=schedule.negatives,
                ROWS=triton.next_power_of_2(2 * schedule.window + 1), COLUMNS=triton.next_power_of_2(dimension),
                num_warps=_WARPS,
            )  # fmt: skip

    def finish(self) -> tuple[Table, Table]:
        if not (self.inputs.isfinite().all() and self.outputs.isfinite().all()):
            raise ChronoSpikeError("deepwalk diverged on the GPU. Lower --learning-rate or use --device cpu")
        return self.inputs.cpu().numpy(), self.outputs.cpu().numpy()


def walks_together(busiest: float, window: int, resident: int) -> int:
    """How many walks to launch at once, where the most visited node takes the share `busiest` of all visits.

    At any moment a walk writes to its centre and, on average, to `window` + 1 contexts. The device runs no more
    than `resident` programs at a time, so a bound above that needs no launches of its own.
    """
    bound = max(1, int(_WRITERS_PER_ROW / ((window + 2) * busiest)))
    return bound if bound < resident else _WALKS_PER_LAUNCH


def _resident_programs(device: torch.device) -> int:
    if device.type != "cuda":
        return 1
    facts = torch.cuda.get_device_properties(device)
    return facts.multi_processor_count * (facts.max_threads_per_multi_processor // (32 * _WARPS))


def _upload(array: NDArray[Any], device: torch.device) -> torch.Tensor:
    # A copy even on the CPU: the tables of the caller stay as they are, and a memory map may be read only.
    return torch.from_numpy(np.array(array)).to(device)


def _key(key: int, device: torch.device) -> torch.Tensor:
    """In memory rather than as an argument: Triton compiles again for the type and divisibility of a number."""
    return torch.tensor([signed(key)], dtype=torch.int64, device=device)
