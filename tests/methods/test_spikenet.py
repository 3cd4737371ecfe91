from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from chronospike import memory
from chronospike.config import make_settings
from chronospike.data.csr import history_and_snapshot
from chronospike.data.graph import DynamicGraph
from chronospike.data.storage import save_graph
from chronospike.errors import InputError
from chronospike.experiments.paper_results import paper_score
from chronospike.methods.spikenet import SpikeNet, SpikeNetNetwork, SpikeNetSettings
from chronospike.methods.spikenet_model import (
    SAGELayer,
    SpikeNetModule,
    SpikingNeurons,
    neighbour_means,
    tree_rows,
)
from chronospike.nn.dispatch import Implementation
from chronospike.nn.lif import LIFState, lif_step
from chronospike.sampling.tree import NeighbourTree
from chronospike.training.learner import Fitted
from chronospike.training.scoring import score_nodes
from chronospike.training.task import Task, make_task
from tests.methods.test_triads import graph_of
from tests.small_runs import (
    CPU,
    command,
    dated_graph,
    same_weights,
    saved_graph,
    small_graph,
    with_other_future,
    worked,
)

SMALL: dict[str, Any] = {"epochs": 2, "batch_size": 32, "hidden": (16, 8), "learning_rate": 0.02}
# Of a graph with few nodes, most of them isolated.
HALF: dict[str, Any] = {"ratio": 0.6, "validation": 0.2}
PLAIN: tuple[Implementation, ...] = ("plain", "plain")
NUMBA: tuple[Implementation, ...] = ("numba", "numba")


def _settings(**values: Any) -> SpikeNetSettings:
    return make_settings(SpikeNetSettings, {**SMALL, **values})


def _task(graph: DynamicGraph | None = None, device: torch.device = CPU, **values: Any) -> Task:
    return make_task(graph or small_graph(), _settings(**values), device)


def _network(graph: DynamicGraph | None = None, last_step: int | None = None, **values: Any) -> SpikeNetNetwork:
    task = _task(graph, **values)
    return SpikeNetNetwork(task if last_step is None else task.until(last_step), _settings(**values))


def _embeddings(network: SpikeNetNetwork) -> Tensor:
    return network.infer(network.module, np.arange(network.task.graph.num_nodes))[1]


def _everyone(fitted: Fitted) -> NDArray[Any]:
    return fitted.probabilities(np.arange(120))


# Neurons.


def _fired(inputs: list[float], implementation: Implementation, **values: Any) -> list[int]:
    neurons = SpikingNeurons(1, _settings(**values))
    spikes = neurons(torch.tensor(inputs)[:, None, None], 0.0, implementation)
    return [int(spike) for spike in spikes.detach().flatten()]


@pytest.mark.parametrize("implementation", ["plain", "numba"])
@pytest.mark.parametrize(
    ("inputs", "tau", "wanted"),
    [
        ([0.9] * 10, 1, "0111111111"),
        ([0.5] * 10, 1, "0010110110"),
        ([1.2, 0.3, 0.6, 0.1, 0.9, 0.2, 0.5, 0.5], 1, "10001011"),
        ([0.9] * 10, 2, "0010101101"),
    ],
)
def test_neurons_fire_as_worked_out_by_hand(
    inputs: list[float], tau: float, wanted: str, implementation: Implementation
) -> None:
    assert _fired(inputs, implementation, tau=tau) == [int(spike) for spike in wanted]


@pytest.mark.parametrize(
    ("current", "wanted"),
    [
        (0.9, [1, 0.7, 0.69, 0.683, 0.6781, 0.67467]),
        (0.5, [1, 0.7, 0.49, 0.543, 0.3801, 0.46607, 0.526249, 0.368374, 0.457862, 0.520503]),
    ],
)
def test_thresholds_move_as_worked_out_by_hand(current: float, wanted: list[float]) -> None:
    values = SpikingNeurons(1, _settings()).current_parameters()
    state, found = LIFState(torch.zeros(1), values.threshold), []
    for _ in wanted:
        found.append(float(state.threshold))
        state = lif_step(torch.tensor([current]), state, values)[2]
    assert found == pytest.approx(wanted, abs=1e-6)


@pytest.mark.parametrize("implementation", ["plain", "numba"])
def test_a_current_at_the_threshold_does_not_fire(implementation: Implementation) -> None:
    assert _fired([1.0], implementation) == [0]


@pytest.mark.parametrize("implementation", ["plain", "numba"])
def test_integrate_and_fire_adds_up_and_keeps_its_threshold(implementation: Implementation) -> None:
    # Sums: 0.25, 0.75, 1.5 (fires), 0.5, 0.5, 1.25 (fires), 2.5 (fires), -3, -2.
    inputs = [0.25, 0.5, 0.75, 0.5, 0.0, 0.75, 2.5, -3.0, 1.0]
    assert _fired(inputs, implementation, neuron="if") == [0, 0, 1, 0, 0, 1, 1, 0, 0]
    currents = torch.tensor(inputs)[:, None, None].requires_grad_()
    neurons = SpikingNeurons(1, _settings(neuron="if", surrogate="sigmoid"))
    (gradient,) = torch.autograd.grad(neurons(currents, 0.0, implementation)[1].sum(), currents)
    # v_2 = (1 - s_1) v_1 + I_2, where s_1 has the surrogate's slope at 0.25 - 1, and s_2 that at 0.75 - 1.
    first, second = (np.exp(-x) / (1 + np.exp(-x)) ** 2 for x in (-0.75, -0.25))
    assert gradient[1].item() == pytest.approx(second, rel=1e-5)
    assert gradient[0].item() == pytest.approx(second * (1 - 0.25 * first), rel=1e-5)
    assert not gradient[2:].any()


@pytest.mark.parametrize("implementation", ["plain", "numba"])
def test_a_learned_time_constant_has_a_gradient_and_is_one_number_a_layer(implementation: Implementation) -> None:
    neurons = SpikingNeurons(6, _settings(neuron="plif", tau=2.0))
    assert [tuple(parameter.shape) for parameter in neurons.parameters()] == [()]
    torch.manual_seed(0)
    neurons(torch.randn(7, 5, 6), 0.0, implementation).sum().backward()
    assert neurons.tau.grad is not None
    assert neurons.tau.grad.abs() > 1e-3
    assert not list(SpikingNeurons(6, _settings()).parameters())


# The network against a plain form of it.


def slow_spike(x: Tensor, alpha: float) -> Tensor:
    """A step forwards and a sigmoid backwards."""
    smooth = torch.sigmoid(alpha * x)
    return (x > 0).to(x.dtype) + (smooth - smooth.detach())


def slow_forward(module: SpikeNetModule, table: Tensor, tree: NeighbourTree) -> tuple[Tensor, list[list[Tensor]]]:
    """Section 10.1 step by step, for two layers: logits, and the spikes of each layer at each step. Without dropout."""
    s, (first, second) = module.settings, cast(list[SAGELayer], list(module.layers))
    v: list[Any] = [0.0, 0.0]
    theta: list[Any] = [1.0, 1.0]
    found: list[list[Tensor]] = [[], []]

    def fire(layer: int, current: Tensor) -> Tensor:
        v[layer] = v[layer] + (current - v[layer]) / s.tau
        spikes = slow_spike(v[layer] - theta[layer], s.alpha)
        v[layer] = (1 - spikes) * v[layer]
        theta[layer] = s.threshold_decay * theta[layer] + s.threshold_jump * spikes
        found[layer].append(spikes)
        return spikes

    for row, step in enumerate(tree.steps):
        x = table[step]
        roots, met, far = (x[tree.hop(hop)[row].long()] for hop in range(3))
        size, (s1, s2) = len(roots), tree.fanouts
        own = torch.cat([roots, met])
        mean = torch.cat([met.view(size, s1, -1).mean(1), far.view(size * s1, s2, -1).mean(1)])
        spikes = fire(0, first.own(own) + first.neighbours(mean))
        fire(1, second.own(spikes[:size]) + second.neighbours(spikes[size:].view(size, s1, -1).mean(1)))
    return module.readout(torch.cat(found[1], dim=1)), found


def _random_tree(nodes: int, steps: int, roots: int, fanouts: tuple[int, ...]) -> NeighbourTree:
    s1, s2 = fanouts
    return NeighbourTree(torch.randint(nodes, (steps, roots * (1 + s1 + s1 * s2))), fanouts, tuple(range(steps)))


def _dyadic(module: nn.Module) -> None:
    """Weights whose sums in the tests below are exact in single precision."""
    for parameter in module.parameters():
        parameter.data = torch.randint(-4, 5, parameter.shape) / 8.0


def _gradients(loss: Tensor, module: nn.Module) -> list[Tensor]:
    return list(torch.autograd.grad(loss, list(module.parameters())))


@pytest.mark.parametrize("tau", [1.0, 2.0])
def test_all_steps_at_once_fire_spike_for_spike_as_one_after_the_other(tau: float) -> None:
    torch.manual_seed(int(tau))
    settings = _settings(tau=tau, hidden=(16, 6))
    module = SpikeNetModule(8, 3, 9, settings).double()
    table, tree = 3 * torch.randn(9, 20, 8, dtype=torch.double), _random_tree(20, 9, 11, (5, 2))
    rows = tree_rows(table.flatten(0, 1), tree, 20)
    module.eval()
    spikes, (wanted, slow) = module.spikes(rows, PLAIN), slow_forward(module, table, tree)
    for layer, other in zip(spikes, slow, strict=True):
        assert torch.equal(layer, torch.stack(other))
        assert 0.05 < layer.mean() < 0.95
    logits = module(rows, PLAIN)[0]
    torch.testing.assert_close(logits, wanted, rtol=1e-12, atol=1e-12)
    target = torch.randn(11, 3, dtype=torch.double)
    ours, theirs = (_gradients((x * target).sum(), module) for x in (logits, wanted))
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-10)
    assert ours[0].abs().max() > 1e-3


def test_the_kernel_fires_spike_for_spike_as_one_step_after_the_other() -> None:
    torch.manual_seed(4)
    # Means over four and two, and sums of few binary digits: there is no rounding before the threshold.
    module = SpikeNetModule(8, 3, 7, _settings(hidden=(16, 6), fanouts=(4, 2)))
    _dyadic(module)
    table, tree = torch.randint(-8, 9, (7, 20, 8)) / 4.0, _random_tree(20, 7, 13, (4, 2))
    rows = tree_rows(table.flatten(0, 1), tree, 20)
    module.eval()
    spikes, (wanted, slow) = module.spikes(rows, NUMBA), slow_forward(module, table, tree)
    for layer, other in zip(spikes, slow, strict=True):
        assert torch.equal(layer, torch.stack(other))
    logits = module(rows, NUMBA)[0]
    torch.testing.assert_close(logits, wanted, rtol=1e-5, atol=1e-5)
    for a, b in zip(_gradients(logits.square().sum(), module), _gradients(wanted.square().sum(), module), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4 * max(1.0, float(b.abs().max())))


def test_the_state_of_neurons_ends_with_a_pass() -> None:
    network = _network()
    rows = network.rows(np.arange(30), 0, "inference")
    network.module.eval()
    one, other = (network.module(rows, network.kernels)[0] for _ in range(2))
    assert torch.equal(one, other)


def test_without_weights_nothing_fires_and_the_bias_is_read() -> None:
    network = _network()
    module = cast(SpikeNetModule, network.module).eval()
    for parameter in module.parameters():
        parameter.data.zero_()
    module.readout.bias.data = torch.tensor([0.25, -1.0])
    logits, z, spikes = module(network.rows(np.arange(30), 0, "inference"), network.kernels)
    assert not spikes.any()
    assert not z.any()
    assert torch.equal(logits, torch.tensor([0.25, -1.0]).expand(30, 2))


def test_dropout_is_between_layers_and_scales_what_it_keeps() -> None:
    network = _network(dropout=0.7)
    module = cast(SpikeNetModule, network.module).train()
    first, last = module.spikes(network.rows(np.arange(60), 0, "sampler"), network.kernels)
    values = first.unique()
    assert values.tolist() == pytest.approx([0, 1 / 0.3], rel=1e-3)
    assert set(last.unique().tolist()) <= {0.0, 1.0}


@pytest.mark.parametrize("fanouts", [(5,), (5, 2), (3, 2, 2)])
def test_rows_of_a_tree_are_features_and_means_of_neighbours(fanouts: tuple[int, ...]) -> None:
    torch.manual_seed(1)
    steps, nodes, roots, sizes = (0, 3, 2), 15, 6, [6]
    for fanout in fanouts:
        sizes.append(sizes[-1] * fanout)
    table, tree = torch.randn(4, nodes, 8), NeighbourTree(torch.randint(nodes, (3, sum(sizes))), fanouts, steps)
    rows = tree_rows(table.flatten(0, 1), tree, nodes)
    assert rows.roots == roots
    for row, step in enumerate(steps):
        own, mean = [], []
        for hop in range(len(fanouts)):
            own += [table[step, v] for v in tree.hop(hop)[row]]
            mean += [table[step, some].mean(dim=0) for some in tree.neighbours(hop)[row]]
        assert torch.equal(rows.own[row], torch.stack(own))
        torch.testing.assert_close(rows.mean[row], torch.stack(mean))
    static = tree_rows(table[0], tree, 0)
    assert torch.equal(static.own, table[0][tree.nodes[:, : sum(sizes[:-1])]])


def test_means_of_spikes_are_those_of_the_next_hop() -> None:
    rows = torch.randn(3, 2 * (1 + 3 + 6), 4)
    own, mean = neighbour_means(rows, 2, (3, 2))
    assert torch.equal(own, rows[:, :8])
    torch.testing.assert_close(mean[:, 1], rows[:, 5:8].mean(dim=1))
    torch.testing.assert_close(mean[:, 2 + 4], rows[:, 8 + 8 : 8 + 10].mean(dim=1))


def test_a_layer_is_that_of_pytorch_geometric() -> None:
    pyg = pytest.importorskip("torch_geometric.nn")
    torch.manual_seed(0)
    layer, theirs = SAGELayer(8, 5), pyg.SAGEConv(8, 5, aggr="mean")
    theirs.load_state_dict(
        {
            "lin_l.weight": layer.neighbours.weight,
            "lin_l.bias": layer.own.bias + layer.neighbours.bias,
            "lin_r.weight": layer.own.weight,
        }
    )
    rows = torch.randn(1, 12, 8)
    # Rows 0 to 2 have three neighbours each.
    edges = torch.stack([torch.arange(3, 12), torch.arange(9) // 3])
    wanted = theirs(rows[0], edges)[:3]
    found = layer(*neighbour_means(rows, 3, (3,)))[0]
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-6)


# Sizes.


@pytest.mark.parametrize(
    ("hidden", "steps", "classes", "count"),
    [((128, 10), 27, 10, 38_314), ((512, 10), 19, 5, 143_311), ((512, 10), 13, 6, 143_142)],
)
def test_the_network_has_as_many_parameters_as_the_published_one(
    hidden: tuple[int, int], steps: int, classes: int, count: int
) -> None:
    module = SpikeNetModule(128, classes, steps, _settings(hidden=hidden))
    assert sum(parameter.numel() for parameter in module.parameters()) == count


def test_defaults_are_those_of_the_published_commands() -> None:
    s = make_settings(SpikeNetSettings, {})
    assert (s.fanouts, s.p, s.sampler, s.hidden, s.dropout) == ((5, 2), 0.5, "official", (128, 10), 0.7)
    assert (s.neuron, s.tau, s.surrogate, s.alpha, s.threshold_decay, s.threshold_jump) == (
        "lif", 1.0, "sigmoid", 1.0, 0.7, 0.2,
    )  # fmt: skip
    assert (s.learning_rate, s.weight_decay, s.epochs, s.batch_size, s.clip) == (5e-3, 0.01, 100, 1024, 0.0)
    assert (s.selection, s.patience, s.standardise_over, s.refit) == ("micro_f1", 100, "all", False)


def test_every_layer_needs_a_fanout_and_a_width() -> None:
    with pytest.raises(InputError, match=r"hidden \[16\] and fanouts \[5, 2\] must have a number for each layer"):
        _settings(hidden=(16,))


def test_the_paper_has_scores_of_it() -> None:
    assert paper_score("dblp", SpikeNet.name, "micro_f1", 0.8) == pytest.approx(0.7486)


# What a node may know.


@pytest.mark.parametrize("sampler", ["official", "uniform"])
def test_nothing_after_the_last_step_is_read(sampler: str) -> None:
    task, settings = _task(), _settings(sampler=sampler)
    assert task.features is not None
    # How attributes are encoded is what an earlier fit has found.
    later = make_task(with_other_future(task.graph, 2), settings, CPU, task.split, task.features.encoder)
    one, other = (SpikeNet(settings).fit(each.until(2)) for each in (task, later))
    assert np.array_equal(_everyone(one), _everyone(other))


def test_as_of_a_step_the_tables_are_shared_and_later_spikes_are_zeros() -> None:
    network = _network()
    earlier = network.for_task(network.task.until(2))
    assert earlier._table is network._table
    assert earlier._sampler is network._sampler
    whole, part = _embeddings(network), _embeddings(earlier)
    assert torch.equal(part, _embeddings(_network(last_step=2)))
    assert part.shape == whole.shape == (120, 5 * 8)
    assert torch.equal(part[:, : 3 * 8], whole[:, : 3 * 8])
    assert not part[:, 3 * 8 :].any()
    assert whole[:, 3 * 8 :].any()


def _ring(order: NDArray[np.int64], directed: bool = False) -> DynamicGraph:
    """A ring at all of three steps; node `order[i]` of it is the i-th of the graph."""
    size, place = len(order), np.argsort(order)
    rows, following = place[np.arange(size)], place[(np.arange(size) + 1) % size]
    ends = (rows, following) if directed else (np.append(rows, following), np.append(following, rows))
    rows, neighbours = (np.tile(side, 3) for side in ends)
    history, snapshot = history_and_snapshot(rows, neighbours, np.repeat(np.arange(3), len(rows) // 3), size, 3)
    rng = np.random.default_rng(0)
    features, labels = rng.normal(size=(3, size, 8)).astype(np.float32), np.arange(size) % 2
    graph = graph_of([(0, 1, 0), (0, 1, 1), (0, 1, 2)], size)
    graph = replace(graph, history=history, snapshot=snapshot, events=None, directed=directed)
    return graph.with_labels(labels[order], ("a", "b")).with_features(features[:, order])


@pytest.mark.parametrize("sampler", ["official", "uniform"])
def test_nodes_in_another_order_have_the_same_embeddings(sampler: str) -> None:
    # A row has three neighbours with the node itself, and all are drawn: which of many are depends on their order.
    order = np.random.default_rng(1).permutation(30)
    given: dict[str, Any] = {"fanouts": (3, 3), "p": 1.0, "sampler": sampler}
    one, other = (_embeddings(_network(_ring(each), **given)) for each in (np.arange(30), order))
    assert one.any()
    # Spikes are zeros and ones: means that round differently do not show.
    assert torch.equal(one[order], other)


@pytest.mark.parametrize("sampler", ["official", "uniform"])
def test_the_direction_of_edges_does_not_matter(sampler: str) -> None:
    one, other = (_embeddings(_network(_ring(np.arange(30), directed), sampler=sampler)) for directed in (False, True))
    assert torch.equal(one, other)


# Through the protocol.


@pytest.mark.parametrize("neuron", ["lif", "if", "plif"])
def test_it_learns_two_communities(neuron: str) -> None:
    task = _task()
    fitted = SpikeNet(_settings(epochs=15, neuron=neuron)).fit(task)
    assert score_nodes(fitted, task.split.test).micro_f1 > 0.9


@pytest.mark.parametrize("surrogate", ["triangle", "arctan", "superspike", "rational"])
def test_other_surrogates_train(surrogate: str) -> None:
    fitted = SpikeNet(_settings(surrogate=surrogate)).fit(_task())
    assert np.isfinite(_everyone(fitted)).all()


def test_two_fits_with_the_same_seed_agree_to_the_bit() -> None:
    one, other = (SpikeNet(_settings()).fit(_task()) for _ in range(2))
    assert same_weights(one.network.module.state_dict(), other.network.module.state_dict())  # type: ignore[union-attr]
    assert np.array_equal(_everyone(one), _everyone(other))


@pytest.mark.parametrize("width", [3, 8, 13])
@pytest.mark.parametrize("hidden", [(16, 8), (13, 5)])
def test_a_node_has_the_same_bits_whatever_it_is_asked_with(width: int, hidden: tuple[int, int]) -> None:
    features = np.random.default_rng(0).normal(size=(5, 120, width)).astype(np.float32)
    network = _network(small_graph().with_features(features), hidden=hidden)
    together = network.infer(network.module, np.arange(120))
    parts = [network.infer(network.module, np.arange(120)[low : low + 7]) for low in range(0, 120, 7)]
    for whole, pieces in zip(together, zip(*parts, strict=True), strict=True):
        assert torch.equal(whole, torch.cat(pieces))


def test_the_seed_of_a_fold_does_not_change_what_is_inferred() -> None:
    network = _network()
    other = network.for_task(network.task.divided(network.task.split.train, network.task.split.validation, seed=9))
    assert torch.equal(_embeddings(network), _embeddings(other))


def test_no_nodes_have_no_embeddings() -> None:
    network = _network()
    probabilities, embeddings = network.infer(network.module, np.arange(0))
    assert probabilities.shape == (0, 2)
    assert embeddings.shape == (0, 40)


def test_weights_belong_to_widths_and_steps_and_not_to_a_graph() -> None:
    assert _network().description() == _network(small_graph(nodes=60)).description()
    assert _network().description() != _network(hidden=(16, 9)).description()
    assert _network().description()["steps"] == 5


def test_attributes_of_all_steps_are_held_once() -> None:
    graph = small_graph()
    assert graph.features is not None
    static = _network(graph.with_features(graph.features[0]))
    repeated = _network(graph.with_features(np.repeat(graph.features[:1], 5, axis=0)))
    assert static._table.shape == (120, 8)
    assert repeated._table.shape == (600, 8)
    for a, b in zip(static.rows(np.arange(9), 0, "x")[:2], repeated.rows(np.arange(9), 0, "x")[:2], strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


def _little(edges: list[tuple[int, int, int]]) -> DynamicGraph:
    graph = graph_of(edges, 12)
    features = np.random.default_rng(0).normal(size=(graph.num_steps, 12, 6)).astype(np.float32)
    return graph.with_labels(np.arange(12) % 2, ("a", "b")).with_features(features)


@pytest.mark.parametrize("kind", ["one step", "dates", "isolated"])
@pytest.mark.parametrize("sampler", ["official", "uniform"])
def test_unusual_graphs_are_learned(kind: str, sampler: str) -> None:
    edges = [(0, 1, 2), (1, 3, 0), (0, 4, 0), (2, 3, 1), (4, 3, 3)]
    graph = {
        "one step": _little([(u, v, 0) for u, v, _ in edges]),
        "dates": dated_graph(),
        "isolated": _little(edges),
    }[kind]
    fitted = SpikeNet(_settings(sampler=sampler)).fit(_task(graph, **HALF))
    found = fitted.probabilities(np.arange(graph.num_nodes))
    assert found.sum(axis=1) == pytest.approx(np.ones(graph.num_nodes), abs=1e-5)


def test_firing_rates_are_shares_of_neurons_for_each_layer_and_step() -> None:
    network = _network()
    found = network.details()
    assert [len(layer) for layer in found["firing_rate_per_step"]] == [5, 5]
    assert found["firing_rate"] == pytest.approx([np.mean(layer) for layer in found["firing_rate_per_step"]])
    assert all(0 <= rate <= 1 for layer in found["firing_rate_per_step"] for rate in layer)
    # The last layer's, by hand.
    test = network.task.split.test
    spikes = network.infer(network.module, test)[1].view(len(test), 5, 8)
    assert found["firing_rate_per_step"][1] == pytest.approx(spikes.mean(dim=(0, 2)).tolist(), abs=1e-6)


def test_a_graph_with_other_steps_is_refused_in_a_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    graph, run = saved_graph(tmp_path / "graph"), tmp_path / "run"
    settings = [part for value in ("epochs=1", "hidden=[16, 8]") for part in ("--set", value)]
    worked(capsys, "train", graph, "--method", "spikenet", "-o", run, "--device", "cpu", *settings)
    same, longer = small_graph(nodes=60, seed=1), small_graph(nodes=60, seed=1)
    assert longer.features is not None
    rows, steps, neighbours = longer.snapshot.entries()
    views = history_and_snapshot(rows, neighbours, steps, 60, 6)
    ends = np.append(longer.step_end, longer.step_end[-1] + 1)
    features = np.concatenate([longer.features, longer.features[-1:]])
    longer = replace(
        longer, history=views[0], snapshot=views[1], step_start=ends, step_end=ends, features=features, events=None
    )
    for name, other in (("same", same), ("longer", longer)):
        save_graph(other, tmp_path / name)
    found = tmp_path / "found.csv"
    worked(capsys, "predict", run, "--graph", tmp_path / "same", "-o", found, "--device", "cpu")
    result = command(capsys, "predict", run, "--graph", tmp_path / "longer", "-o", found, "--device", "cpu")
    assert result.code == InputError.exit_code
    assert result.err.count("\n") == 1
    assert "SpikeNet was trained on 5 steps and has weights for each of them, but this graph has 6" in result.err


def test_a_bag_predicts_after_loading_what_it_predicted_before(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    graph, run = saved_graph(tmp_path / "graph"), tmp_path / "run"
    settings = [part for value in ("epochs=2", "folds=2", "hidden=[16, 8]") for part in ("--set", value)]
    worked(capsys, "train", graph, "--method", "spikenet", "-o", run, "--device", "cpu", *settings)
    worked(capsys, "predict", run, "--graph", graph, "-o", tmp_path / "found.csv", "--device", "cpu")
    assert (tmp_path / "found.csv").read_text() == (run / "predictions.csv").read_text()


# Memory.


def test_memory_counts_the_features_of_all_steps_once_if_they_are_the_same() -> None:
    graph, learner = small_graph(), SpikeNet(_settings())
    static, moving = (learner.memory(graph, 8, static, 60) for static in (True, False))
    assert moving - static == 4 * 4 * 120 * 8


def test_larger_batches_wider_layers_and_surrogates_without_a_kernel_need_more_memory() -> None:
    graph = small_graph()
    base = SpikeNet(_settings()).memory(graph, 8, False, 90)
    for other in ({"batch_size": 90}, {"hidden": (32, 8)}, {"surrogate": "arctan"}, {"fanouts": (6, 2)}):
        assert SpikeNet(_settings(**other)).memory(graph, 8, False, 90) > base


def test_a_graph_that_does_not_fit_is_refused_in_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    learner, graph = SpikeNet(_settings()), small_graph()
    learner.require_memory(graph, 0, 60, CPU)
    monkeypatch.setattr(memory, "available_bytes", lambda: 10_000)
    with pytest.raises(InputError, match="spikenet on this graph needs about .* Lower batch_size .* feature_dimension"):
        learner.require_memory(graph, 0, 60, CPU)


def test_a_dry_run_says_memory_first() -> None:
    graph, learner = small_graph(), SpikeNet(_settings())
    assert learner.estimate(graph, 8)["memory_bytes"] == learner.memory(graph, 8, False, 90)


@pytest.mark.gpu
@pytest.mark.parametrize("sampler", ["official", "uniform"])
def test_a_gpu_computes_what_the_cpu_does_and_the_same_twice(sampler: str) -> None:
    device, settings = torch.device("cuda"), _settings(sampler=sampler, dropout=0.0)
    networks = [SpikeNetNetwork(_task(device=kind), settings) for kind in (CPU, device)]
    assert networks[1].kernels == ("triton", "triton")
    trees = [network._sampler.sample(np.arange(120), 1, range(5), "sampler") for network in networks]
    assert torch.equal(trees[0].nodes.long(), trees[1].nodes.cpu().long())
    rows = [network.prepare(np.arange(120), 1) for network in networks]
    for one, other in zip(rows[0][:2], rows[1][:2], strict=True):
        torch.testing.assert_close(one, other.cpu(), rtol=1e-5, atol=1e-6)
    # A rounding at a threshold is a spike: nearly all are the same.
    spikes = [_embeddings(network) for network in networks]
    assert (spikes[0] != spikes[1]).float().mean() < 1e-3
    fitted, again = (SpikeNet(settings).fit(_task(device=device)) for _ in range(2))
    assert np.array_equal(_everyone(fitted), _everyone(again))
    pieces = [fitted.probabilities(np.arange(120)[low : low + 7]) for low in range(0, 120, 7)]
    assert np.array_equal(_everyone(fitted), np.concatenate(pieces))
