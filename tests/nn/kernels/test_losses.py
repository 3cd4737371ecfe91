"""The kernels of the objective against their twins in torch; on the CPU through Triton's interpreter."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from chronospike.nn.dropout import keep_mask, new_key, scale
from chronospike.nn.losses import Objective, classification_loss, info_nce

pytest.importorskip("triton")
from chronospike.nn.kernels.losses import TritonLosses, refusal

pytestmark = pytest.mark.device
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
# B, C, classes
SHAPES = [(1, 1, 2), (3, 5, 3), (16, 16, 10), (70, 12, 17), (130, 20, 4)]


def _inputs(shape: tuple[int, ...], seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    nodes, channels, classes = shape
    torch.manual_seed(seed)
    logits, z = torch.randn(nodes, classes), torch.randn(nodes, channels)
    targets = torch.randint(classes, (nodes,))
    return logits.to(DEVICE).requires_grad_(), z.to(DEVICE).requires_grad_(), targets.to(DEVICE)


def _compare(ours: Tensor, twin: Tensor, inputs: tuple[Tensor, ...]) -> None:
    torch.testing.assert_close(ours, twin, atol=1e-5, rtol=1e-4)
    weights = torch.randn(3, device=DEVICE)
    for one, other in zip(
        torch.autograd.grad((ours * weights).sum(), inputs, allow_unused=True),
        torch.autograd.grad((twin * weights).sum(), inputs, allow_unused=True),
        strict=True,
    ):
        torch.testing.assert_close(one, torch.zeros_like(one) if other is None else other, atol=1e-5, rtol=1e-3)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", ["bare", "weighted", "masked", "all"])
def test_kernels_equal_their_twins_in_values_and_gradients(shape: tuple[int, ...], kind: str) -> None:
    logits, z, targets = _inputs(shape)
    o = Objective(0.0 if kind == "bare" else 0.2, 0.3, 0.0, 0.5)
    weights = torch.rand(shape[2], device=DEVICE) + 0.5 if kind in ("weighted", "all") else None
    # The last rows are the filling of a batch; one at least counts.
    valid = torch.arange(shape[0], device=DEVICE) <= shape[0] // 2 if kind in ("masked", "all") else None
    ours: Tensor = TritonLosses.apply(o, False, logits, z, targets, weights, valid)  # type: ignore[no-untyped-call]
    _compare(ours, o.losses(logits, z, targets, weights, valid), (logits, z))


def test_without_the_contrastive_term_embeddings_get_no_gradient() -> None:
    logits, z, targets = _inputs((20, 6, 3))
    o = Objective(0.1, 0.0, 0.1, 0.5)
    ours: Tensor = TritonLosses.apply(o, False, logits, z, targets, None, None)  # type: ignore[no-untyped-call]
    _compare(ours, o.losses(logits, z, targets), (logits, z))


@pytest.mark.parametrize("shape", SHAPES[1:])
def test_dropout_is_the_mask_of_its_twin_in_values_and_gradients(shape: tuple[int, ...]) -> None:
    logits, z, targets = _inputs(shape, 3)
    o = Objective(0.0, 0.5, 0.3, 0.7)
    torch.manual_seed(9)
    mask = keep_mask(new_key(torch.device(DEVICE)), (2, *z.shape), 0.3) * scale(0.3)
    torch.manual_seed(9)
    ours: Tensor = TritonLosses.apply(o, False, logits, z, targets, None, None)  # type: ignore[no-untyped-call]
    first, second = classification_loss(logits, targets), info_nce(z * mask[0], z * mask[1], 0.7)
    _compare(ours, torch.stack([first + 0.5 * second, first, second]), (logits, z))


def test_rows_of_zeros_give_finite_gradients() -> None:
    logits, _, targets = _inputs((4, 6, 3))
    z = torch.zeros(4, 6, device=DEVICE, requires_grad=True)
    o = Objective(0.0, 0.5, 0.0, 0.5)
    TritonLosses.apply(o, False, logits, z, targets, None, None)[0].backward()  # type: ignore[no-untyped-call]
    assert z.grad is not None
    assert torch.isfinite(z.grad).all()


def test_too_many_classes_are_refused() -> None:
    o = Objective(0.0, 0.5, 0.1, 0.5)
    assert refusal(o, False, torch.device(DEVICE), 8, 3) is None
    assert "over 256 channels or classes" in str(refusal(o, False, torch.device(DEVICE), 8, 1000))


@pytest.mark.parametrize("shape", SHAPES[1:])
def test_half_precision_is_near_single_in_values_and_gradients(shape: tuple[int, ...]) -> None:
    """TF32 keeps eleven bits of a cosine, and the temperature doubles the error; a wrong pair or row is far off."""
    logits, z, targets = _inputs(shape, 5)
    o = Objective(0.1, 0.7, 0.0, 0.5)
    ours: Tensor = TritonLosses.apply(o, True, logits, z, targets, None, None)  # type: ignore[no-untyped-call]
    twin = o.losses(logits, z, targets)
    torch.testing.assert_close(ours, twin, atol=3e-3, rtol=1e-3)
    found, expected = (torch.autograd.grad(losses[0], (logits, z)) for losses in (ours, twin))
    for one, other in zip(found, expected, strict=True):
        assert (one - other).norm() < 0.02 * other.norm()
