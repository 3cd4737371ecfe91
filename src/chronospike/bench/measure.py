"""Seconds of training, of inference and of every stage of a step, next to their lower bounds on this machine."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from chronospike.bench.roofline import STAGES, Machine, Work, measure_machine, step_work, timings
from chronospike.data.graph import DynamicGraph
from chronospike.device import peak_memory, settle
from chronospike.methods.chronospike.network import ChronoSpikeNetwork, takes_half
from chronospike.methods.chronospike.settings import ChronoSpikeSettings
from chronospike.nn.aggregate import aggregate_tree
from chronospike.nn.model import ChronoSpike
from chronospike.nn.tree_features import TreeFeatures
from chronospike.sampling.batches import batches
from chronospike.training.hardware import device_name
from chronospike.training.loop import Trainer
from chronospike.training.task import make_task

Say = Callable[[str], None]
# A part is measured until it has taken this long, and scaled up from there.
_SECONDS = 20.0
_STAGE_REPEATS = 5


def bench(
    graph: DynamicGraph, settings: ChronoSpikeSettings, device: torch.device, epochs: int = 5, say: Say = print
) -> dict[str, Any]:
    """Everything `chronospike bench` prints, ready for JSON. Features are random: their values change no time."""
    half = takes_half(settings, device)
    say("measuring what the machine can do")
    machine = measure_machine(device, half)
    table = random_features(graph, settings, device, half)
    network = ChronoSpikeNetwork(make_task(graph, settings, device, needs_features=False), settings, table)
    trainer = Trainer(network, settings)
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    say(f"training {trainer.batches:,} batches an epoch")
    training = time_epochs(trainer, epochs)
    say("inference")
    inference = time_inference(network)
    say("stage by stage")
    batch, train = trainer.batch_nodes, len(network.task.split.train)
    stages = time_stages(trainer, network, batch)
    work = step_work(network.architecture, settings.fanouts, len(network.steps), batch, table.element_size())
    floor = training["batches"] * sum(amount.seconds(machine) for amount in work.values())
    return {
        "graph": {"nodes": graph.num_nodes, "steps": len(network.steps), "train": train},
        "kernels": network.plan.as_dict(),
        "settings": {"fanouts": list(settings.fanouts), "batch_size": batch, "kernels": settings.kernels},
        "device": device_name(device),
        "precision": "half" if half else "single",
        "features": "one block for all steps" if len(table) == 1 and len(network.steps) > 1 else "a block per step",
        "machine": {"bytes_per_second": machine.bandwidth, "operations_per_second": machine.rate},
        "training": training,
        "inference": inference,
        "peak_memory_bytes": peak_memory(device),
        "stages": stage_rows(stages, work, machine),
        "floor": {"seconds_per_epoch": floor, "ratio": training["seconds_per_epoch"] / floor},
    }


def random_features(graph: DynamicGraph, settings: ChronoSpikeSettings, device: torch.device, half: bool) -> Tensor:
    """`[T, N, D]` on the device, or `[1, N, D]` on a CPU where all steps would be too much memory."""
    width, dtype = settings.feature_dimension, torch.float16 if half else torch.float32
    blocks = graph.num_steps
    if device.type == "cpu" and 4 * blocks * graph.num_nodes * width > 4 * 1024**3:
        blocks = 1
    generator = torch.Generator(device).manual_seed(settings.seed)
    table = torch.empty(blocks, graph.num_nodes, width, dtype=dtype, device=device)
    for block in table:
        block.normal_(generator=generator)
    return table


def time_epochs(trainer: Trainer, epochs: int) -> dict[str, Any]:
    """The median of `epochs` epochs of training alone, after one to warm up; cut short on a slow machine."""
    device, size = trainer.network.task.device, trainer.batches
    trainer.model.train()
    _run(trainer, 0, min(size, 4))
    one = _run(trainer, 0, min(size, 4)) / min(size, 4)
    count = max(1, min(size, int(_SECONDS / max(one, 1e-9) / epochs)))
    times = [_run(trainer, epoch, count) * size / count for epoch in range(1, epochs + 1)]
    settle(device)
    seconds = statistics.median(times)
    return {
        "seconds_per_epoch": seconds,
        "batches": size,
        "batches_timed": count,
        "epochs": times,
        "nodes_per_second": len(trainer.network.task.split.train) / seconds,
    }


def _run(trainer: Trainer, epoch: int, count: int) -> float:
    """Seconds of the first `count` batches of an epoch."""
    device = trainer.network.task.device
    settle(device)
    began = time.perf_counter()
    order = batches(trainer.network.task.split.train, trainer.batch_nodes, trainer.settings.seed, epoch)
    for number, roots in zip(range(count), order, strict=False):
        trainer.batch(roots, epoch, number)
    trainer.step.finish()
    settle(device)
    return time.perf_counter() - began


def time_inference(network: ChronoSpikeNetwork) -> dict[str, Any]:
    """All nodes, or as many as the time allows."""
    nodes = network.task.graph.num_nodes
    count, device = min(nodes, 4096), network.task.device
    (once,) = timings(lambda: network.infer(network.module, np.arange(count)), device, 1)
    count = min(nodes, max(count, int(count / once * _SECONDS)))
    began = time.perf_counter()
    network.infer(network.module, np.arange(count))
    seconds = time.perf_counter() - began
    return {"seconds": seconds * nodes / count, "nodes_timed": count, "nodes_per_second": count / seconds}


class Flow(SimpleNamespace):
    """What the stages of a step hand on: `x`, `spikes`, `logits`, `z` and `losses`."""


_Stage = tuple[str, Callable[[Flow], None]]


def time_stages(trainer: Trainer, network: ChronoSpikeNetwork, batch: int) -> dict[str, float]:
    """Median seconds of each of `STAGES` in a step like the training's.

    On a GPU the stages up to each one are captured as a graph and the differences taken, so that launches, which a
    captured step does not wait for, do not count.
    """
    device = network.task.device
    parts = _parts(trainer, network, np.resize(network.task.split.train, batch))
    with network.precision():
        return _graph_times(parts, device) if device.type == "cuda" else _stage_times(parts)


def _stage_times(parts: list[_Stage]) -> dict[str, float]:
    rounds = []
    for _ in range(_STAGE_REPEATS + 1):
        flow = Flow()
        taken = dict.fromkeys(STAGES, 0.0)
        for name, work in parts:
            began = time.perf_counter()
            work(flow)
            taken[name] += time.perf_counter() - began
        rounds.append(taken)
    # The first does not count.
    return {name: statistics.median(taken[name] for taken in rounds[1:]) for name in STAGES}


def _parts(trainer: Trainer, network: ChronoSpikeNetwork, roots: Any) -> list[_Stage]:
    """The step in order, a stage and what it does at a time."""
    model, device, context = cast(ChronoSpike, network.module), network.task.device, trainer.context
    model.train()
    plan, on_gpu = network.plan, network.plan.sampler.implementation == "triton"
    targets = network.targets(roots)
    if on_gpu:
        here = torch.from_numpy(roots.astype(np.int64)).to(device)
        key = torch.tensor([network.sampler.epoch_key(0)], device=device)

    def sample(flow: Flow) -> None:
        flow.x = network.rows_from_tensors(here, key, key) if on_gpu else network.rows(roots, 0, training=True)

    def attend(layer: int) -> Callable[[Flow], None]:
        def work(flow: Flow) -> None:
            flow.spikes = aggregate_tree(model.aggregators[layer], flow.x, plan)  # type: ignore[arg-type]

        return work

    def fire(layer: int) -> Callable[[Flow], None]:
        dropout = model.architecture.dropout if layer + 1 < len(model.neurons) else 0.0

        def work(flow: Flow) -> None:
            flow.spikes = model.neurons[layer](flow.spikes, dropout, plan.neurons.implementation, False)[0]
            flow.x = TreeFeatures(flow.spikes, flow.x.sizes[:-1])

        return work

    def read(flow: Flow) -> None:
        flow.logits, flow.z = model.read(flow.spikes, plan)

    def lose(flow: Flow) -> None:
        flow.losses = network.objective.losses(
            flow.logits.float(), flow.z.float(), targets, network.class_weights, None, plan
        )

    def back(flow: Flow) -> None:
        context.optimiser.zero_grad()
        flow.losses[0].backward()

    def update(flow: Flow) -> None:
        del flow
        context.clip()
        context.optimiser.step()

    layers = [
        (name, work(layer))
        for layer in range(len(model.neurons))
        for name, work in (("attend", attend), ("neurons", fire))
    ]
    return [("sample", sample), *layers, ("temporal", read), ("loss", lose), ("backward", back), ("optimiser", update)]


def _graph_times(parts: list[_Stage], device: torch.device) -> dict[str, float]:
    result = dict.fromkeys(STAGES, 0.0)
    before = 0.0
    for count in range(1, len(parts) + 1):
        seconds = _captured_seconds(parts[:count], device)
        result[parts[count - 1][0]] += max(0.0, seconds - before)
        before = max(before, seconds)
    return result


def _captured_seconds(parts: list[_Stage], device: torch.device) -> float:
    def all_of_them() -> None:
        flow = Flow()
        for _, work in parts:
            work(flow)

    stream = torch.cuda.Stream(device)
    stream.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(stream):
        for _ in range(2):
            all_of_them()
    torch.cuda.current_stream(device).wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        all_of_them()
    return statistics.median(timings(graph.replay, device, 4 * _STAGE_REPEATS))


def stage_rows(stages: dict[str, float], work: dict[str, Work], machine: Machine) -> list[dict[str, Any]]:
    """A line per stage, and one for all of them."""
    total = sum(work.values(), Work())
    lines = [(name, stages[name], work[name], work[name].seconds(machine)) for name in STAGES]
    lines.append(("all", sum(stages.values()), total, sum(floor for *_, floor in lines)))
    return [
        {
            "stage": name,
            "seconds": seconds,
            "bytes": amount.bytes,
            "operations": amount.operations,
            "floor_seconds": floor,
            "ratio": seconds / floor if floor else None,
        }
        for name, seconds, amount, floor in lines
    ]
