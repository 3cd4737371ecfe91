"""The Triton kernels against their twin in torch; on the CPU through Triton's interpreter."""

from __future__ import annotations

import pytest
import torch

from chronospike.nn.dropout import keep_mask, new_key, scale
from chronospike.nn.lif import Implementation, LIFParameters, ResetGradient, lif_sequence

pytest.importorskip("triton")
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def _run(implementation: Implementation, shape: tuple[int, ...], reset: ResetGradient, seed: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    channels = shape[-1]
    h = (torch.randn(shape, generator=generator) * 1.5).to(DEVICE).requires_grad_()
    tau = (0.6 + 2 * torch.rand(channels, generator=generator)).to(DEVICE).requires_grad_()
    threshold = torch.rand(channels, generator=generator).to(DEVICE).requires_grad_()
    alpha = (0.5 + torch.rand(channels, generator=generator)).to(DEVICE).requires_grad_()
    weights = torch.randn(shape, generator=generator).to(DEVICE)
    spikes, membranes = lif_sequence(h, LIFParameters(tau, threshold, alpha, 0.1, reset), implementation=implementation)
    (weights * spikes).sum().backward()
    grads = [value.grad for value in (h, tau, threshold, alpha)]
    assert all(grad is not None for grad in grads)
    return [spikes, membranes, *(grad for grad in grads if grad is not None)]


@pytest.mark.parametrize("reset", ["detach", "full", "straight_through"])
@pytest.mark.parametrize("shape", [(1, 1, 1), (2, 1, 3), (7, 5, 3), (5, 3, 2, 64), (27, 9, 128)])
def test_kernel_equals_its_twin_in_values_and_gradients(shape: tuple[int, ...], reset: ResetGradient) -> None:
    for seed in range(2):
        ours, twin = _run("triton", shape, reset, seed), _run("fused", shape, reset, seed)
        flips = (ours[0] != twin[0]).sum().item()
        assert flips == 0
        for a, b in zip(ours[1:], twin[1:], strict=True):
            torch.testing.assert_close(a, b, atol=2e-5, rtol=1e-4)


def test_half_precision_inputs_keep_single_precision_membranes() -> None:
    h = torch.full((3, 2, 4), 0.6, dtype=torch.bfloat16, device=DEVICE)
    one = torch.ones(4, device=DEVICE)
    _, membranes = lif_sequence(h, LIFParameters(3 * one, one, one), implementation="triton")
    assert membranes.dtype == torch.float32
    exact, _ = lif_sequence(h.float(), LIFParameters(3 * one, one, one), implementation="fused")
    assert exact.dtype == torch.float32


def test_no_rows_give_no_spikes() -> None:
    one = torch.ones(4, device=DEVICE)
    spikes, _ = lif_sequence(torch.zeros(3, 0, 4, device=DEVICE), LIFParameters(one, one, one), implementation="triton")
    assert spikes.shape == (3, 0, 4)


@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 5, 7), (6, 4, 32)])
def test_dropout_is_the_mask_of_its_twin_in_values_and_gradients(shape: tuple[int, ...]) -> None:
    channels = shape[-1]
    torch.manual_seed(3)
    h = (2 * torch.randn(shape)).to(DEVICE).requires_grad_()
    tau, threshold, alpha = ((0.6 + torch.rand(channels)).to(DEVICE).requires_grad_() for _ in range(3))
    neurons, wanted = LIFParameters(tau, threshold, alpha), [h, tau, threshold, alpha]
    weights = torch.randn(shape).to(DEVICE)
    torch.manual_seed(11)
    key = new_key(torch.device(DEVICE))
    torch.manual_seed(11)
    spikes, _ = lif_sequence(h, neurons, dropout=0.3, implementation="triton")
    ours = torch.autograd.grad((weights * spikes).sum(), wanted)
    plain, _ = lif_sequence(h, neurons, implementation="fused")
    dropped = plain * keep_mask(key, shape, 0.3) * scale(0.3)
    assert torch.equal(spikes, dropped)
    for one, other in zip(ours, torch.autograd.grad((weights * dropped).sum(), wanted), strict=True):
        torch.testing.assert_close(one, other, atol=2e-5, rtol=1e-4)
