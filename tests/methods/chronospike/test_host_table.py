"""Features in host memory; without a GPU the kernel runs in Triton's interpreter."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from chronospike.methods.chronospike.host_table import HostTable
from chronospike.nn.dispatch import Implementation

pytest.importorskip("triton")
WAYS: tuple[Implementation, ...] = ("plain", "triton")
pytestmark = pytest.mark.device
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


@pytest.mark.parametrize("hot", [0, 3, 100])
@pytest.mark.parametrize("width", [1, 5, 16])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_rows_are_those_of_the_table_whatever_is_kept(hot: int, width: int, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(hot + width)
    table = torch.randn(4, 11, width, generator=generator).to(dtype)
    held = HostTable(table, np.arange(11) % 5, hot * 4 * width * table.element_size(), DEVICE)
    nodes = torch.randint(11, (3, 50), generator=generator, dtype=torch.int32)
    blocks = torch.tensor([3, 0, 3])
    wanted = torch.stack([table[block][row.long()] for block, row in zip(blocks.tolist(), nodes, strict=True)])
    for implementation in WAYS:
        assert held.rows(nodes.to(DEVICE), blocks.to(DEVICE), implementation).cpu().equal(wanted)


def test_the_most_connected_nodes_are_kept() -> None:
    table = torch.zeros(2, 6, 4)
    held = HostTable(table, np.array([1, 9, 3, 9, 0, 2]), 3 * 2 * 4 * 4, DEVICE)
    assert held.hot_nodes == 3
    assert (held._slots.cpu() >= 0).nonzero().flatten().tolist() == [1, 2, 3]


def test_a_user_is_told_what_stays_where() -> None:
    said = HostTable(torch.zeros(1, 1000, 2), np.zeros(1000), 80, DEVICE).describe()
    assert "stay in host memory" in said
    assert "the rows of the 10 most connected nodes" in said


def test_no_nodes_give_no_rows() -> None:
    held = HostTable(torch.zeros(2, 6, 4), np.zeros(6), 0, DEVICE)
    nothing = torch.zeros(2, 0, dtype=torch.int32, device=DEVICE)
    for implementation in WAYS:
        found = held.rows(nothing, torch.zeros(2, dtype=torch.int64, device=DEVICE), implementation)
        assert found.shape == (2, 0, 4)
