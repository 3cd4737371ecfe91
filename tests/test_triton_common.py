from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import NoReturn

import pytest
import torch

pytest.importorskip("triton")
from triton.runtime.errors import OutOfResources

from chronospike.triton_common import add_up, trial_error

CPU = torch.device("cpu")
pytestmark = pytest.mark.device
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def failing(error: Exception) -> Callable[[], NoReturn]:
    def trial() -> NoReturn:
        raise error

    return trial


def test_a_kernel_that_a_compiler_refuses_is_left_out_and_a_warning_says_why() -> None:
    with pytest.warns(
        UserWarning, match="the pooling cannot be used here \\(no compiler\\); falling back to plain torch"
    ):
        assert trial_error("the pooling", CPU, failing(RuntimeError("no compiler\nand much more"))) == "no compiler"
    with pytest.warns(UserWarning, match="\\(RuntimeError\\)"):
        assert trial_error("the pooling", CPU, failing(RuntimeError())) == "RuntimeError"


def test_too_little_room_is_expected_and_a_kernel_that_runs_is_taken() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        full = failing(OutOfResources(300_000, 100_000, "shared memory"))
        assert trial_error("the pooling", CPU, full) == "does not fit this GPU's registers and shared memory"
        assert trial_error("the pooling", CPU, lambda: None) is None


def test_a_full_gpu_is_not_mistaken_for_a_bad_compiler() -> None:
    with pytest.raises(torch.OutOfMemoryError):
        trial_error("the pooling", CPU, failing(torch.OutOfMemoryError("full")))


def test_a_trial_leaves_the_generator_alone() -> None:
    before = torch.get_rng_state()
    trial_error("the pooling", CPU, lambda: torch.rand(3))
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("shape", [(1, 1), (3, 5, 7), (33, 64), (100, 2, 65), (5, 0), (0, 4), (300, 9000)])
def test_sum_over_the_first_dimension(shape: tuple[int, ...]) -> None:
    parts = torch.randn(shape, generator=torch.Generator().manual_seed(len(shape))).to(DEVICE)
    torch.testing.assert_close(add_up(parts), parts.sum(dim=0))


@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 70, 5), (2, 300, 4, 3), (4, 0, 2)])
def test_sum_over_the_second_dimension(shape: tuple[int, ...]) -> None:
    parts = torch.randn(shape, generator=torch.Generator().manual_seed(7)).to(DEVICE)
    torch.testing.assert_close(add_up(parts, dim=1), parts.sum(dim=1))
