from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from chronospike.data.splits import Split
from chronospike.training import inputs, logistic
from chronospike.training.logistic import last_step_rows, logistic_regression
from chronospike.training.problem import Problem
from tests.small_runs import small_graph, small_problem


def _accuracy(problem: Problem, predicted: Any, nodes: Any) -> float:
    return float((torch.from_numpy(predicted) == problem.targets(nodes)).float().mean())


def test_features_that_lie_apart_are_told_apart() -> None:
    problem = small_problem()
    predicted, _ = logistic_regression(problem, problem.split, problem.split.test)
    assert _accuracy(problem, predicted, problem.split.test) > 0.9


def test_rows_are_those_the_network_gets_at_the_last_step() -> None:
    problem, nodes = small_problem(), np.array([7, 3])
    expected = problem.rows(nodes, 0).dense()[-1, :2]
    assert torch.equal(torch.from_numpy(last_step_rows(problem, nodes)), expected)


def test_rows_read_from_disk_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    in_memory = last_step_rows(small_problem(), np.arange(120))
    monkeypatch.setattr(inputs, "RESIDENT_BYTES", 0)
    assert np.array_equal(last_step_rows(small_problem(), np.arange(120)), in_memory)


def test_labels_of_validation_and_test_nodes_are_not_learned_from() -> None:
    """Turning them about changes neither the predictions nor, with one candidate left, what is chosen."""
    graph = small_graph()
    problem = small_problem(graph)
    split = replace(problem.split, validation=problem.split.validation[:0])
    assert graph.labels is not None
    other = graph.labels.copy()
    others = np.setdiff1d(np.arange(120), split.train)
    other[others] = 1 - other[others]
    turned = replace(problem, graph=replace(graph, labels=other))
    one, another = (logistic_regression(each, split, split.test)[0] for each in (problem, turned))
    assert np.array_equal(one, another)


def test_validation_nodes_choose_the_penalty(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = small_problem()
    assert problem.graph.labels is not None
    # So strong a penalty leaves only the intercept: the larger class for all, and the worse Macro-F1.
    train = problem.split.train
    few = np.concatenate([train[problem.graph.labels[train] == 0], train[problem.graph.labels[train] == 1][:9]])
    problem = replace(problem, split=replace(problem.split, train=np.sort(few)))
    monkeypatch.setattr(logistic, "_STRENGTHS", (1e-12, 1.0))
    assert logistic_regression(problem, problem.split, problem.split.test)[1]["C"] == 1.0
    without = replace(problem.split, validation=problem.split.validation[:0])
    assert logistic_regression(problem, without, problem.split.test)[1]["C"] == 1e-12


def test_after_a_refit_it_learns_from_the_validation_nodes_too() -> None:
    problem = small_problem()
    split = problem.split
    _, facts = logistic_regression(problem.with_all_labels(), split, split.test)
    assert facts["training_nodes"] == len(split.train) + len(split.validation)


def test_many_training_nodes_are_thinned_out_with_every_class_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = small_graph(400)
    assert graph.labels is not None
    labels = np.zeros(400, dtype=np.int64)
    labels[:4] = 1
    problem = small_problem(graph)
    split = Split(np.arange(200), np.arange(0), np.arange(200, 400))
    problem = replace(problem, graph=replace(graph, labels=labels), split=split)
    monkeypatch.setattr(logistic, "MOST_NODES", 50)
    monkeypatch.setattr(logistic, "_FEWEST_NODES", 20)
    some = logistic._some(problem, split.train)
    assert len(some) == 50
    assert set(labels[some]) == {0, 1}
    assert np.array_equal(some, logistic._some(problem, split.train))
    assert logistic_regression(problem, split, split.test)[1]["training_nodes"] == 50


def test_training_nodes_of_one_class_predict_that_class() -> None:
    problem = small_problem()
    assert problem.graph.labels is not None
    ones = np.flatnonzero(problem.graph.labels == 1)
    split = Split(ones[:10], np.arange(0), np.arange(20, 30))
    predicted, _ = logistic_regression(replace(problem, split=split), split, split.test)
    assert predicted.tolist() == [1] * 10


def test_a_fit_that_has_not_converged_warns_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = small_problem()
    monkeypatch.setattr(logistic, "_ITERATIONS", 1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        logistic_regression(problem, problem.split, problem.split.test)


def test_no_nodes_get_no_predictions() -> None:
    problem = small_problem()
    assert logistic_regression(problem, problem.split, np.arange(0))[0].shape == (0,)
