from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from chronospike.data.attributes import Column
from chronospike.data.ingest import import_graph
from chronospike.errors import GraphError
from chronospike.sampling.hybrid import HybridSampler
from chronospike.sampling.tree import NeighbourTree
from chronospike.training import inputs
from chronospike.training.inputs import LabelInputs, TreeInputs
from tests.six_nodes import six_nodes
from tests.small_runs import CPU, small_graph, small_problem

CLASSES = 3
NODES = 8


def tree_of(nodes: list[list[int]], fanouts: tuple[int, ...], steps: tuple[int, ...]) -> NeighbourTree:
    return NeighbourTree(torch.tensor(nodes, dtype=torch.int32), fanouts, steps)


def test_each_step_of_made_features_is_standardised_on_its_own() -> None:
    features = np.zeros((4, 6, 1), dtype=np.float32)
    # Mean 2.5 and deviation 0.5 at step 0; a constant block at step 1.
    features[0, :, 0] = [2, 3, 2, 3, 2, 3]
    features[1] = 7
    tree = tree_of([[0, 1, 0], [0, 1, 0]], (2,), (0, 1))
    graph = six_nodes().with_made_features(features)
    own, near = TreeInputs(graph, CPU, over_all=True).rows(tree).hops()
    assert own.tolist() == [[[-1.0]], [[0.0]]]
    assert near.tolist() == [[[1.0], [-1.0]], [[0.0], [0.0]]]


def test_features_without_time_are_read_at_every_step() -> None:
    features = np.array([[2], [3], [2], [3], [2], [3]], dtype=np.float32)
    tree = tree_of([[0, 1], [1, 0], [0, 0]], (1,), (0, 1, 3))
    own, near = TreeInputs(six_nodes().with_features(features), CPU).rows(tree).hops()
    assert own[:, 0, 0].tolist() == pytest.approx([-1, 1, -1])
    assert near[:, 0, 0].tolist() == pytest.approx([1, -1, -1])


def test_made_features_are_standardised_by_the_nodes_seen_so_far() -> None:
    graph = six_nodes()
    features = np.random.default_rng(0).normal(size=(4, 6, 3)).astype(np.float32)
    other = features.copy()
    for step in range(4):
        other[step, ~graph.seen_by(step)] += 100
    tree = tree_of([list(range(6))] * 4, (5,), (0, 1, 2, 3))
    one, two = (TreeInputs(graph.with_made_features(x), CPU).rows(tree).dense() for x in (features, other))
    for step in range(4):
        seen = torch.from_numpy(graph.seen_by(step))
        assert torch.equal(one[step, seen], two[step, seen])
        if step == 3:
            assert one[step, seen].std(correction=0) == pytest.approx(1, abs=1e-5)


def test_attributes_come_first_and_made_features_after_them() -> None:
    codes = np.array([[0, 5], [0, 6], [0, 7], [1, 8], [1, 9], [1, np.nan]], dtype=np.float32)
    graph = six_nodes().with_features(codes, (Column("colour", "category", ("blue", "red")), Column("age")))
    made = np.random.default_rng(0).normal(size=(4, 6, 3)).astype(np.float32)
    inputs_ = TreeInputs(graph.with_made_features(made), CPU)
    assert inputs_.encoder is not None
    assert inputs_.encoder.names == ["colour=blue", "colour=red", "age", "age missing"]
    assert inputs_.width == 7
    rows = inputs_.rows(tree_of([[0, 5]] * 4, (1,), (0, 1, 2, 3))).dense()
    assert torch.equal(
        rows[:, :, :4], torch.from_numpy(inputs_.encoder.bind(graph.columns).encode(codes[[0, 5]])).expand(4, 2, 4)
    )
    assert torch.equal(
        rows[..., 4:],
        TreeInputs(graph.with_features(None).with_made_features(made), CPU)
        .rows(tree_of([[0, 5]] * 4, (1,), (0, 1, 2, 3)))
        .dense(),
    )


def test_an_encoder_from_an_earlier_fit_is_used_by_column_name() -> None:
    values = np.column_stack([np.arange(6), np.arange(6)[::-1] * 10]).astype(np.float32)
    first = TreeInputs(six_nodes().with_features(values, (Column("a"), Column("b"))), CPU)
    swapped = six_nodes().with_features(values[:, ::-1] * 1.0, (Column("b"), Column("a")))
    again = TreeInputs(swapped, CPU, encoder=first.encoder)
    tree = tree_of([list(range(6))], (5,), (0,))
    assert torch.equal(first.rows(tree).dense(), again.rows(tree).dense())


def test_features_left_on_disk_give_the_same_values(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = small_graph()
    graph = graph.with_made_features(np.random.default_rng(1).normal(size=(5, graph.num_nodes, 3)))
    tree = HybridSampler(graph, (3, 2)).sample(np.arange(20))
    resident = TreeInputs(graph, CPU)
    monkeypatch.setattr(inputs, "RESIDENT_BYTES", 0)
    on_disk = TreeInputs(graph, CPU)
    assert on_disk._table is None
    for one, other in zip(resident.rows(tree).hops(), on_disk.rows(tree).hops(), strict=True):
        assert torch.equal(one, other)


def test_a_graph_without_features_is_refused() -> None:
    with pytest.raises(GraphError, match="the graph has no features"):
        TreeInputs(six_nodes(), CPU)


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


def test_an_epoch_hides_the_same_labels_in_every_batch() -> None:
    labels = LabelInputs(np.zeros(6, dtype=np.int64), np.arange(6), 1, 0.5, 3, CPU)
    one = labels.channels(tree_of([[0, 2, 3, 4, 5]], (4,), (0,)), 7)[1]
    other = labels.channels(tree_of([[1, 2, 3, 4, 5]], (4,), (0,)), 7)[1]
    assert torch.equal(one, other)
    assert 0 < one.sum() < 4


def test_labels_of_validation_and_test_nodes_change_nothing() -> None:
    graph = small_graph()
    assert graph.labels is not None
    problem = small_problem(graph, label_inputs=True)
    held = np.concatenate([problem.split.validation, problem.split.test])
    assert len(held) > 20
    labels = graph.labels.copy()
    labels[held] = 1 - labels[held]
    other = small_problem(graph, label_inputs=True)
    other.labels = LabelInputs(labels, problem.split.train, 2, 0.2, problem.settings.seed, CPU)
    roots = problem.split.train[:10]
    for epoch in (None, 0):
        for one, two in zip(problem.rows(roots, 0, epoch).hops(), other.rows(roots, 0, epoch).hops(), strict=True):
            assert torch.equal(one, two)
