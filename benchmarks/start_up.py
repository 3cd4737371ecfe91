"""Seconds from a command to its answer with everything cached: what a command costs beyond loading torch.

    python benchmarks/start_up.py [--data dblp] [--preset network] [--device cpu] [--json FILE]

    torch       `import torch`, and on a GPU the start of CUDA
    help, train, predict, embed
                the command, the seconds over torch and, for the two epochs of `train`, over those too

Each is a process of its own; they take turns, and the median of three is given. Before that every command has run
once, so that features are made and kernels are compiled. DBLP where its files are there, else the synthetic dataset.
The preset `network` trains one network; that of `default` has folds, whose second stage is no start-up.
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

from chronospike.data.datasets import load_dataset
from chronospike.data.storage import save_graph
from chronospike.device import choose_device

TORCH = "import sys, torch; sys.argv[1] == 'cpu' or torch.zeros(1, device=sys.argv[1]).sum().item()"


def commands(graph: Path, run: Path, preset: str, device: str) -> dict[str, list[str]]:
    python = [sys.executable, "-m", "chronospike"]
    train = ["train", str(graph), "-o", str(run), "--overwrite", "--features", "fastrp", "--epochs", "2"]
    train += ["--preset", preset]
    outputs = {"predict": "classes.csv", "embed": "z.npy"}
    use = {verb: [*python, verb, str(run), "-o", str(run.parent / name)] for verb, name in outputs.items()}
    found = {"train": [*python, *train], **use}
    return {
        "torch": [sys.executable, "-c", TORCH, device],
        "help": [*python, "--help"],
        **{verb: [*words, "--device", device] for verb, words in found.items()},
    }


def epoch_seconds(run: Path) -> float:
    """Seconds of the epochs of the last `train`."""
    return sum(float(json.loads(line)["seconds"]) for line in (run / "metrics.jsonl").read_text().splitlines())


def in_turns(commands: dict[str, list[str]], run: Path, rounds: int) -> dict[str, dict[str, float]]:
    """Median seconds of each, over torch, and over the epochs too."""
    taken: dict[str, list[float]] = {name: [] for name in commands}
    epochs: list[float] = []
    for number in range(rounds + 1):
        for name, words in commands.items():
            began = time.perf_counter()
            subprocess.run(words, check=True, capture_output=True)
            if number:
                taken[name].append(time.perf_counter() - began)
                epochs += [epoch_seconds(run)] if name == "train" else []
    seconds = {name: statistics.median(values) for name, values in taken.items()}
    result = {name: {"seconds": value, "over_torch": value - seconds["torch"]} for name, value in seconds.items()}
    result["train"]["over_torch_and_epochs"] = result["train"]["over_torch"] - statistics.median(epochs)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    root = Path(os.environ.get("CHRONOSPIKE_DATA") or Path(__file__).resolve().parents[2] / "shared" / "data")
    there = "dblp" if (root / "dblp").is_dir() else "synthetic"
    parser.add_argument("--data", default=there, help="a dataset's name")
    parser.add_argument("--preset", default="network", help="of the training")
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--work", type=Path, default=Path("build/start_up"), help="the graph and the run go here")
    parser.add_argument("--json", type=Path, help="write the figures to this file too")
    options = parser.parse_args()
    device = str(choose_device(options.device))
    graph = options.work / options.data
    if not (graph / "meta.json").is_file():
        save_graph(load_dataset(options.data, root=root), graph)
    run = options.work / f"run-{options.data}"
    print(f"{options.data}, preset {options.preset}, {device}, {len(os.sched_getaffinity(0))} CPUs")
    print(f"load average {os.getloadavg()[0]:.1f}")
    result = in_turns(commands(graph, run, options.preset, device), run, options.rounds)
    for name, found in result.items():
        extra = f", {found['over_torch_and_epochs']:.2f} s over the epochs too" if name == "train" else ""
        over = "" if name in ("torch", "help") else f"   {found['over_torch']:5.2f} s over torch{extra}"
        print(f"{name:<9}{found['seconds']:6.2f} s{over}")
    if options.json:
        options.json.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
