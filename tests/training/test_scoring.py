from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from chronospike.data.ids import NodeIds
from chronospike.data.splits import Split
from chronospike.methods.labels import Labels, LabelsSettings
from chronospike.methods.majority import Majority
from chronospike.methods.registry import REFERENCES, make_learner
from chronospike.threads import in_background
from chronospike.training.learner import Fitted
from chronospike.training.scoring import (
    confidently_wrong,
    reference_scores,
    score,
    score_nodes,
    start_references,
    unlabelled_shares,
)
from chronospike.training.task import make_task
from tests.six_nodes import six_nodes
from tests.small_runs import BAG, CPU, SMALL, noisy_graph, small_settings

SIMPLE = [make_learner(name, {}) for name in REFERENCES]


@pytest.fixture
def fitted() -> Fitted:
    """Six nodes; 0, 1 and 2 train, none validate, node 5 has no edge."""
    return fitted_to(np.array([0, 0, 1, 1, 0, 1]), np.array([4, 5]))


def fitted_to(labels: np.ndarray, test: np.ndarray) -> Fitted:
    graph = six_nodes().with_features(np.eye(6, dtype=np.float32)).with_labels(labels, ("cats", "dogs"))
    task = make_task(graph, small_settings(), CPU, Split(np.arange(3), np.arange(0), test))
    return Majority(small_settings()).fit(task)


def test_scores_count_only_the_test_nodes() -> None:
    # Two of the three training nodes are cats: everyone is called a cat. Of nodes 3, 4 and 5 one is.
    found = score(fitted_to(np.array([0, 0, 1, 1, 0, 1]), np.array([3, 4, 5])))
    assert found.metrics["test"] == {
        "macro_f1": pytest.approx(1 / 4),
        "micro_f1": pytest.approx(1 / 3),
        "per_class_f1": {"cats": pytest.approx(1 / 2), "dogs": 0.0},
        "confusion": [[1, 0], [2, 0]],
        "nodes": 3,
    }
    assert found.nodes.tolist() == list(range(6))
    assert found.probabilities.tolist() == [pytest.approx([2 / 3, 1 / 3])] * 6


def test_the_majority_class_is_that_of_the_training_nodes(fitted: Fitted) -> None:
    # Two of the three training nodes are cats, and so are one of the test nodes' two.
    assert reference_scores(fitted, SIMPLE, {})["majority class"] == {
        "macro_f1": pytest.approx(1 / 3),
        "micro_f1": 0.5,
    }


def test_label_propagation_reaches_neighbours_and_leaves_the_rest_to_the_majority() -> None:
    # Node 4 has node 0, a cat, as its only neighbour; node 5, a dog, has none and is taken for a cat.
    for node, right in ((4, 1.0), (5, 0.0)):
        scores = reference_scores(fitted_to(np.array([0, 0, 1, 1, 0, 1]), np.array([node])), SIMPLE, {})
        assert scores["label propagation"]["micro_f1"] == right


def test_the_simple_methods_say_what_was_fitted(fitted: Fitted) -> None:
    scores = reference_scores(fitted, SIMPLE, {})
    assert list(scores) == ["majority class", "label propagation", "logistic regression"]
    assert scores["logistic regression"]["training_nodes"] == 3


def test_a_fit_that_was_begun_before_is_taken(fitted: Fitted) -> None:
    """A fit to other labels, which takes both test nodes for dogs: one of them is."""
    other = fitted_to(np.array([1, 1, 1, 1, 0, 1]), np.array([4, 5]))
    begun = {"majority": in_background(lambda: other)}
    found = reference_scores(fitted, SIMPLE, begun)
    assert found["majority class"]["micro_f1"] == score(other).metrics["test"]["micro_f1"] == 0.5
    assert found["majority class"]["macro_f1"] == score(other).metrics["test"]["macro_f1"]


def test_on_a_cpu_no_reference_is_begun_before(fitted: Fitted) -> None:
    assert start_references([make_learner("labels", {})], fitted.task, make_learner("chronospike", {})) == {}


def test_on_a_gpu_references_without_features_are_begun_before(fitted: Fitted) -> None:
    # None of those that are begun computes there.
    task = replace(fitted.task, device=torch.device("cuda"))
    begun = start_references(SIMPLE, task, make_learner("chronospike", {}))
    assert list(begun) == ["majority", "label-propagation"]
    found, afterwards = (reference_scores(fitted, SIMPLE, given) for given in (begun, {}))
    assert found == afterwards


@pytest.mark.filterwarnings("ignore:Triton's kernels cannot be used")
def test_labels_are_not_fitted_again_where_an_ensemble_contains_them() -> None:
    graph = noisy_graph()
    made = graph.with_features(None).with_made_features(np.asarray(graph.features))
    learner = make_learner("chronospike", {**SMALL, **BAG, "second_stage": "auto", "epochs": 1})
    labels = Labels(LabelsSettings())
    for one, is_part in ((made, True), (graph, False)):
        task = make_task(one, learner.settings, CPU)
        bag = learner.fit(task)
        again = score_nodes(labels.fit(task), task.split.test)
        found = reference_scores(bag, [labels], {})["label features"]
        assert (found["micro_f1"], found["macro_f1"]) == (again.micro_f1, again.macro_f1)
        assert ("held_out" in found) is is_part
        # Nor is it begun beside it.
        begun = start_references([labels], replace(task, device=torch.device("cuda")), learner)
        assert (begun == {}) is is_part


def test_the_surest_mistakes_come_first_with_the_ids_of_the_user(fitted: Fitted) -> None:
    named = replace(fitted.task.graph, ids=NodeIds.of(["a", "b", "c", "d", "e", "f"]))
    # The classes are 0 0 1 1 0 1: nodes 1, 3 and 4 are wrong.
    dogs = np.array([0.1, 0.6, 0.9, 0.3, 0.99, 0.8])
    found = confidently_wrong(named, np.stack([1 - dogs, dogs], axis=1), np.arange(6), limit=2)
    assert found == [
        {"node": "e", "class": "cats", "predicted": "dogs", "probability": 0.99},
        {"node": "d", "class": "dogs", "predicted": "cats", "probability": 0.7},
    ]


def test_a_probability_a_rounding_above_one_is_one(fitted: Fitted) -> None:
    probabilities = np.tile([0.0, 1.0000012], (6, 1))
    assert confidently_wrong(fitted.task.graph, probabilities, np.array([0]))[0]["probability"] == 1.0


def test_nodes_without_a_label_are_counted_by_predicted_class() -> None:
    fitted = fitted_to(np.array([0, 0, 1, -1, -1, -1]), np.arange(0))
    predicted = np.array([1, 1, 1, 1, 1, 0])
    assert unlabelled_shares(fitted, predicted, np.arange(6)) == {
        "nodes": 3,
        "predicted": {"cats": 1, "dogs": 2},
        "training": {"cats": 2, "dogs": 1},
    }


def test_nothing_is_said_of_unlabelled_nodes_where_none_were_predicted(fitted: Fitted) -> None:
    assert unlabelled_shares(fitted, np.zeros(6, dtype=np.int64), np.arange(6)) is None
