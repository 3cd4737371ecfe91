"""The neuron against a calculation done by hand and finite differences, and its kernels against the plain form.

Without a GPU the Triton kernels run in its interpreter.

Two channels over five steps, u_reset = 0:
    A: τ = 1, V = 1.0, α = 1.  h = 0.5 1.2 0.9 1.0 -0.3.  With τ = 1 the membrane is the input: spikes 0 1 0 1 0.
    B: τ = 2, V = 0.8, α = 2.  h = 1.0 1.0 0.4 2.0 0.0.   u = 0.5 0.75 0.575 1.2875, a spike and a reset, then 0.
"""

from __future__ import annotations

from typing import Any, Literal

import pytest
import torch
from torch import Tensor

from chronospike.nn.dispatch import Implementation
from chronospike.nn.dropout import keep_mask, new_key, scale
from chronospike.nn.lif import AdaptiveLIF, LIFParameters, LIFState, ResetGradient, lif_sequence, lif_step
from chronospike.nn.surrogate import Surrogate
from chronospike.optional import has_triton

pytestmark = pytest.mark.device
GPU = "cuda" if torch.cuda.is_available() else "cpu"
without_triton = pytest.mark.skipif(not has_triton(), reason="needs Triton")
KERNELS = ["numba", pytest.param("triton", marks=without_triton)]
RESETS: tuple[ResetGradient, ...] = ("detach", "full", "straight_through")
INPUT = [[0.5, 1.0], [1.2, 1.0], [0.9, 0.4], [1.0, 2.0], [-0.3, 0.0]]


def _by_hand() -> tuple[Tensor, LIFParameters]:
    h = torch.tensor(INPUT, dtype=torch.double, requires_grad=True)
    tau, threshold, alpha = (
        torch.tensor(values, dtype=torch.double, requires_grad=True) for values in ([1.0, 2.0], [1.0, 0.8], [1.0, 2.0])
    )
    return h, LIFParameters(tau, threshold, alpha)


def test_five_steps_worked_by_hand() -> None:
    h, parameters = _by_hand()
    spikes, membranes = lif_sequence(h, parameters)
    assert spikes.tolist() == [[0, 0], [1, 0], [0, 0], [1, 1], [0, 0]]
    expected = [[0.5, 0.5], [1.2, 0.75], [0.9, 0.575], [1.0, 1.2875], [-0.3, 0.0]]
    torch.testing.assert_close(membranes, torch.tensor(expected, dtype=torch.double))


def test_gradients_of_two_spikes_worked_by_hand() -> None:
    """L = s_A(step 2) + s_B(step 4).

    A: d = 0.2, σ' = 1/1.2² = 0.694444; nothing flows further back since 1 - 1/τ = 0.
    B: d = 0.4875, σ' = 2/1.975² = 0.512738; λ halves at each earlier step, and ∂L/∂h is half of λ.
       ∂L/∂τ = -¼ Σ λ_t (h_t - u_{t-1}) = -¼ (0.730652 - 0.089729 + 0.064092 + 0.064092) = -0.192277.
    """
    h, p = _by_hand()
    spikes, _ = lif_sequence(h, p)
    (spikes[1, 0] + spikes[3, 1]).backward()
    by_h = [[0.0, 0.032046], [0.694444, 0.064092], [0.0, 0.128185], [0.0, 0.256369], [0.0, 0.0]]

    def check(grad: Tensor | None, expected: list[float] | list[list[float]]) -> None:
        torch.testing.assert_close(grad, torch.tensor(expected, dtype=torch.double), atol=1e-6, rtol=1e-5)

    check(h.grad, by_h)
    check(p.tau.grad, [-0.486111, -0.192277])
    check(p.threshold.grad, [-0.694444, -0.512738])
    check(p.alpha.grad, [0.138889, 0.124980])


def test_gradients_are_finite_differences_of_the_smooth_curve() -> None:
    """With the pattern of resets held fixed, the loss on the smooth curve is an ordinary function."""
    generator = torch.Generator().manual_seed(5)
    h = torch.randn(6, 4, 2, dtype=torch.double, generator=generator) * 1.5
    weights = torch.randn(6, 4, 2, dtype=torch.double, generator=generator)
    values = [h, *(torch.tensor(v, dtype=torch.double) for v in ([0.8, 2.5], [0.6, 0.9], [1.0, 2.0]))]
    fired = lif_sequence(values[0], LIFParameters(values[1], values[2], values[3], 0.2))[0]
    assert 0 < fired.mean() < 1

    def smooth_loss(h: Tensor, tau: Tensor, threshold: Tensor, alpha: Tensor) -> Tensor:
        membrane, loss = torch.zeros_like(h[0]), torch.zeros((), dtype=torch.double)
        for t in range(len(h)):
            before = membrane + (h[t] - (membrane - 0.2)) / tau
            d = before - threshold
            loss = loss + (weights[t] * alpha * d / (1 + alpha * d.abs())).sum()
            membrane = torch.where(fired[t] > 0, 0.2, before)
        return loss

    learned = [v.clone().requires_grad_() for v in values]
    spikes, _ = lif_sequence(learned[0], LIFParameters(learned[1], learned[2], learned[3], 0.2))
    (weights * spikes).sum().backward()
    for i, value in enumerate(values):
        grad = learned[i].grad
        assert grad is not None
        for place in range(0, value.numel(), 5):
            nudged = [v.clone() for v in values]
            ends = []
            for sign in (1, -1):
                nudged[i] = value.clone()
                nudged[i].view(-1)[place] += sign * 1e-6
                ends.append(smooth_loss(*nudged))
            torch.testing.assert_close(grad.view(-1)[place], (ends[0] - ends[1]) / 2e-6, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("shape", [(1, 1, 1), (2, 1, 3), (7, 65, 3), (5, 3, 2, 64), (27, 20, 33), (2, 3, 3000)])
@pytest.mark.parametrize("dropout", [0.0, 0.4])
@pytest.mark.parametrize("reset_gradient", RESETS)
@pytest.mark.parametrize("implementation", KERNELS)
def test_kernel_equals_the_plain_form_in_values_and_gradients(
    implementation: Implementation, reset_gradient: ResetGradient, dropout: float, shape: tuple[int, ...]
) -> None:
    for seed in range(2):
        generator = torch.Generator().manual_seed(seed)
        channels = shape[-1]
        h = 1.5 * torch.randn(shape, generator=generator)
        tau = 0.6 + 2 * torch.rand(channels, generator=generator)
        threshold = torch.rand(channels, generator=generator) - 0.1
        alpha = 0.5 + torch.rand(channels, generator=generator)
        weights = torch.randn(shape, generator=generator)
        values = [h, tau, threshold, alpha, weights]
        _hold_to_the_plain_form(implementation, values, seed, dropout, u_reset=0.1, reset_gradient=reset_gradient)


def _hold_to_the_plain_form(
    implementation: Implementation, values: list[Tensor], seed: int, dropout: float, **rule: Any
) -> Tensor:
    """Spikes, membranes and the gradients of (h, τ, threshold, α), the last of `values` being that of the spikes."""
    device = torch.device(GPU if implementation == "triton" else "cpu")
    learned, weights = [value.to(device).requires_grad_() for value in values[:-1]], values[-1].to(device)
    parameters = LIFParameters(learned[1], learned[2], learned[3], **rule)
    torch.manual_seed(seed)
    found, membranes = lif_sequence(learned[0], parameters, dropout=dropout, implementation=implementation)
    expected, plain_membranes = lif_sequence(learned[0], parameters)
    if dropout:
        # The kernels' masks are a function of a key, the one random number they draw.
        torch.manual_seed(seed)
        expected = expected * keep_mask(new_key(device), found.shape, dropout) * scale(dropout)
    assert torch.equal(found, expected)
    # A GPU divides to the last two digits, and what is left after cancelling shows them.
    torch.testing.assert_close(membranes, plain_membranes, atol=1e-5, rtol=1e-5)
    ours, theirs = (torch.autograd.grad(spikes, learned, weights) for spikes in (found, expected))
    for one, other in zip(ours, theirs, strict=True):
        # Sums over all neurons: what cancels out leaves the rounding of what was added.
        torch.testing.assert_close(one, other, atol=2e-5 * max(1.0, other.abs().max().item()), rtol=1e-4)
    with torch.no_grad():
        torch.manual_seed(seed)
        again, left_out = lif_sequence(
            learned[0], parameters, dropout=dropout, implementation=implementation, wants_membranes=False
        )
    assert torch.equal(again, found)
    assert left_out.numel() == 0
    return found


@pytest.mark.parametrize("adaptation", [(1.0, 0.0), (0.7, 0.2), (0.5, 0.0), (1.0, 0.25)])
@pytest.mark.parametrize("surrogate", ["rational", "sigmoid"])
@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("reset_gradient", RESETS)
@pytest.mark.parametrize("implementation", KERNELS)
def test_kernel_equals_the_plain_form_in_every_mode(
    implementation: Implementation,
    reset_gradient: ResetGradient,
    strict: bool,
    surrogate: Surrogate,
    adaptation: tuple[float, float],
) -> None:
    rule = {
        "reset_gradient": reset_gradient, "strict": strict, "surrogate": surrogate,
        "threshold_decay": adaptation[0], "threshold_jump": adaptation[1],
    }  # fmt: skip
    for seed, (shape, dropout) in enumerate([((6, 37, 3), 0.0), ((3, 2, 5, 64), 0.4), ((1, 4, 1), 0.0)]):
        generator = torch.Generator().manual_seed(seed)
        h, weights = (torch.randn(shape, generator=generator) for _ in range(2))
        tau, threshold, alpha = torch.rand(3, shape[-1], generator=generator)
        values = [1.5 * h, 0.6 + 2 * tau, threshold - 0.1, 0.5 + alpha, weights]
        _hold_to_the_plain_form(implementation, values, seed, dropout, u_reset=0.1, **rule)


@pytest.mark.parametrize("surrogate", ["rational", "sigmoid"])
@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("implementation", KERNELS)
def test_kernel_equals_the_plain_form_where_membranes_meet_thresholds_exactly(
    implementation: Implementation, strict: bool, surrogate: Surrogate
) -> None:
    """Numbers of a few bits: nothing is rounded, and many a membrane is exactly at its threshold."""
    generator = torch.Generator().manual_seed(0)
    h = torch.randint(-4, 9, (6, 50, 8), generator=generator) / 4
    tau, alpha = torch.tensor([1.0, 2.0]).repeat(4), torch.ones(8)
    threshold = torch.randint(1, 5, (8,), generator=generator) / 4
    values = [h, tau, threshold, alpha, torch.randn(h.shape, generator=generator)]
    rule = {"reset_gradient": "full", "surrogate": surrogate, "threshold_decay": 0.5, "threshold_jump": 0.25}
    found = _hold_to_the_plain_form(implementation, values, 0, 0.0, strict=strict, **rule)
    other = _hold_to_the_plain_form(implementation, values, 0, 0.0, strict=not strict, **rule)
    assert not torch.equal(found, other)


def _spikenet(implementation: Implementation, tau: float = 1.0, dtype: torch.dtype = torch.float32) -> LIFParameters:
    """SpikeNet's neurons: θ ← 0.7 θ + 0.2 s from 1, a spike above it, the derivative of a sigmoid backward."""
    one = torch.ones(1, dtype=dtype, device=GPU if implementation == "triton" else "cpu")
    values = [value.clone().requires_grad_() for value in (tau * one, one, one)]
    return LIFParameters(
        values[0], values[1], values[2], threshold_decay=0.7, threshold_jump=0.2, surrogate="sigmoid", strict=True
    )


@pytest.mark.parametrize(
    ("inputs", "tau", "expected"),
    [
        ([0.9] * 10, 1.0, [0, 1, 1, 1, 1, 1, 1, 1, 1, 1]),
        ([0.5] * 10, 1.0, [0, 0, 1, 0, 1, 1, 0, 1, 1, 0]),
        ([1.2, 0.3, 0.6, 0.1, 0.9, 0.2, 0.5, 0.5], 1.0, [1, 0, 0, 0, 1, 0, 1, 1]),
        ([0.9] * 10, 2.0, [0, 0, 1, 0, 1, 0, 1, 1, 0, 1]),
        ([0.0] * 27, 1.0, [0] * 27),
        ([0.0] * 27, 2.0, [0] * 27),
    ],
)
@pytest.mark.parametrize("implementation", ["plain", *KERNELS])
def test_known_spikes_of_neurons_that_adapt(
    implementation: Implementation, inputs: list[float], tau: float, expected: list[int]
) -> None:
    parameters = _spikenet(implementation, tau)
    h = torch.tensor(inputs, device=parameters.tau.device).view(-1, 1, 1)
    spikes, _ = lif_sequence(h, parameters, implementation=implementation)
    assert spikes.flatten().tolist() == expected


@pytest.mark.parametrize(
    ("level", "expected"),
    [
        (0.9, [1, 0.7, 0.69, 0.683, 0.6781, 0.67467]),
        (0.5, [1, 0.7, 0.49, 0.543, 0.3801, 0.46607, 0.526249, 0.368374, 0.457862, 0.520503]),
    ],
)
def test_known_thresholds_of_neurons_that_adapt(level: float, expected: list[float]) -> None:
    parameters = _spikenet("plain", dtype=torch.double)
    state, found = LIFState(torch.zeros(1), parameters.threshold), []
    for _ in expected:
        found.append(state.threshold.item())
        _, _, state = lif_step(torch.tensor([level]), state, parameters)
    assert found == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("implementation", ["plain", *KERNELS])
def test_gradients_through_the_threshold_worked_by_hand(implementation: Implementation) -> None:
    """Inputs 1.2 and 0.6, L = s_2: s_1 = 1, θ_2 = 0.7 + 0.2 = 0.9, d = 0.2 and -0.3.

    σ'(-0.3) = 0.244458 is ∂L/∂h_2 and -∂L/∂θ_2. The first spike gets 0.2 of the latter, -0.048892, and its input
    σ'(0.2) = 0.247517 of that. ∂L/∂V = 0.7 · -0.244458 + 0.012101. By α: -0.3 · 0.244458 - 0.048892 · 0.2 · 0.247517.
    """
    parameters = _spikenet(implementation)
    h = torch.tensor([[[1.2]], [[0.6]]], device=parameters.tau.device, requires_grad=True)
    spikes, _ = lif_sequence(h, parameters, implementation=implementation)
    assert spikes.flatten().tolist() == [1, 0]
    grads = torch.autograd.grad(spikes[1].sum(), [h, parameters.threshold, parameters.alpha])
    found = torch.cat([grad.flatten() for grad in grads]).tolist()
    assert found == pytest.approx([-0.0121015, 0.244458, -0.159019, -0.0757578], abs=2e-6)


@pytest.mark.parametrize("implementation", ["plain", *KERNELS])
def test_gradients_of_memoryless_neurons_are_their_closed_form(implementation: Implementation) -> None:
    """With τ = 1, backwards: G_t = g_t + 0.2 λ_{t+1}, ∂L/∂h_t = G_t s'_t, λ_t = 0.7 λ_{t+1} - G_t s'_t."""
    generator = torch.Generator().manual_seed(4)
    h, weights = (torch.randn(9, 30, 1, dtype=torch.double, generator=generator) for _ in range(2))
    h = (1.5 * h).float().double()
    thresholds = [torch.ones(30, 1, dtype=torch.double)]
    for h_t in h:
        thresholds.append(0.7 * thresholds[-1] + 0.2 * (h_t > thresholds[-1]).double())
    expected, later = [], torch.zeros(30, 1, dtype=torch.double)
    for t in range(8, -1, -1):
        share = torch.sigmoid(h[t] - thresholds[t])
        through = (weights[t] + 0.2 * later) * share * (1 - share)
        later = 0.7 * later - through
        expected.append(through)
    dtype = torch.double if implementation == "plain" else torch.float32
    parameters = _spikenet(implementation, dtype=dtype)
    given = h.to(parameters.tau).requires_grad_()
    spikes, _ = lif_sequence(given, parameters, implementation=implementation)
    found = torch.autograd.grad(spikes, [given, parameters.threshold], weights.to(parameters.tau))
    tolerance = 1e-12 if implementation == "plain" else 2e-6
    torch.testing.assert_close(found[0].cpu().double(), torch.stack(expected[::-1]), atol=tolerance, rtol=tolerance)
    torch.testing.assert_close(found[1].cpu().double(), later.sum(0), atol=30 * tolerance, rtol=tolerance)


@pytest.mark.parametrize("implementation", KERNELS)
def test_a_surrogate_without_a_kernel_is_an_error_and_not_another_one(implementation: Implementation) -> None:
    one = torch.ones(4)
    parameters = LIFParameters(one, one, one, surrogate="triangle")
    with pytest.raises(ValueError, match="triangle surrogate has no"):
        lif_sequence(one.expand(3, 2, 4), parameters, implementation=implementation)


@pytest.mark.parametrize("implementation", KERNELS)
def test_no_random_number_is_drawn_without_dropout(implementation: Implementation) -> None:
    one = torch.ones(4, device=GPU if implementation == "triton" else "cpu")
    before = torch.get_rng_state()
    lif_sequence(one.expand(3, 2, 4), LIFParameters(one, one, one), implementation=implementation)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("implementation", KERNELS)
def test_no_rows_give_no_spikes(implementation: Implementation) -> None:
    one = torch.ones(4, device=GPU if implementation == "triton" else "cpu")
    h = torch.zeros(3, 0, 4, device=one.device)
    assert lif_sequence(h, LIFParameters(one, one, one), implementation=implementation)[0].shape == (3, 0, 4)


def test_the_three_reset_gradients_differ_and_the_spikes_do_not() -> None:
    grads, spikes = [], []
    for choice in RESETS:
        h = torch.tensor([[1.5], [0.4], [1.5]], dtype=torch.double, requires_grad=True)
        one = torch.ones(1, dtype=torch.double)
        s, _ = lif_sequence(h, LIFParameters(2 * one, 0.7 * one, one, 0.0, choice))
        s.sum().backward()
        assert h.grad is not None
        grads.append(h.grad[0].item())
        spikes.append(s.detach().flatten().tolist())
    assert spikes == [[1, 0, 1]] * 3
    assert len(set(grads)) == 3


def test_a_step_fires_at_the_threshold_and_resets() -> None:
    p = LIFParameters(torch.ones(1), torch.ones(1), torch.ones(1), u_reset=-0.5)
    spikes, before, after = lif_step(torch.tensor([1.5]), LIFState(torch.tensor([0.3]), p.threshold), p)
    assert (spikes.item(), before.item(), after.membrane.item()) == (1.0, 1.0, -0.5)


@pytest.mark.parametrize("push", [1e3, -1e3])
def test_tau_stays_above_a_half_under_any_step(push: float) -> None:
    layer = AdaptiveLIF(4)
    optimiser = torch.optim.SGD(layer.parameters(), lr=1.0)
    for _ in range(20):
        optimiser.zero_grad()
        for parameter in layer.parameters():
            parameter.grad = torch.full_like(parameter, push)
        optimiser.step()
        assert (layer.tau > 0.5).all()
        assert (layer.alpha >= 0).all()
        assert torch.isfinite(layer.tau).all()


@pytest.mark.parametrize("form", ["softplus", "raw"])
def test_neurons_start_at_the_papers_values(form: Literal["softplus", "raw"]) -> None:
    layer = AdaptiveLIF(3, form=form)
    for value in (layer.tau, layer.threshold, layer.alpha):
        torch.testing.assert_close(value.detach(), torch.ones(3))


def test_fixed_neurons_have_no_parameters_but_keep_their_state() -> None:
    layer = AdaptiveLIF(3, learn=False)
    assert list(layer.parameters()) == []
    assert set(layer.state_dict()) == {"raw_tau", "threshold", "raw_alpha"}
