from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import NoReturn

import pytest
import torch

pytest.importorskip("triton")
from triton.runtime.errors import OutOfResources

from chronospike.triton_common import tried


def failing(error: Exception) -> Callable[[], NoReturn]:
    def trial() -> NoReturn:
        raise error

    return trial


def test_a_kernel_that_a_compiler_refuses_is_left_out_and_a_warning_says_why() -> None:
    with pytest.warns(UserWarning, match="the pooling cannot be used here \\(no compiler\\); the plain path is taken"):
        assert not tried("the pooling", failing(RuntimeError("no compiler\nand much more")))
    with pytest.warns(UserWarning, match="\\(RuntimeError\\)"):
        assert not tried("the pooling", failing(RuntimeError()))


def test_too_little_room_is_expected_and_a_kernel_that_runs_is_taken() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not tried("the pooling", failing(OutOfResources(300_000, 100_000, "shared memory")))
        assert tried("the pooling", lambda: None)


def test_a_full_gpu_is_not_mistaken_for_a_bad_compiler() -> None:
    with pytest.raises(torch.OutOfMemoryError):
        tried("the pooling", failing(torch.OutOfMemoryError("full")))
