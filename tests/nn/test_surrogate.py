from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from chronospike.nn.surrogate import Surrogate, spike


def _curve(distance: torch.Tensor, alpha: torch.Tensor) -> torch.Tensor:
    return alpha * distance / (1 + alpha * distance.abs())


def _triangle(distance: torch.Tensor, alpha: torch.Tensor) -> torch.Tensor:
    """The integral of max(0, 1 - α |d|), which ends at a half of its base 1 / α on either side."""
    inner = distance - alpha * distance * distance.abs() / 2
    return torch.where(alpha * distance.abs() < 1, inner, distance.sign() / (2 * alpha))


CURVES: dict[Surrogate, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "rational": _curve,
    "sigmoid": lambda d, alpha: torch.sigmoid(alpha * d),
    "triangle": _triangle,
    "arctan": lambda d, alpha: torch.atan(alpha.sqrt() * d) / alpha.sqrt(),
    "superspike": lambda d, alpha: d / (1 + alpha * d.abs()),
}


def test_a_membrane_exactly_at_the_threshold_fires() -> None:
    fired = spike(torch.tensor([0.999, 1.0, 1.001]), torch.tensor([1.0]), torch.tensor([1.0]))
    assert fired.tolist() == [0.0, 1.0, 1.0]


def test_gradients_are_those_of_the_smooth_curve() -> None:
    membrane = torch.randn(50, 3, dtype=torch.double, generator=torch.Generator().manual_seed(1))
    threshold = torch.tensor([0.2, -0.1, 1.0], dtype=torch.double)
    alpha = torch.tensor([0.5, 1.0, 3.0], dtype=torch.double)
    hard = [t.clone().requires_grad_() for t in (membrane, threshold, alpha)]
    smooth = [t.clone().requires_grad_() for t in (membrane, threshold, alpha)]
    weights = torch.arange(150, dtype=torch.double).reshape(50, 3).cos()
    (weights * spike(*hard)).sum().backward()
    (weights * _curve(smooth[0] - smooth[1], smooth[2])).sum().backward()
    for a, b in zip(hard, smooth, strict=True):
        torch.testing.assert_close(a.grad, b.grad)


def test_a_strict_neuron_fires_above_its_threshold_alone() -> None:
    fired = spike(torch.tensor([0.999, 1.0, 1.001]), torch.tensor([1.0]), torch.tensor([1.0]), strict=True)
    assert fired.tolist() == [0.0, 0.0, 1.0]


@pytest.mark.parametrize("surrogate", CURVES)
def test_gradients_of_every_surrogate_are_those_of_its_curve(surrogate: Surrogate) -> None:
    generator = torch.Generator().manual_seed(2)
    values = [
        torch.randn(50, 3, dtype=torch.double, generator=generator),
        torch.randn(50, 3, dtype=torch.double, generator=generator),
        torch.tensor([0.5, 1.0, 3.0], dtype=torch.double),
    ]
    weights = torch.randn(50, 3, dtype=torch.double, generator=generator)
    hard, smooth = ([value.clone().requires_grad_() for value in values] for _ in range(2))
    ours = torch.autograd.grad(spike(*hard, surrogate=surrogate), hard, weights)
    theirs = torch.autograd.grad(CURVES[surrogate](smooth[0] - smooth[1], smooth[2]), smooth, weights)
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize(
    ("surrogate", "expected"),
    # σ(0.4) = 0.598688.
    [
        ("rational", 2 / 1.4**2),
        ("sigmoid", 2 * 0.598688 * 0.401312),
        ("triangle", 0.6),
        ("arctan", 1 / 1.08),
        ("superspike", 1 / 1.4**2),
    ],
)
def test_every_slope_at_distance_a_fifth_with_alpha_two(surrogate: Surrogate, expected: float) -> None:
    membrane = torch.tensor([0.8], requires_grad=True)
    spike(membrane, torch.tensor([1.0]), torch.tensor([2.0]), surrogate=surrogate).sum().backward()
    assert membrane.grad is not None
    torch.testing.assert_close(membrane.grad, torch.tensor([expected]))


def test_slope_at_distance_a_fifth() -> None:
    membrane = torch.tensor([1.2], requires_grad=True)
    spike(membrane, torch.tensor([1.0]), torch.tensor([1.0])).sum().backward()
    assert membrane.grad is not None
    torch.testing.assert_close(membrane.grad, torch.tensor([1 / 1.2**2]))
