from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from chronospike.data.csr import history_and_snapshot
from chronospike.data.storage import open_graph, save_graph
from chronospike.methods.chronospike.network import architecture, new_model
from chronospike.methods.chronospike.settings import ChronoSpikeSettings as Settings
from chronospike.nn.model import ChronoSpike
from chronospike.nn.roots import RootInputs
from chronospike.rng import stream
from tests.small_runs import READS, same_weights, small_graph, small_network, small_settings


@pytest.mark.parametrize(("classes", "parameters"), [(10, 105_738), (5, 105_413), (6, 105_478)])
def test_the_papers_parameter_counts(classes: int, parameters: int) -> None:
    assert new_model(Settings(), 128, classes).parameter_count() == parameters


def test_label_inputs_widen_the_first_layer_by_the_classes() -> None:
    assert architecture(Settings(), 128, 10).inputs == 128
    assert architecture(Settings(label_inputs=True), 128, 10).inputs == 138


def test_the_seed_decides_the_first_weights_in_a_stream_of_their_own() -> None:
    for seed in (0, 1):
        settings = small_settings(seed=seed)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(stream(seed, "init"))
            expected = ChronoSpike(architecture(settings, 8, 2)).state_dict()
        assert same_weights(new_model(settings, 8, 2).state_dict(), expected)


def test_initial_weights_are_those_of_torch_where_asked_for() -> None:
    given = [new_model(small_settings(initialisation=kind), 8, 2) for kind in ("xavier", "torch", "torch")]
    xavier, torch_own, _ = ([part for part in model.modules() if isinstance(part, nn.Linear)] for model in given)
    assert len(xavier) > 4
    assert all(not part.bias.any() for part in xavier)
    for part in torch_own:
        # Uniform up to 1 / √inputs, biases too.
        bound = part.in_features**-0.5
        assert 0 < part.bias.abs().max() <= bound
        assert 0.5 * bound < part.weight.abs().max() <= bound
    assert same_weights(given[1].state_dict(), given[2].state_dict())


def test_a_new_model_leaves_the_global_generator_alone() -> None:
    before = torch.random.get_rng_state()
    new_model(small_settings(), 8, 2)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_the_network_sees_all_steps_the_static_one_the_last_and_as_of_those_before() -> None:
    graph = small_graph()
    assert small_network(graph).steps == (0, 1, 2, 3, 4)
    assert small_network(graph, static=True).steps == (4,)
    for static, steps in ((False, (0, 1, 2)), (True, (2,))):
        network = small_network(graph, static=static)
        assert network.for_task(network.task.until(2)).steps == steps


@pytest.mark.parametrize("mix", ["bernoulli", "split"])
def test_the_static_network_reads_no_edge_of_an_earlier_step(mix: str) -> None:
    graph = small_graph()
    rows, steps, neighbours = graph.snapshot.entries()
    moved = np.where(steps < 4, (neighbours * 7 + 3) % 120, neighbours)
    history, snapshot = history_and_snapshot(rows, moved, steps, 120, 5)
    networks = [
        small_network(one, static=True, mix=mix) for one in (graph, replace(graph, history=history, snapshot=snapshot))
    ]
    trees = [network.sampler.sample(range(120), steps=network.steps) for network in networks]
    assert trees[0].nodes.equal(trees[1].nodes)
    assert all(
        set(drawn) <= {node, *graph.snapshot.at(node, 4).tolist()}
        for node, drawn in enumerate(trees[0].neighbours(0)[0].tolist())
    )


@pytest.mark.parametrize(("training", "purpose"), [(True, "sampler"), (False, "inference")])
def test_training_and_inference_sample_from_streams_of_their_own(training: bool, purpose: str) -> None:
    network = small_network()
    train = network.task.split.train
    tree = network.sampler.sample(train, 2, purpose=purpose)
    assert torch.equal(network.rows(train, 2, training).dense(), network.inputs.rows(tree).dense())


def test_hops_hold_features_and_then_labels() -> None:
    network = small_network(label_inputs=True)
    hops = network.rows(network.task.split.train[:4], 0).hops()
    assert [list(hop.shape) for hop in hops] == [[5, 4, 10], [5, 12, 10], [5, 24, 10]]
    plain = small_network().rows(network.task.split.train[:4], 0).hops()
    assert all(torch.equal(hop[..., :8], bare) for hop, bare in zip(hops, plain, strict=True))


def test_targets_are_the_classes_of_the_nodes() -> None:
    graph = small_graph()
    assert graph.labels is not None
    assert small_network(graph).targets(np.array([5, 3])).tolist() == graph.labels[[5, 3]].tolist()


def test_a_graph_mapped_from_disk_gives_no_warnings(tmp_path: Path) -> None:
    graph = open_graph(save_graph(small_graph(), tmp_path / "graph"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        network = small_network(graph, label_inputs=True)
        network.rows(network.task.split.train, 0, training=True)
        network.targets(network.task.split.train)


@pytest.mark.parametrize(
    ("train", "least", "size"), [(21_063, 8, 1024), (21_063, 1, 1024), (1_000, 8, 125), (1_001, 8, 126), (100, 8, 32)]
)
def test_a_small_training_set_is_cut_into_several_batches(train: int, least: int, size: int) -> None:
    assert Settings(min_batches=least).batch_nodes(train) == size


def test_the_static_network_reads_nothing_of_its_roots() -> None:
    network = small_network(static=True, **READS)
    assert network.root_table is None
    assert (network.architecture.met, network.architecture.numbers) == (0, 0)


def test_rows_hold_what_is_read_of_their_roots() -> None:
    network = small_network(**READS)
    nodes = network.task.split.train[:4]
    found = network.rows(nodes, 0).roots
    assert found.counts is not None
    assert found.numbers is not None
    assert np.array_equal(found.counts.numpy(), network.task.tables.counts[nodes])
    assert found.numbers.shape == (4, 26 + 85 + 1)
    assert small_network().rows(nodes, 0).roots == RootInputs()


def test_a_new_module_is_standardised_over_the_known_nodes() -> None:
    network = small_network(activity=True)
    assert isinstance(network.module, ChronoSpike)
    assert network.module.standardise is not None
    rows = network.task.tables.activity[network.task.known].astype(np.float64)
    np.testing.assert_allclose(network.module.standardise.mean[: rows.shape[1]], rows.mean(axis=0), rtol=1e-5)


def test_as_of_a_step_the_table_of_roots_is_that_of_the_step() -> None:
    network = small_network(**READS)
    other = network.for_task(network.task.until(2))
    assert other.root_table is not None
    assert network.root_table is not None
    assert other.root_table.counts is not None
    assert other.root_table.counts.shape[1] == 3
    assert network.for_task(network.task.with_all_labels()).root_table is network.root_table


def test_without_labels_of_roots_the_description_is_what_it_was_before_there_were_any() -> None:
    found = small_network().description()
    assert not {"met", "numbers", "sequence_channels", "head", "head_dropout"} & set(found)
    assert small_network(**READS).description()["numbers"] == 26 + 85 + 1


@pytest.mark.parametrize("reads", [{}, READS])
def test_kernels_learn_what_plain_operations_learn(reads: dict[str, Any]) -> None:
    """Values and gradients of a training batch on the CPU."""
    quiet: dict[str, Any] = {"dropout": 0.0, "temporal_dropout": 0.0, "head_dropout": 0.0, "contrastive": 0.0}
    fast, plain = (small_network(**reads, **quiet, kernels=kernels) for kernels in ("auto", "plain"))
    assert fast.plan.attention.implementation == "numba"
    found = []
    for network in (fast, plain):
        nodes = network.task.split.train[:30]
        loss = network.losses(network.module, network.prepare(nodes, 0), nodes)[0]
        found.append([loss, *torch.autograd.grad(loss, list(network.module.parameters()))])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, atol=2e-5, rtol=1e-3)
