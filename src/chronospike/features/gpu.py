"""Skip-gram on a GPU: a Triton kernel, one program per walk. The walks are those of `gpu_walks.py`.

The conventions and every random draw are those of `skipgram.py`. What differs: programs add to the
tables atomically in whatever order they run, and a context's input row is read and changed at once for each centre
instead of being kept while it is in reach (the same thing unless a walk comes back to a node within a window).

Import this module only where Triton is installed. With TRITON_INTERPRET=1 it runs on the CPU, for tests.
"""

from __future__ import annotations

import numpy as np
import torch
import triton
import triton.language as tl
from numpy.typing import NDArray

from chronospike.device import choose_device
from chronospike.errors import ChronoSpikeError
from chronospike.features.biased_walks import UNIFORM, Bias
from chronospike.features.gpu_walks import DeviceSnapshot, key_tensor, upload
from chronospike.features.noise import noise_table
from chronospike.features.skipgram import MeanLoss, OnWalks, Schedule, Table
from chronospike.features.walks import Snapshot
from chronospike.rng import derive_torch
from chronospike.triton_common import GOLDEN, derive, mix, on

_LOWER_BITS = tl.constexpr(2**31 - 1)

_WALKS_PER_LAUNCH = 2**18
# Where the loss is asked for, so that it is measured several times in a pass.
_MEASURED_LAUNCH = 2**13
# Scores that are held at a time to measure it.
_MEASURED_SCORES = 2**25
_WARPS = 4
# How many programs may add to one row at the same time. Each adds what would be right if it were alone; where
# hundreds do, as around the hub of a small graph, the sum overshoots. By this
# count DBLP reaches 55 and trains well; patent12k reaches 1,800 and diverged.
_WRITERS_PER_ROW = 50


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


class GpuTrainer:
    """Skip-gram on walks of one snapshot on a GPU (see `deepwalk.CpuTrainer`)."""

    def __init__(
        self,
        snapshot: Snapshot,
        tables: tuple[Table, Table],
        length: int,
        device: str,
        bias: Bias = UNIFORM,
        key: int = 0,
    ) -> None:
        self.device, self.length, self.bias = choose_device(device), length, bias
        self.snapshot = DeviceSnapshot(snapshot, self.device)
        if bias.is_uniform:
            counts = self.snapshot.expected_visits(length)
        else:
            counts = self.snapshot.counted_visits(snapshot, length, bias, key)
        visits = counts.cpu().numpy()
        noise = noise_table(visits)
        self.busiest = float(visits.max() / visits[noise.nodes].sum())
        self.noise = tuple(upload(array, self.device) for array in noise)
        self.inputs, self.outputs = (upload(table, self.device) for table in tables)

    def train_pass(
        self, starts: NDArray[np.int32], schedule: Schedule, on_walks: OnWalks | None, loss: MeanLoss | None = None
    ) -> None:
        nodes = upload(starts, self.device)
        together = walks_together(self.busiest, schedule.window, _resident_programs(self.device))
        launch = min(_WALKS_PER_LAUNCH, _MEASURED_LAUNCH) if loss else _WALKS_PER_LAUNCH
        for first in range(0, len(starts), launch):
            walks = self.snapshot.random_walks(nodes[first : first + launch], self.length, schedule.key, self.bias)
            if loss:
                loss.add(self.measure(walks[:: loss.every], schedule))
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
                key_tensor(schedule.key, self.device), first, float(schedule.rate), float(schedule.drop),
                DIM=dimension, LENGTH=walks.shape[1], WINDOW=schedule.window, NEGATIVES=schedule.negatives,
                ROWS=triton.next_power_of_2(2 * schedule.window + 1), COLUMNS=triton.next_power_of_2(dimension),
                num_warps=_WARPS,
            )  # fmt: skip

    @torch.no_grad()
    def measure(self, walks: torch.Tensor, schedule: Schedule) -> tuple[float, int]:
        """The loss of all pairs of `[W, L]` walks with the tables as they are, and how many pairs there are."""
        total, pairs = torch.zeros((), dtype=torch.float64, device=self.device), 0
        per_walk = self.length**2 * (1 + schedule.negatives)
        for part in walks.split(max(1, _MEASURED_SCORES // per_walk)):
            reach, noise = self._draws(part, schedule)
            place = torch.arange(self.length, device=self.device)
            near = (place[:, None] - place).abs() <= reach[:, None, :]
            near &= (place[:, None] != place) & (part >= 0)[:, :, None] & (part >= 0)[:, None, :]
            targets = torch.cat([part.long()[:, :, None], noise], dim=2)
            signs = torch.where(torch.arange(1 + schedule.negatives, device=self.device) == 0, 1.0, -1.0)
            counts = near[..., None] & ((targets != part[:, :, None]) | (signs > 0))[:, None]
            x, z = self.inputs[part.clamp(min=0).long()], self.outputs[targets.clamp(min=0)]
            scores = torch.bmm(x, z.flatten(1, 2).transpose(1, 2)).view(*near.shape, -1)
            losses = torch.nn.functional.softplus(-signs * scores)
            total += torch.where(counts, losses, 0).sum(dtype=torch.float64)
            pairs += int(near.sum())
        return float(total), pairs

    def _draws(self, walks: torch.Tensor, schedule: Schedule) -> tuple[torch.Tensor, torch.Tensor]:
        """The window `[W, L]` and the negatives `[W, L, K]` of each centre, as `skipgram._draw_ahead` draws them."""
        thresholds, nodes, aliases = self.noise
        own = derive_torch(key_tensor(schedule.key, self.device), self.snapshot.keys[walks[:, 0].long()])
        words = 1 + schedule.negatives
        counter = self.length + torch.arange(self.length * words, device=self.device).view(self.length, words)
        word = derive_torch(own[:, None, None], counter)
        reach, slot = (((word >> 32) & 0xFFFFFFFF) * bound >> 32 for bound in (schedule.window, len(nodes)))
        stays = (word & (2**31 - 1)) < thresholds[slot]
        return 1 + reach[:, :, 0], torch.where(stays, nodes[slot], aliases[slot])[:, :, 1:].long()

    @property
    def learned(self) -> dict[str, torch.Tensor]:
        """Everything that training changes, by name."""
        return {"inputs": self.inputs, "outputs": self.outputs}

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
