from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from chronospike.data.graph import DynamicGraph
from chronospike.data.ingest import import_graph
from chronospike.methods.chronospike import tree_inputs
from chronospike.methods.chronospike.tree_inputs import LabelInputs, TreeInputs
from chronospike.rng import signed, stream
from chronospike.sampling.hybrid import HybridSampler
from chronospike.sampling.tree import NeighbourTree
from chronospike.training.node_features import NodeFeatures
from tests.six_nodes import six_nodes
from tests.small_runs import CPU, small_graph, small_network

CLASSES = 3
NODES = 8


def tree_of(nodes: list[list[int]], fanouts: tuple[int, ...], steps: tuple[int, ...]) -> NeighbourTree:
    return NeighbourTree(torch.tensor(nodes, dtype=torch.int32), fanouts, steps)


def tree_features(graph: DynamicGraph) -> TreeInputs:
    return TreeInputs(NodeFeatures(graph), graph.history.degrees(), CPU)


def test_features_without_time_are_read_at_every_step() -> None:
    features = np.array([[2], [3], [2], [3], [2], [3]], dtype=np.float32)
    tree = tree_of([[0, 1], [1, 0], [0, 0]], (1,), (0, 1, 3))
    graph = six_nodes().with_features(features)
    own, near = tree_features(graph).rows(tree).hops()
    assert own[:, 0, 0].tolist() == pytest.approx([-1, 1, -1])
    assert near[:, 0, 0].tolist() == pytest.approx([1, -1, -1])


def test_features_left_on_disk_give_the_same_values(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = small_graph()
    graph = graph.with_made_features(np.random.default_rng(1).normal(size=(5, graph.num_nodes, 3)))
    tree = HybridSampler(graph, (3, 2)).sample(np.arange(20))
    resident = tree_features(graph)
    monkeypatch.setattr(tree_inputs, "RESIDENT_BYTES", 0)
    on_disk = tree_features(graph)
    assert on_disk._table is None
    for one, other in zip(resident.rows(tree).hops(), on_disk.rows(tree).hops(), strict=True):
        assert torch.equal(one, other)


@st.composite
def sampled(draw: st.DrawFn) -> tuple[NeighbourTree, NDArray[np.int64], NDArray[np.int64]]:
    """A tree from a random graph, labels, and the nodes whose labels may be used."""
    edge = st.tuples(st.integers(0, NODES - 1), st.integers(0, NODES - 1), st.integers(0, 3))
    edges = draw(st.lists(edge.filter(lambda e: e[0] != e[1]), min_size=4, max_size=30))
    # A ring at step 0 keeps all nodes in the graph.
    ring = [(v, (v + 1) % NODES, 0) for v in range(NODES)]
    source, target, time = (np.array(column) for column in zip(*ring, *edges, strict=True))
    graph = import_graph((source, target, time))
    labels = np.array(draw(st.lists(st.integers(0, CLASSES - 1), min_size=NODES, max_size=NODES)))
    train = np.array(draw(st.lists(st.integers(0, NODES - 1), min_size=1, max_size=NODES, unique=True)))
    roots = draw(st.lists(st.integers(0, NODES - 1), min_size=1, max_size=4))
    sampler = HybridSampler(graph, (3, 2), history="inclusive", seed=draw(st.integers(0, 99)))
    return sampler.sample(np.array(roots)), labels, train


def of_root(channels: list[torch.Tensor], root: int, batch: int) -> list[torch.Tensor]:
    """The part of the channels that belongs to the tree of one root."""
    return [hop.unflatten(1, (batch, -1))[:, root] for hop in channels]


@settings(max_examples=60, deadline=None)
@given(sampled(), st.integers(1, CLASSES - 1), st.sampled_from([None, 0, 3]))
def test_no_node_can_see_its_own_label(
    found: tuple[NeighbourTree, NDArray[np.int64], NDArray[np.int64]], shift: int, epoch: int | None
) -> None:
    tree, labels, train = found
    before = LabelInputs(labels, train, CLASSES, 0.2, 5, CPU).channels(tree, epoch)
    for place, root in enumerate(tree.hop(0)[0].tolist()):
        other = labels.copy()
        other[root] = (other[root] + shift) % CLASSES
        after = LabelInputs(other, train, CLASSES, 0.2, 5, CPU).channels(tree, epoch)
        for one, two in zip(
            of_root(before, place, tree.batch_size), of_root(after, place, tree.batch_size), strict=True
        ):
            assert torch.equal(one, two)


@settings(max_examples=60, deadline=None)
@given(sampled())
def test_at_inference_all_training_labels_but_the_roots_own_are_there(
    found: tuple[NeighbourTree, NDArray[np.int64], NDArray[np.int64]],
) -> None:
    tree, labels, train = found
    known = {int(v): int(labels[v]) for v in train}
    channels = LabelInputs(labels, train, CLASSES, 0.9, 5, CPU).channels(tree, None)
    for hop, values in enumerate(channels):
        for place, root in enumerate(tree.hop(0)[0].tolist()):
            nodes = tree.hop(hop).unflatten(1, (tree.batch_size, -1))[:, place]
            rows = values.unflatten(1, (tree.batch_size, -1))[:, place]
            for node, row in zip(nodes.reshape(-1).tolist(), rows.reshape(-1, CLASSES).tolist(), strict=True):
                shown = known.get(node) if node != root else None
                assert row == [float(shown == c) for c in range(CLASSES)]


@settings(max_examples=60, deadline=None)
@given(sampled())
def test_in_training_no_root_of_the_batch_shows_its_label_anywhere(
    found: tuple[NeighbourTree, NDArray[np.int64], NDArray[np.int64]],
) -> None:
    tree, labels, train = found
    roots = tree.hop(0)[0]
    channels = LabelInputs(labels, train, CLASSES, 0.0, 5, CPU).channels(tree, 1)
    for hop, values in enumerate(channels):
        nodes = tree.hop(hop)
        shown = values.sum(dim=-1) > 0
        allowed = torch.isin(nodes, torch.from_numpy(train)) & ~torch.isin(nodes, roots)
        assert torch.equal(shown, allowed)


def test_the_share_of_hidden_labels_is_as_asked() -> None:
    count = 4000
    labels = np.zeros(count, dtype=np.int64)
    # Node 0 is the root and all others hang below it.
    tree = tree_of([list(range(count))], (count - 1,), (0,))
    hidden = LabelInputs(labels, np.arange(count), 1, 0.2, 5, CPU)
    shares = [1 - hidden.channels(tree, epoch)[1].mean().item() for epoch in range(3)]
    # Five standard deviations of a share of 0.2 of 4,000.
    assert all(abs(share - 0.2) < 5 * (0.16 / count) ** 0.5 for share in shares)
    assert len(set(shares)) == 3


def test_an_epoch_hides_labels_by_a_stream_of_its_own() -> None:
    hidden = LabelInputs(np.zeros(4, dtype=np.int64), np.arange(4), 1, 0.2, 5, CPU)
    assert hidden.epoch_key(3) == signed(stream(5, "label mask", 3))


def test_an_epoch_hides_the_same_labels_in_every_batch() -> None:
    labels = LabelInputs(np.zeros(6, dtype=np.int64), np.arange(6), 1, 0.5, 3, CPU)
    one = labels.channels(tree_of([[0, 2, 3, 4, 5]], (4,), (0,)), 7)[1]
    other = labels.channels(tree_of([[1, 2, 3, 4, 5]], (4,), (0,)), 7)[1]
    assert torch.equal(one, other)
    assert 0 < one.sum() < 4


def test_labels_of_validation_and_test_nodes_change_nothing() -> None:
    graph = small_graph()
    assert graph.labels is not None
    network = small_network(graph, label_inputs=True)
    split = network.task.split
    held = np.concatenate([split.validation, split.test])
    assert len(held) > 20
    labels = graph.labels.copy()
    labels[held] = 1 - labels[held]
    other = small_network(graph, label_inputs=True)
    other.labels = LabelInputs(labels, split.train, 2, 0.2, network.settings.seed, CPU)
    roots = split.train[:10]
    for training in (False, True):
        found = (of.rows(roots, 0, training).hops() for of in (network, other))
        for one, two in zip(*found, strict=True):
            assert torch.equal(one, two)
