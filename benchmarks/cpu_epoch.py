"""Seconds per training epoch on the CPU: DBLP at 80 %, the `paper` preset, three ways side by side.

    python benchmarks/cpu_epoch.py [--batches 5] [--rounds 2] [--json FILE]

    plain       the plain path (every neighbour projected, autograd through each step of the neurons)
    plain-kept  the same with freed memory kept by the process instead of given back to the system
    fast        the compiled path that is chosen by itself, memory kept

Each measurement is a process of its own, and they take turns. Some batches after a warm-up are timed; their median,
times the batches of an epoch, is the epoch. Features come from the cheap recipe: their values do not change the time.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from chronospike.config import make_settings, read_preset
from chronospike.methods.chronospike.settings import ChronoSpikeSettings

WAYS = ("plain", "plain-kept", "fast")
WARM_UP = 2


def settings_for(way: str) -> ChronoSpikeSettings:
    changes = {"ratio": 0.8, "feature_method": "fastrp", "kernels": "auto" if way == "fast" else "plain"}
    return make_settings(ChronoSpikeSettings, {**read_preset("paper"), **changes})


def prepare(options: argparse.Namespace) -> str:
    """Import the graph and make its features, once; returns the name of the feature set."""
    from chronospike.data.datasets import load_dataset
    from chronospike.data.storage import save_graph
    from chronospike.features.make import ensure_features

    folder = options.work / "dblp"
    if not (folder / "meta.json").is_file():
        save_graph(load_dataset("dblp", root=options.data), folder)
    return ensure_features(folder, settings_for("fast"), "cpu")


def measure(way: str, options: argparse.Namespace) -> dict[str, Any]:
    """In this process: seconds of each timed batch, batches of an epoch, peak memory in bytes."""
    from chronospike.data.storage import open_graph
    from chronospike.device import choose_device, keep_freed_memory, peak_memory
    from chronospike.methods.chronospike.network import ChronoSpikeNetwork
    from chronospike.sampling.batches import batches
    from chronospike.training.loop import Trainer
    from chronospike.training.task import make_task

    if way != "plain":
        keep_freed_memory()
    settings = settings_for(way)
    graph, device = open_graph(options.work / "dblp", features=prepare(options)), choose_device("cpu")
    task = make_task(graph, settings, device)
    trainer = Trainer(ChronoSpikeNetwork(task, settings), settings)
    trainer.model.train()
    seconds = []
    for number, roots in enumerate(batches(task.split.train, trainer.batch_nodes, settings.seed, 0)):
        if number == WARM_UP + options.batches:
            break
        began = time.perf_counter()
        trainer.step.run(roots, 0, number)
        seconds.append(time.perf_counter() - began)
    return {"seconds": seconds[WARM_UP:], "batches": trainer.batches, "peak_bytes": peak_memory(device)}


def in_turns(options: argparse.Namespace) -> dict[str, Any]:
    """Every way `--rounds` times, in processes of their own, printed and returned."""
    found: dict[str, list[dict[str, Any]]] = {way: [] for way in WAYS}
    common = ["--data", str(options.data), "--work", str(options.work), "--batches", str(options.batches)]
    for _ in range(options.rounds):
        for way in WAYS:
            command = [sys.executable, __file__, "--one", way, *common]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            found[way].append(json.loads(done.stdout.splitlines()[-1]))
    result: dict[str, Any] = {}
    for way, runs in found.items():
        batch = statistics.median(second for run in runs for second in run["seconds"])
        result[way] = {
            "epoch_seconds": batch * runs[0]["batches"],
            "batch_seconds": [run["seconds"] for run in runs],
            "peak_bytes": max(run["peak_bytes"] for run in runs),
        }
    for way, figures in result.items():
        ratio = figures["epoch_seconds"] / result["fast"]["epoch_seconds"]
        print(
            f"{way:<11}{figures['epoch_seconds']:7.2f} s an epoch   {ratio:5.2f} x fast   "
            f"peak memory {figures['peak_bytes'] / 1e9:.2f} GB"
        )
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    default = os.environ.get("CHRONOSPIKE_DATA") or Path(__file__).resolve().parents[2] / "shared" / "data"
    parser.add_argument("--data", type=Path, default=Path(default), help="the folder that holds dblp/dblp.txt")
    parser.add_argument("--work", type=Path, default=Path("build/cpu_epoch"), help="the graph and features go here")
    parser.add_argument("--batches", type=int, default=5, help="batches timed in each process")
    parser.add_argument("--rounds", type=int, default=2, help="processes for each way")
    parser.add_argument("--json", type=Path, help="write the figures to this file too")
    parser.add_argument("--one", choices=WAYS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(options.one, options)))
        return
    prepare(options)
    print(f"DBLP, 80 %, preset paper, {len(os.sched_getaffinity(0))} CPUs, load average {os.getloadavg()[0]:.1f}")
    result = in_turns(options)
    if options.json:
        options.json.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
