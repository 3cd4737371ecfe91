"""The compiled neighbour attention against the aggregator's own arithmetic."""

from __future__ import annotations

from itertools import accumulate
from operator import mul

import pytest
import torch
from torch import Tensor

from chronospike.nn.aggregate import AttentiveAggregator, aggregate_tree
from chronospike.nn.cpu import attention, attention_common
from chronospike.nn.cpu.attention import attend, worthwhile
from chronospike.nn.cpu.attention_common import Tree
from chronospike.nn.cpu.projected import distinct_nodes
from chronospike.nn.dispatch import PLAIN
from chronospike.nn.tree_features import TreeFeatures

# steps, roots, fan-outs, width, channels, heads, nodes of the table
CASES = [
    (1, 1, (1,), 1, 1, 1, 1),
    (1, 1, (1, 1), 5, 3, 3, 1),
    (2, 3, (4,), 13, 12, 4, 1),
    (3, 7, (5, 2), 13, 12, 4, 20),
    (4, 60, (3, 4, 2), 32, 64, 2, 500),
    (2, 300, (2,), 17, 24, 3, 40),
    (5, 1, (6, 3), 128, 128, 4, 9),
]
Case = tuple[int, int, tuple[int, ...], int, int, int, int]


def _aggregator(width: int, channels: int, heads: int, generator: torch.Generator) -> AttentiveAggregator:
    aggregator = AttentiveAggregator(width, channels, heads)
    for parameter in aggregator.parameters():
        parameter.data.normal_(generator=generator, std=0.5)
    return aggregator


def _case(case: Case, seed: int, by_reference: bool) -> tuple[AttentiveAggregator, TreeFeatures, Tensor]:
    """An aggregator, the rows, and a gradient for the result."""
    steps, roots, fanouts, width, channels, heads, count = case
    generator = torch.Generator().manual_seed(seed)
    sizes = tuple(accumulate(fanouts, mul, initial=roots))
    if by_reference:
        nodes = torch.randint(count, (steps, sum(sizes)), generator=generator, dtype=torch.int32)
        table = torch.randn(steps + 1, count, width, generator=generator)
        x = TreeFeatures(table, sizes, nodes, torch.randint(steps + 1, (steps,), generator=generator))
    else:
        x = TreeFeatures(torch.randn(steps, sum(sizes), width, generator=generator).requires_grad_(), sizes)
    grad = torch.randn(steps, x.targets, channels, generator=generator)
    return _aggregator(width, channels, heads, generator), x, grad


def _wanted(aggregator: AttentiveAggregator, x: TreeFeatures) -> list[Tensor]:
    return [*aggregator.parameters(), *([x.values] if x.values.requires_grad else [])]


def _check(aggregator: AttentiveAggregator, x: TreeFeatures, grad: Tensor) -> None:
    expected = aggregate_tree(aggregator, x, PLAIN)
    found = attend(x, aggregator.attention_weights())
    torch.testing.assert_close(found, expected, atol=2e-5, rtol=1e-4)
    wanted = _wanted(aggregator, x)
    for one, other in zip(
        torch.autograd.grad(found, wanted, grad), torch.autograd.grad(expected, wanted, grad), strict=True
    ):
        torch.testing.assert_close(one, other, atol=2e-5 * max(1.0, other.abs().max().item()), rtol=1e-4)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("seed", [0, 1])
def test_rows_by_reference_as_the_plain_aggregator_does(case: Case, seed: int) -> None:
    _check(*_case(case, seed, by_reference=True))


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("seed", [0, 1])
def test_dense_rows_as_the_plain_aggregator_does(case: Case, seed: int) -> None:
    _check(*_case(case, seed, by_reference=False))


@pytest.mark.parametrize("case", CASES)
def test_both_ways_by_reference_agree_with_the_plain_aggregator(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    aggregator, x, grad = _case(case, 5, by_reference=True)
    distinct = distinct_nodes(Tree.of(x).nodes, x.targets, x.values.shape[1])
    for way in (distinct, None):
        monkeypatch.setattr(attention, "worthwhile", lambda x, tree, is_training, way=way: way)
        _check(aggregator, x, grad)


def test_a_static_table_is_read_by_every_step() -> None:
    aggregator, x, grad = _case((3, 4, (2,), 6, 8, 2, 5), 0, by_reference=True)
    _check(aggregator, TreeFeatures(x.values[:1], x.sizes, x.nodes, torch.zeros(3, dtype=torch.int64)), grad)


def test_dense_rows_that_need_no_gradient() -> None:
    aggregator, x, grad = _case(CASES[3], 0, by_reference=False)
    _check(aggregator, TreeFeatures(x.values.detach(), x.sizes), grad)


def test_neighbours_that_are_all_one_node_get_no_attention_gradient() -> None:
    """The weights of a neighbourhood add up to one, so they change nothing where all of it is the same."""
    aggregator, x, grad = _case((2, 3, (4,), 6, 8, 2, 5), 0, by_reference=True)
    assert x.nodes is not None
    x.nodes[:, 3:] = 2
    _check(aggregator, x, grad)
    by_attend = torch.autograd.grad(attend(x, aggregator.attention_weights()), aggregator.attend_neighbour, grad)[0]
    assert not by_attend.any()


def test_logits_that_are_far_apart_do_not_overflow() -> None:
    aggregator, x, grad = _case(CASES[3], 0, by_reference=True)
    aggregator.attend_neighbour.data *= 1e3
    _check(aggregator, x, grad)


def test_what_is_not_finite_stays_visible() -> None:
    aggregator, x, _ = _case(CASES[3], 0, by_reference=False)
    x.values.data[0, 0, 0] = torch.nan
    assert attend(x, aggregator.attention_weights())[0, 0].isnan().all()


def test_a_tree_that_repeats_nodes_is_projected_node_by_node() -> None:
    for count, repeats in ((3, True), (10_000, False)):
        _, x, _ = _case((2, 50, (5, 4), 4, 4, 1, count), 0, by_reference=True)
        assert (worthwhile(x, Tree.of(x), is_training=True) is not None) is repeats
        assert worthwhile(x, Tree.of(x), is_training=False) is not None


def test_a_node_gets_the_same_bits_whatever_else_is_in_the_batch() -> None:
    aggregator, x, _ = _case((3, 64, (3,), 20, 16, 4, 300), 0, by_reference=True)
    assert x.nodes is not None
    whole = attend(x, aggregator.attention_weights())
    roots, neighbours = x.nodes[:, :64], x.nodes[:, 64:]
    order = torch.randperm(64, generator=torch.Generator().manual_seed(1))[:50]
    chosen = torch.cat([roots[:, order], neighbours.unflatten(1, (64, 3))[:, order].flatten(1)], dim=1)
    part = attend(TreeFeatures(x.values, (50, 150), chosen.contiguous(), x.blocks), aggregator.attention_weights())
    assert torch.equal(part, whole[:, order])


def test_same_bits_on_one_thread_and_on_several(monkeypatch: pytest.MonkeyPatch) -> None:
    for by_reference in (True, False):
        aggregator, x, grad = _case((6, 40, (5, 2), 20, 24, 4, 50), 0, by_reference)
        results = []
        for count in (1, 2, 3):
            monkeypatch.setattr(attention_common, "default_threads", lambda count=count: count)
            found = attend(x, aggregator.attention_weights())
            results.append((found, *torch.autograd.grad(found, _wanted(aggregator, x), grad)))
        for other in results[1:]:
            assert all(torch.equal(one, two) for one, two in zip(results[0], other, strict=True))


def test_the_callers_own_threads_are_left_as_they_were() -> None:
    aggregator, x, _ = _case(CASES[3], 0, by_reference=True)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        attend(x, aggregator.attention_weights())
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
