from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from chronospike.methods.chronospike.estimate import live_trace
from chronospike.methods.equilibrium import CHECK_EVERY, Iteration, SpectralNorm, equilibrium, iterate, rate, residual

EXACT = Iteration(400, 1e-14)


def _bind(drive: Tensor, weight: Tensor) -> Callable[[Tensor], Tensor]:
    return lambda a: rate(drive + a @ weight)


def _solved(rule: Iteration, drive: Tensor, weight: Tensor, start: Tensor | None = None) -> Tensor:
    begin = torch.zeros_like(drive) if start is None else start
    return equilibrium(_bind, lambda phi: iterate(phi, begin, rule), rule, drive, weight)


def _random(nodes: int = 50, width: int = 6, seed: int = 0) -> tuple[Tensor, Tensor]:
    torch.manual_seed(seed)
    weight = torch.randn(width, width, dtype=torch.float64)
    weight *= 0.8 / torch.linalg.matrix_norm(weight, ord=2)
    drive = 0.5 + 0.5 * torch.randn(nodes, width, dtype=torch.float64)
    return drive.requires_grad_(), weight.requires_grad_()


def test_a_scalar_has_the_rate_and_the_gradients_worked_out_by_hand() -> None:
    drive, weight = (torch.tensor([[x]], dtype=torch.float64, requires_grad=True) for x in (0.3, 0.5))
    a = _solved(EXACT, drive, weight)
    a.sum().backward()
    assert drive.grad is not None
    assert weight.grad is not None
    assert [a.item(), weight.grad.item(), drive.grad.item()] == pytest.approx([0.6, 1.2, 2.0], abs=1e-9)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_implicit_gradient_is_that_of_unrolled_iterations(seed: int) -> None:
    drive, weight = _random(seed=seed)
    factors, found = torch.randn(drive.shape, dtype=torch.float64), []
    unrolled = torch.zeros_like(drive)
    for _ in range(200):
        unrolled = (drive + unrolled @ weight).clamp(0, 1)
    for a in (_solved(EXACT, drive, weight), unrolled):
        found.append([a.detach(), *torch.autograd.grad((a * factors).sum(), [drive, weight])])
    assert 0 < ((unrolled > 0) & (unrolled < 1)).double().mean() < 1
    for one, two in zip(*found, strict=True):
        assert torch.allclose(one, two, atol=1e-9)


def test_the_gradient_passes_a_check_by_finite_differences() -> None:
    drive, weight = _random(nodes=4, width=3)
    assert torch.autograd.gradcheck(lambda *inputs: _solved(EXACT, *inputs), (drive, weight))


def test_a_chain_of_equilibria_has_the_gradient_of_the_whole_chain() -> None:
    drive, weight = _random()
    unrolled = before = torch.zeros_like(drive)
    found = []
    for _ in range(3):
        before = _solved(EXACT, drive + 0.2 * before, weight)
        given = drive + 0.2 * unrolled
        for _ in range(200):
            unrolled = (given + unrolled @ weight).clamp(0, 1)
    for a in (before, unrolled):
        found.append(torch.autograd.grad(a.square().sum(), [drive, weight]))
    for one, two in zip(*found, strict=True):
        assert torch.allclose(one, two, atol=1e-8)


def test_where_it_begins_does_not_change_the_fixed_point() -> None:
    drive, weight = _random()
    one, two = (_solved(EXACT, drive, weight, start) for start in (None, torch.ones_like(drive)))
    assert torch.allclose(one, two, atol=1e-9)
    assert residual(_bind(drive, weight)(one), one) < 1e-9


def test_what_is_kept_for_the_gradient_does_not_grow_with_the_iterations() -> None:
    drive, weight = _random()
    bytes_kept, peaks = [], []
    for most in (5, 50):
        kept: list[int] = []

        def keep(x: Tensor, kept: list[int] = kept) -> Tensor:
            kept.append(x.nbytes)
            return x

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
            _solved(Iteration(most, 0), drive, weight)
        bytes_kept.append(sum(kept))

        def learn(most: int = most) -> None:
            torch.autograd.grad(_solved(Iteration(most, 0), drive, weight).sum(), [drive, weight])

        peaks.append(max(live_trace(learn)))
    assert bytes_kept == [2 * drive.nbytes + weight.nbytes] * 2
    assert peaks[0] == peaks[1]


def test_iterations_stop_when_nothing_changes_any_more_and_are_looked_at_now_and_then() -> None:
    calls = [0]

    def halve(x: Tensor) -> Tensor:
        calls[0] += 1
        return 1 + x / 2

    found = iterate(halve, torch.zeros(1), Iteration(100, 1e-4))
    assert calls[0] == 3 * CHECK_EVERY
    assert found.item() == pytest.approx(2, abs=1e-4)
    calls[0] = 0
    iterate(halve, torch.zeros(1), Iteration(100, 0))
    assert calls[0] == 100


def test_an_iteration_of_zeros_stops_at_the_first_look() -> None:
    calls = [0]

    def nothing(x: Tensor) -> Tensor:
        calls[0] += 1
        return x.clone()

    assert not iterate(nothing, torch.zeros(3), Iteration(100, 1e-4)).any()
    assert calls[0] == CHECK_EVERY


def test_inputs_may_be_left_out() -> None:
    drive, weight = _random()

    def bind(drive: Tensor, none: None, weight: Tensor) -> Any:
        assert none is None
        return _bind(drive, weight)

    def solve(phi: Any) -> Tensor:
        return iterate(phi, torch.zeros_like(drive), EXACT)

    found = torch.autograd.grad(equilibrium(bind, solve, EXACT, drive, None, weight.detach()).sum(), drive)[0]
    assert torch.allclose(found, torch.autograd.grad(_solved(EXACT, drive, weight).sum(), drive)[0])


def test_a_rate_and_its_gradient_are_those_of_clamp() -> None:
    drive, factors = torch.linspace(-1, 2, 61, requires_grad=True), torch.randn(61)
    assert torch.equal(rate(drive), drive.clamp(0, 1))
    one, two = (torch.autograd.grad((a * factors).sum(), drive)[0] for a in (rate(drive), drive.clamp(0, 1)))
    assert torch.equal(one, two)


def test_the_spectral_norm_is_the_largest_singular_value_and_so_is_its_gradient() -> None:
    torch.manual_seed(0)
    weight = torch.randn(7, 4, requires_grad=True)
    norm = SpectralNorm(weight.detach())
    for training in (True, False):
        found = norm.train(training)(weight)
        wanted = torch.linalg.matrix_norm(weight, ord=2)
        assert found.item() == pytest.approx(wanted.item(), rel=1e-4)
        one, two = (torch.autograd.grad(value, weight)[0] for value in (found, wanted))
        assert torch.allclose(one, two, atol=1e-2)


def test_power_iteration_continues_in_training_alone() -> None:
    torch.manual_seed(0)
    norm, other = SpectralNorm(torch.randn(5, 9)), torch.randn(5, 9)
    before = norm.left.clone()
    assert norm.eval()(other).item() == pytest.approx(np.linalg.norm(other.numpy(), ord=2), rel=1e-3)
    assert torch.equal(norm.left, before)
    norm.train()(other)
    assert not torch.equal(norm.left, before)


def test_the_norm_of_a_zero_matrix_is_zero() -> None:
    assert SpectralNorm(torch.zeros(3, 2))(torch.zeros(3, 2)).item() == 0
