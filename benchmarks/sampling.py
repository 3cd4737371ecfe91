"""Times the hybrid sampler: numba, and Triton on a GPU, on DBLP and on a graph of Patent's size.

    python benchmarks/sampling.py --data ../shared/data [--device cuda] [--json FILE] [--skip-patent]

A batch is 1,024 random roots with fan-outs (5, 2) at all steps. The figures are medians over the same batches
after a warm-up. The load average says whether the machine was doing something else.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from chronospike.data.graph import DynamicGraph
from chronospike.data.ingest import import_graph
from chronospike.data.lookalike import like
from chronospike.sampling.hybrid import HybridSampler
from chronospike.threads import default_threads

FANOUTS = (5, 2)
BATCH = 1024
SEED = 0


def main() -> None:
    options = _options()
    print(
        f"seed {SEED}, batch {BATCH}, fan-outs {FANOUTS}, {default_threads()} threads, torch {torch.__version__}, "
        f"load average {os.getloadavg()[0]:.1f}"
    )
    results: dict[str, Any] = {"seed": SEED, "batch": BATCH, "fanouts": FANOUTS, "threads": default_threads()}
    dblp = options.data / "dblp" / "dblp.txt"
    if dblp.is_file():
        results["dblp"] = measure("DBLP", import_graph(dblp), options.batches, options.device)
        print(f"  target: numba under 4 ms on two cores: {_verdict(results['dblp']['numba_ms'] < 4)}")
    else:
        print(f"DBLP: skipped, no {dblp}. Give its folder with --data")
    if not options.skip_patent:
        results["patent"] = measure("Patent-sized", patent_sized(), options.batches, options.device)
        print(f"  target: both CSRs under 0.6 GB: {_verdict(results['patent']['graph_bytes'] < 0.6e9)}")
    if options.json:
        options.json.write_text(json.dumps(results, indent=2) + "\n")


def measure(name: str, graph: DynamicGraph, batches: int, device: str) -> dict[str, Any]:
    """Median milliseconds per batch of each backend, printed and returned."""
    size = graph.history.nbytes + graph.snapshot.nbytes
    print(
        f"{name}: {graph.num_nodes:,} nodes, {graph.num_steps} steps, {graph.snapshot_edges:,} edges, "
        f"{graph.union_edges:,} in the union, CSRs {size / 1e9:.3f} GB"
    )
    roots = np.random.default_rng(SEED).integers(0, graph.num_nodes, (batches, BATCH))
    samplers = {"numba": _timed(HybridSampler(graph, FANOUTS, seed=SEED), "cpu")}
    if device != "cpu":
        samplers["triton"] = _timed(HybridSampler(graph, FANOUTS, seed=SEED, device=device, backend="triton"), device)
    warm_up = min(5, batches // 2)
    warm = {kind: sorted([run(batch) for batch in roots][warm_up:]) for kind, run in samplers.items()}
    medians = {kind: statistics.median(values) for kind, values in warm.items()}
    for kind, values in warm.items():
        spread = f"best {values[0]:.2f}, quartiles {values[len(values) // 4]:.2f} to {values[3 * len(values) // 4]:.2f}"
        ratio = f"{medians[kind] / medians['numba']:.2f} x numba"
        print(f"  {kind:<10} {medians[kind]:7.2f} ms per batch ({spread}, {len(values)} batches), {ratio}")
    return {
        "nodes": graph.num_nodes, "steps": graph.num_steps, "graph_bytes": size,
        **{f"{kind}_ms": value for kind, value in medians.items()},
    }  # fmt: skip


def _timed(sampler: HybridSampler, device: str) -> Callable[[Any], float]:
    def run(batch: Any) -> float:
        start = time.perf_counter()
        sampler.sample(batch)
        if device != "cpu":
            torch.cuda.synchronize()
        return 1e3 * (time.perf_counter() - start)

    return run


def patent_sized() -> DynamicGraph:
    print("making the Patent-sized graph ...", flush=True)
    start = time.perf_counter()
    graph = like("patent", SEED)
    print(f"  made in {time.perf_counter() - start:.0f} s")
    return graph


def _verdict(met: bool) -> str:
    return "met" if met else "MISSED"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    data = Path(os.environ.get("CHRONOSPIKE_DATA", "../shared/data"))
    parser.add_argument("--data", type=Path, default=data, help="folder that holds dblp/dblp.txt")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--device", default="cpu", help="cuda: time Triton on the GPU as well")
    parser.add_argument("--batches", type=int, default=100, help="batches timed with each backend")
    parser.add_argument("--skip-patent", action="store_true", help="leave out the Patent-sized graph")
    return parser.parse_args()


if __name__ == "__main__":
    main()
