from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton")
from chronospike.nn.kernels.sums import add_up

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.mark.parametrize("shape", [(1, 1), (3, 5, 7), (33, 64), (100, 2, 65), (5, 0), (0, 4), (300, 9000)])
def test_sum_over_the_first_dimension(shape: tuple[int, ...]) -> None:
    parts = torch.randn(shape, generator=torch.Generator().manual_seed(len(shape))).to(DEVICE)
    torch.testing.assert_close(add_up(parts), parts.sum(dim=0))


@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 70, 5), (2, 300, 4, 3), (4, 0, 2)])
def test_sum_over_the_second_dimension(shape: tuple[int, ...]) -> None:
    parts = torch.randn(shape, generator=torch.Generator().manual_seed(7)).to(DEVICE)
    torch.testing.assert_close(add_up(parts, dim=1), parts.sum(dim=1))
