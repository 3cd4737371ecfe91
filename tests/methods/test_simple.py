"""What holds for every method without weights of its own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from chronospike.config import Settings
from chronospike.data.graph import DynamicGraph
from chronospike.data.splits import Split
from chronospike.data.synthetic import synthetic_graph
from chronospike.errors import InputError
from chronospike.methods.registry import make_learner
from chronospike.methods.simple import thinned
from chronospike.training.learner import Fitted, Learner
from chronospike.training.run_folder import RunFolder
from chronospike.training.task import Task, make_task
from tests.small_runs import CPU, small_graph, with_other_future

# One strength, so that validation nodes have nothing to choose.
QUICK: dict[str, dict[str, Any]] = {
    "majority": {},
    "label-propagation": {},
    "label-propagation-unweighted": {},
    "logistic": {"strengths": [1.0]},
    "labels": {"trees": 10, "boosting_rounds": 3},
}
EVERYONE = np.arange(120)


@pytest.fixture(params=QUICK)
def learner(request: pytest.FixtureRequest) -> Learner[Any]:
    return make_learner(request.param, QUICK[request.param])


def _task(learner: Learner[Any], graph: DynamicGraph | None = None) -> Task:
    return make_task(graph or small_graph(), learner.settings, CPU, needs_features=learner.needs_features)


def _relabelled(task: Task, nodes: NDArray[np.int64]) -> Task:
    """The same task with the other class at some of its nodes."""
    assert task.graph.labels is not None
    labels = task.graph.labels.copy()
    labels[nodes] = 1 - labels[nodes]
    return replace(task, graph=replace(task.graph, labels=labels))


def _same(one: Fitted | None, other: Fitted | None) -> bool:
    assert one is not None
    assert other is not None
    return np.array_equal(one.probabilities(EVERYONE), other.probabilities(EVERYONE))


def test_probabilities_add_up_to_one(learner: Learner[Any]) -> None:
    probabilities = learner.fit(_task(learner)).probabilities(np.array([7, 3, 7]))
    assert probabilities.shape == (3, 2)
    assert probabilities.min() >= 0
    np.testing.assert_allclose(probabilities.sum(axis=1), 1)


def test_nodes_are_answered_for_in_the_order_asked(learner: Learner[Any]) -> None:
    fitted, nodes = learner.fit(_task(learner)), np.array([7, 3, 7])
    assert np.array_equal(fitted.probabilities(nodes), fitted.probabilities(EVERYONE)[nodes])
    assert fitted.probabilities(nodes[:0]).shape == (0, 2)


def test_parts_of_the_nodes_give_the_same_bits(learner: Learner[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    fitted = learner.fit(_task(learner))
    whole, told = fitted.probabilities(EVERYONE), list[tuple[int, int]]()
    monkeypatch.setattr("chronospike.methods.simple._CHUNK", 50)
    assert np.array_equal(fitted.probabilities(EVERYONE, lambda done, of: told.append((done, of))), whole)
    assert told in ([], [(50, 120), (100, 120), (120, 120)])


def test_a_fit_learns_from_the_validation_labels_in_the_end(learner: Learner[Any]) -> None:
    task = _task(learner)
    fitted = learner.fit(task)
    assert fitted.was_refitted
    assert np.array_equal(fitted.split.validation, task.split.validation)
    # Some of them: turning all would leave the shares of two equal classes as they were.
    assert not _same(fitted, learner.fit(_relabelled(task, task.split.validation[:1])))


def test_held_out_has_not_seen_the_validation_labels(learner: Learner[Any]) -> None:
    task = _task(learner)
    held_out = learner.fit(task).held_out()
    assert _same(held_out, learner.fit(_relabelled(task, task.split.validation)).held_out())
    assert not _same(held_out, learner.fit(_relabelled(task, task.split.train[:1])).held_out())


def test_a_fit_without_validation_nodes_is_its_own_held_out(learner: Learner[Any]) -> None:
    fitted = learner.fit(_task(learner).with_all_labels())
    assert not fitted.was_refitted
    assert fitted.held_out() is fitted


def test_test_labels_change_nothing(learner: Learner[Any]) -> None:
    task = _task(learner)
    assert _same(learner.fit(task), learner.fit(_relabelled(task, task.split.test)))


def test_as_of_a_step_later_edges_change_nothing(learner: Learner[Any]) -> None:
    graph = small_graph()
    task, other = (
        _task(learner, each) for each in (graph, replace(with_other_future(graph, 2), features=graph.features))
    )
    assert _same(learner.fit(task).until(2), learner.fit(other).until(2))


def test_as_of_a_step_labels_of_nodes_still_to_come_are_unknown(learner: Learner[Any]) -> None:
    task = _task(learner, synthetic_graph(nodes=120, steps=5, classes=2, degree=0.4, timing=0.0, feature_dim=4))
    come = task.graph.seen_by(1)
    later = task.split.train[~come[task.split.train]]
    assert len(later) > 5
    assert _same(learner.fit(task).until(1), learner.fit(_relabelled(task, later)).until(1))


def test_as_of_a_step_before_all_training_nodes_it_says_so(learner: Learner[Any]) -> None:
    task = _task(learner, synthetic_graph(nodes=120, steps=5, classes=2, degree=0.4, timing=0.0, feature_dim=4))
    later = task.split.train[~task.graph.seen_by(0)[task.split.train]]
    late = replace(task, split=replace(task.split, train=later))
    with pytest.raises(InputError, match="by step 0 no training node has an edge"):
        learner.fit(late).until(0)


def test_a_loaded_run_answers_as_the_fit_did(learner: Learner[Any], tmp_path: Path) -> None:
    task, run = _task(learner), RunFolder(tmp_path)
    fitted = learner.fit(task)
    fitted.save(run)
    assert _same(learner.load(task, run), fitted)


def test_a_run_is_not_loaded_where_none_of_its_training_nodes_is(learner: Learner[Any], tmp_path: Path) -> None:
    task = _task(learner)
    strangers = replace(task, split=replace(task.split, train=EVERYONE[:0], validation=EVERYONE[:0]))
    with pytest.raises(InputError, match=f"{learner.name} learns from the labels of the graph, and none"):
        learner.load(strangers, RunFolder(tmp_path))


def test_its_memory_is_known(learner: Learner[Any]) -> None:
    peak = learner.fit(_task(learner)).cost.peak_memory
    assert peak is not None
    assert peak > 2**20


def _skewed(count: int) -> Task:
    labels = np.zeros(120, dtype=np.int64)
    labels[:4] = 1
    graph = replace(small_graph(), labels=labels)
    split = Split(np.arange(count), np.arange(0), np.arange(100, 120))
    return make_task(graph, Settings(), CPU, split, needs_features=False)


def test_many_nodes_are_thinned_out_with_every_class_kept() -> None:
    task = _skewed(100)
    some = thinned(task, task.split.train, 25)
    assert np.bincount(task.labels(some)).tolist() == [24, 1]
    assert np.array_equal(some, thinned(task, task.split.train, 25))
    assert not np.array_equal(some, thinned(replace(task, seed=1), task.split.train, 25))


def test_few_nodes_are_left_as_they_are() -> None:
    task = _skewed(25)
    assert thinned(task, task.split.train, 25) is task.split.train
