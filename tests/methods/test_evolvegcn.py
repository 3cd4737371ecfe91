from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from chronospike.config import make_settings
from chronospike.data.graph import DynamicGraph
from chronospike.methods.evolvegcn import (
    EvolveGCN,
    EvolveGCNLearner,
    EvolveGCNNetwork,
    EvolveGCNSettings,
    EvolvingLayer,
    Seen,
    matrix_gru,
    rrelu,
    top_rows,
)
from chronospike.methods.graph_convolution import StepInputs, kept, recomputed
from chronospike.training.learner import FitContext
from chronospike.training.task import make_task
from tests.methods.test_graph_convolution import task_of, with_random_features
from tests.methods.test_triads import graph_of, random_edges
from tests.small_runs import CPU, small_graph

NOBODY = torch.zeros(3, dtype=torch.bool)


def _network(graph: DynamicGraph | None = None, recompute: bool = False, **values: Any) -> EvolveGCNNetwork:
    settings = make_settings(EvolveGCNSettings, {"hidden": 6, "head": 7, **values})
    return EvolveGCNNetwork(make_task(graph or small_graph(), settings, CPU), settings, recompute)


def _model(network: EvolveGCNNetwork) -> EvolveGCN:
    assert isinstance(network.module, EvolveGCN)
    return network.module


def _random(nodes: int = 15, steps: int = 4, width: int = 3, seed: int = 0) -> tuple[StepInputs, Seen]:
    # Few edges: at the first step some nodes have none, and fewer than are picked have one.
    graph = with_random_features(graph_of(random_edges(nodes, steps, 24, seed), nodes), width, seed)
    return StepInputs.of(task_of(graph), "cumulative", with_features=True), _seen(graph)


def _seen(graph: DynamicGraph) -> Seen:
    counts = tuple(int(graph.seen_by(step).sum()) for step in range(graph.num_steps))
    return Seen(torch.from_numpy(np.array(graph.first_steps)), counts)


def _gradients(module: nn.Module) -> list[Tensor]:
    return [torch.zeros(1) if p.grad is None else p.grad.clone() for p in module.parameters()]


def _plain_outputs(model: EvolveGCN, inputs: StepInputs, seen: Seen) -> list[Tensor]:
    """The equations, gate by gate on dense matrices, a layer at a time."""
    assert inputs.features is not None
    sequence = list(inputs.features)
    for layer in (model.one, model.two):
        outputs: list[Tensor] = []
        q: Tensor = layer.first
        for step, h in enumerate(sequence):
            y = q
            if model.variant == "h":
                scores = h @ layer.scorer / layer.scorer.norm()
                order = scores.argsort(descending=True)
                order = order[seen.first[order] <= step][: layer.first.shape[1]].tolist()
                order += order[-1:] * (layer.first.shape[1] - len(order))
                y = torch.stack([h[i] * torch.tanh(scores[i]) for i in order], dim=1)
            (wr, wu, wh), (ur, uu, uh), (br, bu, bh) = layer.weights, layer.recurrent, layer.bias
            reset, update = torch.sigmoid(wr @ y + ur @ q + br), torch.sigmoid(wu @ y + uu @ q + bu)
            candidate = torch.tanh(wh @ y + uh @ (reset * q) + bh)
            q = (1 - update) * q + update * candidate
            x = inputs.adjacency[step].to_dense() @ h @ q
            outputs.append(torch.where(x >= 0, x, x * (1 / 8 + 1 / 3) / 2))
        sequence = outputs
    return sequence


@pytest.mark.parametrize("variant", ["h", "o"])
@pytest.mark.parametrize(("hidden", "head", "wanted"), [(128, 128, 345_738), (256, 307, 967_099)])
def test_parameters_are_as_many_as_published(variant: Any, hidden: int, head: int, wanted: int) -> None:
    model = EvolveGCN(128, hidden, head, 10, variant)
    assert sum(p.numel() for p in model.parameters()) == wanted


def test_a_cell_without_weights_halves_the_state() -> None:
    state = torch.tensor([[1.0, 2], [3, 4]])
    for _ in range(3):
        state = matrix_gru(state, state, torch.zeros(3, 2, 2), torch.zeros(3, 2, 2), torch.zeros(3, 2, 2))
    assert torch.equal(state, torch.tensor([[0.125, 0.25], [0.375, 0.5]]))


def test_a_step_of_a_small_cell_gives_the_numbers_worked_out_by_hand() -> None:
    state, tenth = torch.tensor([[1.0, 2], [3, 4]]), 0.1 * torch.eye(2).expand(3, 2, 2)
    found = matrix_gru(state, state, tenth, tenth, torch.zeros(3, 2, 2))
    assert torch.allclose(found, torch.tensor([[0.534705, 0.987781], [1.358190, 1.646432]]), atol=1e-6)


def test_the_best_rows_are_picked_weighed_and_turned_into_columns() -> None:
    x = torch.tensor([[1.0, 0], [0, 2], [1, 1]])
    found = top_rows(x, torch.tensor([3.0, 4]), 2, NOBODY, 3)
    assert torch.allclose(found, torch.tensor([[0, 0.885352], [1.843337, 0.885352]]), atol=1e-6)


def test_nodes_without_an_edge_are_never_picked_and_the_last_is_repeated() -> None:
    x = torch.tensor([[1.0, 0], [0, 2], [1, 1]])
    found = top_rows(x, torch.tensor([3.0, 4]), 3, torch.tensor([False, True, False]), 2)
    best, last = np.tanh(1.4), np.tanh(0.6)
    assert torch.allclose(found, torch.tensor([[best, last, last], [best, 0, 0]]).float(), atol=1e-6)


def test_where_nobody_has_an_edge_the_summary_is_zero() -> None:
    assert not top_rows(torch.randn(3, 2), torch.randn(2), 4, ~NOBODY, 0).any()


def test_negative_inputs_have_random_slopes_in_training_and_their_mean_after_it() -> None:
    x = torch.randn(4000, requires_grad=True)
    drawn = rrelu(x, training=True)
    drawn.sum().backward()
    assert x.grad is not None
    slopes = x.grad[x < 0]
    assert torch.equal(drawn[x >= 0], x[x >= 0])
    assert torch.allclose(drawn[x < 0], slopes * x[x < 0])
    assert slopes.min() >= 1 / 8
    assert slopes.max() <= 1 / 3
    assert float(slopes.mean()) == pytest.approx(0.22917, abs=0.01)
    assert torch.equal(rrelu(x, training=False), nn.functional.rrelu(x, training=False))
    assert float(rrelu(torch.tensor(-1.0), training=False)) == pytest.approx(-0.22917, abs=1e-5)


def test_weights_begin_uniform_within_one_over_the_root_of_their_columns() -> None:
    layer = EvolvingLayer(100, 25)
    assert not layer.bias.any()
    for parameter, columns in ((layer.first, 25), (layer.weights, 100), (layer.recurrent, 100), (layer.scorer, 100)):
        assert 0.8 * columns**-0.5 < parameter.abs().max() <= columns**-0.5


@pytest.mark.parametrize("variant", ["h", "o"])
@pytest.mark.parametrize("seed", [0, 1])
def test_values_and_gradients_are_those_of_the_plain_equations(variant: Any, seed: int) -> None:
    inputs, seen = _random(seed=seed)
    torch.manual_seed(seed)
    model, rows = EvolveGCN(3, 8, 5, 2, variant).eval(), torch.tensor([1, 4, 5, 14])
    assert seen.counts[0] < 8
    for layer in (model.one, model.two):
        nn.init.normal_(layer.bias)
    weights, results = torch.randn(4, 4, 8), []
    for found in (list(model(inputs, seen, rows, range(4))), [x[rows] for x in _plain_outputs(model, inputs, seen)]):
        model.zero_grad()
        (torch.stack(found) * weights).sum().backward()
        results.append([*(x.detach() for x in found), *_gradients(model)])
    for one, two in zip(*results, strict=True):
        assert torch.allclose(one, two, atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("variant", ["h", "o"])
def test_steps_that_are_not_asked_for_change_nothing(variant: Any) -> None:
    inputs, seen = _random()
    model = EvolveGCN(3, 8, 5, 2, variant).eval()
    (last,) = model(inputs, seen, None, range(3, 4))
    assert torch.equal(last, list(model(inputs, seen, None, range(4)))[-1])


@pytest.mark.parametrize("variant", ["h", "o"])
def test_recomputing_changes_neither_values_nor_gradients(variant: Any) -> None:
    inputs, seen = _random()
    model, results = EvolveGCN(3, 8, 5, 2, variant).train(), []
    for call in (kept, recomputed):
        torch.manual_seed(1)
        model.zero_grad()
        found = torch.stack(list(model(inputs, seen, torch.arange(0, 15, 2), range(4), call)))
        model.head(found).square().sum().backward()
        results.append([found.detach(), *_gradients(model)])
    for one, two in zip(*results, strict=True):
        assert torch.allclose(one, two, atol=1e-6)


def _with_another_past(graph: DynamicGraph) -> DynamicGraph:
    """Other features before the last step."""
    assert graph.features is not None
    features = np.array(graph.features)
    features[:-1] = -2 * features[:-1][:, ::-1]
    return graph.with_features(features)


@pytest.mark.parametrize(("variant", "is_blind"), [("o", True), ("h", False)])
def test_the_weights_of_o_see_no_earlier_step_and_those_of_h_do(variant: Any, is_blind: bool) -> None:
    graph = with_random_features(graph_of([(0, 1, 0), (1, 2, 0), (2, 3, 1), (0, 4, 2), (3, 4, 2)], 5), 3)
    other = with_random_features(graph_of([(0, 3, 0), (1, 4, 0), (1, 3, 1), (0, 4, 2), (3, 4, 2)], 5), 3)
    assert graph.features is not None
    past = _with_another_past(other.with_features(graph.features))
    torch.manual_seed(0)
    model, found = EvolveGCN(3, 2, 5, 2, variant).eval(), []
    encoder = task_of(graph).features.encoder  # type: ignore[union-attr]
    for one in (graph, past):
        inputs = StepInputs.of(task_of(one, encoder=encoder), "evolving", with_features=True)
        found += model(inputs, _seen(one), None, range(2, 3))
    assert torch.equal(*found) is is_blind


def test_output_channels_of_o_are_as_good_in_any_order() -> None:
    torch.manual_seed(0)
    layer, order, x = EvolvingLayer(4, 6), torch.randperm(6), torch.randn(9, 4)
    nn.init.normal_(layer.bias)
    found: Tensor = layer.first
    for _ in range(3):
        found = layer.evolve(found, found)
    moved = layer.first[:, order]
    for _ in range(3):
        moved = matrix_gru(moved, moved, layer.weights, layer.recurrent, layer.bias[:, :, order])
    assert torch.allclose((x @ found)[:, order], x @ moved, atol=1e-6)


@pytest.mark.parametrize("readout", ["last", "mean"])
def test_the_rolling_loss_is_the_mean_over_steps_of_that_of_the_nodes_seen(readout: str) -> None:
    network = _network(readout=readout)
    model, task = _model(network).eval(), network.task
    nodes = task.split.train
    outputs = list(model(network.inputs, network.seen, None, range(5)))
    losses = []
    for step in range(5):
        some = nodes[task.graph.seen_by(step)[nodes]] if step < 4 else nodes
        z = outputs[step] if readout == "last" else torch.stack(outputs[: step + 1]).mean(dim=0)
        labels = torch.from_numpy(task.labels(some))
        losses.append(nn.functional.cross_entropy(model.head(z[torch.from_numpy(some)]), labels))
    found = network.losses(model, network.prepare(nodes, 0), nodes)
    assert found.item() == pytest.approx(torch.stack(losses).mean().item(), rel=1e-5)


def test_a_step_at_which_no_training_node_has_been_seen_has_no_loss() -> None:
    graph = with_random_features(graph_of([(0, 1, 0), (2, 3, 1), (4, 5, 2)], 6), 3)
    graph = graph.with_labels(np.array([0, 1, 0, 1, 0, 1]), ("a", "b"))
    settings = make_settings(EvolveGCNSettings, {"hidden": 4})
    network = EvolveGCNNetwork(task_of(graph), settings)
    nodes = np.array([4, 2, 3])
    assert network.prepare(nodes, 0).counts == (0, 2, 3)
    assert network.prepare(nodes, 0).rows.tolist() == [2, 3, 4]
    assert torch.isfinite(network.losses(network.module, network.prepare(nodes, 0), nodes)).all()


def test_a_training_node_without_any_edge_counts_at_the_last_step() -> None:
    graph = with_random_features(graph_of([(0, 1, 0), (2, 3, 1)], 6), 3)
    graph = graph.with_labels(np.array([0, 1, 0, 1, 0, 1]), ("a", "b"))
    network = EvolveGCNNetwork(task_of(graph), make_settings(EvolveGCNSettings, {"hidden": 4}))
    assert network.prepare(np.array([5, 0]), 0).counts == (1, 2)


def test_the_last_objective_is_the_loss_of_the_last_step() -> None:
    network = _network(objective="last")
    model, nodes = _model(network).eval(), network.task.split.train
    *_, z = model(network.inputs, network.seen, None, range(5))
    rows, labels = torch.from_numpy(nodes), torch.from_numpy(network.task.labels(nodes))
    wanted = nn.functional.cross_entropy(model.head(z[rows]), labels)
    assert network.losses(model, network.prepare(nodes, 0), nodes).item() == pytest.approx(wanted.item(), rel=1e-5)


def test_the_mean_readout_embeds_the_mean_of_all_steps() -> None:
    network = _network(readout="mean")
    model = _model(network).eval()
    outputs = list(model(network.inputs, network.seen, None, range(5)))
    found = network.infer(model, np.arange(120))[1]
    assert torch.allclose(found, torch.stack(outputs).mean(dim=0), atol=1e-6)


@pytest.mark.parametrize(
    ("values", "is_told"),
    [
        ({"variant": "o", "objective": "last"}, True),
        ({"variant": "o", "objective": "last", "readout": "mean"}, False),
        ({"variant": "h", "objective": "last"}, False),
        ({"variant": "o"}, False),
    ],
)
def test_a_user_is_told_where_only_the_last_graph_is_read(values: dict[str, Any], is_told: bool) -> None:
    learner = EvolveGCNLearner(make_settings(EvolveGCNSettings, {"epochs": 1, "hidden": 4, **values}))
    said: list[str] = []
    learner.fit(make_task(small_graph(), learner.settings, CPU), FitContext(on_note=said.append))
    assert any("reads only the last graph" in line for line in said) is is_told


def test_features_are_kept_for_h_alone() -> None:
    assert _network(variant="h").inputs.features is not None
    assert _network(variant="o").inputs.features is None


def test_nodes_that_come_later_are_inactive_whenever_that_is() -> None:
    network = _network()
    first = np.array(network.task.graph.first_steps)
    early = network.for_task(replace(network.task, last_step=1))
    for step in range(2):
        inactive, active = early.seen.inactive(step)
        assert np.array_equal(inactive, first > step)
        assert active == (first <= step).sum()


@pytest.mark.gpu
@pytest.mark.parametrize("variant", ["h", "o"])
def test_a_gpu_computes_what_the_cpu_computes(variant: str) -> None:
    found = []
    for device in (CPU, torch.device("cuda")):
        settings = make_settings(EvolveGCNSettings, {"hidden": 6, "variant": variant})
        network = EvolveGCNNetwork(make_task(small_graph(), settings, device), settings, recompute=True)
        model, nodes = _model(network), np.arange(60)
        with network.precision():
            # Slopes are drawn in training, and not the same ones on every device.
            loss = network.losses(model.eval(), network.prepare(nodes, 0), nodes)
            loss.backward()
        assert model.one.first.grad is not None
        found.append([loss.detach().cpu(), model.one.first.grad.cpu(), network.infer(model, nodes)[0]])
    for one, two in zip(*found, strict=True):
        assert torch.allclose(one, two, atol=1e-4)
