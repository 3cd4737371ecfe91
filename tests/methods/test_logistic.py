from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from chronospike.data.graph import DynamicGraph
from chronospike.data.splits import Split
from chronospike.methods import logistic
from chronospike.methods.logistic import Classifier, Logistic, LogisticSettings, last_step_rows
from chronospike.training.learner import Fitted
from chronospike.training.task import Task, make_task
from tests.small_runs import CPU, small_graph


def _task(graph: DynamicGraph | None = None, split: Split | None = None) -> Task:
    return make_task(graph or small_graph(), LogisticSettings(), CPU, split)


def _fit(task: Task, **values: Any) -> Fitted:
    return Logistic(LogisticSettings(**values)).fit(task)


def test_features_that_lie_apart_are_told_apart() -> None:
    task = _task()
    predicted = _fit(task).probabilities(task.split.test).argmax(axis=1)
    assert (predicted == task.labels(task.split.test)).mean() > 0.9


def test_rows_are_the_features_of_the_last_step_that_is_read() -> None:
    task = _task()
    assert task.features is not None
    nodes = np.array([7, 3])
    assert np.array_equal(last_step_rows(task, nodes), task.features.at(4, nodes))
    assert np.array_equal(last_step_rows(task.until(2), nodes), task.features.at(2, nodes))


def test_rows_are_its_embeddings() -> None:
    task, nodes = _task(), np.array([7, 3])
    assert np.array_equal(_fit(task).embeddings(nodes), last_step_rows(task, nodes))


def _lopsided() -> Task:
    """Nine nodes of the second class to train on, and all of the first."""
    task = _task()
    train, labels = task.split.train, task.labels(task.split.train)
    few = np.sort(np.concatenate([train[labels == 0], train[labels == 1][:9]]))
    return replace(task, split=replace(task.split, train=few))


def test_validation_nodes_choose_the_penalty() -> None:
    """So strong a penalty leaves only the intercept: the larger class for all, and the worse Macro-F1."""
    task = _lopsided()
    assert _fit(task, strengths=(1e-12, 1.0)).details()["C"] == 1.0
    without = replace(task, split=replace(task.split, validation=task.split.validation[:0]))
    assert _fit(without, strengths=(1e-12, 1.0)).details()["C"] == 1e-12


def test_the_first_of_equal_penalties_is_taken() -> None:
    assert _fit(_lopsided(), strengths=(1e-12, 1e-13)).details()["C"] == 1e-12


def test_the_final_fit_is_to_training_and_validation_nodes() -> None:
    task = _task()
    fitted = _fit(task)
    assert fitted.details()["training_nodes"] == len(task.split.train) + len(task.split.validation)
    held_out = fitted.held_out()
    assert held_out is not None
    assert held_out.details()["training_nodes"] == len(task.split.train)


def test_a_fit_takes_no_more_nodes_than_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logistic, "_FEWEST_NODES", 20)
    assert _fit(_task(), max_nodes=50).details()["training_nodes"] == 50
    # 8 features and 2 classes: room for 30 nodes.
    assert _fit(_task(), max_work=480).details()["training_nodes"] == 30
    assert _fit(_task(), max_work=1).details()["training_nodes"] == 20


def test_weights_and_intercepts_are_counted() -> None:
    assert _fit(_task()).cost.parameters == 2 * (8 + 1)


def test_training_nodes_of_one_class_predict_that_class() -> None:
    graph = small_graph()
    assert graph.labels is not None
    split = Split(np.flatnonzero(graph.labels == 1)[:10], np.arange(0), np.arange(20, 30))
    assert _fit(_task(graph, split)).probabilities(split.test).tolist() == [[0.0, 1.0]] * 10


def test_a_class_without_training_nodes_gets_nothing() -> None:
    graph = replace(small_graph(), class_names=("a", "b", "c"))
    assert _fit(_task(graph)).probabilities(np.arange(120))[:, 2].max() == 0


def test_chunks_of_nodes_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    task = _task()
    whole = _fit(task).probabilities(np.arange(120))
    monkeypatch.setattr(logistic, "_CHUNK", 50)
    np.testing.assert_allclose(_fit(task).probabilities(np.arange(120)), whole, rtol=1e-6)


def test_a_fit_that_has_not_converged_warns_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logistic, "_ITERATIONS", 1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _fit(_task())


@pytest.mark.parametrize("classes", [3, 5])
@pytest.mark.parametrize("strength", [1.0, 0.01])
def test_a_fit_is_that_of_scikit_learn(classes: int, strength: float, monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(classes)
    rows = generator.normal(size=(300, 6)).astype(np.float32)
    labels = (rows[:, :classes] + generator.normal(size=(300, classes))).argmax(axis=1)
    expected = LogisticRegression(C=strength, tol=1e-8, max_iter=10_000).fit(rows, labels).predict_proba(rows)
    monkeypatch.setattr(logistic, "_TOLERANCE", 1e-6)
    np.testing.assert_allclose(Classifier(rows, labels, strength, CPU).probabilities(rows), expected, atol=1e-3)


def test_a_fit_that_begins_elsewhere_ends_at_the_same_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(0)
    rows, labels = generator.normal(size=(200, 4)).astype(np.float32), generator.integers(0, 3, 200)
    monkeypatch.setattr(logistic, "_TOLERANCE", 1e-6)
    from_zero = Classifier(rows, labels, 1.0, CPU)
    from_other = Classifier(rows, labels, 1.0, CPU, Classifier(rows, labels, 1e-3, CPU))
    np.testing.assert_allclose(from_other.probabilities(rows), from_zero.probabilities(rows), atol=2e-4)
