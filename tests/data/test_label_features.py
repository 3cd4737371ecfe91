from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from chronospike.data.build import build_graph
from chronospike.data.events import Events, Steps
from chronospike.data.graph import DynamicGraph
from chronospike.data.ids import NodeIds
from chronospike.data.label_features import label_features, stratified_folds
from chronospike.data.label_propagation import label_propagation
from chronospike.data.synthetic import synthetic_graph
from tests.path_of_four import path_of_four
from tests.small_runs import small_graph, with_other_future

CLASSES = 3


def _mixed(directed: bool = False) -> DynamicGraph:
    """Three classes that know nothing of whom they meet."""
    graph = synthetic_graph(
        nodes=300, steps=4, classes=CLASSES, degree=2.0, feature_dim=0, timing=0.0, directed=directed
    )
    return graph.with_labels(np.random.default_rng(5).integers(0, CLASSES, 300), graph.class_names)


def _labels(graph: DynamicGraph, nodes: NDArray[np.int64]) -> NDArray[np.int64]:
    assert graph.labels is not None
    return graph.labels[nodes]


def test_one_and_two_hops_on_a_path_by_hand() -> None:
    """Nodes 0 and 3 are known. Either sees the other nowhere: it is three hops away. Last comes who was met first."""
    graph = path_of_four().with_labels(np.array([0, 0, 1, 1]), ("a", "b"))
    values = label_features(
        graph, np.array([0, 3]), np.array([0, 1]), np.array([0, 1]), recencies=(0.0,), diffusions=()
    )
    assert values.tolist() == [[0, 0, 0, 0, 0, 0], [1, 0, 0, 1, 1, 0], [0, 1, 1, 0, 0, 1], [0, 0, 0, 0, 0, 0]]


def test_of_directed_edges_sources_and_targets_are_read_apart_by_hand() -> None:
    """0 → 1 → 2 → 3, of which 0 and 3 are known: 1 has a source with a label, 2 a target."""
    graph = path_of_four(directed=True).with_labels(np.array([0, 0, 1, 1]), ("a", "b"))
    known, labels, folds = np.array([0, 3]), np.array([0, 1]), np.array([0, 1])
    values = label_features(graph, known, labels, folds, recencies=(0.0,), diffusions=())
    undirected = label_features(
        path_of_four().with_labels(np.array([0, 0, 1, 1]), ("a", "b")),
        known,
        labels,
        folds,
        recencies=(0.0,),
        diffusions=(),
    )
    assert np.array_equal(values[:, [0, 1, 2, 3, 8, 9]], undirected)
    assert values[:, 4:8].tolist() == [[0, 0, 0, 0], [1, 0, 0, 0], [0, 0, 0, 1], [0, 0, 0, 0]]


def test_recency_weighs_an_old_neighbour_against_a_new_one_by_hand() -> None:
    """Node 1 met node 0 at step 0 and node 2 at step 1; with recency ln 4 the edges weigh ¼ and 1."""
    graph = path_of_four((0, 1, 1), 2).with_labels(np.array([0, 0, 1, 1]), ("a", "b"))
    known, labels, folds = np.array([0, 2]), np.array([0, 1]), np.array([0, 1])
    values = label_features(graph, known, labels, folds, recencies=(np.log(4),), diffusions=())
    old, new = 0.25 / np.sqrt(0.25 * 1.25), 1 / np.sqrt(1.25 * 2)
    np.testing.assert_allclose(values[1, :2], [old / (old + new), new / (old + new)], rtol=1e-6)


def test_diffusion_of_all_known_labels_reaches_the_other_nodes() -> None:
    graph, known = _mixed(), np.arange(0, 300, 2)
    folds = stratified_folds(_labels(graph, known), 10, seed=0)
    values = label_features(graph, known, _labels(graph, known), folds, recencies=(3.0,), diffusions=((0.9, 50),))
    others = np.setdiff1d(np.flatnonzero(~graph.isolated), known)
    wanted = label_propagation(graph, known)[others] / np.bincount(_labels(graph, known))
    np.testing.assert_allclose(values[others, 6:9], wanted / wanted.sum(axis=1, keepdims=True), atol=1e-6)


def test_what_a_fold_lacks_of_a_class_does_not_show_in_what_it_reads() -> None:
    """A star of twelve leaves: two hops reach all other leaves, and each fold lacks other numbers of the classes."""
    ends, step = np.arange(12), np.zeros(12, dtype=np.int32)
    events = Events(np.full(12, 12), ends, np.zeros(12, dtype=np.int64), NodeIds.range(13))
    labels = np.array([0, 0, 0, 1] * 3)
    graph = build_graph(events, Steps(step, np.array([0]), np.array([0]))).with_labels(
        np.append(labels, -1), ("a", "b")
    )
    folds = np.array([0, 0, 0, 0, 1, 1, 1, 2, 2, 2, 2, 1])
    values = label_features(graph, ends, labels, folds, recencies=(0.0,), diffusions=())
    np.testing.assert_allclose(values[:12, 2:4], 0.5, rtol=1e-6)


def test_columns_are_by_recency_then_by_kind_then_by_class() -> None:
    graph, known = _mixed(), np.arange(100)
    labels, folds = _labels(graph, known), known % 10
    values = label_features(graph, known, labels, folds)
    assert values.shape == (300, 13 * CLASSES)
    alone = label_features(graph, known, labels, folds, recencies=(8.0,), diffusions=((0.5, 15),))
    assert np.array_equal(values[:, -6:], alone[:, -6:])
    assert np.array_equal(values[:, 24:30], alone[:, :6])


def test_the_labels_met_first_outweigh_all_later_ones() -> None:
    """Node 0 meets one node of class a at the first of ten steps, then two of class b at each other step."""
    step, times = np.array([0, *np.repeat(np.arange(1, 10), 2)], dtype=np.int32), np.arange(10)
    events = Events(np.zeros(19, dtype=np.int64), np.arange(1, 20), times[step], NodeIds.range(20))
    graph = build_graph(events, Steps(step, times, times))
    graph = graph.with_labels(np.array([-1, 0, *[1] * 18]), ("a", "b"))
    known = np.arange(1, 20)
    values = label_features(graph, known, _labels(graph, known), known % 2)
    assert values[0, -2] > 0.9
    assert values[0, 0] == pytest.approx(1 / 19)
    alone = label_features(graph, known, _labels(graph, known), known % 2, recencies=())
    assert np.array_equal(alone, values[:, -2:])


@pytest.mark.parametrize("directed", [False, True])
def test_no_known_node_can_see_its_own_label(directed: bool) -> None:
    graph, known = _mixed(directed), np.arange(200)
    labels, folds = _labels(graph, known), known % 10
    before = label_features(graph, known, labels, folds)
    for node in range(20):
        other = labels.copy()
        other[node] = (other[node] + 1) % CLASSES
        after = label_features(graph, known, other, folds)
        assert np.array_equal(after[node], before[node])
        assert not np.array_equal(after, before)


def _columns(near: bool) -> NDArray[np.int64]:
    """Columns of one hop, those of the labels met first among them, or those of two hops and the diffusions."""
    kind = np.arange(13 * CLASSES) // CLASSES % 4
    return np.flatnonzero((kind == 0) == near)


def test_a_known_node_reads_the_far_labels_it_would_if_its_fold_were_unknown() -> None:
    graph, known = _mixed(), np.arange(200)
    labels, folds = _labels(graph, known), known % 10
    values = label_features(graph, known, labels, folds)[:, _columns(near=False)]
    rest = folds != 3
    without = label_features(graph, known[rest], labels[rest], folds[rest])[:, _columns(near=False)]
    np.testing.assert_allclose(values[known[~rest]], without[known[~rest]], atol=1e-6)
    assert not np.allclose(values[200:], without[200:], atol=1e-3)


def test_a_known_node_reads_the_neighbours_it_would_if_only_its_own_label_were_unknown() -> None:
    graph, known = _mixed(), np.arange(200)
    labels, folds = _labels(graph, known), known % 10
    values = label_features(graph, known, labels, folds)[:, _columns(near=True)]
    for node in range(0, 200, 17):
        rest = known != node
        without = label_features(graph, known[rest], labels[rest], folds[rest])[:, _columns(near=True)]
        assert np.array_equal(values[node], without[node])
        assert not np.array_equal(values, without)


def _with_hubs(seed: int, directed: bool) -> DynamicGraph:
    """Forty nodes, two of which know nearly everyone; edges come back within a step and in later ones."""
    rng = np.random.default_rng(seed)
    star = rng.integers(0, 2, 60), rng.integers(2, 40, 60)
    source, target = (np.concatenate([ends, rng.integers(0, 40, 50)]) for ends in star)
    source, target = np.concatenate([source, target[:30]]), np.concatenate([target, source[:30]])
    step, times = rng.integers(0, 3, len(source)).astype(np.int32), np.arange(3)
    events = Events(source, target, times[step], NodeIds.range(40))
    return build_graph(events, Steps(step, times, times), directed=directed).with_labels(
        rng.integers(0, CLASSES, 40), ("a", "b", "c")
    )


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_no_digit_of_the_hops_of_a_node_tells_its_own_label(seed: int, directed: bool) -> None:
    graph, known = _with_hubs(seed, directed), np.arange(40)
    labels = _labels(graph, known)
    before = label_features(graph, known, labels, known % 5, diffusions=())
    for node in known:
        other = labels.copy()
        other[node] = (other[node] + 1) % CLASSES
        after = label_features(graph, known, other, known % 5, diffusions=())
        assert after[node].tobytes() == before[node].tobytes()
        assert graph.isolated[node] or not np.array_equal(after, before)


def _star(leaves: int) -> DynamicGraph:
    """Node 0 meets all others, once."""
    ends, times = np.arange(1, leaves + 1), np.array([0])
    events = Events(np.zeros(leaves, dtype=np.int64), ends, np.zeros(leaves), NodeIds.range(leaves + 1))
    graph = build_graph(events, Steps(np.zeros(leaves, dtype=np.int32), times, times))
    return graph.with_labels(np.random.default_rng(4).integers(0, 2, leaves + 1), ("a", "b"))


def test_no_threshold_tells_the_labels_of_nodes_that_share_all_their_neighbours() -> None:
    """All 200 leaves of a star reach each other and nobody else: what one of them lacks is its own label."""
    graph, known = _star(200), np.arange(1, 201)
    labels = _labels(graph, known)
    values = label_features(graph, known, labels, stratified_folds(labels, 10, seed=0), recencies=(0.0,))[known]
    for column in values.T:
        right = max(np.mean((column > cut) == labels) for cut in np.unique(column))
        assert max(right, 1 - right) < 0.7


def test_labels_that_are_drawn_by_lot_cannot_be_read_off() -> None:
    """Were a node's own label in what it reads, two hops and diffusion would give it away."""
    graph = _mixed()
    known = np.flatnonzero(~graph.isolated)
    labels = _labels(graph, known)
    values = label_features(graph, known, labels, stratified_folds(labels, 10, seed=1))[known]
    hits = (values.reshape(len(known), 13, CLASSES).argmax(axis=2) == labels[:, None]).mean(axis=0)
    # Five standard deviations of a share of a third.
    assert np.all(np.abs(hits - 1 / CLASSES) < 5 * np.sqrt(2 / 9 / len(known)))


def test_edges_after_the_last_step_change_nothing() -> None:
    graph, known = small_graph(), np.arange(60)
    labels, folds = _labels(graph, known), known % 10
    one, other = (label_features(g, known, labels, folds, last_step=2) for g in (graph, with_other_future(graph, 2)))
    assert np.array_equal(one, other)
    assert not np.array_equal(one, label_features(graph, known, labels, folds))


def test_labels_of_nodes_that_are_not_known_change_nothing() -> None:
    graph, known = small_graph(), np.arange(60)
    labels, folds = _labels(graph, known), known % 10
    hidden = np.where(np.arange(120) < 60, _labels(graph, np.arange(120)), -1)
    one, other = (label_features(g, known, labels, folds) for g in (graph, replace(graph, labels=hidden)))
    assert np.array_equal(one, other)


def test_folds_hold_equally_many_nodes_of_every_class() -> None:
    labels = np.repeat([0, 1, 2], [57, 30, 4])
    folds = stratified_folds(labels, 10, seed=0)
    assert set(np.bincount(folds, minlength=10)) == {9, 10}
    for code in range(3):
        sizes = np.bincount(folds[labels == code], minlength=10)
        assert sizes.max() - sizes.min() <= 1


def test_the_seed_decides_the_folds() -> None:
    labels = np.arange(100) % 2
    first, again, other = (stratified_folds(labels, 10, seed).tolist() for seed in (0, 0, 1))
    assert first == again
    assert first != other
