from __future__ import annotations

import pytest
import torch

from chronospike.nn.dispatch import PLAIN, KernelPlan
from chronospike.nn.model import Architecture, ChronoSpike, Record
from chronospike.nn.tree_features import Span, TreeFeatures

STEPS, SIZES, WIDTH = 3, (2, 4, 4), 5


def _rows(dtype: torch.dtype, by_reference: bool) -> TreeFeatures:
    """Two trees of one neighbour each hop and two the hop before, row by row or from a table."""
    table = torch.randn(STEPS, 7, WIDTH, generator=torch.Generator().manual_seed(0)).to(torch.float16).to(dtype)
    nodes = torch.arange(STEPS * sum(SIZES), dtype=torch.int32).reshape(STEPS, -1) % 7
    rows = TreeFeatures(table, SIZES, nodes, torch.arange(STEPS))
    if by_reference:
        return rows
    return TreeFeatures(torch.stack([table[step][nodes[step].long()] for step in range(STEPS)]), SIZES)


@pytest.mark.parametrize("by_reference", [True, False])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_dense_rows_have_single_precision_at_least(dtype: torch.dtype, by_reference: bool) -> None:
    dense = _rows(dtype, by_reference).dense()
    assert dense.dtype == torch.float32
    assert torch.equal(dense, _rows(torch.float32, by_reference=False).values)
    assert _rows(torch.float64, by_reference).dense().dtype == torch.float64


def test_single_precision_rows_are_not_copied() -> None:
    rows = _rows(torch.float32, by_reference=False)
    assert rows.dense().data_ptr() == rows.values.data_ptr()


@pytest.mark.parametrize("aggregator", ["attention", "mean", "sum"])
@pytest.mark.parametrize("plan", [None, PLAIN], ids=["auto", "plain"])
@pytest.mark.parametrize("by_reference", [True, False])
def test_half_precision_rows_go_through_the_network_with_everything_recorded(
    by_reference: bool, plan: KernelPlan | None, aggregator: str
) -> None:
    torch.manual_seed(0)
    model = ChronoSpike(
        Architecture(WIDTH, 2, hidden=(8, 4), heads=2, temporal_heads=2, feedforward=8, aggregator=aggregator)  # type: ignore[arg-type]
    ).eval()
    half, single = Record(), Record()
    with torch.no_grad():
        found = model(_rows(torch.float16, by_reference), plan, half)[0]
        expected = model(_rows(torch.float32, by_reference), plan, single)[0]
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    assert [layer.shape for layer in half.spikes] == [layer.shape for layer in single.spikes]


def test_spans_and_fanouts_of_two_trees_by_hand() -> None:
    """Two roots with two neighbours each, and those with one each: positions 0-1, 2-5 and 6-9."""
    rows = _rows(torch.float32, by_reference=False)
    assert rows.fanouts == (2, 1)
    assert rows.spans() == [Span(0, 2, 2, 2), Span(2, 4, 6, 1)]
    assert rows.targets == 6


def test_a_table_gets_no_gradient() -> None:
    rows = _rows(torch.float32, by_reference=True)
    with pytest.raises(ValueError, match="gets no gradient"):
        TreeFeatures(rows.values.requires_grad_(), rows.sizes, rows.nodes, rows.blocks)
