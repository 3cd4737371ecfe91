from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from chronospike.data.ids import NodeIds
from chronospike.data.splits import Split
from chronospike.nn.tree_features import TreeFeatures
from chronospike.sampling.tree import NeighbourTree
from chronospike.training.evaluation import (
    as_dict,
    confidently_wrong,
    device_name,
    firing_rates,
    reference_scores,
    score_nodes,
    unlabelled_shares,
    versions,
)
from chronospike.training.problem import Problem, make_problem
from tests.six_nodes import six_nodes
from tests.small_runs import CPU, small_settings, small_trainer


@pytest.fixture
def problem() -> Problem:
    """Six nodes; 0, 1 and 2 train, node 5 has no edge."""
    graph = six_nodes().with_features(np.eye(6, dtype=np.float32))
    labelled = graph.with_labels(np.array([0, 0, 1, 1, 0, 1]), ("cats", "dogs"))
    return make_problem(labelled, small_settings(), CPU, Split(np.arange(3), np.arange(3, 4), np.arange(4, 6)))


def test_scores_count_only_the_nodes_asked_for(problem: Problem) -> None:
    predicted = np.array([1, 0, 1, 0, 1, 1])
    found = score_nodes(problem, predicted, np.array([1, 2, 3]))
    # Truth 0, 1, 1 and guess 0, 1, 0: F1 is 2/3 for both classes.
    assert found.micro_f1 == pytest.approx(2 / 3)
    assert found.macro_f1 == pytest.approx(2 / 3)
    assert found.confusion == ((1, 0), (1, 1))
    assert as_dict(found, ("cats", "dogs"), 3) == {
        "macro_f1": pytest.approx(2 / 3),
        "micro_f1": pytest.approx(2 / 3),
        "per_class_f1": {"cats": pytest.approx(2 / 3), "dogs": pytest.approx(2 / 3)},
        "confusion": [[1, 0], [1, 1]],
        "nodes": 3,
    }


def test_the_majority_class_is_that_of_the_training_nodes(problem: Problem) -> None:
    # Two of the three training nodes are cats, and so are one of the test nodes' two.
    assert reference_scores(problem, problem.split)["majority class"] == {
        "macro_f1": pytest.approx(1 / 3),
        "micro_f1": 0.5,
    }


def test_label_propagation_reaches_neighbours_and_leaves_the_rest_to_the_majority(problem: Problem) -> None:
    # Node 4 has node 0, a cat, as its only neighbour; node 5, a dog, has none and is taken for a cat.
    for node, right in ((4, 1.0), (5, 0.0)):
        scores = reference_scores(problem, replace(problem.split, test=np.array([node])))
        assert scores["label propagation"]["micro_f1"] == right


def test_the_simple_methods_say_what_was_fitted(problem: Problem) -> None:
    scores = reference_scores(problem, problem.split)
    assert list(scores) == ["majority class", "label propagation", "logistic regression"]
    assert scores["logistic regression"]["training_nodes"] == 3


def test_the_surest_mistakes_come_first_with_the_ids_of_the_user(problem: Problem) -> None:
    named = replace(problem, graph=replace(problem.graph, ids=NodeIds.of(["a", "b", "c", "d", "e", "f"])))
    # The classes are 0 0 1 1 0 1: nodes 1, 3 and 4 are wrong.
    dogs = np.array([0.1, 0.6, 0.9, 0.3, 0.99, 0.8])
    found = confidently_wrong(named, np.stack([1 - dogs, dogs], axis=1), np.arange(6), limit=2)
    assert found == [
        {"node": "e", "class": "cats", "predicted": "dogs", "probability": 0.99},
        {"node": "d", "class": "dogs", "predicted": "cats", "probability": 0.7},
    ]


def test_a_probability_a_rounding_above_one_is_one(problem: Problem) -> None:
    probabilities = np.tile([0.0, 1.0000012], (6, 1))
    assert confidently_wrong(problem, probabilities, np.array([0]))[0]["probability"] == 1.0


def test_nodes_without_a_label_are_counted_by_predicted_class(problem: Problem) -> None:
    graph = problem.graph.with_labels(np.array([0, 0, 1, -1, -1, -1]), ("cats", "dogs"))
    predicted = np.array([1, 1, 1, 1, 1, 0])
    assert unlabelled_shares(replace(problem, graph=graph), predicted, np.arange(6)) == {
        "nodes": 3,
        "predicted": {"cats": 1, "dogs": 2},
        "training": {"cats": 2, "dogs": 1},
    }


def test_nothing_is_said_of_unlabelled_nodes_where_none_were_predicted(problem: Problem) -> None:
    assert unlabelled_shares(problem, np.zeros(6, dtype=np.int64), np.arange(6)) is None


def test_firing_rates_are_shares_per_layer_and_step() -> None:
    trainer = small_trainer(epochs=1)
    rates = firing_rates(trainer.run(), trainer.problem, trainer.problem.split.test)
    assert [len(layer) for layer in rates] == [5, 5]
    assert all(0 <= rate <= 1 for layer in rates for rate in layer)
    assert any(rate > 0 for rate in rates[0])


def test_there_is_no_firing_without_spikes_or_without_nodes() -> None:
    trainer = small_trainer(neuron="relu")
    assert firing_rates(trainer.model, trainer.problem, trainer.problem.split.test) == []
    trainer = small_trainer()
    assert firing_rates(trainer.model, trainer.problem, np.arange(0)) == []


def test_the_record_names_the_device_and_the_versions() -> None:
    assert device_name(CPU) == f"cpu ({torch.get_num_threads()} threads)"
    assert set(versions()) == {"chronospike", "torch", "numpy", "python"}


def test_firing_rates_are_taken_of_half_precision_rows_from_host_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = small_trainer()
    inputs, test = trainer.problem.inputs, trainer.problem.split.test
    wanted = firing_rates(trainer.model, trainer.problem, test)
    by_reference = inputs.rows

    def from_host(tree: NeighbourTree) -> TreeFeatures:
        rows = by_reference(tree)
        return TreeFeatures(rows.dense().half(), rows.sizes)

    monkeypatch.setattr(inputs, "rows", from_host)
    assert np.allclose(firing_rates(trainer.model, trainer.problem, test), wanted, atol=0.01)
