"""The attention kernels against Eq. 8-9 as written; on the CPU through Triton's interpreter."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from chronospike.nn.aggregate import AttentiveAggregator, aggregate_tree
from chronospike.nn.dispatch import PLAIN
from chronospike.nn.tree_features import TreeFeatures

pytest.importorskip("triton")
from triton.runtime.errors import OutOfResources

from chronospike.nn.kernels import attention
from chronospike.nn.kernels.attention import attend

pytestmark = pytest.mark.device
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
# T, roots, fan-outs, D, C, H
SHAPES = [
    (1, 1, (1,), 1, 1, 1),
    (3, 2, (2,), 5, 6, 2),
    (2, 3, (3, 2), 16, 8, 4),
    (4, 11, (5, 2), 24, 32, 4),
    (2, 2, (2, 2, 3), 7, 12, 3),
    (1, 40, (1, 1), 17, 20, 1),
    # Several blocks of features and groups of heads.
    (2, 3, (3,), 150, 264, 3),
]


def _sizes(roots: int, fanouts: tuple[int, ...]) -> tuple[int, ...]:
    sizes = [roots]
    for fanout in fanouts:
        sizes.append(sizes[-1] * fanout)
    return tuple(sizes)


def _aggregator(inputs: int, channels: int, heads: int) -> AttentiveAggregator:
    aggregator = AttentiveAggregator(inputs, channels, heads)
    for parameter in aggregator.parameters():
        torch.nn.init.normal_(parameter, std=0.5 * min(1.0, (32 / inputs) ** 0.5))
    return aggregator.to(DEVICE)


def _compare(
    aggregator: AttentiveAggregator, x: TreeFeatures, half: bool = False, atol: float = 2e-5, rtol: float = 1e-4
) -> None:
    wanted = [*aggregator.parameters(), *([x.values] if x.values.requires_grad else [])]
    plain = aggregate_tree(aggregator, x, PLAIN)
    weights = torch.randn_like(plain)
    ours = attend(x, aggregator.attention_weights(), half)
    assert ours.shape == plain.shape
    torch.testing.assert_close(ours, plain, atol=atol, rtol=rtol)
    gradients = torch.autograd.grad((ours * weights).sum(), wanted)
    for one, other in zip(gradients, torch.autograd.grad((plain * weights).sum(), wanted), strict=True):
        # Sums over all targets: what cancels out leaves the rounding of what was added.
        size = max(1.0, other.abs().max().item())
        torch.testing.assert_close(one / size, other / size, atol=atol, rtol=rtol)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("seed", range(2))
def test_gathering_equals_the_plain_form_in_values_and_gradients(shape: Any, seed: int) -> None:
    steps, roots, fanouts, inputs, channels, heads = shape
    torch.manual_seed(seed)
    sizes = _sizes(roots, fanouts)
    table = torch.randn(steps + 1, 9, inputs, device=DEVICE)
    nodes = torch.randint(9, (steps, sum(sizes)), dtype=torch.int32, device=DEVICE)
    blocks = torch.randperm(steps + 1, device=DEVICE)[:steps]
    _compare(_aggregator(inputs, channels, heads), TreeFeatures(table, sizes, nodes, blocks))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("seed", range(2))
def test_dense_rows_equal_the_plain_form_in_values_and_gradients(shape: Any, seed: int) -> None:
    steps, roots, fanouts, inputs, channels, heads = shape
    torch.manual_seed(10 + seed)
    sizes = _sizes(roots, fanouts)
    values = torch.randn(steps, sum(sizes), inputs, device=DEVICE, requires_grad=True)
    _compare(_aggregator(inputs, channels, heads), TreeFeatures(values, sizes))


def test_programs_that_take_several_blocks_add_them_up(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_PROJECT", "_MIX_BACK", "_WEIGHTS"):
        monkeypatch.setattr(attention, name, getattr(attention, name)._replace(programs=2))
    torch.manual_seed(8)
    sizes = _sizes(50, (2, 1))
    values = torch.randn(3, sum(sizes), 5, device=DEVICE, requires_grad=True)
    _compare(_aggregator(5, 6, 2), TreeFeatures(values, sizes))


def test_half_precision_is_near_and_its_small_gradients_survive() -> None:
    torch.manual_seed(4)
    sizes = _sizes(16, (5, 2))
    table = torch.randn(3, 50, 32, device=DEVICE).half()
    nodes = torch.randint(50, (3, sum(sizes)), dtype=torch.int32, device=DEVICE)
    x = TreeFeatures(table, sizes, nodes, torch.arange(3, device=DEVICE))
    aggregator = _aggregator(32, 32, 4)
    _compare(aggregator, x, half=True, atol=1e-2, rtol=1e-2)
    (1e-9 * attend(x, aggregator.attention_weights(), True).sum()).backward()
    gradient = aggregator.self_projection.weight.grad
    (1e-9 * aggregate_tree(_zeroed(aggregator), x, PLAIN).sum()).backward()
    twin = aggregator.self_projection.weight.grad
    assert gradient is not None
    assert twin is not None
    torch.testing.assert_close(gradient, twin, atol=1e-9, rtol=1e-2)
    assert twin.abs().max() > 0


def test_half_precision_takes_gradients_of_any_size_side_by_side() -> None:
    torch.manual_seed(6)
    sizes = _sizes(80, (3, 2))
    x = TreeFeatures(torch.randn(2, sum(sizes), 16, device=DEVICE, requires_grad=True), sizes)
    aggregator = _aggregator(16, 32, 4)
    wanted = [*aggregator.parameters(), x.values]
    # Blocks of targets from 1e-9 to 1e6.
    weights = 10.0 ** torch.linspace(-9, 6, sum(sizes[:-1]), device=DEVICE).view(1, -1, 1)
    ours = torch.autograd.grad((attend(x, aggregator.attention_weights(), True) * weights).sum(), wanted)
    plain = torch.autograd.grad((aggregate_tree(aggregator, x, PLAIN) * weights).sum(), wanted)
    for one, other in zip(ours, plain, strict=True):
        assert (one - other).norm() < 1e-2 * other.norm()
    # The roots come first, and with the smallest: what they get is theirs, not a rounding of what the others get.
    roots = slice(0, 32)
    assert (ours[-1] - plain[-1])[:, roots].norm() < 2e-2 * plain[-1][:, roots].norm()


def _zeroed(aggregator: AttentiveAggregator) -> AttentiveAggregator:
    for parameter in aggregator.parameters():
        parameter.grad = None
    return aggregator


def test_no_roots_give_no_rows_and_gradients_of_zero() -> None:
    aggregator = _aggregator(4, 8, 2)
    x = TreeFeatures(torch.zeros(3, 0, 4, device=DEVICE), (0, 0))
    out = attend(x, aggregator.attention_weights(), False)
    assert out.shape == (3, 0, 8)
    out.sum().backward()
    assert all(parameter.grad is not None and not parameter.grad.any() for parameter in aggregator.parameters())


def test_projections_beyond_half_precision_stay_finite() -> None:
    torch.manual_seed(5)
    sizes = _sizes(4, (2,))
    x = TreeFeatures((1e4 * torch.randn(2, sum(sizes), 64, device=DEVICE)).requires_grad_(), sizes)
    aggregator = _aggregator(64, 8, 2)
    out = attend(x, aggregator.attention_weights(), True)
    assert out.abs().max() > 6e4
    gradients = torch.autograd.grad(out.mean(), [*aggregator.parameters(), x.values])
    assert all(value.isfinite().all() for value in (out, *gradients))


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("dense", [False, True])
def test_a_device_without_the_room_is_found_out_once(
    monkeypatch: pytest.MonkeyPatch, dense: bool, training: bool
) -> None:
    kind = (torch.device(DEVICE), torch.float32, dense, 5, 6, 2, (2, 1), False, training)
    attention.refusal.cache_clear()
    assert attention.refusal(*kind) is None
    calls: list[int] = []

    def full(*_: Any) -> None:
        calls.append(1)
        raise OutOfResources(300_000, 100_000, "shared memory")

    attention.refusal.cache_clear()
    monkeypatch.setattr(attention, "attend", full)
    for _ in range(2):
        assert "does not fit" in str(attention.refusal(*kind))
    assert len(calls) == 1
    attention.refusal.cache_clear()
