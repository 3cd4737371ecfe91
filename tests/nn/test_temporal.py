from __future__ import annotations

import pytest
import torch

from chronospike.nn.temporal import LastStep, LSTMOverSteps, MeanOverSteps, TemporalTransformer, _rotate


def _spikes(steps: int, nodes: int = 3, channels: int = 8) -> torch.Tensor:
    generator = torch.Generator().manual_seed(steps)
    return (torch.rand(steps, nodes, channels, dtype=torch.double, generator=generator) < 0.3).double()


def _transformer(**options: object) -> TemporalTransformer:
    torch.manual_seed(0)
    layer = TemporalTransformer(8, heads=2, feedforward=16, max_steps=12, **options).double()  # type: ignore[arg-type]
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return layer


@pytest.mark.parametrize("steps", [1, 2, 12, 30])
def test_reading_one_query_equals_the_whole_encoder(steps: int) -> None:
    layer = _transformer().eval()
    grads = []
    for whole in (False, True):
        layer.zero_grad()
        x = _spikes(steps).requires_grad_()
        output = layer(x) if whole else layer.forward_folded(x)
        output.sin().sum().backward()
        # The key bias has no influence at all, so only rounding is left of its gradient.
        grads.append([output, x.grad, *(p.grad for p in layer.parameters())])
    for fast, plain in zip(*grads, strict=True):
        torch.testing.assert_close(fast, plain, atol=1e-12, rtol=1e-9)


def test_the_encoder_equals_torchs_own() -> None:
    layer = _transformer().eval()
    oracle = torch.nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=False).double().eval()
    with torch.no_grad():
        oracle.self_attn.in_proj_weight.copy_(layer.in_weight)
        oracle.self_attn.in_proj_bias.copy_(layer.in_bias)
        pairs = [
            (oracle.self_attn.out_proj, layer.out),
            (oracle.linear1, layer.expand),
            (oracle.linear2, layer.contract),
            (oracle.norm1, layer.norm_attention),
            (oracle.norm2, layer.norm_feedforward),
        ]
        for theirs, ours in pairs:
            theirs.weight.copy_(ours.weight)  # type: ignore[arg-type, operator]
            theirs.bias.copy_(ours.bias)  # type: ignore[arg-type, operator]
        x = _spikes(7)
        expected = oracle(x + layer.position_table(7).unsqueeze(1))[-1]
        torch.testing.assert_close(layer(x), expected)


def test_positions_past_the_table_are_interpolated_end_to_end() -> None:
    layer = _transformer()
    assert layer.positions is not None
    table = layer.position_table(23)
    torch.testing.assert_close(table[0], layer.positions[0])
    torch.testing.assert_close(table[-1], layer.positions[-1])
    torch.testing.assert_close(table[1], (layer.positions[0] + layer.positions[1]) / 2)


def test_order_matters_to_the_transformer() -> None:
    layer = _transformer().eval()
    x = _spikes(6)
    shuffled = torch.cat([x[[1, 0, 2, 3, 4]], x[5:]])
    assert not torch.allclose(layer(x), layer(shuffled))


def test_rotary_attention_depends_on_distance_alone() -> None:
    generator = torch.Generator().manual_seed(3)
    query, key = (torch.randn(1, 4, dtype=torch.double, generator=generator).expand(9, 4) for _ in range(2))
    logits = _rotate(query) @ _rotate(key).t()
    for distance in range(-4, 5):
        diagonal = logits.diagonal(distance)
        torch.testing.assert_close(diagonal, diagonal[:1].expand_as(diagonal), atol=1e-6, rtol=1e-6)


def test_rotary_has_no_table_and_any_horizon() -> None:
    layer = _transformer(positions="rotary").eval()
    assert layer.positions is None
    assert layer(_spikes(500)).shape == (3, 8)


def test_mean_last_and_lstm_have_the_shape_of_one_step() -> None:
    x = _spikes(4)
    torch.testing.assert_close(MeanOverSteps()(x), x.sum(dim=0) / 4)
    torch.testing.assert_close(LastStep()(x), x[3])
    lstm = LSTMOverSteps(8).double()
    torch.testing.assert_close(lstm(x), lstm.lstm(x)[1][0][0])
