from __future__ import annotations

import copy
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from chronospike import memory
from chronospike.config import make_settings
from chronospike.data.csr import history_and_snapshot
from chronospike.errors import InputError
from chronospike.experiments.paper_results import paper_score
from chronospike.methods.chronospike.estimate import live_trace
from chronospike.methods.dy_sign import (
    CONTRACTION,
    DySIGN,
    DySIGNLearner,
    DySIGNNetwork,
    DySIGNSettings,
    StepMap,
    dropped,
    simulate,
    spread,
)
from chronospike.methods.equilibrium import Iteration, iterate, residual
from chronospike.methods.graph_convolution import StepInputs, input_bytes
from chronospike.methods.registry import make_learner
from chronospike.training.checkpoint import load_checkpoint, save_checkpoint
from chronospike.training.loop import Trainer
from chronospike.training.task import make_task
from tests.methods.test_graph_convolution import permuted, task_of, with_random_features
from tests.methods.test_triads import graph_of, random_edges
from tests.small_runs import CPU, same_weights, small_graph, with_other_future

EVERYONE = np.arange(120)
MODES = pytest.mark.parametrize("mode", ["graph", "local"])
FORWARDS = pytest.mark.parametrize("forward", ["rate", "spike"])
# All iterations that single precision can tell apart.
EXACT: dict[str, Any] = {"iterations": 200, "tolerance": 0.0, "dropout": 0.0}


def _settings(**values: Any) -> DySIGNSettings:
    return make_settings(DySIGNSettings, {"hidden": 6, "width": 4, **values})


def _learner(**values: Any) -> DySIGNLearner:
    return DySIGNLearner(_settings(**values))


def _network(device: torch.device = CPU, **values: Any) -> DySIGNNetwork:
    settings = _settings(**values)
    return DySIGNNetwork(make_task(small_graph(), settings, device), settings)


def _model(network: DySIGNNetwork) -> DySIGN:
    assert isinstance(network.module, DySIGN)
    return network.module


def _random_inputs(nodes: int = 19, steps: int = 4, width: int = 3, seed: int = 0) -> StepInputs:
    graph = with_random_features(graph_of(random_edges(nodes, steps, 50, seed), nodes), width, seed)
    return StepInputs.of(task_of(graph), "cumulative", with_features=False)


def _random_model(seed: int = 0, inputs: int = 3, steps: int = 0, **values: Any) -> DySIGN:
    """Weights so large that the feedback has to be scaled down, and biases at which most neurons are in between."""
    torch.manual_seed(seed)
    model = DySIGN(inputs, 2, _settings(**values), steps).double()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.7)
    for layer in (model.first, model.second):
        nn.init.uniform_(layer.bias, 0.2, 0.8)
    for _ in range(100):
        # Singular vectors converge slower than the singular value.
        model.weights()
    return model


def _double(inputs: StepInputs) -> tuple[Tensor, tuple[Tensor, ...]]:
    return inputs.first_hop.double(), tuple(matrix.to(torch.float64) for matrix in inputs.adjacency)


def _unrolled(model: DySIGN, inputs: StepInputs, iterations: int = 200) -> list[Tensor]:
    """a2 of every step by the equations as they are written, on dense matrices, every iteration in the graph."""
    s, found = model.settings, []
    local, v = s.mode == "local", s.threshold
    sizes = [torch.linalg.matrix_norm(layer.weight, ord=2) for layer in (model.feedback, model.second)]
    w = model.feedback.weight.T * torch.clamp(CONTRACTION * v**2 / (sizes[0] * sizes[1]), max=1)
    nodes = inputs.first_hop.shape[1]
    previous = torch.zeros(nodes, s.width, dtype=torch.float64)
    for p, matrix in zip(inputs.first_hop.double(), inputs.adjacency, strict=True):
        a_hat = torch.eye(nodes, dtype=torch.float64) if local else matrix.to_dense().double()
        before = previous.detach() if s.detach_time else previous
        a2 = torch.zeros_like(previous)
        for _ in range(iterations):
            drive = model.first(p) + a_hat @ a2 @ w + a_hat @ before @ model.memory.weight.T
            a1 = (drive / v).clamp(0, 1)
            drive = a_hat @ a1 @ model.second.weight.T + model.second.bias
            if model.compensation is not None:
                drive = drive + model.compensation(p)
            a2 = (drive / v).clamp(0, 1)
        previous = a2
        found.append(a2)
    return found


def _sparse(matrix: Tensor) -> Tensor:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support")
        return matrix.to_sparse_csr()


def _scalar_map(weight: float = 0.5, drive: float = 0.3) -> StepMap:
    """A neuron that excites itself, through another that copies it."""
    values = (torch.tensor([[value]], dtype=torch.float64) for value in (drive, 0.0, weight, 1.0))
    return StepMap(None, *values)


def _small_model(f1: float, w: float, w_p: float, adjacency: Tensor, hops: Tensor) -> tuple[DySIGN, Tensor]:
    """a2 of the last step of a model of single neurons whose second layer copies the first."""
    settings = _settings(hidden=1, width=1, **EXACT)
    model = DySIGN(1, 2, settings).double().eval()
    assert model.compensation is not None
    layers = (model.first, model.second, model.feedback, model.memory, model.compensation)
    for layer, value in zip(layers, (f1, 1.0, w, w_p, 0.0), strict=True):
        nn.init.constant_(layer.weight, value)
    nn.init.zeros_(model.first.bias)
    nn.init.zeros_(model.second.bias)
    *_, last = model.equilibria(hops, [_sparse(adjacency)] * len(hops))
    return model, last


@pytest.mark.parametrize(("latency", "wanted"), [(10, 0.5), (100, 0.59), (1000, 0.599)])
def test_the_rate_of_a_neuron_without_leak_comes_near_its_equilibrium(latency: int, wanted: float) -> None:
    for found in simulate(_scalar_map(), latency, leak=1.0):
        assert found.item() == pytest.approx(wanted, abs=1e-12)
    assert iterate(_scalar_map(), torch.zeros(1, 1, dtype=torch.float64), Iteration(200, 0)).item() == pytest.approx(
        0.6
    )


def test_a_leaking_neuron_settles_elsewhere() -> None:
    assert simulate(_scalar_map(), 1000, leak=0.95)[1].item() == pytest.approx(0.55, abs=0.01)


def test_spikes_are_those_of_the_neurons_one_by_one() -> None:
    torch.manual_seed(0)
    matrix, leak = torch.rand(3, 3, dtype=torch.float64) / 3, 0.9
    first, second, w, f2 = (torch.rand(size, dtype=torch.float64) for size in ((3, 2), (3, 4), (4, 2), (2, 4)))
    found = simulate(StepMap(_sparse(matrix), first, second, w, f2), 7, leak)
    u1, s1, u2, s2 = (torch.zeros_like(x) for x in (first, first, second, second))
    history = []
    for _ in range(7):
        u1 = leak * (u1 - s1) + first + matrix @ s2 @ w
        s1 = (u1 >= 1).double()
        u2 = leak * (u2 - s2) + second + matrix @ s1 @ f2
        s2 = (u2 >= 1).double()
        history.append((s1, s2))
    weights = torch.tensor([leak ** (6 - time) for time in range(7)], dtype=torch.float64)
    for layer in range(2):
        spikes = torch.stack([both[layer] for both in history])
        assert 0 < spikes.mean() < 1
        wanted = (spikes * weights[:, None, None]).sum(dim=0) / weights.sum()
        assert torch.allclose(found[layer], wanted)


def test_two_nodes_have_the_rates_and_gradients_worked_out_by_hand() -> None:
    half = torch.full((2, 2), 0.5, dtype=torch.float64)
    hops = (half @ torch.tensor([[1.0], [0.0]], dtype=torch.float64))[None]
    model, a = _small_model(0.6, 0.5, 0.0, half, hops)
    a.sum().backward()
    assert a.flatten().tolist() == pytest.approx([0.6, 0.6])
    assert model.feedback.weight.grad is not None
    assert model.first.weight.grad is not None
    assert model.feedback.weight.grad.item() == pytest.approx(2.4)
    assert model.first.weight.grad.item() == pytest.approx(2.0)


def test_two_steps_have_the_rates_and_gradients_worked_out_by_hand() -> None:
    one = torch.ones(1, 1, dtype=torch.float64)
    model, a = _small_model(0.3, 0.5, 0.2, one, one.expand(2, 1, 1))
    a.sum().backward()
    assert a.item() == pytest.approx(0.84)
    assert model.feedback.weight.grad is not None
    assert model.memory.weight.grad is not None
    assert model.feedback.weight.grad.item() == pytest.approx(2.16)
    # Of the second step alone, since the first one has none before it.
    assert model.memory.weight.grad.item() == pytest.approx(1.2)


def test_parameters_are_as_many_as_specified() -> None:
    model = DySIGN(128, 10, make_settings(DySIGNSettings, {}))
    assert sum(p.numel() for p in model.parameters()) == 49_994
    without = DySIGN(128, 10, make_settings(DySIGNSettings, {"compensation": False}))
    assert sum(p.numel() for p in without.parameters()) == 49_994 - 8_192


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"width": 9},
        {"threshold": 1.5},
        {"compensation": False},
        {"detach_time": True},
        {"mode": "local"},
    ],
)
@pytest.mark.parametrize("seed", [0, 1])
def test_values_and_gradients_are_those_of_the_unrolled_equations(values: dict[str, Any], seed: int) -> None:
    inputs, model = _random_inputs(seed=seed), _random_model(seed, **EXACT, **values).eval()
    hops, adjacency = _double(inputs)
    matrices = (None,) * 4 if model.settings.mode == "local" else adjacency
    factors = torch.randn(4, 19, model.settings.width, dtype=torch.float64)
    wanted, results = [p for p in model.parameters() if p not in set(model.classify.parameters())], []
    for found in (torch.stack(list(model.equilibria(hops, matrices))), torch.stack(_unrolled(model, inputs))):
        gradients = torch.autograd.grad((found * factors).sum(), wanted)
        results.append([found.detach(), *gradients])
    assert 0.1 < ((results[1][0] > 0) & (results[1][0] < 1)).double().mean() < 1
    # The feedback is scaled, and the gradient knows of it.
    assert model.weights()[-1].norm() < 0.9 * model.feedback.weight.norm()
    for one, two in zip(*results, strict=True):
        assert torch.allclose(one, two, atol=1e-4, rtol=1e-4)


def test_simulated_rates_have_the_implicit_gradient_at_these_rates() -> None:
    inputs, model = _random_inputs(), _random_model(forward="spike", latency=8, **EXACT).eval()
    hops, adjacency = _double(inputs)
    (a,) = model.equilibria(hops[:1], adjacency[:1])
    factors = torch.randn(a.shape, dtype=torch.float64)
    found = torch.autograd.grad((a * factors).sum(), model.second.bias)[0]
    with torch.no_grad():
        phi = model.step_map(hops[0], adjacency[0], None, None, *model.weights())
    assert torch.equal(a, simulate(phi, 8, 1.0)[1])
    state = a.detach().requires_grad_()
    jacobian = torch.autograd.functional.jacobian(phi, state).reshape(a.numel(), a.numel())
    v = torch.linalg.solve(torch.eye(a.numel(), dtype=torch.float64) - jacobian.T, factors.flatten())
    drive = spread(phi.adjacency, phi.hidden(state), phi.forward, phi.second)
    mask = (drive >= 0) & (drive <= 1)
    assert torch.allclose(found, (v.view_as(a) * mask).sum(dim=0), atol=1e-8)


def test_many_simulated_spikes_come_near_the_rates() -> None:
    inputs = _random_inputs()
    model = _random_model(**EXACT).eval()
    many = copy.deepcopy(model)
    many.settings = model.settings.change(forward="spike", latency=3000)
    for one, two in zip(model.equilibria(*_double(inputs)), many.equilibria(*_double(inputs)), strict=True):
        assert torch.allclose(one, two, atol=0.02)


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("is_harsh", [False, True])
def test_the_residual_after_a_forward_pass_is_small(seed: int, is_harsh: bool) -> None:
    torch.manual_seed(seed)
    inputs, model = _random_inputs(40, seed=seed), DySIGN(3, 2, make_settings(DySIGNSettings, {"dropout": 0.0}))
    if is_harsh:
        # At the edge of what is allowed, 0.9 to the power of the iterations counts.
        model = _random_model(seed, dropout=0.0, iterations=100).float()
    weights, previous = model.eval().weights(), None
    for step, a in enumerate(model.equilibria(inputs.first_hop, inputs.adjacency)):
        phi = model.step_map(inputs.first_hop[step], inputs.adjacency[step], None, previous, *weights)
        assert (phi(a) - a).abs().max() < 1e-4
        assert residual(phi(a), a) < 1e-4
        previous = a.detach()


def test_the_map_is_a_contraction_whatever_the_weights() -> None:
    inputs, model = _random_inputs(), _random_model(**EXACT)
    for parameter in model.parameters():
        parameter.data *= 30
    hops, adjacency = _double(inputs)
    phi = model.eval().step_map(hops[0], adjacency[0], None, None, *model.weights())
    for _ in range(20):
        one, two = torch.rand(2, 19, 4, dtype=torch.float64)
        assert (phi(one) - phi(two)).norm() <= CONTRACTION * (one - two).norm()


def test_small_feedback_is_left_as_it_is() -> None:
    model = _random_model().eval()
    model.feedback.weight.data *= 1e-3
    assert torch.equal(model.weights()[-1], model.feedback.weight)
    model.feedback.weight.data.zero_()
    assert torch.equal(model.weights()[-1], model.feedback.weight)


@FORWARDS
def test_memory_of_a_training_step_does_not_grow_with_the_iterations(forward: str) -> None:
    kept_bytes, peaks = [], []
    for count in (5, 50):
        network = _network(forward=forward, iterations=count, latency=count, tolerance=0.0)
        nodes = np.arange(50)
        prepared = network.prepare(nodes, 0)
        kept: list[int] = []

        def keep(x: Tensor, kept: list[int] = kept) -> Tensor:
            kept.append(x.nbytes)
            return x

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
            network.losses(network.module, prepared, nodes)
        kept_bytes.append(sum(kept))

        def learn(network: DySIGNNetwork = network, prepared: Any = prepared) -> None:
            network.losses(network.module, prepared, np.arange(50)).backward()

        peaks.append(max(live_trace(learn)))
    assert kept_bytes[0] == kept_bytes[1]
    assert peaks[0] == peaks[1]


def test_dropout_is_a_function_of_its_key() -> None:
    x = torch.rand(101, 7) + 0.5
    one = dropped(x, 0.3, 12)
    assert torch.equal(one, dropped(x, 0.3, 12))
    assert not torch.equal(one, dropped(x, 0.3, 13))
    assert dropped(x, 0.3, None) is x
    keep = one != 0
    assert torch.allclose(one[keep], x[keep] / 0.7, rtol=1e-4)
    assert float(keep.float().mean()) == pytest.approx(0.7, abs=0.05)
    assert float((dropped(torch.ones(400, 500), 0.5, 3) > 0).float().mean()) == pytest.approx(0.5, abs=0.005)


def test_each_step_has_one_mask_for_all_iterations_and_another_one_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    network = _network(dropout=0.5)
    model, keys = _model(network).train(), []
    plain = model.step_map

    def watched(*given: Any) -> StepMap:
        keys.append(given[2])
        return plain(*given)

    monkeypatch.setattr(model, "step_map", watched)
    for _ in range(2):
        network.losses(model, network.prepare(np.arange(50), 0), np.arange(50)).backward()
    first, second = keys[:10], keys[10:]
    # The gradient asks for the same masks, the last step first.
    assert first[:5] == first[5:][::-1]
    assert len({*first, *second}) == 10


def test_the_mean_readout_is_the_mean_of_the_rates_of_all_steps() -> None:
    network = _network(readout="mean")
    states = torch.stack(list(_model(network).eval().equilibria(network.inputs.first_hop, network.inputs.adjacency)))
    assert torch.allclose(network.infer(network.module, EVERYONE)[1], states.mean(dim=0), atol=1e-6)
    last = _network(readout="last")
    assert torch.allclose(last.infer(last.module, EVERYONE)[1], states[-1], atol=1e-6)
    assert states.min() >= 0
    assert states.max() <= 1


def test_a_concatenation_as_of_an_earlier_step_is_zero_after_it() -> None:
    network = _network(readout="concat")
    states = list(_model(network).eval().equilibria(network.inputs.first_hop, network.inputs.adjacency))
    assert torch.allclose(network.infer(network.module, EVERYONE)[1], torch.cat(states, dim=1).detach(), atol=1e-6)
    early = network.for_task(network.task.until(1))
    found = early.infer(network.module, EVERYONE)[1]
    assert torch.allclose(found[:, :8], torch.cat(states[:2], dim=1).detach(), atol=1e-6)
    assert found.shape == (120, 20)
    assert not found[:, 8:].any()


def test_weights_belong_to_a_number_of_steps_with_a_concatenation_alone() -> None:
    graph = with_random_features(graph_of(random_edges(40, 3, 90), 40).with_labels(np.arange(40) % 2, ("a", "b")), 8)
    for readout, are_same in (("last", True), ("mean", True), ("concat", False)):
        settings = _settings(readout=readout)
        other = DySIGNNetwork(make_task(graph, settings, CPU), settings)
        network = _network(readout=readout)
        assert (network.description() == other.description()) is are_same
        if are_same:
            assert len(other.infer(network.module, np.arange(40))[0]) == 40


def test_a_local_node_depends_on_no_other_given_its_inputs() -> None:
    network = _network(mode="local")
    found = network.infer(network.module, EVERYONE)
    changed = copy.copy(network)
    hops = network.inputs.first_hop.clone()
    hops[:, 1:] = torch.randn_like(hops[:, 1:])
    changed.inputs = replace(network.inputs, first_hop=hops, adjacency=network.inputs.adjacency[::-1])
    other = changed.infer(network.module, EVERYONE)
    assert torch.equal(found[0][0], other[0][0])
    assert not torch.equal(found[0][1], other[0][1])


def test_in_mode_graph_neighbours_of_neighbours_count() -> None:
    path = with_random_features(graph_of([(0, 1, 0), (1, 2, 0), (2, 3, 0), (3, 4, 0)], 5), 3)
    inputs = StepInputs.of(task_of(path), "cumulative", with_features=False)
    model = _random_model(**EXACT).eval()
    hops, adjacency = _double(inputs)
    changed = hops.clone()
    changed[:, 4] += 1
    (one,), (two,) = model.equilibria(hops, adjacency), model.equilibria(changed, adjacency)
    assert not torch.equal(one[1], two[1])


def test_mini_batches_are_of_mode_local_alone() -> None:
    assert _network().batch_nodes(32, 90) == 90
    assert _network(mode="local").batch_nodes(32, 90) == 32


def test_a_local_batch_has_the_loss_of_the_whole_graph() -> None:
    network, nodes = _network(mode="local", dropout=0.0), np.array([40, 3, 77])
    z = _model(network)(network.inputs.first_hop, (None,) * 5)
    rows = torch.from_numpy(np.sort(nodes))
    labels = torch.from_numpy(network.task.labels(np.sort(nodes)))
    wanted = nn.functional.cross_entropy(_model(network).logits(z[rows]), labels)
    found = network.losses(network.module, network.prepare(nodes, 0), nodes)
    assert found.item() == pytest.approx(wanted.item(), abs=1e-4)


def test_no_gradient_reaches_earlier_steps_when_time_is_detached() -> None:
    inputs = _random_inputs()
    hops, adjacency = _double(inputs)
    for detach_time in (False, True):
        model = _random_model(detach_time=detach_time, **EXACT).eval()
        states = list(model.equilibria(hops, adjacency))
        found = torch.autograd.grad(states[-1].sum(), states[0], allow_unused=True)[0]
        assert (found is None) is detach_time


@pytest.mark.parametrize("readout", ["last", "mean", "concat"])
@MODES
@FORWARDS
def test_as_of_a_step_nothing_later_is_read(mode: str, forward: str, readout: str) -> None:
    learner = _learner(epochs=2, mode=mode, forward=forward, readout=readout)
    task = make_task(small_graph(), learner.settings, CPU)
    assert task.features is not None
    changed = make_task(with_other_future(task.graph, 2), learner.settings, CPU, task.split, task.features.encoder)
    fitted: Any = learner.fit(task)
    network = learner.network(changed.until(2))
    network.module.load_state_dict(fitted.network.module.state_dict())
    wanted = fitted.until(2).probabilities(EVERYONE)
    assert np.array_equal(wanted, network.infer(network.module, EVERYONE)[0].numpy())
    assert not np.allclose(wanted, fitted.probabilities(EVERYONE))
    one, two = (learner.fit(x.until(2)).probabilities(EVERYONE) for x in (task, changed))
    assert np.array_equal(one, two)


@MODES
def test_a_network_for_another_task_shares_inputs(mode: str) -> None:
    network = _network(mode=mode)
    task = network.task
    same, early = network.for_task(task.with_all_labels()), network.for_task(task.until(2))
    assert same.inputs.first_hop.data_ptr() == early.inputs.first_hop.data_ptr() == network.inputs.first_hop.data_ptr()
    assert torch.equal(early.for_task(task).inputs.first_hop, network.inputs.first_hop)


@MODES
@FORWARDS
def test_two_fits_with_one_seed_agree_to_the_bit(mode: str, forward: str) -> None:
    learner = _learner(epochs=3, mode=mode, forward=forward, batch_size=32)
    task = make_task(small_graph(), learner.settings, CPU)
    one, two = learner.fit(task), learner.fit(task)
    assert np.array_equal(one.probabilities(EVERYONE), two.probabilities(EVERYONE))
    other = _learner(epochs=3, mode=mode, forward=forward, batch_size=32, seed=1)
    third = other.fit(make_task(small_graph(), other.settings, CPU))
    assert not np.array_equal(one.probabilities(EVERYONE), third.probabilities(EVERYONE))


@MODES
def test_a_run_that_was_stopped_resumes_bit_for_bit(mode: str, tmp_path: Path) -> None:
    # So much feedback that it is scaled: the vectors of the power iteration are part of what is resumed.
    networks = [_network(mode=mode, epochs=4, batch_size=32) for _ in range(3)]
    for network in networks:
        nn.init.normal_(_model(network).feedback.weight, generator=torch.Generator().manual_seed(0))
    whole, half, rest = (Trainer(network, network.settings) for network in networks)
    whole.run()
    for report in half.epochs():
        if report.epoch == 1:
            break
    save_checkpoint(half, tmp_path / "half")
    load_checkpoint(rest, tmp_path / "half")
    rest.run()
    assert same_weights(whole.model.state_dict(), rest.model.state_dict())
    assert [x.loss for x in whole.state.history] == [x.loss for x in rest.state.history]


@MODES
def test_what_is_said_of_a_node_does_not_depend_on_what_else_is_asked(mode: str) -> None:
    learner = _learner(epochs=2, mode=mode)
    fitted = learner.fit(make_task(small_graph(), learner.settings, CPU))
    for ask in (fitted.probabilities, fitted.embeddings):
        assert np.array_equal(ask(EVERYONE)[[7, 3, 119]], ask(np.array([7, 3, 119])))
        assert np.array_equal(ask(EVERYONE)[[40]], ask(np.array([40])))
        assert len(ask(EVERYONE[:0])) == 0


def test_local_inference_in_several_lanes_is_that_in_one(monkeypatch: pytest.MonkeyPatch) -> None:
    network = _network(mode="local")
    whole = network.infer(network.module, EVERYONE)
    monkeypatch.setattr("chronospike.methods.dy_sign.LANE", 32)
    for one, two in zip(whole, network.infer(network.module, EVERYONE), strict=True):
        assert torch.allclose(one, two, atol=1e-6)


@MODES
def test_nodes_in_another_order_get_the_same_answers(mode: str) -> None:
    order = np.random.default_rng(0).permutation(120)
    settings = _settings(mode=mode)
    network = _network(mode=mode)
    other = DySIGNNetwork(make_task(permuted(small_graph(), order), settings, CPU), settings)
    for one, two in zip(network.infer(network.module, order), other.infer(network.module, EVERYONE), strict=True):
        assert torch.allclose(one, two, atol=1e-5)


@MODES
def test_odd_graphs_are_learned(mode: str) -> None:
    graph = small_graph()
    assert graph.features is not None
    static = graph.with_features(np.asarray(graph.features)[0])
    rows, steps, neighbours = graph.snapshot.entries()
    some = (rows >= 12) & (neighbours >= 12)
    views = history_and_snapshot(rows[some], neighbours[some], steps[some], graph.num_nodes, graph.num_steps)
    isolated = replace(graph, history=views[0], snapshot=views[1], events=None)
    single = graph_of(random_edges(40, 1, 90), 40).with_labels(np.arange(40) % 2, ("a", "b"))
    learner = _learner(epochs=2, mode=mode)
    for one in (static, isolated, replace(graph, directed=True), with_random_features(single)):
        fitted = learner.fit(make_task(one, learner.settings, CPU))
        found = fitted.probabilities(np.arange(one.num_nodes))
        assert np.allclose(found.sum(axis=1), 1, atol=1e-5)
        assert fitted.embeddings(np.arange(one.num_nodes)).shape == (one.num_nodes, 4)


@MODES
@FORWARDS
def test_a_fit_learns_the_small_graph(mode: str, forward: str) -> None:
    learner = _learner(epochs=40, learning_rate=0.02, hidden=16, width=8, mode=mode, forward=forward)
    task = make_task(small_graph(), learner.settings, CPU)
    found = learner.fit(task).probabilities(task.split.test).argmax(axis=1)
    assert (found == task.labels(task.split.test)).mean() > 0.9


def test_a_running_mean_of_weights_is_a_contraction_too() -> None:
    learner = _learner(epochs=3, weight_average=0.9, learning_rate=0.1)
    fitted: Any = learner.fit(make_task(small_graph(), learner.settings, CPU))
    model = _model(fitted.network).eval()
    sizes = [torch.linalg.matrix_norm(w, ord=2).item() for w in (model.weights()[-1], model.second.weight)]
    assert sizes[0] * sizes[1] < 1.01 * CONTRACTION


@MODES
@FORWARDS
def test_firing_rates_are_given_per_layer_and_step(mode: str, forward: str) -> None:
    network = _network(mode=mode, forward=forward)
    found = network.details()
    rates = np.array(found["firing_rate_per_step"])
    assert rates.shape == (2, 5)
    assert np.allclose(found["firing_rate"], rates.mean(axis=1))
    assert (rates >= 0).all()
    assert (rates <= 1).all()
    test = network.task.split.test
    states = list(_model(network).eval().equilibria(*network._read()))
    assert np.allclose(rates[1], [float(a[test].mean().detach()) for a in states], atol=1e-3)
    hidden = [float(a1[test].mean()) for a1, _, _ in _model(network).rates(*network._read())]
    assert np.allclose(rates[0], hidden, atol=1e-3)
    assert (found["equilibrium_residual"] < 1e-4) is (forward == "rate")


@pytest.mark.parametrize(
    "values",
    [{}, {"hidden": 20}, {"forward": "spike"}, {"readout": "concat"}, {"mode": "local"}, {"compensation": False}],
)
def test_the_bytes_of_a_training_step_are_counted(values: dict[str, Any]) -> None:
    learner = _learner(**{"hidden": 128, "width": 64, **values})
    task = make_task(small_graph(2000), learner.settings, CPU)
    network, train = learner.network(task), task.split.train
    assert isinstance(network, DySIGNNetwork)
    nodes = train[: network.batch_nodes(1024, len(train))]
    prepared = network.prepare(nodes, 0)
    taken = max(live_trace(lambda: network.losses(network.module, prepared, nodes).backward()))
    # Seen through the steps, the inputs are counted, too.
    seen = 0 if network.is_local else network.inputs.first_hop.nbytes
    gradients = sum(p.nbytes for p in network.module.parameters())
    wanted = learner.activation_bytes(task.graph, 8, len(train), recompute=False)
    if network.is_local:
        wanted -= 4 * 2000 * 64
    assert wanted == pytest.approx(taken - seen - gradients, rel=0.25)
    asked = max(live_trace(lambda: network.infer(network.module, np.arange(2000))))
    assert asked < 1.5 * learner.activation_bytes(task.graph, 8, len(train), recompute=False)


def test_memory_that_is_not_there_is_refused_in_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    learner, graph = make_learner("dy-sign", {}), small_graph()
    assert isinstance(learner, DySIGNLearner)
    assert learner.estimate(graph, 8)["memory_bytes"] > input_bytes(graph, 8, "cumulative", with_features=False)
    assert not learner.recomputes(graph, 8, 90)
    learner.require_memory(graph, 0, 90, CPU)
    monkeypatch.setattr(memory, "available_bytes", lambda: 1000)
    with pytest.raises(InputError, match=r"^dy-sign on this graph needs about .* Lower hidden"):
        learner.require_memory(graph, 0, 90, CPU)


def test_the_paper_reports_a_score_under_this_name() -> None:
    assert paper_score("dblp", DySIGNLearner.name, "micro_f1", 0.8) == pytest.approx(0.7496)


@pytest.mark.gpu
@MODES
@FORWARDS
def test_a_gpu_computes_what_the_cpu_computes(mode: str, forward: str) -> None:
    found, nodes = [], np.arange(60)
    for device in (CPU, torch.device("cuda")):
        # A leak that is no dyadic number: no membrane lies on the threshold but for rounding.
        network = _network(device, mode=mode, forward=forward, dropout=0.0, leak=0.93)
        with network.precision():
            loss = network.losses(network.module, network.prepare(nodes, 0), nodes)
            loss.backward()
        gradients = [p.grad.cpu() for p in network.module.parameters() if p.grad is not None]
        found.append([loss.detach().cpu(), network.infer(network.module, nodes)[0], *gradients])
    for one, two in zip(*found, strict=True):
        assert torch.allclose(one, two, atol=1e-4)


@pytest.mark.gpu
def test_memory_on_a_gpu_does_not_grow_with_the_iterations() -> None:
    peaks, nodes = [], np.arange(60)
    for count in (5, 5, 50):
        network = _network(torch.device("cuda"), iterations=count, tolerance=0.0)
        prepared = network.prepare(nodes, 0)
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        with network.precision():
            network.losses(network.module, prepared, nodes).backward()
        peaks.append(torch.cuda.max_memory_allocated() - before)
        del network, prepared
    # The first run loads the libraries of matrix products, which keep their workspaces.
    assert peaks[2] <= peaks[1] + 1024
