"""The neural methods of the paper's table beside ChronoSpike: seconds per epoch and peak memory, in one run.

    python benchmarks/neural_methods.py [--graph dblp] [--methods tgat,jodie] [--parts epochs others] [--json FILE]

    epochs    ChronoSpike (preset paper), with and without its kernels, and each method: training alone, at 80 % of the
              labels
    others    EvolveGCN-H made of PyG's layers and TGAT made of tgm's, which is what one would take instead and can
              install: the same widths, steps, neighbours and nodes as ours, one epoch each
              (pip install torch-geometric tgm-lib). PyG-Temporal's EvolveGCN needs torch_sparse, which has no wheels
              on the package index

`--graph dblp` reads the benchmark's files; `--graph like:patent` makes a graph of that size. Features are random:
times do not depend on their values.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from chronospike.bench.measure import time_epochs
from chronospike.data.datasets import load_dataset
from chronospike.data.graph import DynamicGraph
from chronospike.data.lookalike import like
from chronospike.device import choose_device, keep_freed_memory, peak_memory, settle
from chronospike.methods.registry import learner_type, owned_preset, settings_for
from chronospike.methods.step_graphs import step_graphs
from chronospike.methods.temporal_neighbours import Hop, TemporalNeighbours
from chronospike.sampling.batches import batches
from chronospike.training.gradient import GradientLearner
from chronospike.training.loop import Trainer
from chronospike.training.task import Task, make_task

# What is measured, of which method and with what settings beside the preset `paper` and the defaults.
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "chronospike": ("chronospike", {}),
    "chronospike-plain": ("chronospike", {"kernels": "plain"}),
    "mpnn-lstm": ("mpnn-lstm", {}),
    "jodie": ("jodie", {}),
    "evolvegcn": ("evolvegcn", {}),
    "evolvegcn-h": ("evolvegcn", {"variant": "h"}),
    "tgat": ("tgat", {}),
    "spikenet": ("spikenet", {}),
    "dy-sign": ("dy-sign", {}),
    "delay-dsgn": ("delay-dsgn", {}),
}
MERGE = {"dblp": 1, "tmall": 10, "patent": 2}
WIDTH = 128


def with_random_features(graph: DynamicGraph, device: torch.device) -> DynamicGraph:
    values = np.empty((graph.num_steps, graph.num_nodes, WIDTH), dtype=np.float32)
    generator = torch.Generator(device).manual_seed(0)
    for step in values:
        step[...] = torch.randn(step.shape, generator=generator, device=device).cpu().numpy()
    return graph.with_features(None).with_made_features(values)


def graph_named(name: str, device: torch.device) -> DynamicGraph:
    size = name.removeprefix("like:")
    graph = like(size, merge=MERGE[size]) if name.startswith("like:") else load_dataset(name)
    return with_random_features(graph, device)


def epochs(graph: DynamicGraph, methods: list[str], device: torch.device, count: int = 3) -> dict[str, Any]:
    """Seconds per epoch and peak memory of each of ours."""
    found: dict[str, Any] = {}
    for name in methods:
        settings = settings_of(name)
        learner = learner_type(CASES[name][0])(settings)
        assert isinstance(learner, GradientLearner)
        # What the method before held would count as this one's.
        gc.collect()
        if device.type == "cuda":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats(device)
        began = time.perf_counter()
        trainer = Trainer(learner.network(make_task(graph, settings, device)), learner.settings)
        made = time.perf_counter() - began
        seconds = time_epochs(trainer, count)["seconds_per_epoch"]
        memory = peak_memory(device)
        found[name] = {"seconds_per_epoch": seconds, "inputs_seconds": made, "peak_memory_bytes": memory}
        beside = ""
        for other, title in (("chronospike", "ChronoSpike's"), ("chronospike-plain", "that without kernels")):
            if other in found and name != other:
                beside += f", {seconds / found[other]['seconds_per_epoch']:.2g} times {title}"
        print(
            f"{name:<18}{seconds:9.3f} s an epoch{beside}; peak memory {memory / 1e9:.2f} GB; "
            f"inputs made in {made:.1f} s",
            flush=True,
        )
        del trainer, learner
    return found


def settings_of(name: str) -> Any:
    method, given = CASES[name]
    return settings_for(method, owned_preset("paper"), given)


def task_of(graph: DynamicGraph, name: str, device: torch.device) -> tuple[Task, Any]:
    settings = settings_of(name)
    return make_task(graph, settings, device), settings


def seconds_of(work: Callable[[], None], device: torch.device, repeats: int = 3) -> float:
    """The median, after one to warm up."""
    taken = []
    for _ in range(repeats + 1):
        settle(device)
        began = time.perf_counter()
        work()
        settle(device)
        taken.append(time.perf_counter() - began)
    return statistics.median(taken[1:])


def pyg_evolvegcn(graph: DynamicGraph, device: torch.device) -> float:
    """Seconds of an epoch of EvolveGCN-H, two layers, a loss at every step, of PyG's layers and torch's GRU."""
    from torch_geometric.nn import MessagePassing
    from torch_geometric.nn.conv.gcn_conv import gcn_norm
    from torch_geometric.nn.pool.select import SelectTopK
    from torch_geometric.utils import to_undirected

    task, settings = task_of(graph, "evolvegcn-h", device)
    hidden, nodes = settings.hidden, graph.num_nodes
    graphs, steps = step_graphs(graph, task.last_step, "cumulative"), []
    for step in range(graphs.num_steps):
        first, degree = graphs.indptr[:-1] + graphs.offsets[:, step], np.diff(graphs.offsets, axis=1)[:, step]
        row = np.repeat(np.arange(nodes), degree)
        place = np.arange(len(row)) + np.repeat(first - np.cumsum(degree) + degree, degree)
        ends = torch.from_numpy(np.stack([row, graphs.neighbours[place].astype(np.int64)])).to(device)
        steps.append(gcn_norm(to_undirected(ends, num_nodes=nodes), None, nodes))
    assert task.features is not None
    table = torch.stack([torch.from_numpy(task.features.at(step)) for step in range(len(steps))]).to(device)

    class Layer(MessagePassing):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__(aggr="add")
            self.first = nn.Parameter(torch.empty(1, hidden, hidden))
            nn.init.xavier_uniform_(self.first)
            self.select, self.cell = SelectTopK(hidden, ratio=hidden), nn.GRU(hidden, hidden)

        def forward(self, x: Tensor, weight: Tensor, edges: Tensor, norm: Tensor) -> tuple[Tensor, Tensor]:
            chosen = self.select(x)
            _, weight = self.cell((x[chosen.node_index] * chosen.weight[:, None])[None], weight)
            return self.propagate(edges, x=x @ weight[0], norm=norm), weight

        def message(self, x_j: Tensor, norm: Tensor) -> Tensor:
            return norm[:, None] * x_j

    layers = nn.ModuleList([Layer(), Layer()]).to(device)
    head = nn.Sequential(nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, graph.num_classes)).to(device)
    optimiser = torch.optim.Adam([*layers.parameters(), *head.parameters()], lr=1e-3)
    rows = torch.from_numpy(task.split.train).to(device)
    labels = torch.from_numpy(task.labels(task.split.train)).to(device)

    def epoch() -> None:
        weights = [layer.first for layer in layers]
        loss = torch.zeros((), device=device)
        for x, (edges, norm) in zip(table, steps, strict=True):
            for number, layer in enumerate(layers):
                x, weights[number] = layer(x, weights[number], edges, norm)
                x = functional.rrelu(x, training=True)
            loss = loss + functional.cross_entropy(head(x[rows]), labels) / len(steps)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()

    return seconds_of(epoch, device)


def tgm_tgat(graph: DynamicGraph, device: torch.device) -> float:
    """Seconds of an epoch of TGAT of tgm's layers, on the neighbours that our sampler draws."""
    from tgm.nn.modules.attention import TemporalAttention
    from tgm.nn.modules.time_encoding import Time2Vec

    task, settings = task_of(graph, "tgat", device)
    assert task.features is not None
    table = torch.stack([torch.from_numpy(task.features.at(step)) for step in range(graph.num_steps)]).to(device)
    rows, sampler = table.flatten(0, 1), TemporalNeighbours(graph, device)
    time_encoding = Time2Vec(WIDTH).to(device)
    # Edge features are not optional there: one column of zeros.
    layers = nn.ModuleList(TemporalAttention(settings.heads, WIDTH, 1, WIDTH, settings.dropout) for _ in range(2))
    merges = nn.ModuleList(
        nn.Sequential(nn.Linear(3 * WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH)) for _ in range(2)
    )
    head = nn.Linear(WIDTH, graph.num_classes)
    parts = nn.ModuleList([time_encoding, layers, merges, head]).to(device)
    optimiser = torch.optim.Adam(parts.parameters(), lr=1e-3)

    def layer(number: int, h: Tensor, hop: Hop) -> Tensor:
        own, edge = h[hop.own], torch.zeros(*hop.gaps.shape, 1, device=device)
        now = time_encoding(torch.zeros(len(own), 1, device=device))[:, 0]
        found = layers[number](own, now, edge, h[hop.neighbours], time_encoding(hop.gaps), hop.present)
        merged: Tensor = merges[number](torch.cat([found, own], dim=1))
        return merged

    def epoch() -> None:
        for nodes in batches(task.split.train, settings.batch_size, 0, 0):
            roots = torch.from_numpy(nodes).to(device)
            h = rows
            for number, hop in enumerate(sampler.hops(roots, task.last_step, 2, settings.neighbours, 0).hops):
                h = layer(number, h, hop)
            loss = functional.cross_entropy(head(h), torch.from_numpy(task.labels(nodes)).to(device))
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()

    return seconds_of(epoch, device, repeats=1)


def others(graph: DynamicGraph, methods: list[str], device: torch.device, count: int) -> dict[str, Any]:
    rivals = {"evolvegcn-h": ("PyG's layers", pyg_evolvegcn), "tgat": ("tgm's layers", tgm_tgat)}
    wanted = [name for name in methods if name in rivals]
    own, found = epochs(graph, wanted, device, count), {}
    for name in wanted:
        what, measure = rivals[name]
        try:
            seconds = measure(graph, device)
        except ImportError as error:
            print(f"{name} of {what}: not installed ({error})")
            continue
        ours = own[name]["seconds_per_epoch"]
        print(f"{name} of {what}: {seconds:.3f} s an epoch, {seconds / ours:.2f} times ours", flush=True)
        found[name] = {"of": what, "seconds_per_epoch": seconds, "ours": ours}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graph", default="dblp", help="a dataset's name, or like:dblp, like:tmall, like:patent")
    parser.add_argument("--methods", default=",".join(CASES))
    parser.add_argument("--parts", nargs="+", choices=("epochs", "others"), default=("epochs", "others"))
    parser.add_argument("--epochs", type=int, default=3, help="of each method, after one to warm up")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--json", type=Path, help="write the figures to this file too")
    options = parser.parse_args()
    device = choose_device(options.device)
    keep_freed_memory()
    graph, methods = graph_named(options.graph, device), options.methods.split(",")
    print(f"{options.graph}: {graph.num_nodes:,} nodes, {graph.num_steps} steps, {device}", flush=True)
    figures = {}
    for part in options.parts:
        figures[part] = {"epochs": epochs, "others": others}[part](graph, methods, device, options.epochs)
        if options.json:
            options.json.write_text(json.dumps(figures, indent=2) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
