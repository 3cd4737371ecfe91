"""The kernels from spikes to logits against the modules themselves; on the CPU through Triton's interpreter."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from chronospike.nn.dropout import keep_mask, new_key, scale
from chronospike.nn.temporal import TemporalTransformer

pytest.importorskip("triton")
from triton.runtime.errors import OutOfResources

from chronospike.nn.kernels import readout as kernels

pytestmark = pytest.mark.device
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
# T, B, C, H, feedforward, classes
SHAPES = [(1, 1, 1, 1, 1, 2), (2, 3, 6, 2, 5, 3), (5, 20, 16, 4, 24, 17), (9, 33, 12, 3, 8, 4)]

Layers = tuple[TemporalTransformer, nn.Sequential, nn.Linear]


def _layers(shape: tuple[int, ...], dropout: float = 0.0, seed: int = 0) -> Layers:
    _, _, channels, heads, wide, classes = shape
    torch.manual_seed(seed)
    # A table that is shorter than the steps is stretched.
    temporal = TemporalTransformer(channels, heads, wide, dropout, max_steps=4)
    readout = nn.Sequential(nn.Linear(channels, channels), nn.Tanh(), nn.Linear(channels, channels))
    classifier = nn.Linear(channels, classes)
    for layer in (temporal, readout, classifier):
        for parameter in layer.parameters():
            nn.init.normal_(parameter, std=0.5)
        layer.to(DEVICE)
    return temporal, readout, classifier


def _spikes(shape: tuple[int, ...]) -> Tensor:
    return torch.bernoulli(torch.full(shape[:3], 0.4)).to(DEVICE).requires_grad_()


def _gradients(layers: Layers, spikes: Tensor, values: tuple[Tensor, ...], weights: list[Tensor]) -> list[Tensor]:
    total = torch.stack([(a * b).sum() for a, b in zip(weights, values, strict=True)]).sum()
    return list(torch.autograd.grad(total, [spikes, *(p for layer in layers for p in layer.parameters())]))


def _compare(layers: Layers, spikes: Tensor, ours: tuple[Tensor, ...], twin: tuple[Tensor, ...]) -> None:
    for one, other in zip(ours, twin, strict=True):
        torch.testing.assert_close(one, other, atol=2e-5, rtol=1e-4)
    weights = [torch.randn_like(value) for value in twin]
    found, expected = (_gradients(layers, spikes, values, weights) for values in (ours, twin))
    for one, other in zip(found, expected, strict=True):
        size = max(1.0, other.abs().max().item())
        torch.testing.assert_close(one / size, other / size, atol=5e-5, rtol=1e-3)


@pytest.mark.parametrize("shape", SHAPES)
def test_kernels_equal_the_whole_encoder_in_values_and_gradients(shape: tuple[int, ...]) -> None:
    temporal, readout, classifier = layers = _layers(shape)
    spikes = _spikes(shape)
    z = readout(temporal(spikes))
    _compare(layers, spikes, kernels.read(*layers, spikes, False), (classifier(z), z))


@pytest.mark.parametrize("shape", SHAPES[1:])
def test_half_precision_is_near_single_in_values_and_gradients(shape: tuple[int, ...]) -> None:
    """TF32 keeps eleven bits, and a unit near zero may go to either side of the ReLU; a wrong row is far off."""
    temporal, readout, classifier = layers = _layers(shape, seed=1)
    spikes = _spikes(shape)
    z = readout(temporal(spikes))
    ours, twin = kernels.read(*layers, spikes, True), (classifier(z), z)
    weights = [torch.randn_like(value) for value in twin]
    for one, other in zip(ours, twin, strict=True):
        assert (one - other).norm() < 0.02 * other.norm()
    found, expected = (_gradients(layers, spikes, values, weights) for values in (ours, twin))
    for one, other in zip(found, expected, strict=True):
        assert (one - other).norm() < 0.1 * other.norm() + 1e-3


def test_programs_that_take_several_blocks_add_them_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "_PROGRAMS", 2)
    shape = (2, 75, 8, 2, 8, 3)
    temporal, readout, classifier = layers = _layers(shape)
    spikes = _spikes(shape)
    z = readout(temporal(spikes))
    _compare(layers, spikes, kernels.read(*layers, spikes, False), (classifier(z), z))


@pytest.mark.parametrize("shape", SHAPES[1:])
def test_dropout_is_the_mask_of_its_twin_in_values_and_gradients(shape: tuple[int, ...]) -> None:
    share = 0.3
    temporal, readout, classifier = layers = _layers(shape, share)
    spikes = _spikes(shape)
    steps, nodes, channels, heads, wide, _ = shape
    torch.manual_seed(3)
    keys = new_key(torch.device(DEVICE), 4)
    sizes = [(steps, nodes, heads), (nodes, channels), (nodes, wide), (nodes, channels)]
    masks = [keep_mask(keys[i : i + 1], size, share) * scale(share) for i, size in enumerate(sizes)]
    torch.manual_seed(3)
    ours = kernels.read(*layers, spikes, False)
    z = readout(_encoder_with(masks, temporal, spikes))
    _compare(layers, spikes, ours, (classifier(z), z))


def _encoder_with(masks: list[Tensor], t: TemporalTransformer, spikes: Tensor) -> Tensor:
    """The encoder's last step, with the dropout that the masks say; its attention's is `[T, B, H]`."""
    x = spikes + t.position_table(len(spikes)).unsqueeze(1)
    parts = F.linear(x, t.in_weight, t.in_bias).chunk(3, dim=-1)
    query, key, value = (part.unflatten(-1, (t.heads, -1)) for part in parts)
    logits = (query[-1] * key).sum(-1) / key.shape[-1] ** 0.5
    mixed = ((logits.softmax(dim=0) * masks[0]).unsqueeze(-1) * value).sum(dim=0).flatten(-2)
    y = t.norm_attention(x[-1] + t.out(mixed) * masks[1])
    result: Tensor = t.norm_feedforward(y + t.contract(F.relu(t.expand(y)) * masks[2]) * masks[3])
    return result


def test_no_nodes_give_no_rows() -> None:
    shape = (3, 0, 4, 2, 4, 5)
    layers = _layers(shape)
    spikes = _spikes(shape)
    logits, z = kernels.read(*layers, spikes, False)
    assert logits.shape == (0, 5)
    assert z.shape == (0, 4)
    (logits.sum() + z.sum()).backward()
    assert spikes.grad is not None


def test_what_the_kernels_cannot_do_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    def refusal(steps: int = 2, channels: int = 8, classes: int = 3, training: bool = True) -> str | None:
        return kernels.refusal(torch.device(DEVICE), steps, channels, 2, 8, classes, False, training)

    kernels._try.cache_clear()
    assert refusal() is None
    assert refusal(training=False) is None
    assert refusal(steps=1 << 12) == "4096 steps of 8 channels do not fit a GPU's registers"
    assert "over 256 channels or classes" in str(refusal(classes=1000))

    def full(*_: Any) -> None:
        raise OutOfResources(300_000, 100_000, "shared memory")

    kernels._try.cache_clear()
    monkeypatch.setattr(kernels, "read", full)
    assert "does not fit" in str(refusal())
    kernels._try.cache_clear()
