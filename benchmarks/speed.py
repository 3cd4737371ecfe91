"""How fast training and inference are, against the plain path and against what the machine allows. All of it, one call.

    python benchmarks/speed.py                      # on a GPU: DBLP-, Tmall- and Patent-sized graphs; else the CPU
    python benchmarks/speed.py --parts cpu scaling  # some parts only

    check    a batch on the fast path against the plain one: largest differences, and spikes that flip at the threshold
    dblp     seconds per epoch at 80 %, preset paper, fast and plain; stage by stage beside the floor
    tmall, patent   the same sizes as the benchmark's graphs, fast path only
    neurons  the neurons' kernel at [27, 6144, 128] against the eager loop, and its share of the copy bandwidth
    host     DBLP's size with the features left in host memory, against the features on the GPU
    kernels  what a step of DBLP's size spends its time on, kernel by kernel (a GPU only)
    cpu      benchmarks/cpu_epoch.py: plain, plain with memory kept, fast
    scaling  seconds per epoch over four numbers of nodes and four of steps, the fitted exponents, a plot

Graphs are synthetic, of the size named (`chronospike bench --like`), features random; times do not depend on either.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch

from chronospike.bench.measure import bench, random_features, time_epochs
from chronospike.bench.roofline import measure_machine
from chronospike.config import make_settings, read_preset
from chronospike.data.graph import DynamicGraph
from chronospike.data.lookalike import Sizes, like, lookalike
from chronospike.device import choose_device, keep_freed_memory, settle
from chronospike.methods.chronospike import tree_inputs
from chronospike.methods.chronospike.network import ChronoSpikeNetwork
from chronospike.methods.chronospike.settings import ChronoSpikeSettings
from chronospike.nn.dispatch import KernelPlan, plan_kernels, product_precision
from chronospike.nn.lif import AdaptiveLIF, lif_sequence
from chronospike.nn.model import ChronoSpike, Record
from chronospike.nn.tree_features import TreeFeatures
from chronospike.sampling.batches import batches
from chronospike.training.loop import Trainer
from chronospike.training.task import make_task

MERGE = {"dblp": 1, "tmall": 10, "patent": 2}
GPU_PARTS = ("check", "dblp", "tmall", "patent", "neurons", "host", "kernels")
CPU_PARTS = ("check", "dblp", "cpu", "scaling")


def settings(**changes: Any) -> ChronoSpikeSettings:
    # Hardly any node is held out of the 80 %: an epoch has the benchmark's number of steps.
    return make_settings(ChronoSpikeSettings, {**read_preset("paper"), "validation": 1e-4, **changes})


def trainer(graph: DynamicGraph, s: ChronoSpikeSettings, device: torch.device) -> Trainer:
    table = random_features(graph, s, device, device.type == "cuda")
    return Trainer(ChronoSpikeNetwork(make_task(graph, s, device, needs_features=False), s, table), s)


def check(device: torch.device) -> dict[str, Any]:
    """The same weights and the same trees through both paths and, on a GPU, in both precisions.

    All are compared with the plain path in single precision: what half precision changes on the plain path too is not
    the kernels' doing.
    """
    network = trainer(like("dblp"), settings(dropout=0.0), device).network
    assert isinstance(network, ChronoSpikeNetwork)
    model = network.module.eval()
    assert isinstance(model, ChronoSpike)
    rows = network.rows(network.task.split.train[:1024], 0)

    def plan(wanted: Literal["auto", "plain"], half: bool) -> KernelPlan:
        a, dtype = model.architecture, rows.values.dtype
        return plan_kernels(a, device, steps=27, fanouts=rows.fanouts, half=half, wanted=wanted, dtype=dtype)

    reference = _pass(model, rows, plan("plain", False))
    found: dict[str, Any] = {}
    ways = {"fast": plan("auto", False), "fast, half": plan("auto", True), "plain, half": plan("plain", True)}
    for name, way in ways.items():
        if "half" in name and device.type != "cuda":
            continue
        other = _pass(model, rows, way)
        flips = sum(int((a != b).sum()) for a, b in zip(other.spikes, reference.spikes, strict=True))
        spikes = sum(layer.numel() for layer in reference.spikes)
        logits = float((other.logits - reference.logits).abs().max())
        pairs = zip(other.gradients, reference.gradients, strict=True)
        gradients = max(float((a - b).norm() / b.norm().clamp_min(1e-12)) for a, b in pairs)
        print(
            f"check, {name}: {flips} of {spikes:,} spikes flip ({flips / spikes:.1e}), logits differ by {logits:.1e} "
            f"at most, gradients by {gradients:.1e} of their norm"
        )
        found[name] = {"flips": flips, "spikes": spikes, "logits": logits, "gradients": gradients}
    return found


class _Pass(NamedTuple):
    spikes: list[torch.Tensor]
    logits: torch.Tensor
    gradients: list[torch.Tensor]


def _pass(model: ChronoSpike, rows: TreeFeatures, plan: KernelPlan) -> _Pass:
    """A batch forward and backward."""
    record = Record()
    model.zero_grad()
    with product_precision(rows.values.device, plan.half):
        logits, _ = model(rows, plan, record)
        logits.square().mean().backward()
    gradients = [p.grad.clone() for p in model.parameters() if p.grad is not None]
    return _Pass(record.spikes, logits.detach(), gradients)


def sized(name: str, device: torch.device) -> dict[str, Any]:
    """`chronospike bench` on a graph of that size; for DBLP the plain path beside it."""
    graph = like(name, merge=MERGE[name])
    found = bench(graph, settings(), device, say=lambda _: None)
    t, i, floor = found["training"], found["inference"], found["floor"]
    print(
        f"{name}: {t['seconds_per_epoch']:.4f} s an epoch of {t['batches']} batches "
        f"({floor['ratio']:.1f} times the floor of {floor['seconds_per_epoch']:.4f} s), inference of all "
        f"{graph.num_nodes:,} nodes {i['seconds']:.2f} s, peak memory {found['peak_memory_bytes'] / 1e9:.2f} GB"
    )
    for row in found["stages"]:
        print(
            f"  {row['stage']:10}{1e3 * row['seconds']:8.3f} ms  {row['bytes'] / 1e6:8.1f} MB  "
            f"{row['operations'] / 1e9:7.2f} GFLOP  floor {1e3 * row['floor_seconds']:7.3f} ms  "
            f"ratio {row['ratio']:.1f}"
        )
    if name == "dblp":
        plain = trainer(graph, settings(kernels="plain", precision="single"), device)
        found["plain_seconds_per_epoch"] = time_epochs(plain, 3)["seconds_per_epoch"]
        ratio = found["plain_seconds_per_epoch"] / t["seconds_per_epoch"]
        print(f"  the plain path takes {found['plain_seconds_per_epoch']:.3f} s, {ratio:.1f} times as long")
    return found


def neurons(device: torch.device) -> dict[str, Any]:
    """Forward and backward at DBLP's first layer."""
    h = torch.randn(27, 6144, 128, device=device)
    layer = AdaptiveLIF(128).to(device)
    weights = torch.randn_like(h)

    def both(implementation: Any) -> Callable[[], None]:
        def work() -> None:
            x = h.detach().requires_grad_()
            spikes, _ = lif_sequence(x, layer.current(), implementation=implementation)
            torch.autograd.grad(spikes, [x, *layer.parameters()], weights)

        return work

    kernel, eager = (seconds(both(name), device) for name in ("triton", "plain"))
    # Forward: inputs in, spikes and membranes out. Backward: membranes and gradient in, gradient out.
    moved = (3 + 3) * h.numel() * 4
    share = moved / kernel / measure_machine(device).bandwidth
    print(f"neurons at [27, 6144, 128]: kernel {1e3 * kernel:.3f} ms, eager loop {1e3 * eager:.3f} ms, ", end="")
    print(f"{eager / kernel:.1f} times; {share:.0%} of the copy bandwidth")
    return {"kernel_seconds": kernel, "eager_seconds": eager, "bandwidth_share": share}


def seconds(work: Callable[[], None], device: torch.device, repeats: int = 20) -> float:
    """Median of a work's replays as a CUDA graph, so that launches do not count on either side."""
    stream = torch.cuda.Stream(device)
    with torch.cuda.stream(stream):
        for _ in range(2):
            work()
    settle(device)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        work()
    times = []
    for _ in range(repeats):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        graph.replay()
        end.record()
        settle(device)
        times.append(begin.elapsed_time(end) / 1e3)
    return float(statistics.median(times))


def kernels(device: torch.device) -> dict[str, Any]:
    """What the GPU does in a step of training, kernel by kernel, as the profiler sees it in replays of the graph."""
    held = trainer(like("dblp"), settings(), device)
    order = list(batches(held.network.task.split.train, held.batch_nodes, 0, 0))
    time_epochs(held, 1)
    repeats = 10
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for number, roots in enumerate(order[:repeats]):
            held.batch(roots, 0, number)
        settle(device)
    found = sorted(profile.key_averages(), key=lambda event: -event.device_time_total)
    lines = [
        {"name": event.key, "microseconds": event.device_time_total / repeats, "count": event.count / repeats}
        for event in found
        if event.device_time_total
    ]
    print(f"kernels: {sum(line['microseconds'] for line in lines) / 1e3:.3f} ms a step in ", end="")
    print(f"{sum(line['count'] for line in lines):.0f} launches")
    for line in lines[:24]:
        print(f"  {line['microseconds']:8.1f} us {line['count']:5.1f} times  {line['name'][:80]}")
    return {"kernels": lines}


def host(device: torch.device) -> dict[str, Any]:
    """The same training with the features on either side of the bus: same losses, other times."""
    graph = like("dblp")
    values = np.random.default_rng(0).standard_normal((graph.num_steps, graph.num_nodes, 128), dtype=np.float32)
    graph = graph.with_made_features(values)
    result: dict[str, Any] = {}
    share = tree_inputs._GPU_SHARE
    for where, room in (("device", share), ("host", 1e-3)):
        tree_inputs._GPU_SHARE = room
        s = settings()
        network = ChronoSpikeNetwork(make_task(graph, s, device), s)
        held = Trainer(network, s)
        reports = [report for _, report in zip(range(4), held.epochs(), strict=False)]
        result[where] = {"losses": [r.loss for r in reports], "seconds_per_epoch": min(r.seconds for r in reports[1:])}
        if network.inputs.host is not None:
            print(f"host: {network.inputs.host.describe()}")
    tree_inputs._GPU_SHARE = share
    apart = max(abs(a - b) for a, b in zip(result["device"]["losses"], result["host"]["losses"], strict=True))
    print(
        f"host: {result['host']['seconds_per_epoch']:.3f} s an epoch, {result['device']['seconds_per_epoch']:.3f} s ",
        end="",
    )
    print(f"with the features on the GPU; losses of four epochs differ by {apart:.1e} at most")
    return result


def cpu(options: argparse.Namespace) -> dict[str, Any]:
    path = options.work / "cpu_epoch.json"
    script = Path(__file__).with_name("cpu_epoch.py")
    subprocess.run([sys.executable, script, "--work", options.work / "cpu_epoch", "--json", path], check=True)
    return dict(json.loads(path.read_text()))


def scaling(device: torch.device, options: argparse.Namespace) -> dict[str, Any]:
    """Time over size: the exponent of the fitted power is 1 where the cost is linear."""
    scale = 16 if device.type == "cuda" else 1
    nodes = {n: (n, 12) for n in (8_000 * scale, 16_000 * scale, 32_000 * scale, 64_000 * scale)}
    steps = {t: (16_000 * scale, t) for t in (16, 32, 64, 128)}
    result: dict[str, Any] = {}
    for name, sizes in (("nodes", nodes), ("steps", steps)):
        times = []
        for count, length in sizes.values():
            # As many edges a step and node, whatever the size.
            graph = lookalike(Sizes(count, 2 * count * length // 3, length, 10))
            times.append(time_epochs(trainer(graph, settings(), device), 3)["seconds_per_epoch"])
        exponent = float(np.polyfit(np.log(list(sizes)), np.log(times), 1)[0])
        result[name] = {"sizes": list(sizes), "seconds": times, "exponent": exponent}
        shown = ", ".join(f"{size:,}: {value:.2f} s" for size, value in zip(sizes, times, strict=True))
        print(f"scaling with {name}: exponent {exponent:.2f} ({shown})", flush=True)
    _plot(result, options.work / f"scaling-{device.type}.png")
    return result


def _plot(result: dict[str, Any], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 2, figsize=(9, 3.6))
    for axis, (name, found) in zip(axes, result.items(), strict=True):
        sizes, times = np.array(found["sizes"]), np.array(found["seconds"])
        axis.loglog(sizes, times, "o-", label="measured")
        axis.loglog(sizes, times[0] * sizes / sizes[0], "--", color="grey", label="linear")
        axis.set(xlabel=name, ylabel="seconds per epoch", title=f"exponent {found['exponent']:.2f}")
        axis.set_xticks(sizes, [f"{size:,}" for size in sizes])
        axis.set_yticks(times, [f"{seconds:.1f}" for seconds in times])
        axis.minorticks_off()
        axis.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    print(f"wrote {path}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    parser.add_argument("--parts", nargs="*", help="which parts; by default all that fit the device")
    parser.add_argument("--work", type=Path, default=Path("build/speed"), help="plots and figures go here")
    options = parser.parse_args()
    device = choose_device(options.device)
    keep_freed_memory()
    options.work.mkdir(parents=True, exist_ok=True)
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else f"{torch.get_num_threads()} CPU threads"
    print(f"{name}, torch {torch.__version__}, seed 0", flush=True)
    parts: dict[str, Callable[[], dict[str, Any]]] = {
        "check": lambda: check(device),
        **{size: (lambda size=size: sized(size, device)) for size in MERGE},  # type: ignore[misc]
        "neurons": lambda: neurons(device),
        "host": lambda: host(device),
        "kernels": lambda: kernels(device),
        "cpu": lambda: cpu(options),
        "scaling": lambda: scaling(device, options),
    }
    figures = {}
    for part in options.parts or (GPU_PARTS if device.type == "cuda" else CPU_PARTS):
        figures[part] = parts[part]()
        sys.stdout.flush()
        (options.work / f"figures-{device.type}.json").write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
