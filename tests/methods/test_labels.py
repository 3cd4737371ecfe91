from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from chronospike.data.activity import activity_profile
from chronospike.data.graph import DynamicGraph
from chronospike.data.label_features import label_features
from chronospike.data.splits import Split
from chronospike.data.synthetic import synthetic_graph
from chronospike.errors import InputError
from chronospike.methods.label_propagation import LabelPropagation, LabelPropagationSettings
from chronospike.methods.labels import Labels, LabelsSettings
from chronospike.training.label_tables import folds_by_id
from chronospike.training.learner import Fitted
from chronospike.training.task import Task, make_task
from tests.path_of_four import path_of_four
from tests.six_nodes import six_nodes
from tests.small_runs import CPU, small_graph

QUICK: dict[str, Any] = {"trees": 10, "boosting_rounds": 3}


def _task(graph: DynamicGraph, split: Split | None = None, **values: Any) -> Task:
    return make_task(graph, LabelsSettings(**values), CPU, split, needs_features=False)


def _fit(task: Task, **values: Any) -> Fitted:
    return Labels(LabelsSettings(**{**QUICK, **values})).fit(task)


def _accuracy(fitted: Fitted, nodes: NDArray[np.int64]) -> float:
    return float((fitted.probabilities(nodes).argmax(axis=1) == fitted.task.labels(nodes)).mean())


def _timed_graph(**changes: Any) -> DynamicGraph:
    """Two communities times two patterns of activity."""
    return synthetic_graph(nodes=600, steps=8, classes=4, degree=3.0, feature_dim=0, **changes)


def test_it_sees_whom_and_when_where_label_propagation_sees_whom() -> None:
    task = _task(_timed_graph())
    others = LabelPropagation(LabelPropagationSettings()).fit(task)
    assert _accuracy(_fit(task), task.split.test) > _accuracy(others, task.split.test) + 0.2


def test_labels_drawn_by_lot_are_guessed_no_better_than_by_chance() -> None:
    graph = _timed_graph()
    graph = graph.with_labels(np.random.default_rng(0).integers(0, 4, 600), graph.class_names)
    task = _task(graph, ratio=0.5, validation=0.2)
    held_out = _fit(task).held_out()
    assert held_out is not None
    nodes = np.union1d(task.split.validation, task.split.test)
    # Five standard deviations of a share of a quarter.
    assert abs(_accuracy(held_out, nodes) - 0.25) < 5 * np.sqrt(3 / 16 / len(nodes))


def test_its_inputs_are_label_features_out_of_fold_and_activity() -> None:
    graph = small_graph()
    task = _task(graph)
    known = np.union1d(task.split.train, task.split.validation)
    around = label_features(graph, known, task.labels(known), folds_by_id(graph, known, 10, seed=0))
    expected = np.concatenate([around, activity_profile(graph)], axis=1)
    assert np.array_equal(_fit(task).embeddings(np.arange(120)), expected)


def test_the_same_seed_gives_the_same_bits_and_another_does_not() -> None:
    first, again, other = (
        _fit(_task(small_graph(), seed=seed)).probabilities(np.arange(120)) for seed in (2**62, 2**62, 1)
    )
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_the_number_of_cpus_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    task = _task(small_graph())
    found: list[NDArray[Any]] = []
    for count in (1, 3):
        for place in ("training.second_stage", "threads"):
            monkeypatch.setattr(f"chronospike.{place}.default_threads", lambda count=count: count)
        found.append(_fit(task).probabilities(np.arange(120)))
    assert np.array_equal(found[0], found[1])


def test_a_fit_takes_no_more_nodes_than_asked() -> None:
    fitted = _fit(_task(small_graph()), max_nodes=30)
    assert fitted.details()["training_nodes"] == 30
    # All known labels are read all the same.
    whole = _fit(_task(small_graph()))
    assert np.array_equal(fitted.embeddings(np.arange(120)), whole.embeddings(np.arange(120)))


def test_weights_and_leaves_are_counted() -> None:
    """87 inputs and an intercept for each class; a tree of one leaf, two probabilities; a boosted one of two leaves."""
    one_each = {"trees": 1, "leaf_nodes": 120, "boosting_rounds": 1, "boosting_leaves": 2}
    assert _fit(_task(small_graph()), recencies=(), **one_each).cost.parameters == 2 * (87 + 1) + 2 + 2


def _with_labels(graph: DynamicGraph, codes: list[int], classes: int = 2) -> DynamicGraph:
    return graph.with_labels(np.array(codes), tuple("abcdef"[:classes]))


@pytest.mark.parametrize(
    ("graph", "train"),
    [
        pytest.param(_with_labels(path_of_four(), [0, 0, 1, 1]), [0, 3], id="one step"),
        pytest.param(_with_labels(path_of_four(directed=True), [0, 0, 1, 1]), [0, 3], id="directed"),
        pytest.param(_with_labels(six_nodes(), [0, 0, 0, 0, 1, 1]), [0, 1, 2, 4], id="class with one known node"),
        pytest.param(_with_labels(six_nodes(), [0, 0, 1, 1, 2, 2], 4), [0, 2], id="classes without known nodes"),
        pytest.param(_with_labels(six_nodes(), [0, -1, 1, -1, -1, 0]), [0, 2, 5], id="isolated known node"),
        pytest.param(_with_labels(six_nodes(directed=True), [0, -1, 1, -1, -1, 0]), [5, 2], id="nothing to read"),
    ],
)
def test_it_answers_on_the_smallest_graphs(graph: DynamicGraph, train: list[int]) -> None:
    split = Split(np.array(train), np.arange(0), np.array([1]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        probabilities = _fit(_task(graph, split)).probabilities(np.arange(graph.num_nodes))
    np.testing.assert_allclose(probabilities.sum(axis=1), 1)
    assert probabilities.min() >= 0


def test_known_nodes_of_one_class_predict_that_class() -> None:
    graph = _with_labels(six_nodes(), [1, 1, 1, 0, 0, 0])
    fitted = _fit(_task(graph, Split(np.array([0, 1, 2]), np.arange(0), np.array([3]))))
    assert fitted.probabilities(np.arange(6)).tolist() == [[0.0, 1.0]] * 6
    assert fitted.cost.parameters == 0


def test_a_graph_beyond_the_memory_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """13 · 2 label features and 85 of activity for 120 nodes, twice four bytes each."""
    learner, graph, needed = Labels(LabelsSettings()), small_graph(), 120 * (13 * 2 + 85) * 8
    monkeypatch.setattr("chronospike.memory.available_bytes", lambda: needed)
    learner.require_memory(graph, 0, 80, CPU)
    monkeypatch.setattr("chronospike.memory.available_bytes", lambda: needed - 1)
    with pytest.raises(InputError, match="'labels' on this graph needs about .* Lower the number of recencies"):
        learner.require_memory(graph, 0, 80, CPU)


def test_as_of_a_step_it_reads_nothing_later() -> None:
    task = _task(replace(small_graph(), features=None))
    rows = _fit(task).until(2).embeddings(np.arange(120))
    profile = activity_profile(task.graph, 2)
    assert np.array_equal(rows[:, -profile.shape[1] :], profile)


def test_without_boosting_shares_still_add_up_to_one() -> None:
    graph = synthetic_graph(nodes=300, steps=3, classes=50, degree=3.0, feature_dim=0, timing=0.0)
    np.testing.assert_allclose(_fit(_task(graph)).probabilities(np.arange(300)).sum(axis=1), 1, rtol=1e-6)


def test_label_features_that_were_made_already_change_nothing() -> None:
    task, other = (_task(small_graph()) for _ in range(2))
    assert task.tables.features.shape[0] == 120
    everyone = np.arange(120)
    for values in ({}, {"folds": 5}):
        one, two = (_fit(which, **values) for which in (task, other))
        assert np.array_equal(one.embeddings(everyone), two.embeddings(everyone))
        held = [fit.held_out() for fit in (one, two)]
        assert held[0] is not None
        assert held[1] is not None
        assert np.array_equal(held[0].embeddings(everyone), held[1].embeddings(everyone))
