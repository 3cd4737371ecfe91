from __future__ import annotations

import torch

from chronospike.nn.surrogate import spike


def _curve(distance: torch.Tensor, alpha: torch.Tensor) -> torch.Tensor:
    return alpha * distance / (1 + alpha * distance.abs())


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


def test_slope_at_distance_a_fifth() -> None:
    membrane = torch.tensor([1.2], requires_grad=True)
    spike(membrane, torch.tensor([1.0]), torch.tensor([1.0])).sum().backward()
    assert membrane.grad is not None
    torch.testing.assert_close(membrane.grad, torch.tensor([1 / 1.2**2]))
