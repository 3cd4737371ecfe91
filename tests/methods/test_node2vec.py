from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from chronospike.config import make_settings
from chronospike.data.graph import DynamicGraph
from chronospike.errors import InputError
from chronospike.features.biased_walks import walk_bias
from chronospike.methods.deepwalk import SkipGramEmbedder
from chronospike.methods.node2vec import Node2Vec, Node2VecSettings
from chronospike.training.task import make_task
from tests.methods.test_deepwalk import SMALL, nothing, same, task_of
from tests.methods.test_deepwalk import trained as trained_deepwalk
from tests.path_of_four import path_of_four
from tests.six_nodes import six_nodes
from tests.small_runs import CPU, small_graph, with_other_future


def settings(**values: Any) -> Node2VecSettings:
    return make_settings(Node2VecSettings, {**SMALL, **values})


def embedder(graph: DynamicGraph, **values: Any) -> SkipGramEmbedder:
    return Node2Vec(settings(**values)).embedder(task_of(graph))


def trained(graph: DynamicGraph, **values: Any) -> SkipGramEmbedder:
    found = embedder(graph, **values)
    for epoch in range(found.settings.epochs):
        found.train_epoch(epoch, nothing)
    return found


def test_the_defaults_walk_outward() -> None:
    assert (Node2VecSettings().p, Node2VecSettings().q) == (1, 0.5)


@pytest.mark.parametrize("objective", ["negative", "both"])
def test_p_and_q_of_one_are_deepwalk_to_the_bit(objective: str) -> None:
    graph = small_graph()
    assert same(trained(graph, p=1, q=1, objective=objective), trained_deepwalk(graph, objective=objective))


@pytest.mark.parametrize(("p", "q"), [(0.25, 1), (1, 0.25), (4, 4)])
def test_other_p_and_q_are_not_deepwalk(p: float, q: float) -> None:
    assert not np.allclose(trained(small_graph(), p=p, q=q).embeddings(), trained_deepwalk(small_graph()).embeddings())


def test_communities_are_told_apart() -> None:
    graph = small_graph()
    task = make_task(graph, settings(), CPU, needs_features=False)
    fitted = Node2Vec(settings(dimension=16, walks=20, length=20, learning_rate=0.1, negatives=5)).fit(task)
    predicted = fitted.probabilities(task.split.test).argmax(axis=1)
    assert (predicted == task.labels(task.split.test)).mean() > 0.9


def test_one_thread_gives_the_same_bits_again() -> None:
    assert same(trained(small_graph()), trained(small_graph()))


def test_a_resumed_embedder_ends_as_one_that_was_not_stopped() -> None:
    graph = small_graph()
    straight, first, second = trained(graph, epochs=2), embedder(graph, epochs=2), embedder(graph, epochs=2)
    first.train_epoch(0, nothing)
    second.load_state({name: table.clone() for name, table in first.state().items()})
    second.train_epoch(1, nothing)
    assert same(second, straight)


def test_later_edges_change_nothing() -> None:
    graph = small_graph()
    one, other = (
        Node2Vec(settings()).embedder(task_of(each).until(2)) for each in (graph, with_other_future(graph, 2))
    )
    assert one.train_epoch(0, nothing) == other.train_epoch(0, nothing)
    assert same(one, other)


def test_a_node_without_an_edge_keeps_its_initial_row() -> None:
    before = embedder(six_nodes()).embeddings().copy()
    found = trained(six_nodes(), learning_rate=0.1)
    assert (found.embeddings()[0, 5] == before[0, 5]).all()
    assert not np.isclose(found.embeddings()[0, :5], before[0, :5]).all(axis=1).any()


def test_a_directed_graph_has_a_way_back_only_along_its_edges() -> None:
    graph = path_of_four(directed=True)
    assert Node2Vec(settings(p=0.5, q=2)).bias(graph) == walk_bias(0.5, 2, directed=True)
    assert np.isfinite(trained(graph, p=0.5, objective="both").embeddings()).all()


def test_parameters_out_of_range_are_refused() -> None:
    with pytest.raises(InputError, match="setting 'q' is 0: it must be"):
        settings(q=0)
