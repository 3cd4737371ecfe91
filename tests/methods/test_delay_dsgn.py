from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from chronospike.config import make_settings
from chronospike.data.graph import DynamicGraph
from chronospike.experiments.paper_results import paper_score
from chronospike.methods.delay_dsgn import (
    DelayDSGN,
    DelayDSGNModule,
    DelayDSGNNetwork,
    DelayDSGNSettings,
    Delays,
    delayed,
    gaussian_kernel,
    step_changes,
)
from chronospike.methods.spikenet import SpikeNet, SpikeNetNetwork, SpikeNetSettings
from chronospike.methods.spikenet_model import TreeRows
from chronospike.nn.dispatch import Implementation
from chronospike.training.learner import Fitted
from chronospike.training.scoring import score_nodes
from chronospike.training.task import Task, make_task
from tests.small_runs import CPU, same_weights, small_graph, with_other_future

SMALL: dict[str, Any] = {"epochs": 2, "batch_size": 32, "hidden": (16, 8), "learning_rate": 0.02}
PLAIN: tuple[Implementation, ...] = ("plain", "plain")
# Without delays it is SpikeNet.
AS_SPIKENET: dict[str, Any] = {"kernel_size": 1, "pooling": "concat", "smoothness": 0.0}


def _settings(**values: Any) -> DelayDSGNSettings:
    return make_settings(DelayDSGNSettings, {**SMALL, **values})


def _task(graph: DynamicGraph | None = None, device: torch.device = CPU, **values: Any) -> Task:
    return make_task(graph or small_graph(), _settings(**values), device)


def _network(last_step: int | None = None, **values: Any) -> DelayDSGNNetwork:
    task = _task(**values)
    return DelayDSGNNetwork(task if last_step is None else task.until(last_step), _settings(**values))


def _everyone(fitted: Fitted) -> NDArray[Any]:
    return fitted.probabilities(np.arange(120))


def _kernel(delay: float, sigma: float, size: int = 5) -> Tensor:
    return gaussian_kernel(torch.tensor([delay], dtype=torch.double), torch.tensor(sigma, dtype=torch.double), size)


# Kernels.

SKEWED = [0.027288, 0.669438, 0.300798, 0.002475, 0.000001]


@pytest.mark.parametrize(
    ("delay", "sigma", "wanted"),
    [(2.0, 1.0, [0.054489, 0.244201, 0.402620, 0.244201, 0.054489]), (1.3, 0.5, SKEWED)],
)
def test_kernels_are_as_worked_out_by_hand(delay: float, sigma: float, wanted: list[float]) -> None:
    assert _kernel(delay, sigma).flatten().tolist() == pytest.approx(wanted, abs=1e-6)


def test_impulses_arrive_as_worked_out_by_hand() -> None:
    impulses = torch.tensor([1.0, 0, 0, 1, 0, 0], dtype=torch.double)[:, None, None]
    found = delayed(impulses, _kernel(1.3, 0.5)).flatten().tolist()
    assert found == pytest.approx([0.027288, 0.669438, 0.300798, 0.029763, 0.669439, 0.300798], abs=1e-6)


@pytest.mark.parametrize("delay", [0, 1, 3, 4])
def test_a_narrow_kernel_is_a_shift(delay: int) -> None:
    messages = torch.randn(7, 4, 1, dtype=torch.double)
    found = delayed(messages, _kernel(float(delay), 1e-3))
    assert torch.equal(found[delay:], messages[: 7 - delay])
    assert not found[:delay].any()


def test_weights_of_a_kernel_add_up_to_one() -> None:
    torch.manual_seed(0)
    for sigma in (1e-4, 0.3, 2.0, 50.0):
        kernel = gaussian_kernel(4 * torch.rand(20), torch.tensor(sigma), 5)
        torch.testing.assert_close(kernel.sum(dim=0), torch.ones(20))


def test_a_longer_delay_moves_weight_as_the_formula_says() -> None:
    torch.manual_seed(1)
    delay, sigma = (4 * torch.rand(6, dtype=torch.double)).requires_grad_(), torch.tensor(0.8, dtype=torch.double)
    kernel = gaussian_kernel(delay, sigma, 5)
    k = torch.arange(5, dtype=torch.double)[:, None]
    wanted = kernel * ((k - delay) - (kernel * (k - delay)).sum(dim=0)) / sigma**2
    for place in range(5):
        (found,) = torch.autograd.grad(kernel[place].sum(), delay, retain_graph=True)
        torch.testing.assert_close(found, wanted[place].detach())


# The delay against torch's convolution.


def slow_delayed(messages: Tensor, kernel: Tensor) -> Tensor:
    """A causal convolution of each channel over the steps."""
    size, channels = kernel.shape
    by_row = functional.pad(messages.permute(1, 2, 0), (size - 1, 0))
    # A convolution of torch's does not turn the kernel round.
    return functional.conv1d(by_row, kernel.flip(0).t()[:, None], groups=channels).permute(2, 0, 1)


@pytest.mark.parametrize("steps", [1, 3, 9])
@pytest.mark.parametrize("size", [1, 2, 5])
def test_shifted_sums_are_a_causal_convolution_in_values_and_gradients(steps: int, size: int) -> None:
    torch.manual_seed(steps * 10 + size)
    messages = torch.randn(steps, 7, 4, dtype=torch.double, requires_grad=True)
    kernel = torch.rand(size, 4, dtype=torch.double, requires_grad=True)
    one, other = delayed(messages, kernel), slow_delayed(messages, kernel)
    torch.testing.assert_close(one, other)
    target = torch.randn_like(one)
    pairs = (torch.autograd.grad((x * target).sum(), [messages, kernel]) for x in (one, other))
    for a, b in zip(*pairs, strict=True):
        torch.testing.assert_close(a, b)
    assert torch.autograd.gradcheck(delayed, (messages, kernel))


# The network.


def _random_rows(steps: int, roots: int, inputs: int) -> TreeRows:
    own, mean = torch.randn(2, steps, roots * 6, inputs, dtype=torch.double)
    return TreeRows(own, mean, roots)


def _random_module(steps: int, **values: Any) -> DelayDSGNModule:
    torch.manual_seed(3)
    module = DelayDSGNModule(8, 3, steps, _settings(**values)).double()
    for layer in module.layers:
        for parameter in layer.parameters():
            parameter.data *= 3
    return module.eval()


@pytest.mark.parametrize("step", [0, 2, 5])
def test_what_comes_later_changes_nothing_before_it(step: int) -> None:
    module, rows = _random_module(6), _random_rows(6, 9, 8)
    own, mean = rows.own.clone(), rows.mean.clone()
    own[step:] += 1.5
    mean[step:] -= 2
    for one, other in zip(module.spikes(rows, PLAIN), module.spikes(TreeRows(own, mean, 9), PLAIN), strict=True):
        assert torch.equal(one[:step], other[:step])
        assert not torch.equal(one[step:], other[step:])


def test_a_message_arrives_later_and_the_node_itself_at_once() -> None:
    module = _random_module(6, kernel_size=3)
    for part in module.delays:
        # As late as it can be, and at no other time.
        cast(Delays, part).raw_delay.data.fill_(100.0)
        cast(Delays, part).raw_sigma.data.fill_(-20.0)
    rows = _random_rows(6, 9, 8)
    layer, delay = module.layers[0], module.delay(0)
    base = layer(rows.own, rows.mean, delay)
    mean, own = rows.mean.clone(), rows.own.clone()
    mean[1] += 1
    own[4] += 1

    by_message, by_own = (layer(rows.own, mean, delay) != base), (layer(own, rows.mean, delay) != base)
    assert by_message.flatten(1).any(dim=1).tolist() == [step == 3 for step in range(6)]
    assert by_own.flatten(1).any(dim=1).tolist() == [step == 4 for step in range(6)]


@pytest.mark.parametrize("hidden", [(16, 8), (13, 5)])
def test_without_delays_it_is_spikenet_to_the_bit(hidden: tuple[int, int]) -> None:
    ours = _network(**AS_SPIKENET, hidden=hidden)
    values = {**SMALL, "hidden": hidden, "dropout": ours.settings.dropout}
    theirs = SpikeNetNetwork(ours.task, make_settings(SpikeNetSettings, values))
    for network in (ours, theirs):
        network.module.eval()
    rows = ours.rows(np.arange(60), 0, "inference")
    one, other = ours.module(rows, ours.kernels), theirs.module(rows, theirs.kernels)
    for a, b in zip(one, other, strict=True):
        assert torch.equal(a, b)
    assert one[2].any()


def test_without_delays_it_learns_what_spikenet_learns() -> None:
    values = {**SMALL, "weight_decay": 0.0, "dropout": 0.3}
    ours = DelayDSGN(_settings(**AS_SPIKENET, **values)).fit(_task())
    theirs = SpikeNet(make_settings(SpikeNetSettings, values)).fit(_task())
    assert np.array_equal(_everyone(ours), _everyone(theirs))


def test_pooling_is_a_weighted_mean_over_the_steps_there_are() -> None:
    module = _random_module(4)
    module.step_weights.data = torch.tensor([0.0, 1.0, 2.0, 50.0], dtype=torch.double)
    spikes = (torch.rand(4, 5, 8) > 0.5).double()
    torch.testing.assert_close(module.pool(spikes), spikes[3], atol=1e-12, rtol=0)
    shares = np.exp([0, 1, 2]) / np.exp([0, 1, 2]).sum()
    wanted = sum(share * part for share, part in zip(shares, spikes, strict=False))
    torch.testing.assert_close(module.pool(spikes[:3]), wanted)


def test_changes_of_spikes_are_counted_as_worked_out_by_hand() -> None:
    spikes = torch.tensor([[[0.0, 0], [1, 1]], [[1, 0], [1, 1]], [[1, 1], [0, 0]]])
    # Node 0 changes once at both steps, node 1 twice at the last: (1 + 0 + 1 + 2) / 4.
    assert step_changes(spikes) == 1
    assert step_changes(spikes[:1]) == 0


def test_the_loss_is_the_sum_of_its_terms() -> None:
    network = _network(smoothness=0.25)
    nodes = network.task.split.train[:20]
    total, classification, changes = network.losses(network.module.eval(), network.prepare(nodes, 0), nodes)
    assert total.item() == pytest.approx(classification.item() + 0.25 * changes.item())
    spikes = network.module(network.prepare(nodes, 0), network.kernels)[2]
    assert changes.item() == pytest.approx(step_changes(spikes).item())


# Sizes and initial values.


@pytest.mark.parametrize(("learn_sigma", "count"), [(False, 50_405), (True, 50_407)])
def test_the_network_has_as_many_parameters_as_specified(learn_sigma: bool, count: int) -> None:
    module = DelayDSGNModule(128, 10, 27, make_settings(DelayDSGNSettings, {"learn_sigma": learn_sigma}))
    assert sum(parameter.numel() for parameter in module.parameters()) == count


def test_a_layer_may_have_one_delay() -> None:
    delays = Delays(6, _settings(delay_per="layer"))
    assert delays.raw_delay.shape == (1,)
    assert len(set(delays.delay.tolist())) == 1
    assert delays.delay.shape == (6,)


def test_delays_begin_all_over_the_window_and_widths_at_a_quarter_of_it() -> None:
    torch.manual_seed(0)
    delays = Delays(2000, _settings(kernel_size=9))
    found = delays.delay.detach()
    assert 0 < found.min() < 0.2
    assert 7.8 < found.max() < 8
    assert found.mean().item() == pytest.approx(4, abs=0.2)
    assert delays.sigma.item() == pytest.approx(9 / 4)
    assert Delays(3, _settings(sigma=0.7)).sigma.item() == pytest.approx(0.7)


def test_delays_stay_in_the_window_wherever_training_takes_them() -> None:
    delays = Delays(2, _settings(kernel_size=5))
    delays.raw_delay.data = torch.tensor([-1e6, 1e6])
    assert delays.delay.tolist() == [0.0, 4.0]


def test_a_step_of_the_optimiser_counts_ten_times_for_delays() -> None:
    delays = Delays(3, _settings())
    before = torch.logit(delays.delay / 4)
    delays.raw_delay.data += 0.01
    torch.testing.assert_close(torch.logit(delays.delay / 4) - before, torch.full((3,), 0.1), atol=1e-4, rtol=0)


# Through the protocol.


def test_it_learns_two_communities_and_its_delays_move() -> None:
    task, settings = _task(), _settings(epochs=15)
    fitted = DelayDSGN(settings).fit(task)
    assert score_nodes(fitted, task.split.test).micro_f1 > 0.9
    module = cast(Any, fitted).network.module
    begin = cast(DelayDSGNModule, DelayDSGNNetwork(task, settings).new_module())
    assert not torch.equal(module.delays[0].raw_delay, cast(Delays, begin.delays[0]).raw_delay)


@pytest.mark.parametrize("values", [{}, {"pooling": "concat"}, {"delay_per": "layer"}, {"sampler": "uniform"}])
def test_two_fits_with_the_same_seed_agree_to_the_bit(values: dict[str, Any]) -> None:
    one, other = (DelayDSGN(_settings(**values)).fit(_task()) for _ in range(2))
    assert same_weights(one.network.module.state_dict(), other.network.module.state_dict())  # type: ignore[union-attr]
    assert np.array_equal(_everyone(one), _everyone(other))


@pytest.mark.parametrize("pooling", ["weighted", "concat"])
def test_nothing_after_the_last_step_is_read(pooling: str) -> None:
    task, settings = _task(), _settings(pooling=pooling)
    assert task.features is not None
    later = make_task(with_other_future(task.graph, 2), settings, CPU, task.split, task.features.encoder)
    one, other = (DelayDSGN(settings).fit(each.until(2)) for each in (task, later))
    assert np.array_equal(_everyone(one), _everyone(other))


def test_as_of_a_step_the_tables_are_shared() -> None:
    network = _network()
    earlier = network.for_task(network.task.until(2))
    assert earlier._table is network._table
    one, other = (n.infer(n.module, np.arange(120))[1] for n in (earlier, _network(last_step=2)))
    assert torch.equal(one, other)
    assert one.shape == (120, 8)


def test_a_node_has_the_same_bits_whatever_it_is_asked_with() -> None:
    network = _network(hidden=(13, 5))
    together = network.infer(network.module, np.arange(120))
    parts = [network.infer(network.module, np.arange(120)[low : low + 7]) for low in range(0, 120, 7)]
    for whole, pieces in zip(together, zip(*parts, strict=True), strict=True):
        assert torch.equal(whole, torch.cat(pieces))


def test_weights_belong_to_delays_and_pooling() -> None:
    base = _network().description()
    for other in ({"pooling": "concat"}, {"delay_per": "layer"}, {"learn_sigma": False}, {"kernel_size": 3}):
        assert _network(**other).description() != base


def test_it_needs_more_memory_than_spikenet() -> None:
    graph = small_graph()
    theirs = SpikeNet(make_settings(SpikeNetSettings, SMALL)).memory(graph, 8, False, 90)
    assert DelayDSGN(_settings()).memory(graph, 8, False, 90) > theirs


def test_the_paper_has_scores_of_it() -> None:
    assert paper_score("dblp", DelayDSGN.name, "micro_f1", 0.8) == pytest.approx(0.7687)


@pytest.mark.gpu
def test_a_gpu_learns_the_same_twice() -> None:
    device, settings = torch.device("cuda"), _settings()
    fitted, again = (DelayDSGN(settings).fit(_task(device=device)) for _ in range(2))
    assert np.array_equal(_everyone(fitted), _everyone(again))
    messages, kernel = torch.randn(6, 9, 16), torch.rand(5, 16)
    torch.testing.assert_close(delayed(messages.to(device), kernel.to(device)).cpu(), delayed(messages, kernel))
