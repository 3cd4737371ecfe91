from __future__ import annotations

import pytest
import torch
from torch import Tensor

from chronospike.methods.lbfgs import minimise


def quadratic(hessian: Tensor, middle: Tensor) -> tuple[list[int], object]:
    """A bowl around `middle`, and a counter of its calls."""
    calls = [0]

    def value(x: Tensor) -> tuple[Tensor, Tensor]:
        calls[0] += 1
        away = x - middle
        return away @ hessian @ away / 2, hessian @ away

    return calls, value


def test_the_middle_of_a_long_bowl_is_found_in_few_steps() -> None:
    hessian = torch.diag(torch.tensor([1.0, 10.0, 100.0, 1000.0], dtype=torch.float64))
    middle = torch.tensor([1.0, -2.0, 3.0, -4.0], dtype=torch.float64)
    calls, value = quadratic(hessian, middle)
    found = minimise(value, torch.zeros(4, dtype=torch.float64), 200, 1e-8)  # type: ignore[arg-type]
    torch.testing.assert_close(found, middle, rtol=0, atol=1e-7)
    assert calls[0] < 60


def test_a_start_that_is_good_enough_stays() -> None:
    calls, value = quadratic(torch.eye(2), torch.zeros(2))
    start = torch.full((2,), 1e-3)
    assert minimise(value, start, 50, 1e-2) is start  # type: ignore[arg-type]
    assert calls[0] == 1


def test_no_more_iterations_are_taken_than_asked_for() -> None:
    middle = torch.full((3,), 5.0)
    calls, value = quadratic(torch.diag(torch.tensor([1.0, 30.0, 900.0])), middle)
    found = minimise(value, torch.zeros(3), 2, 0.0)  # type: ignore[arg-type]
    assert calls[0] <= 2 + 30
    assert not torch.allclose(found, middle, atol=1e-3)


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_the_scale_of_the_function_does_not_matter(scale: float) -> None:
    middle = torch.tensor([2.0, -3.0], dtype=torch.float64)
    _, value = quadratic(scale * torch.diag(torch.tensor([1.0, 50.0], dtype=torch.float64)), middle)
    found = minimise(value, torch.zeros(2, dtype=torch.float64), 200, scale * 1e-9)  # type: ignore[arg-type]
    torch.testing.assert_close(found, middle, rtol=0, atol=1e-6)
