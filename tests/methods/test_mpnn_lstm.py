from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from chronospike.config import make_settings
from chronospike.errors import InputError
from chronospike.methods import mpnn_lstm
from chronospike.methods.graph_convolution import StepInputs, kept, recomputed
from chronospike.methods.mpnn_lstm import MPNNLSTM, MPNNLSTMNetwork, MPNNLSTMSettings
from chronospike.training.task import Task, make_task
from tests.methods.test_graph_convolution import task_of, with_random_features
from tests.methods.test_triads import graph_of, random_edges
from tests.small_runs import CPU, small_graph


def _task(**values: Any) -> tuple[Task, MPNNLSTMSettings]:
    settings = make_settings(MPNNLSTMSettings, values)
    return make_task(small_graph(), settings, CPU), settings


def _network(recompute: bool = False, **values: Any) -> MPNNLSTMNetwork:
    return MPNNLSTMNetwork(*_task(hidden=5, **values), recompute)


def _random_inputs(nodes: int = 19, steps: int = 4, width: int = 3, seed: int = 0) -> StepInputs:
    graph = with_random_features(graph_of(random_edges(nodes, steps, 70, seed), nodes), width, seed)
    return StepInputs.of(task_of(graph), "cumulative", with_features=True)


def _gradients(module: nn.Module) -> list[Tensor]:
    return [torch.zeros(()) if p.grad is None else p.grad.clone() for p in module.parameters()]


def _parameters(inputs: int, hidden: int, classes: int, skip: int) -> int:
    return sum(p.numel() for p in MPNNLSTM(inputs, hidden, classes, 0.5, skip).parameters())


class _Plain(nn.Module):
    """The equations on dense matrices, with torch's own normalisation of all rows at once."""

    def __init__(self, model: MPNNLSTM) -> None:
        super().__init__()
        self.model = model
        hidden = model.first.linear.out_features
        self.one, self.two = nn.BatchNorm1d(hidden), nn.BatchNorm1d(hidden)
        self.norms = {"first": self.one, "second": self.two}
        for name, norm in self.norms.items():
            norm.load_state_dict(getattr(model, name).norm.state_dict())

    def forward(self, inputs: StepInputs, x: Tensor, raw: Tensor, rows: Tensor) -> Tensor:
        steps, nodes, _ = x.shape
        matrices = torch.stack([matrix.to_dense() for matrix in inputs.adjacency])
        h, layers = x, []
        for norm, layer in zip(self.norms.values(), (self.model.first, self.model.second), strict=True):
            active = torch.relu(matrices @ h @ layer.linear.weight.T + layer.linear.bias)
            h = norm(active.view(steps * nodes, -1)).view(steps, nodes, -1)
            layers.append(h)
        states, (one, _) = self.model.lstm_1(torch.cat(layers, dim=2))
        _, (two, _) = self.model.lstm_2(states)
        r = torch.cat([one[-1], two[-1], *raw], dim=1)[rows]
        logits: Tensor = self.model.classify(torch.relu(self.model.dense(r)))
        return logits


@pytest.mark.parametrize(("skip", "wanted"), [(0, 104_522), (128, 112_714), (27 * 128, 325_706)])
def test_parameters_are_as_many_as_the_formula_says(skip: int, wanted: int) -> None:
    assert _parameters(128, 64, 10, skip) == wanted
    f, h, c = 128, 64, 10
    by_formula = (f * h + h) + (h * h + h) + 4 * h + (12 * h * h + 8 * h) + (8 * h * h + 8 * h)
    assert by_formula + ((2 * h + skip) * h + h) + (h * c + c) == wanted


@pytest.mark.parametrize(("skip", "steps"), [("none", 0), ("last", 1), ("full", 5)])
def test_the_skip_is_as_wide_as_the_inputs_of_its_steps(skip: str, steps: int) -> None:
    network = _network(skip=skip)
    assert network.description()["skip"] == 8 * steps
    module = network.new_module()
    assert isinstance(module, MPNNLSTM)
    assert module.dense.in_features == 2 * 5 + 8 * steps


def test_the_first_layer_of_a_path_with_unit_weights_is_the_positive_part_of_the_first_hop() -> None:
    graph = with_random_features(graph_of([(0, 1, 0), (1, 2, 0)], 3), width=4)
    inputs = StepInputs.of(task_of(graph), "cumulative", with_features=True)
    model = MPNNLSTM(4, 4, 2, 0.0, 0).eval()
    model.first.linear.load_state_dict({"weight": torch.eye(4), "bias": torch.zeros(4)})
    assert isinstance(model.first.norm.running_var, Tensor)
    model.first.norm.running_var.fill_(1 - model.first.norm.eps)
    x = torch.from_numpy(task_of(graph).features.at(0))  # type: ignore[union-attr]
    root = 6**-0.5
    a = torch.tensor([[0.5, root, 0], [root, 1 / 3, root], [0, root, 0.5]])
    found = model.convolve(inputs, torch.arange(3))[0]
    assert torch.allclose(found, torch.relu(a @ x), atol=1e-5)


def test_lstms_without_weights_leave_the_skip_alone() -> None:
    inputs = _random_inputs()
    assert inputs.features is not None
    model, seen = MPNNLSTM(3, 5, 2, 0.0, 3), []
    for lstm in (model.lstm_1, model.lstm_2):
        for parameter in lstm.parameters():
            nn.init.zeros_(parameter)
    model.dense.register_forward_pre_hook(lambda _, given: seen.append(given[0]))
    model.eval()(inputs, inputs.features[-1:], torch.arange(19), 100)
    assert torch.equal(seen[0], torch.cat([torch.zeros(19, 10), inputs.features[-1]], dim=1))


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("seed", [0, 1])
def test_values_gradients_and_statistics_are_those_of_the_plain_equations(training: bool, seed: int) -> None:
    inputs = _random_inputs(seed=seed)
    assert inputs.features is not None
    torch.manual_seed(seed)
    model, rows = MPNNLSTM(3, 5, 2, 0.0, 3), torch.tensor([2, 3, 11])
    for layer in (model.first, model.second):
        nn.init.uniform_(layer.norm.weight, 0.5, 2)
        nn.init.normal_(layer.norm.bias)
    plain, raw, weights = _Plain(model), inputs.features[-1:], torch.randn(3, 2)
    plain.train(training)
    found, _ = model(inputs, raw, rows, 100)
    (found * weights).sum().backward()
    gradients = dict(zip(dict(model.named_parameters()), _gradients(model), strict=True))
    plain.zero_grad()
    wanted = plain(inputs, inputs.features, raw, rows)
    (wanted * weights).sum().backward()
    assert torch.allclose(found, wanted, atol=1e-5)
    for name, norm in plain.norms.items():
        assert norm.weight.grad is not None
        assert norm.bias.grad is not None
        gradients[f"{name}.norm.weight"] -= norm.weight.grad
        gradients[f"{name}.norm.bias"] -= norm.bias.grad
        mine = getattr(model, name).norm.state_dict()
        for key, value in norm.state_dict().items():
            assert torch.allclose(mine[key], value, atol=1e-6), key
    for name, parameter in model.named_parameters():
        if ".norm." not in name:
            assert parameter.grad is not None
            gradients[name] -= parameter.grad
    for name, difference in gradients.items():
        assert difference.abs().max() < 2e-5, name


def test_the_recurrent_layers_are_two_lstms_one_upon_the_other() -> None:
    torch.manual_seed(0)
    model = MPNNLSTM(3, 5, 2, 0.0, 0)
    near, far = torch.randn(4, 7, 5), torch.randn(4, 7, 5)
    found = model.read_out(torch.empty(0, 7, 3), torch.arange(7), *near, *far)
    states, (one, _) = model.lstm_1(torch.cat([near, far], dim=2))
    _, (two, _) = model.lstm_2(states)
    wanted = torch.relu(model.dense(torch.cat([one[0], two[0]], dim=1)))
    assert torch.allclose(found, wanted, atol=1e-6)


@pytest.mark.parametrize("chunk", [1, 4, 5, 1000])
@pytest.mark.parametrize("call", [kept, recomputed])
def test_chunks_and_recomputing_change_neither_values_nor_gradients(chunk: int, call: Any) -> None:
    inputs, results = _random_inputs(), []
    assert inputs.features is not None
    model, rows = MPNNLSTM(3, 5, 2, 0.5, 3), torch.arange(1, 19, 2)
    for options in ((1000, kept), (chunk, call)):
        torch.manual_seed(1)
        model.zero_grad()
        logits, z = model(inputs, inputs.features[-1:], rows, *options)
        nn.functional.cross_entropy(logits, rows % 2).backward()
        results.append([logits.detach(), z.detach(), *_gradients(model)])
    for one, two in zip(*results, strict=True):
        assert torch.allclose(one, two, atol=1e-6)


def test_recomputing_takes_statistics_once_a_step() -> None:
    network = _network(recompute=True, chunk=30)
    network.losses(network.module.train(), network.prepare(np.arange(50), 0), np.arange(50)).sum().backward()
    assert network.module.state_dict()["first.norm.num_batches_tracked"] == 1


def test_the_order_of_training_nodes_changes_nothing() -> None:
    network, nodes = _network(), np.arange(50)
    losses = []
    for order in (nodes, nodes[::-1].copy()):
        torch.manual_seed(0)
        losses.append(network.losses(network.new_module(), network.prepare(order, 0), order))
    assert torch.equal(*losses)


def test_a_full_skip_as_of_an_earlier_step_is_zero_before_the_first() -> None:
    network, seen = _network(skip="full"), []
    early = network.for_task(network.task.until(1))
    module = network.module.eval()
    assert isinstance(module, MPNNLSTM)
    module.dense.register_forward_pre_hook(lambda _, given: seen.append(given[0]))
    early.infer(module, np.array([4]))
    skipped = seen[0][0, 10:].view(5, 8)
    assert not skipped[:3].any()
    assert network.task.features is not None
    assert np.array_equal(skipped[4], network.task.features.at(1, np.array([4]))[0])


def test_the_skip_of_the_last_step_moves_with_it() -> None:
    network = _network()
    early = network.for_task(network.task.until(1))
    assert network.task.features is not None
    assert np.array_equal(early.raw[0], network.task.features.at(1))


def test_inference_in_several_lanes_is_that_in_one(monkeypatch: pytest.MonkeyPatch) -> None:
    network = _network()
    whole = network.infer(network.module, np.arange(120))[0]
    monkeypatch.setattr(mpnn_lstm, "LANE", 32)
    assert torch.allclose(whole, network.infer(network.module, np.arange(120))[0], atol=1e-6)


def test_a_running_mean_of_weights_is_refused() -> None:
    with pytest.raises(InputError, match="weight_average must be 0"):
        make_settings(MPNNLSTMSettings, {"weight_average": 0.9})


def test_the_switch_of_the_recurrent_layers_is_given_back() -> None:
    cudnn: Any = torch.backends.cudnn
    before = cudnn.allow_tf32
    with mpnn_lstm._exact_rnn():
        if hasattr(cudnn, "rnn"):
            assert cudnn.rnn.fp32_precision == "ieee"
    assert cudnn.allow_tf32 == before


def test_one_step_gives_what_pytorch_geometric_temporal_gives() -> None:
    pytest.importorskip("torch_geometric")
    spec = importlib.util.find_spec("torch_geometric_temporal")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("torch_geometric_temporal is not installed")
    # The package itself wants compiled extensions that this file does not need.
    file = Path(spec.submodule_search_locations[0]) / "nn" / "recurrent" / "mpnn_lstm.py"
    source = importlib.util.spec_from_file_location("oracle", file)
    assert source is not None
    assert source.loader is not None
    oracle = importlib.util.module_from_spec(source)
    source.loader.exec_module(oracle)
    graph = with_random_features(graph_of(random_edges(19, 1, 70), 19))
    inputs = StepInputs.of(task_of(graph), "cumulative", with_features=True)
    assert inputs.features is not None
    torch.manual_seed(0)
    theirs, model, seen = oracle.MPNNLSTM(3, 5, 19, 1, 0.0), MPNNLSTM(3, 5, 2, 0.0, 3), []
    pairs = [(model.first, theirs._convolution_1), (model.second, theirs._convolution_2)]
    for layer, convolution in pairs:
        weights = {"weight": convolution.lin.weight, "bias": nn.init.normal_(convolution.bias)}
        layer.linear.load_state_dict(weights)
    model.lstm_1.load_state_dict(theirs._recurrent_1.state_dict())
    model.lstm_2.load_state_dict(theirs._recurrent_2.state_dict())
    model.dense.register_forward_pre_hook(lambda _, given: seen.append(given[0]))
    rows, _, neighbours = graph.snapshot.entries()
    edges = torch.from_numpy(np.stack([neighbours, rows]).astype(np.int64))
    for training in (True, False):
        model.train(training)(inputs, inputs.features, torch.arange(19), 100)
        wanted = theirs.train(training)(inputs.features[0], edges, torch.ones(edges.shape[1]))
        assert torch.allclose(seen.pop(), wanted, atol=1e-5)


@pytest.mark.gpu
def test_a_gpu_computes_what_the_cpu_computes() -> None:
    found, nodes = [], np.arange(60)
    for device in (CPU, torch.device("cuda")):
        settings = make_settings(MPNNLSTMSettings, {"hidden": 5, "dropout": 0.0})
        network = MPNNLSTMNetwork(make_task(small_graph(), settings, device), settings, recompute=True)
        with network.precision():
            loss = network.losses(network.module, network.prepare(nodes, 0), nodes)
            loss.backward()
        gradients = [gradient.cpu() for gradient in _gradients(network.module)]
        found.append([loss.detach().cpu(), network.infer(network.module, nodes)[0], *gradients])
    for one, two in zip(*found, strict=True):
        assert torch.allclose(one, two, atol=1e-4)
