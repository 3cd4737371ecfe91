"""How well it classifies: DBLP at three training ratios and patent12k, five model seeds each, beside label propagation.

    python benchmarks/accuracy.py --device cuda --jobs 4          # everything; hours on a CPU
    python benchmarks/accuracy.py --rows dblp-0.8 --seeds 1       # one row of the table, one seed

The split is the benchmark's (seed 42, stratified, 5 % for validation); only the model seed varies. Features are made by
our own command from the preset's recipe. With `refit` the validation nodes are learned from in the end; label
propagation is then given their labels too. Every run is a folder under --work with its settings, so that a second call
resumes where the first was stopped. Printed: mean ± standard deviation over the seeds, in percent.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from chronospike.config import parse_assignments, read_preset
from chronospike.data.datasets import load_dataset
from chronospike.data.storage import open_graph, save_graph
from chronospike.device import choose_device, keep_freed_memory
from chronospike.features.make import ensure_features
from chronospike.methods.registry import make_learner, references
from chronospike.training.learner import Learner
from chronospike.training.run_folder import METRICS, RunFolder
from chronospike.training.runs import execute
from chronospike.training.task import split_for


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    name: str
    dataset: str
    preset: str
    ratio: float
    paper: str = "-"
    changes: dict[str, Any] = field(default_factory=dict)


ROWS = [
    Row("dblp-0.8", "dblp", "dblp", 0.8, "79.1 / 79.3"),
    Row("dblp-0.6", "dblp", "dblp", 0.6, "77.8 / 78.5"),
    Row("dblp-0.4", "dblp", "dblp", 0.4, "75.8 / 76.8"),
    Row("dblp-labels-0.8", "dblp", "dblp", 0.8, "79.1 / 79.3", {"label_inputs": True}),
    Row("paper-0.8", "dblp", "paper", 0.8, "79.1 / 79.3"),
    Row("paper-0.6", "dblp", "paper", 0.6, "77.8 / 78.5"),
    Row("paper-0.4", "dblp", "paper", 0.4, "75.8 / 76.8"),
    Row("patent12k-0.8", "patent12k", "default", 0.8),
    Row("patent12k-wide-0.8", "patent12k", "dblp", 0.8),
]


def learner_of(row: Row, seed: int, changes: list[str]) -> Learner[Any]:
    values = {**read_preset(row.preset), "ratio": row.ratio, **row.changes, **parse_assignments(changes), "seed": seed}
    return make_learner("chronospike", values)


def prepare(row: Row, options: argparse.Namespace) -> str:
    """Import the graph and make its features, once; returns the name of the feature set."""
    folder = options.work / "graphs" / row.dataset
    if not (folder / "meta.json").is_file():
        save_graph(load_dataset(row.dataset, root=options.data), folder)
    return ensure_features(folder, learner_of(row, 0, options.set).settings, options.device)


def train_one(row: Row, seed: int, options: argparse.Namespace) -> None:
    """Train one seed of one row into its run folder."""
    keep_freed_memory()
    features = prepare(row, options)
    graph = open_graph(options.work / "graphs" / row.dataset, features=features)
    run = RunFolder(options.work / "runs" / f"{row.name}-{seed}")
    resume, learner = run.checkpoint.is_file(), learner_of(row, seed, options.set)
    if not resume:
        facts = {"graph": row.dataset, "name": row.dataset, "features": features, "preset": row.preset}
        split = split_for(graph, learner.settings)
        run.begin(learner.name, learner.settings, facts, graph, split, overwrite=True)
    device = choose_device(options.device)
    execute(learner, graph, run, device, references(learner), resume=resume, smooth=True)


def run_all(rows: list[Row], options: argparse.Namespace) -> None:
    """Every run that is not finished yet, `--jobs` at a time; several at a time each in a process of its own."""
    waiting = [
        (row, seed)
        for seed in range(options.seeds)
        for row in rows
        if not (options.work / "runs" / f"{row.name}-{seed}" / METRICS).is_file()
    ]
    if options.jobs == 1:
        for row, seed in waiting:
            train_one(row, seed, options)
            say_result(f"{row.name}-{seed}", options)
        return
    running: dict[subprocess.Popen[bytes], str] = {}
    threads = max(1, (os.cpu_count() or 1) // options.jobs)
    while waiting or running:
        while waiting and len(running) < options.jobs:
            row, seed = waiting.pop(0)
            command = [sys.executable, __file__, "--one", row.name, str(seed), "--work", str(options.work)]
            command += ["--data", str(options.data), "--device", options.device]
            command += [part for change in options.set for part in ("--set", change)]
            environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
            running[subprocess.Popen(command, env=environment)] = f"{row.name}-{seed}"
        time.sleep(0.2)
        for process in [process for process in running if process.poll() is not None]:
            say_result(running.pop(process), options)


def say_result(name: str, options: argparse.Namespace) -> None:
    """One line about a run, as soon as it has ended."""
    path = options.work / "runs" / name / METRICS
    if not path.is_file():
        print(f"{name}: FAILED", flush=True)
        return
    found = json.loads(path.read_text())
    parts = ", ".join(
        f"{part} {100 * found[part]['macro_f1']:.2f} / {100 * found[part]['micro_f1']:.2f}"
        for part in ("validation", "test", "smoothed")
    )
    print(f"{name}: Macro / Micro {parts}; {found['epochs']} epochs of {found['seconds_per_epoch']:.3f} s", flush=True)


def spread(values: list[float]) -> str:
    return f"{100 * np.mean(values):5.2f} ± {100 * np.std(values):.2f}"


def table(rows: list[Row], options: argparse.Namespace) -> list[dict[str, Any]]:
    """Print a line per row from the runs that are finished."""
    print(
        f"{'row':17}{'runs':>5}  {'Macro-F1':14}{'Micro-F1':14}{'smoothed':14}{'label prop.':13}{'the paper':13}s/epoch"
    )
    result = []
    for row in rows:
        paths = sorted((options.work / "runs").glob(f"{row.name}-[0-9]*/{METRICS}"))
        runs = [json.loads(path.read_text()) for path in paths]
        if not runs:
            continue
        macro, micro = ([run["test"][key] for run in runs] for key in ("macro_f1", "micro_f1"))
        smoothed = [run["smoothed"]["micro_f1"] for run in runs]
        plain = runs[0]["baselines"]["label propagation"]
        beside = f"{100 * plain['macro_f1']:.1f} / {100 * plain['micro_f1']:.1f}"
        seconds = float(np.median([run["seconds_per_epoch"] for run in runs]))
        print(
            f"{row.name:17}{len(runs):5}  {spread(macro):14}{spread(micro):14}{spread(smoothed):14}"
            f"{beside:14}{row.paper:14}{seconds:.2f}"
        )
        result.append({"row": row.name, "macro_f1": macro, "micro_f1": micro, "smoothed_micro_f1": smoothed,
                       "label_propagation": plain, "parameters": runs[0]["parameters"], "seconds_per_epoch": seconds,
                       "seeds": [run["seed"] for run in runs], "device": runs[0]["device"]})  # fmt: skip
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    default = os.environ.get("CHRONOSPIKE_DATA") or Path(__file__).resolve().parents[2] / "shared" / "data"
    parser.add_argument("--data", type=Path, default=Path(default), help="the folder that holds dblp/ and patent12k/")
    parser.add_argument("--work", type=Path, default=Path("build/accuracy"), help="graphs, features and runs go here")
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    parser.add_argument("--rows", nargs="*", default=[row.name for row in ROWS], help="which rows of the table")
    parser.add_argument("--seeds", type=int, default=5, help="model seeds per row")
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time")
    parser.add_argument("--set", action="append", default=[], help="key=value for all rows, to try something")
    parser.add_argument("--json", type=Path, help="write the figures to this file too")
    parser.add_argument("--one", nargs=2, metavar=("ROW", "SEED"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    by_name = {row.name: row for row in ROWS}
    if options.one:
        train_one(by_name[options.one[0]], int(options.one[1]), options)
        return
    rows = [by_name[name] for name in options.rows]
    for row in rows:
        prepare(row, options)
    run_all(rows, options)
    figures = table(rows, options)
    if options.json:
        options.json.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
