from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from chronospike.training.optimiser import MOMENTS, AdamW

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
RATES = (1e-2, 1e-2, 5e-3, 1e-3)


def network(device: str) -> nn.Sequential:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 2)).to(device)


def gradients(model: nn.Module, number: int) -> None:
    """The same on every call with the same number."""
    torch.manual_seed(number)
    for parameter in model.parameters():
        parameter.grad = torch.randn(parameter.shape).to(parameter.device)


def steps_of_ours(device: str, decay: float, bad: Callable[[int], bool] = lambda _: False) -> tuple[nn.Module, AdamW]:
    model = network(device)
    ours = AdamW(model.named_parameters(), RATES[0], decay)
    for number, rate in enumerate(RATES):
        ours.learning_rate = rate
        gradients(model, number)
        ours.step(found_inf=torch.tensor(float(bad(number)), device=device))
    return model, ours


def steps_of_torch(device: str, decay: float, numbers: list[int]) -> tuple[nn.Module, torch.optim.AdamW]:
    model = network(device)
    on_gpu = device == "cuda"
    rate = torch.tensor(RATES[0], device=device) if on_gpu else RATES[0]
    theirs = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=decay, fused=True, capturable=on_gpu)
    for number in numbers:
        group = theirs.param_groups[0]
        group["lr"] = torch.tensor(RATES[number], device=device) if on_gpu else RATES[number]
        gradients(model, number)
        theirs.step()
    return model, theirs


def same(one: nn.Module, other: nn.Module) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_steps_have_the_bits_of_torchs_own_adamw(device: str, decay: float) -> None:
    model, ours = steps_of_ours(device, decay)
    wanted, theirs = steps_of_torch(device, decay, [0, 1, 2, 3])
    assert same(model, wanted)
    for own, state in zip(ours.state.values(), theirs.state_dict()["state"].values(), strict=True):
        assert all(torch.equal(own[moment], state[moment]) for moment in MOMENTS)


@pytest.mark.parametrize("device", DEVICES)
def test_a_step_with_a_gradient_that_is_not_finite_leaves_no_trace(device: str) -> None:
    model, ours = steps_of_ours(device, 0.1, bad=lambda number: number == 2)
    assert same(model, steps_of_torch(device, 0.1, [0, 1, 3])[0])
    assert float(ours.state["0.weight"]["step"]) == 3


def test_a_parameter_without_a_gradient_stays() -> None:
    model = network("cpu")
    ours = AdamW(model.named_parameters(), 0.1, 0.1)
    weight = ours.parameters["0.weight"]
    before = weight.detach().clone()
    gradients(model, 0)
    weight.grad = None
    ours.step()
    assert torch.equal(weight, before)
    assert (float(ours.state["0.weight"]["step"]), float(ours.state["2.weight"]["step"])) == (0, 1)


def test_no_gradient_at_all_is_no_step() -> None:
    model = network("cpu")
    AdamW(model.named_parameters(), 0.1).step()
    assert same(model, network("cpu"))


def test_gradients_are_let_go() -> None:
    model = network("cpu")
    gradients(model, 0)
    AdamW(model.named_parameters(), 0.1).zero_grad()
    assert all(parameter.grad is None for parameter in model.parameters())


def continued(state: dict[str, Tensor]) -> nn.Module:
    """The third and fourth step, from the weights after two steps and from `state`."""
    model = network("cpu")
    model.load_state_dict(steps_of_torch("cpu", 0.1, [0, 1])[0].state_dict())
    ours = AdamW(model.named_parameters(), RATES[0], 0.1)
    ours.load_state_dict(state)
    for number in (2, 3):
        ours.learning_rate = RATES[number]
        gradients(model, number)
        ours.step()
    return model


def test_moments_named_by_numbers_as_in_torchs_state_go_on_to_the_same_bits() -> None:
    state = steps_of_torch("cpu", 0.1, [0, 1])[1].state_dict()["state"]
    numbered = {f"{number}.{moment}": value for number, own in state.items() for moment, value in own.items()}
    assert same(continued(numbered), steps_of_torch("cpu", 0.1, [0, 1, 2, 3])[0])


def test_moments_named_by_parameters_go_on_to_the_same_bits() -> None:
    model = network("cpu")
    ours = AdamW(model.named_parameters(), RATES[0], 0.1)
    for number in (0, 1):
        gradients(model, number)
        ours.step()
    state = ours.state_dict()
    assert sorted(state)[:3] == ["0.bias.exp_avg", "0.bias.exp_avg_sq", "0.bias.step"]
    assert same(continued(state), steps_of_torch("cpu", 0.1, [0, 1, 2, 3])[0])


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({"1.weight.exp_avg": torch.zeros(1)}, "has no '1.weight.exp_avg'"),
        ({"2.weight.exp_avg": torch.zeros(3, 7)}, r"'2.weight.exp_avg' has shape \[3, 7\], not \[2, 7\]"),
    ],
)
def test_moments_of_another_network_are_refused(state: dict[str, Tensor], message: str) -> None:
    ours = AdamW(network("cpu").named_parameters(), 0.1)
    with pytest.raises((KeyError, ValueError), match=message):
        ours.load_state_dict(state)


@pytest.mark.gpu
def test_a_captured_step_follows_the_learning_rate() -> None:
    model = network("cuda")
    ours = AdamW(model.named_parameters(), RATES[0], 0.1)
    kept = [torch.empty_like(parameter) for parameter in model.parameters()]
    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()

    def step() -> None:
        for parameter, gradient in zip(model.parameters(), kept, strict=True):
            parameter.grad = gradient
        ours.step(found_inf=torch.zeros((), device="cuda"))

    before = {name: value.clone() for name, value in model.state_dict().items()}
    torch.cuda.synchronize()
    with torch.cuda.graph(graph, stream=stream):
        step()
    model.load_state_dict(before)
    for number, rate in enumerate(RATES):
        ours.learning_rate = rate
        gradients(model, number)
        for gradient, parameter in zip(kept, model.parameters(), strict=True):
            assert parameter.grad is not None
            gradient.copy_(parameter.grad)
        graph.replay()
    assert same(model, steps_of_torch("cuda", 0.1, [0, 1, 2, 3])[0])
