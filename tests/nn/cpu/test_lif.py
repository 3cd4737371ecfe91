"""The compiled neurons against their twin in torch."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from chronospike import threads
from chronospike.nn.cpu import lif as cpu
from chronospike.nn.cpu.lif import NumbaLIF
from chronospike.nn.dropout import keep_mask, new_key, scale
from chronospike.nn.lif import LIFParameters, ResetGradient, lif_sequence

SHAPES = [(1, 1, 1), (1, 40, 12), (9, 1, 5), (7, 65, 8), (5, 3, 41, 6), (27, 200, 33), (2, 3, 3000)]
RESETS: list[ResetGradient] = ["detach", "full", "straight_through"]


def _inputs(shape: tuple[int, ...], seed: int) -> tuple[list[Tensor], Tensor]:
    """(h, τ, threshold, α), and a gradient for the spikes."""
    generator = torch.Generator().manual_seed(seed)
    channels = shape[-1]
    h = torch.randn(shape, generator=generator) * 1.5
    tau = 0.6 + 2 * torch.rand(channels, generator=generator)
    threshold = torch.rand(channels, generator=generator) - 0.1
    alpha = 0.5 + torch.rand(channels, generator=generator)
    values = [value.requires_grad_() for value in (h, tau, threshold, alpha)]
    return values, torch.randn(shape, generator=generator)


def _compiled(values: list[Tensor], reset: str, dropout: float = 0.0) -> tuple[Tensor, Tensor]:
    spikes, membranes = NumbaLIF.apply(*values, 0.1, reset, dropout)  # type: ignore[no-untyped-call]
    return spikes, membranes


@pytest.mark.parametrize("reset", RESETS)
@pytest.mark.parametrize("shape", SHAPES)
def test_same_spikes_and_gradients_as_the_twin(shape: tuple[int, ...], reset: ResetGradient) -> None:
    for seed in range(3):
        values, grad = _inputs(shape, seed)
        twin, twin_membranes = lif_sequence(
            values[0], LIFParameters(values[1], values[2], values[3], 0.1, reset), implementation="fused"
        )
        spikes, membranes = _compiled(values, reset)
        assert torch.equal(spikes, twin)
        assert torch.equal(membranes, twin_membranes)
        expected = torch.autograd.grad(twin, values, grad)
        found = torch.autograd.grad(spikes, values, grad)
        for one, other in zip(found, expected, strict=True):
            torch.testing.assert_close(one, other, atol=2e-4, rtol=1e-4)


@pytest.mark.parametrize("shape", SHAPES)
def test_dropout_keeps_what_the_mask_keeps_and_the_neurons_do_not_notice(shape: tuple[int, ...]) -> None:
    values, _ = _inputs(shape, 0)
    torch.manual_seed(3)
    key = new_key(torch.device("cpu"))
    torch.manual_seed(3)
    spikes, membranes = _compiled(values, "detach", 0.7)
    plain, plain_membranes = _compiled(values, "detach")
    mask = keep_mask(key, spikes.shape, 0.7)
    assert torch.equal(spikes, plain * mask * scale(0.7))
    assert torch.equal(membranes, plain_membranes)


@pytest.mark.parametrize("reset", RESETS)
@pytest.mark.parametrize("shape", SHAPES)
def test_gradients_pass_where_the_mask_kept(shape: tuple[int, ...], reset: str) -> None:
    values, grad = _inputs(shape, 1)
    torch.manual_seed(4)
    key = new_key(torch.device("cpu"))
    torch.manual_seed(4)
    found = torch.autograd.grad(_compiled(values, reset, 0.4)[0], values, grad)
    masked = grad * keep_mask(key, shape, 0.4) * scale(0.4)
    expected = torch.autograd.grad(_compiled(values, reset)[0], values, masked)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, atol=1e-6, rtol=1e-6)


def test_no_random_number_is_drawn_without_dropout() -> None:
    values, _ = _inputs((3, 4, 5), 0)
    before = torch.get_rng_state()
    _compiled(values, "detach")
    assert torch.equal(torch.get_rng_state(), before)


def test_same_bits_on_one_thread_and_on_several(monkeypatch: pytest.MonkeyPatch) -> None:
    values, grad = _inputs((6, 130, 40), 2)
    results = []
    for count in (1, 2, 3):
        monkeypatch.setattr(
            cpu, "run_chunks", lambda work, total, count=count: threads.run_chunks(work, total, threads=count)
        )
        torch.manual_seed(0)
        spikes, _ = _compiled(values, "full", 0.5)
        results.append((spikes, *torch.autograd.grad(spikes, values, grad)))
    for other in results[1:]:
        assert all(torch.equal(one, two) for one, two in zip(results[0], other, strict=True))


def test_inputs_that_are_not_contiguous() -> None:
    values, _ = _inputs((4, 6, 5), 0)
    turned = values[0].detach().transpose(0, 1)
    spikes, _ = _compiled([turned, *values[1:]], "detach")
    expected, _ = _compiled([turned.contiguous(), *values[1:]], "detach")
    assert torch.equal(spikes, expected)


def test_membranes_that_are_not_kept_leave_the_spikes_as_they_are() -> None:
    values, _ = _inputs((6, 50, 24), 0)
    with torch.no_grad():
        spikes, membranes = NumbaLIF.apply(*values, 0.1, "detach", 0.0, False)  # type: ignore[no-untyped-call]
    assert membranes.numel() == 0
    assert torch.equal(spikes, _compiled(values, "detach")[0])
