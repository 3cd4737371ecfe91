from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from chronospike.methods.chronospike.inference import LANE, firing_rates
from chronospike.methods.chronospike.network import ChronoSpikeNetwork
from chronospike.nn.dispatch import Implementation
from chronospike.nn.tree_features import TreeFeatures
from chronospike.sampling.tree import NeighbourTree
from chronospike.training.task import Task, make_task
from tests.small_runs import CPU, READS, small_graph, small_network, small_trainer, with_other_future

NODES = 300


@pytest.fixture(scope="module", params=[{"label_inputs": True}, READS], ids=["labels in trees", "labels of roots"])
def trained(request: pytest.FixtureRequest) -> ChronoSpikeNetwork:
    """More nodes than one lane holds; labels as inputs, which must not break any promise either."""
    trainer = small_trainer(small_graph(NODES), **request.param, epochs=1)
    trainer.run()
    assert isinstance(trainer.network, ChronoSpikeNetwork)
    return trainer.network


@pytest.mark.parametrize("order", ["reversed", "shuffled", "subset", "single", "repeated"])
def test_a_node_does_not_depend_on_what_else_is_in_the_batch(trained: ChronoSpikeNetwork, order: str) -> None:
    assert NODES > LANE
    everyone = trained.infer(trained.module, np.arange(NODES))
    assert len(everyone[1].unique(dim=0)) > NODES // 2
    nodes = {
        "reversed": np.arange(NODES)[::-1],
        "shuffled": np.random.default_rng(0).permutation(NODES),
        "subset": np.arange(7, NODES, 13),
        "single": np.array([299]),
        "repeated": np.array([5, 5, 288, 5]),
    }[order]
    for all_values, some in zip(everyone, trained.infer(trained.module, nodes.copy()), strict=True):
        assert torch.equal(all_values[nodes.copy()], some)


@pytest.mark.parametrize("last", [0, 2])
@pytest.mark.parametrize("history", ["strict", "inclusive"])
def test_as_of_a_step_no_later_edge_or_feature_matters(trained: ChronoSpikeNetwork, last: int, history: str) -> None:
    settings = trained.settings.change(history=history)
    task, nodes = trained.task, np.arange(0, NODES, 3)
    graphs = task.graph, with_other_future(task.graph, last)
    assert task.features is not None
    encoder = task.features.encoder
    tasks = [make_task(graph, settings, CPU, task.split, encoder) for graph in graphs]

    def infer(task: Task) -> tuple[torch.Tensor, torch.Tensor]:
        return ChronoSpikeNetwork(task, settings).infer(trained.module, nodes)

    found, other = (infer(task.until(last)) for task in tasks)
    assert torch.equal(found[0], other[0])
    assert torch.equal(found[1], other[1])
    whole, changed = (infer(task)[1] for task in tasks)
    assert not torch.equal(whole, changed)


def relabelled(task: Task, nodes: NDArray[np.int64]) -> Task:
    """The same task, but that these nodes have the other class."""
    labels = np.array(task.graph.labels)
    labels[nodes] = 1 - labels[nodes]
    return replace(task, graph=task.graph.with_labels(labels, task.graph.class_names))


def answers(trained: ChronoSpikeNetwork, task: Task) -> tuple[torch.Tensor, torch.Tensor]:
    return ChronoSpikeNetwork(task, trained.settings).infer(trained.module, np.arange(NODES))


@pytest.mark.parametrize("part", ["train", "validation"])
def test_a_known_nodes_own_label_changes_what_is_said_of_others_and_no_bit_of_itself(
    trained: ChronoSpikeNetwork, part: str
) -> None:
    task = trained.task if trained.root_table is not None else trained.task.with_all_labels()
    before = answers(trained, task)
    for node in getattr(trained.task.split, part)[:3]:
        after = answers(trained, relabelled(task, np.array([node])))
        for one, other in zip(before, after, strict=True):
            assert torch.equal(one[node], other[node])
            assert not torch.equal(one, other)


def test_the_labels_of_test_nodes_change_nothing(trained: ChronoSpikeNetwork) -> None:
    other = relabelled(trained.task, trained.task.split.test)
    for one, two in zip(answers(trained, trained.task), answers(trained, other), strict=True):
        assert torch.equal(one, two)


def test_samples_are_averaged(trained: ChronoSpikeNetwork) -> None:
    nodes = np.arange(50)
    one = trained.infer(trained.module, nodes)[0]
    other = ChronoSpikeNetwork(trained.task, trained.settings.change(samples=3))
    several = other.infer(trained.module, nodes)[0]
    assert not torch.equal(one, several)
    torch.testing.assert_close(several.sum(dim=1), torch.ones(50))


def test_the_model_is_left_in_the_mode_it_was_in(trained: ChronoSpikeNetwork) -> None:
    for mode in (True, False):
        trained.module.train(mode)
        trained.infer(trained.module, np.arange(3))
        assert trained.module.training is mode


def test_progress_counts_the_nodes(trained: ChronoSpikeNetwork) -> None:
    told: list[tuple[int, int]] = []
    trained.infer(trained.module, np.arange(NODES), lambda done, total: told.append((done, total)))
    assert told == [(256, 300), (300, 300)]


def test_no_nodes_give_empty_tables(trained: ChronoSpikeNetwork) -> None:
    probabilities, embeddings = trained.infer(trained.module, np.arange(0))
    assert (list(probabilities.shape), list(embeddings.shape)) == ([0, 2], [0, 8])


def test_firing_rates_are_shares_per_layer_and_step() -> None:
    network = small_network()
    rates = firing_rates(network, network.module, network.task.split.test)
    assert [len(layer) for layer in rates] == [5, 5]
    assert all(0 <= rate <= 1 for layer in rates for rate in layer)
    assert any(rate > 0 for rate in rates[0])


def test_there_is_no_firing_without_spikes_or_without_nodes() -> None:
    silent, network = small_network(neuron="relu"), small_network()
    assert firing_rates(silent, silent.module, silent.task.split.test) == []
    assert firing_rates(network, network.module, np.arange(0)) == []


def test_firing_rates_are_taken_of_half_precision_rows_from_host_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    network = small_network(kernels="plain")
    inputs, test = network.inputs, network.task.split.test
    wanted = firing_rates(network, network.module, test)
    by_reference = inputs.rows

    def from_host(tree: NeighbourTree, fetch: Implementation) -> TreeFeatures:
        rows = by_reference(tree, fetch)
        return TreeFeatures(rows.dense().half(), rows.sizes)

    monkeypatch.setattr(inputs, "rows", from_host)
    assert np.allclose(firing_rates(network, network.module, test), wanted, atol=0.01)
