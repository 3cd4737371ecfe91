"""What this machine can do at best, measured, and what a step of training must move and compute, stage by stage, if
every row of the sampled trees is taken by itself.

Counted are the bytes of stages that read their input and write their output once, features once per tree position, and
the multiplications and additions of the cheaper order (neighbours aggregated before they are projected). At a machine's
measured rates that gives the floor in seconds. Only an implementation that notices rows which occur several times, as
the CPU's does, can stay below the operations counted here.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from chronospike.device import settle
from chronospike.nn.meta_device import meta_device
from chronospike.nn.model import Architecture, ChronoSpike
from chronospike.sampling.tree import widths

STAGES = ("sample", "attend", "neurons", "temporal", "loss", "backward", "optimiser")
_SINGLE = 4
_COPY_BYTES = {"cpu": 1 << 28, "cuda": 1 << 30}
_PRODUCT_SIZE = {"cpu": 1536, "cuda": 8192}


@dataclass(frozen=True)
class Machine:
    """`bandwidth` in bytes per second, reads and writes counted alike; `rate` in operations per second."""

    bandwidth: float
    rate: float


def measure_machine(device: torch.device, half: bool = False, repeats: int = 5) -> Machine:
    """The best of a few copies and products; `half` is the precision the network's products are taken in."""
    values = torch.ones(_COPY_BYTES[device.type] // 4, device=device)
    target = torch.empty_like(values)
    copy = min(timings(lambda: target.copy_(values), device, repeats))
    size = _PRODUCT_SIZE[device.type]
    dtype = torch.float16 if half else torch.float32
    left = torch.ones(size, size, device=device, dtype=dtype)
    result = torch.empty_like(left)
    product = min(timings(lambda: torch.mm(left, left, out=result), device, repeats))
    return Machine(2 * values.numel() * 4 / copy, 2 * size**3 / product)


def timings(work: Callable[[], object], device: torch.device, repeats: int) -> list[float]:
    """Seconds of each of some runs, after one that does not count."""
    work()
    result = []
    for _ in range(repeats):
        settle(device)
        began = time.perf_counter()
        work()
        settle(device)
        result.append(time.perf_counter() - began)
    return result


@dataclass(frozen=True)
class Work:
    """Bytes moved and operations done."""

    bytes: int = 0
    operations: int = 0

    def __add__(self, other: Work) -> Work:
        return Work(self.bytes + other.bytes, self.operations + other.operations)

    def seconds(self, machine: Machine) -> float:
        """At best: moving and computing overlap."""
        return max(self.bytes / machine.bandwidth, self.operations / machine.rate)


def step_work(a: Architecture, fanouts: tuple[int, ...], steps: int, batch: int, itemsize: int) -> dict[str, Work]:
    """The work of one batch for each of `STAGES`; `itemsize` is that of a stored feature."""
    sizes = [steps * batch * width for width in widths(fanouts)]
    inputs = (a.inputs, *a.hidden[:-1])
    attend, neurons, back = Work(), Work(), Work()
    for layer, (width, channels) in enumerate(zip(inputs, a.hidden, strict=True)):
        deepest = len(fanouts) - layer
        targets, rows = sum(sizes[:deepest]), sum(sizes[: deepest + 1])
        # A hop in the middle is read as targets and as neighbours; counted once.
        read = rows * width * (itemsize if layer == 0 else _SINGLE)
        out = targets * channels * _SINGLE
        project, weigh = 2 * 2 * targets * width * channels, 2 * 2 * a.heads * width * (rows - sizes[0])
        attend += Work(read + out, project + weigh)
        neurons += Work(3 * out)
        # Neurons: membranes and gradient in, gradient out. Attention: rows and gradient in; weights of both
        # projections and the pooled rows' gradient, or from the second layer on the gradient of all rows.
        below = rows * width * _SINGLE if layer else 0
        again = 2 * project if layer else project + project // 2
        back += Work(3 * out + read + out + below, again + 2 * weigh)
    width, heads = a.hidden[-1], a.temporal_heads
    spikes = steps * batch * width
    temporal = Work(
        spikes * _SINGLE, 4 * heads * spikes + 2 * batch * width * (6 * width + 2 * a.feedforward + a.classes)
    )
    loss = Work(2 * batch * width * _SINGLE, 2 * batch * batch * width)
    parents, drawn = sum(sizes[:-1]), sum(sizes[1:])
    back += Work(2 * spikes * _SINGLE, 2 * temporal.operations) + Work(2 * loss.bytes, 2 * loss.operations)
    with meta_device():
        parameters = ChronoSpike(a).parameter_count()
    return {
        # Three offsets and two row starts per parent, a neighbour read and a node written per slot.
        "sample": Work(parents * (3 * 4 + 2 * 8) + 2 * 4 * drawn),
        "attend": attend,
        "neurons": neurons,
        "temporal": temporal,
        "loss": loss,
        "backward": back,
        "optimiser": Work(7 * _SINGLE * parameters),
    }
