from __future__ import annotations

from dataclasses import replace
from functools import partial
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from chronospike.config import make_settings
from chronospike.data.datasets import load_dataset
from chronospike.data.graph import DynamicGraph
from chronospike.data.storage import open_graph, save_graph
from chronospike.data.synthetic import synthetic_graph
from chronospike.errors import GraphError
from chronospike.methods.chronospike import estimate as module
from chronospike.methods.chronospike.estimate import (
    _PROBES,
    _learn,
    activation_bytes,
    estimate,
    live_trace,
    peak_at,
    probe_traces,
)
from chronospike.methods.chronospike.inference import LANE
from chronospike.methods.chronospike.network import ChronoSpikeNetwork, new_model
from chronospike.methods.chronospike.settings import ChronoSpikeSettings as Settings
from chronospike.nn.dispatch import KernelPlan, plan_kernels
from chronospike.nn.model import ChronoSpike
from chronospike.training.loop import Trainer
from chronospike.training.task import make_task


@pytest.fixture(scope="module")
def graph() -> DynamicGraph:
    return synthetic_graph(nodes=2000, steps=4, classes=10, degree=2, feature_dim=0)


def activations(steps: int, batch: int, **settings: Any) -> int:
    s = make_settings(Settings, settings)
    model = new_model(s, 32, 4)
    return activation_bytes(model, s, on_cpu(model, s), steps, batch)


def on_cpu(model: ChronoSpike, s: Settings) -> KernelPlan:
    return plan_kernels(model.architecture, torch.device("cpu"), steps=4, fanouts=s.fanouts)


def test_counts_of_a_run_are_those_worked_out_by_hand(graph: DynamicGraph) -> None:
    found = estimate(graph, make_settings(Settings, {"batch_size": 256}), 128)
    assert found["parameters"] == 105_738
    # Of 2,000 labelled nodes 20 % are for testing and 5 % for validation.
    assert found["batches"] == ceil(1500 / 256) == 6
    assert found["steps"] == 4
    assert found["tree_nodes"] == 256 * (1 + 5 + 10)


def test_batch_is_never_larger_than_the_training_set(graph: DynamicGraph) -> None:
    found = estimate(graph, make_settings(Settings, {"batch_size": 4096}), 16)
    assert found["tree_nodes"] == 1500 * 16


def test_static_run_sees_one_step(graph: DynamicGraph) -> None:
    assert estimate(graph, make_settings(Settings, {"static": True}), 16)["steps"] == 1


def test_label_inputs_widen_the_network_by_the_classes(graph: DynamicGraph) -> None:
    found = estimate(graph, make_settings(Settings, {"label_inputs": True}), 128)
    assert found["parameters"] == 105_738 + 2 * 128 * 10


def test_graph_without_labels_is_refused(graph: DynamicGraph) -> None:
    with pytest.raises(GraphError, match="no labels"):
        estimate(replace(graph, labels=None, class_names=()), Settings(), 16)


def test_live_bytes_fall_when_a_tensor_is_dropped() -> None:
    def work() -> None:
        first = torch.zeros(10)
        second = torch.zeros(5)
        del first
        torch.zeros(20)
        second.add_(1)

    # Four bytes each: 10, 15, then 5 + 20, and at last 5 alone.
    assert live_trace(work) == [40, 60, 100, 20]


def test_live_bytes_count_what_only_the_backward_pass_holds() -> None:
    x = torch.zeros(10, requires_grad=True)
    # exp keeps its result for the backward pass; the product that went into it is dropped.
    kept: list[torch.Tensor] = []
    trace = live_trace(lambda: kept.append((x * 2).exp().sum()))
    assert max(trace) == 40 + 40
    assert trace[-1] == 40 + 4


def test_live_bytes_include_the_gradient() -> None:
    x = torch.zeros(1000, requires_grad=True)
    assert live_trace(lambda: x.sum().backward())[-1] >= 4000


def test_peak_moves_to_the_curve_that_grows_faster() -> None:
    squares, tens = [4, 9, 16], [20, 30, 40]
    traces = [list(pair) for pair in zip(squares, tens, strict=True)]
    assert peak_at(5, (2, 3, 4), traces) == 50
    assert peak_at(20, (2, 3, 4), traces) == 400


def test_what_the_first_pass_keeps_alive_does_not_count() -> None:
    """A few megabytes more in one probe would become gigabytes in a batch."""
    kept: list[torch.Tensor] = []

    def work(roots: int) -> None:
        x = torch.zeros(roots) * 2
        if not kept:
            kept.append(x)

    assert [trace[-1] for trace in probe_traces(work)] == [8 * roots for roots in _PROBES]


@pytest.mark.parametrize("settings", [{}, {"temporal": "lstm"}, {"aggregator": "mean"}, {"positions": "rotary"}])
def test_peak_of_small_probes_is_that_of_a_real_batch(settings: dict[str, Any]) -> None:
    s = make_settings(Settings, settings)
    model = new_model(s, 16, 4)
    learn = partial(_learn, model, s, on_cpu(model, s), 3)
    traces = probe_traces(learn)
    # The LSTM's workspace comes in whole blocks, which shows at this size.
    assert peak_at(48, _PROBES, traces) == pytest.approx(max(live_trace(partial(learn, 48))), rel=0.05)


def test_activations_grow_linearly_with_the_batch() -> None:
    assert activations(6, 2048, contrastive=0) == pytest.approx(2 * activations(6, 1024, contrastive=0), rel=0.05)


def test_activations_grow_linearly_with_the_steps() -> None:
    assert activations(16, 1024) == pytest.approx(2 * activations(8, 1024), rel=0.05)


def test_contrastive_term_grows_with_the_square_of_the_batch() -> None:
    batch = 50_000
    assert activations(2, batch) - activations(2, batch, contrastive=0) > 4 * batch**2


def test_small_batch_needs_what_inference_needs() -> None:
    assert activations(4, 1) == activations(4, 8) > activations(4, 1, fanouts=(2, 2))
    assert activations(4, 4 * LANE) > activations(4, 1)


def test_estimate_leaves_the_global_generator_alone(graph: DynamicGraph) -> None:
    before = torch.random.get_rng_state()
    estimate(graph, Settings(), 16)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_fused_kernels_take_less_of_the_gpu_than_the_plain_path() -> None:
    graph = load_dataset("synthetic", like="dblp", seed=0)
    fused, plain = (
        estimate(graph, make_settings(Settings, {"kernels": kernels}), 128)["peak_gpu_bytes"]
        for kernels in ("auto", "plain")
    )
    table = 2 * 27 * 28_085 * 128
    # At the least the spikes and membranes of the first layer beside the features.
    assert table + 2 * 4 * 27 * 1024 * 6 * 128 < fused < plain / 2


@pytest.mark.gpu
@pytest.mark.parametrize("fanouts", [(5, 2), (10, 5)])
def test_estimate_is_near_what_a_gpu_then_uses(fanouts: tuple[int, int]) -> None:
    graph = load_dataset("synthetic", like="dblp", seed=0)
    s = make_settings(Settings, {"fanouts": fanouts, "epochs": 1, "min_batches": 1})
    predicted = estimate(graph, s, 128)["peak_gpu_bytes"]
    shape = (graph.num_steps, graph.num_nodes, 128)
    made = graph.with_features(np.random.default_rng(0).standard_normal(shape, dtype=np.float32))
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    trainer = Trainer(ChronoSpikeNetwork(make_task(made, s, torch.device("cuda")), s), s)
    trainer.run()
    used = torch.cuda.max_memory_allocated() - before
    print(f"fan-outs {fanouts}: predicted {predicted / 1e9:.3f} GB, used {used / 1e9:.3f} GB")
    assert predicted == pytest.approx(used, rel=0.3)


def test_half_precision_halves_the_features_on_the_gpu(graph: DynamicGraph) -> None:
    single = estimate(graph, make_settings(Settings, {"precision": "single"}), 512)
    half = estimate(graph, Settings(), 512)
    assert single["peak_gpu_bytes"] - half["peak_gpu_bytes"] >= 2 * 4 * 2000 * 512
    assert half["activation_bytes"] == single["activation_bytes"]


def test_features_too_large_to_keep_are_not_counted_as_kept(
    graph: DynamicGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert estimate(graph, Settings(), 16)["features_bytes"] == 4 * 4 * 2000 * 16
    monkeypatch.setattr(module, "RESIDENT_BYTES", 4 * 4 * 2000 * 16 - 1)
    assert estimate(graph, Settings(), 16)["features_bytes"] == 0


def test_mapped_files_are_those_of_the_graph_and_its_features(tmp_path: Path) -> None:
    made = synthetic_graph(nodes=200, steps=4, feature_dim=8)
    opened = open_graph(save_graph(made, tmp_path / "graph"))
    found = estimate(opened, Settings(), 8)
    assert found["mapped_bytes"] == found["graph_bytes"] + 4 * 4 * 200 * 8
    assert estimate(made, Settings(), 8)["mapped_bytes"] == 0


def test_mapped_files_give_way_where_memory_is_short(graph: DynamicGraph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "machine_bytes", lambda: 1)
    found = estimate(graph, Settings(), 16)
    assert found["mapped_bytes"] == 0
    assert found["peak_cpu_bytes"] == found["base_bytes"] + found["features_bytes"] + found["heap_bytes"]


def test_making_label_features_and_activity_counts() -> None:
    """Five single-precision numbers for each of 120 nodes, ten folds and two classes; a hundred bytes for each end."""
    graph = synthetic_graph(nodes=120, steps=8, classes=2, degree=3.0, timing=0.0)
    assert module._tables_bytes(graph, Settings(label_features=True)) == 120 * 10 * 2 * 20
    ends = len(graph.snapshot.neighbours) if graph.events is None else 2 * len(graph.events.time)
    assert module._tables_bytes(graph, Settings(activity=True)) == 100 * ends
    assert module._tables_bytes(graph, Settings()) == 0
