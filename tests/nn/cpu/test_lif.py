"""The compiled neurons alone; `tests/nn/test_lif.py` holds them to the plain form."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from chronospike import threads
from chronospike.nn.cpu import lif as cpu
from chronospike.nn.cpu.lif import NumbaLIF


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
