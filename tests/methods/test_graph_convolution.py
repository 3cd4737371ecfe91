from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from chronospike import memory
from chronospike.config import make_settings
from chronospike.data.attributes import AttributeEncoder
from chronospike.data.csr import history_and_snapshot
from chronospike.data.graph import DynamicGraph
from chronospike.data.ids import NodeIds
from chronospike.errors import InputError
from chronospike.methods import graph_convolution
from chronospike.methods.chronospike.estimate import live_trace
from chronospike.methods.graph_convolution import (
    FullGraphSettings,
    StepInputs,
    input_bytes,
    kept,
    normalised_adjacency,
    product,
    recomputed,
)
from chronospike.methods.registry import make_learner
from chronospike.methods.step_graphs import step_graphs
from chronospike.training.node_features import NodeFeatures
from chronospike.training.task import Task, make_task
from tests.methods.test_triads import graph_of, random_edges
from tests.small_runs import CPU, small_graph, with_other_future

ROOT_6 = 0.408248
PATH_OF_THREE = [[0.5, ROOT_6, 0], [ROOT_6, 1 / 3, ROOT_6], [0, ROOT_6, 0.5]]
FULL_GRAPH = ["mpnn-lstm", "evolvegcn"]


def task_of(graph: DynamicGraph, last_step: int | None = None, encoder: AttributeEncoder | None = None) -> Task:
    """For a graph that need not have labels enough for a split."""
    last_step = graph.num_steps - 1 if last_step is None else last_step
    base = make_task(small_graph(), make_settings(FullGraphSettings, {}), CPU)
    return replace(base, graph=graph, features=NodeFeatures(graph, encoder), last_step=last_step)


def with_random_features(graph: DynamicGraph, width: int = 3, seed: int = 0) -> DynamicGraph:
    shape = graph.num_steps, graph.num_nodes, width
    return graph.with_features(np.random.default_rng(seed).normal(size=shape).astype(np.float32))


def permuted(graph: DynamicGraph, order: NDArray[Any]) -> DynamicGraph:
    """The same graph in which node `order[i]` has the number i."""
    place = np.argsort(order)
    rows, steps, neighbours = graph.snapshot.entries()
    views = history_and_snapshot(place[rows], place[neighbours], steps, graph.num_nodes, graph.num_steps)
    assert graph.features is not None
    assert graph.labels is not None
    ids = NodeIds.of(np.asarray(order))
    features, labels = graph.features[:, order], np.asarray(graph.labels)[order]
    return replace(graph, history=views[0], snapshot=views[1], ids=ids, features=features, labels=labels, events=None)


def _matrices(graph: DynamicGraph, kind: Any = "cumulative") -> list[Tensor]:
    graphs = step_graphs(graph, graph.num_steps - 1, kind)
    neighbours = torch.tensor(graphs.neighbours)
    return [normalised_adjacency(graphs, neighbours, step) for step in range(graph.num_steps)]


def _plain(graph: DynamicGraph, step: int, kind: str) -> NDArray[np.float64]:
    a = np.eye(graph.num_nodes)
    rows, steps, neighbours = graph.snapshot.entries()
    used = steps <= step if kind == "cumulative" else steps == step
    a[rows[used], neighbours[used]] = 1
    a = np.maximum(a, a.T)
    return a / np.sqrt(np.outer(a.sum(axis=1), a.sum(axis=1)))


def test_a_path_of_three_nodes_has_the_adjacency_worked_out_by_hand() -> None:
    (found,) = _matrices(graph_of([(0, 1, 0), (1, 2, 0)], 3))
    assert torch.allclose(found.to_dense(), torch.tensor(PATH_OF_THREE), atol=1e-6)


def test_a_step_without_edges_has_the_identity() -> None:
    graph = graph_of([(0, 1, 0), (1, 2, 2)], 4)
    assert torch.equal(_matrices(graph, "evolving")[1].to_dense(), torch.eye(4))
    assert torch.equal(_matrices(graph, "cumulative")[0].to_dense()[2:, 2:], torch.eye(2))


@pytest.mark.parametrize("kind", ["cumulative", "evolving"])
@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_every_step_has_the_symmetric_adjacency_of_its_definition(kind: str, directed: bool, seed: int) -> None:
    graph = graph_of(random_edges(17, 4, 60, seed), 17)
    if directed:
        rows, steps, neighbours = graph.snapshot.entries()
        some = rows < neighbours
        views = history_and_snapshot(rows[some], neighbours[some], steps[some], 17, graph.num_steps)
        graph = replace(graph, history=views[0], snapshot=views[1], directed=True)
    for step, found in enumerate(_matrices(graph, kind)):
        dense = found.to_dense()
        assert np.allclose(dense, _plain(graph, step, kind), atol=1e-6)
        assert torch.equal(dense, dense.T)


def test_columns_ascend_and_indices_take_four_bytes() -> None:
    for found in _matrices(graph_of(random_edges(17, 3, 60), 17)):
        assert found.col_indices().dtype == found.crow_indices().dtype == torch.int32
        torch.sparse_csr_tensor(
            found.crow_indices(), found.col_indices(), found.values(), found.shape, check_invariants=True
        )


def test_the_product_and_its_gradient_are_those_of_dense_matrices() -> None:
    matrix = _matrices(graph_of(random_edges(17, 3, 60), 17))[-1]
    x, weights = torch.randn(17, 5, requires_grad=True), torch.randn(17, 5)
    (product(matrix, x) * weights).sum().backward()
    found, x.grad = x.grad, None
    assert torch.allclose(product(matrix, x), matrix.to_dense() @ x, atol=1e-6)
    ((matrix.to_dense() @ x) * weights).sum().backward()
    assert found is not None
    assert x.grad is not None
    assert torch.allclose(found, x.grad, atol=1e-6)


def test_recomputing_gives_the_same_values_and_gradients_under_dropout() -> None:
    layer, x, results = nn.Linear(6, 4), torch.randn(50, 6), []
    for call in (kept, recomputed):
        torch.manual_seed(3)
        layer.zero_grad()
        value = call(lambda y: nn.functional.dropout(layer(y), 0.5).square().sum(), x)
        value.backward()
        assert layer.weight.grad is not None
        results.append((value.detach(), layer.weight.grad.clone()))
    assert torch.equal(results[0][0], results[1][0])
    assert torch.equal(results[0][1], results[1][1])


@pytest.mark.parametrize("kind", ["cumulative", "evolving"])
def test_the_first_hop_is_the_adjacency_times_the_features(kind: Literal["cumulative", "evolving"]) -> None:
    graph = with_random_features(graph_of(random_edges(17, 4, 60), 17))
    inputs = StepInputs.of(task_of(graph), kind, with_features=True)
    assert graph.features is not None
    x = torch.from_numpy(NodeFeatures(graph).at(2))
    assert inputs.features is not None
    assert torch.equal(inputs.features[2], x)
    assert np.allclose(inputs.first_hop[2], _plain(graph, 2, kind) @ x.numpy(), atol=1e-5)


def test_features_that_never_change_are_held_once() -> None:
    graph = graph_of(random_edges(17, 4, 60), 17)
    graph = graph.with_features(np.random.default_rng(0).normal(size=(17, 3)).astype(np.float32))
    inputs = StepInputs.of(task_of(graph), "cumulative", with_features=True)
    assert inputs.features is not None
    assert inputs.features.shape == inputs.first_hop.shape == (4, 17, 3)
    assert inputs.features.untyped_storage().nbytes() == 4 * 17 * 3
    assert torch.allclose(inputs.first_hop[3], inputs.adjacency[3].to_dense() @ inputs.features[0], atol=1e-6)


@pytest.mark.parametrize("kind", ["cumulative", "evolving"])
def test_inputs_up_to_a_step_are_shared_and_know_nothing_of_what_follows(
    kind: Literal["cumulative", "evolving"],
) -> None:
    task = task_of(small_graph())
    assert task.features is not None
    whole = StepInputs.of(task, kind, with_features=True)
    part = whole.until(2)
    assert part.first_hop.data_ptr() == whole.first_hop.data_ptr()
    other = StepInputs.of(task_of(with_other_future(task.graph, 2), 2, task.features.encoder), kind, with_features=True)
    assert part.num_steps == other.num_steps == 3
    assert part.features is not None
    assert other.features is not None
    assert torch.equal(part.first_hop, other.first_hop)
    assert torch.equal(part.features, other.features)
    for one, two in zip(part.adjacency, other.adjacency, strict=True):
        assert torch.equal(one.to_dense(), two.to_dense())


@pytest.mark.parametrize("kind", ["cumulative", "evolving"])
@pytest.mark.parametrize("is_static", [False, True])
def test_the_bytes_of_the_inputs_are_counted(kind: Literal["cumulative", "evolving"], is_static: bool) -> None:
    graph = small_graph()
    assert graph.features is not None
    graph = graph.with_features(graph.features[0]) if is_static else graph
    inputs = StepInputs.of(task_of(graph), kind, with_features=True)
    assert inputs.features is not None
    tensors = [inputs.first_hop]
    for matrix in inputs.adjacency:
        tensors += [matrix.crow_indices(), matrix.col_indices(), matrix.values()]
    taken = sum(tensor.nbytes for tensor in tensors) + inputs.features.untyped_storage().nbytes()
    assert input_bytes(graph, 8, kind, with_features=True) == pytest.approx(taken, abs=4 * graph.num_steps)


@pytest.mark.parametrize("method", FULL_GRAPH)
def test_a_network_for_another_task_shares_inputs_and_makes_only_those_it_lacks(method: str) -> None:
    learner: Any = make_learner(method, {})
    task = make_task(small_graph(), learner.settings, CPU)
    network = learner.network(task)
    same, early = network.for_task(task.with_all_labels()), network.for_task(task.until(2))
    assert same.inputs.first_hop.data_ptr() == early.inputs.first_hop.data_ptr() == network.inputs.first_hop.data_ptr()
    assert early.inputs.num_steps == 3
    late = early.for_task(task)
    assert torch.equal(late.inputs.first_hop, network.inputs.first_hop)


@pytest.mark.parametrize("method", FULL_GRAPH)
def test_memory_that_is_not_there_is_refused_in_a_line(monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    learner: Any = make_learner(method, {})
    graph = small_graph()
    needed = learner.estimate(graph, 8)["memory_bytes"]
    assert needed > input_bytes(graph, 8, "cumulative", with_features=False)
    learner.require_memory(graph, 0, 90, CPU)
    monkeypatch.setattr(memory, "available_bytes", lambda: 1000)
    with pytest.raises(InputError, match=f"^{method} on this graph needs about .* Lower hidden"):
        learner.require_memory(graph, 0, 90, CPU)


@pytest.mark.parametrize("method", FULL_GRAPH)
def test_recomputing_needs_less_memory_and_is_chosen_for_large_graphs(
    monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    graph = small_graph()
    learner: Any = make_learner(method, {"chunk": 10} if method == "mpnn-lstm" else {})
    assert not learner.recomputes(graph, 8, 90)
    often = learner.activation_bytes(graph, 8, 90, recompute=False)
    assert 2 * learner.activation_bytes(graph, 8, 90, recompute=True) < often
    monkeypatch.setattr(graph_convolution, "RECOMPUTE_ABOVE", often - 1)
    assert learner.recomputes(graph, 8, 90)
    never: Any = make_learner(method, {"recompute": "never"})
    assert not never.recomputes(graph, 8, 90)


@pytest.mark.parametrize(
    ("method", "values"),
    [
        ("mpnn-lstm", {"recompute": "never"}),
        ("mpnn-lstm", {"recompute": "always", "chunk": 100}),
        ("mpnn-lstm", {"recompute": "never", "ratio": 0.1}),
        ("mpnn-lstm", {"recompute": "always", "ratio": 0.1}),
        ("evolvegcn", {"recompute": "never"}),
        ("evolvegcn", {"recompute": "never", "variant": "o"}),
        ("evolvegcn", {"recompute": "never", "head": 20}),
        ("evolvegcn", {"recompute": "never", "objective": "last"}),
        ("evolvegcn", {"recompute": "always"}),
        ("evolvegcn", {"recompute": "always", "readout": "mean"}),
    ],
)
def test_the_bytes_of_a_training_step_are_counted(method: str, values: dict[str, Any]) -> None:
    learner: Any = make_learner(method, values)
    task = make_task(small_graph(2000), learner.settings, CPU)
    network, nodes = learner.network(task), task.split.train
    prepared = network.prepare(nodes, 0)
    taken = max(live_trace(lambda: network.losses(network.module, prepared, nodes).backward()))
    wanted = learner.activation_bytes(task.graph, 8, len(nodes), values["recompute"] == "always")
    gradients = sum(p.nbytes for p in network.module.parameters())
    assert wanted == pytest.approx(taken - gradients, rel=0.25)
    asked = max(live_trace(lambda: network.infer(network.module, np.arange(2000))))
    assert asked < 1.5 * wanted


@pytest.mark.parametrize("method", FULL_GRAPH)
def test_odd_graphs_are_learned(method: str) -> None:
    graph = small_graph()
    assert graph.features is not None
    static = graph.with_features(np.asarray(graph.features)[0])
    rows, steps, neighbours = graph.snapshot.entries()
    some = (rows >= 12) & (neighbours >= 12)
    views = history_and_snapshot(rows[some], neighbours[some], steps[some], graph.num_nodes, graph.num_steps)
    isolated = replace(graph, history=views[0], snapshot=views[1], events=None)
    assert isolated.isolated[:12].all()
    learner: Any = make_learner(method, {"epochs": 2, "hidden": 8})
    for one in (static, isolated, replace(graph, directed=True)):
        fitted = learner.fit(make_task(one, learner.settings, CPU))
        found = fitted.probabilities(np.arange(graph.num_nodes))
        assert np.allclose(found.sum(axis=1), 1, atol=1e-5)


@pytest.mark.parametrize("method", FULL_GRAPH)
def test_a_graph_of_one_step_is_learned(method: str) -> None:
    graph = graph_of(random_edges(40, 1, 90), 40).with_labels(np.arange(40) % 2, ("a", "b"))
    learner: Any = make_learner(method, {"epochs": 2, "hidden": 8})
    fitted = learner.fit(make_task(with_random_features(graph), learner.settings, CPU))
    assert fitted.embeddings(np.arange(40)).shape == (40, 8)


@pytest.mark.parametrize("method", FULL_GRAPH)
@pytest.mark.parametrize("values", [{}, {"graphs": "evolving"}])
def test_two_fits_with_one_seed_agree_to_the_bit(method: str, values: dict[str, Any]) -> None:
    learner: Any = make_learner(method, {"epochs": 4, **values})
    task, nodes = make_task(small_graph(), learner.settings, CPU), np.arange(120)
    one, two = learner.fit(task), learner.fit(task)
    assert np.array_equal(one.probabilities(nodes), two.probabilities(nodes))
    other: Any = make_learner(method, {"epochs": 4, "seed": 1, **values})
    third = other.fit(make_task(small_graph(), other.settings, CPU))
    assert not np.array_equal(one.probabilities(nodes), third.probabilities(nodes))


@pytest.mark.parametrize("method", FULL_GRAPH)
def test_what_is_said_of_a_node_does_not_depend_on_what_else_is_asked(method: str) -> None:
    learner: Any = make_learner(method, {"epochs": 2})
    fitted = learner.fit(make_task(small_graph(), learner.settings, CPU))
    everyone = np.arange(120)
    for ask in (fitted.probabilities, fitted.embeddings):
        assert np.array_equal(ask(everyone)[[7, 3, 119]], ask(np.array([7, 3, 119])))
        assert np.array_equal(ask(everyone)[[40]], ask(np.array([40])))
        assert len(ask(everyone[:0])) == 0


@pytest.mark.parametrize("method", FULL_GRAPH)
def test_as_of_a_step_nothing_later_is_read(method: str) -> None:
    learner: Any = make_learner(method, {"epochs": 3})
    task = make_task(small_graph(), learner.settings, CPU)
    assert task.features is not None
    encoder = task.features.encoder
    changed = make_task(with_other_future(task.graph, 2), learner.settings, CPU, task.split, encoder)
    nodes = np.arange(120)
    fitted = learner.fit(task)
    network = learner.network(changed.until(2))
    network.module.load_state_dict(fitted.network.module.state_dict())
    wanted = fitted.until(2).probabilities(nodes)
    assert np.array_equal(wanted, network.infer(network.module, nodes)[0].numpy())
    assert not np.allclose(wanted, fitted.probabilities(nodes))
    one, two = (learner.fit(x.until(2)).probabilities(nodes) for x in (task, changed))
    assert np.array_equal(one, two)


@pytest.mark.parametrize("method", FULL_GRAPH)
def test_nodes_in_another_order_get_the_same_answers(method: str) -> None:
    graph, order = small_graph(), np.random.default_rng(0).permutation(120)
    learner: Any = make_learner(method, {"epochs": 2})
    task = make_task(graph, learner.settings, CPU)
    network = learner.network(task)
    other = learner.network(make_task(permuted(graph, order), learner.settings, CPU))
    found = network.infer(network.module, order)
    assert torch.allclose(found[0], other.infer(network.module, np.arange(120))[0], atol=1e-5)
    assert torch.allclose(found[1], other.infer(network.module, np.arange(120))[1], atol=1e-5)


@pytest.mark.parametrize("method", FULL_GRAPH)
def test_weights_serve_another_graph_of_the_same_features(method: str) -> None:
    learner: Any = make_learner(method, {})
    one, two = (learner.network(make_task(small_graph(nodes), learner.settings, CPU)) for nodes in (120, 150))
    assert one.description() == two.description()
    assert len(two.infer(one.module, np.arange(150))[0]) == 150


@pytest.mark.parametrize("method", FULL_GRAPH)
def test_a_fit_learns_the_small_graph(method: str) -> None:
    learner: Any = make_learner(method, {"epochs": 40, "learning_rate": 0.01, "hidden": 16})
    task = make_task(small_graph(), learner.settings, CPU)
    found = learner.fit(task).probabilities(task.split.test).argmax(axis=1)
    assert (found == task.labels(task.split.test)).mean() > 0.9
