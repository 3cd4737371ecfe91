"""Reading the T spike vectors of a node as one vector (section 4.4 and its appendix).

Every encoder maps spikes `[T, B, C]` to `[B, C]`. The Transformer's `forward` is the whole encoder, as in the paper. It
is read at the last step only, so its last query is the only one needed: `forward_folded` folds the query into the key
projection (q · W_k x = (W_kᵀ q) · x) and pools before the value projection, which costs O(T C H) a node. On a CPU
that is nine times as fast, forward and backward at `[27, 1024, 64]`.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class MeanOverSteps(nn.Module):
    """The mean spike rate per channel: the ablation "w/o Temporal Transformer"."""

    def forward(self, spikes: Tensor) -> Tensor:
        return spikes.mean(dim=0)


class LastStep(nn.Module):
    """The last spike vector alone."""

    def forward(self, spikes: Tensor) -> Tensor:
        return spikes[-1]


class LSTMOverSteps(nn.Module):
    """A one-layer LSTM, read at the last step: the ablation "LSTM Temporal"."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(channels, channels)

    def forward(self, spikes: Tensor) -> Tensor:
        output: Tensor = self.lstm(spikes)[0]
        return output[-1]


class TemporalTransformer(nn.Module):
    """One post-norm encoder layer over the steps, with learned positions or rotary ones.

    Args:
        max_steps: rows of the position table. Longer horizons are read by linear interpolation.
        positions: `"learned"` (the paper) or `"rotary"`, which has no table and no longest horizon.
    """

    def __init__(
        self,
        channels: int,
        heads: int = 4,
        feedforward: int = 128,
        dropout: float = 0.1,
        max_steps: int = 200,
        positions: str = "learned",
    ) -> None:
        super().__init__()
        if channels % heads:
            raise ValueError(f"{channels} channels cannot be split into {heads} heads")
        self.heads = heads
        self.dropout = dropout
        self.positions = nn.Parameter(torch.empty(max_steps, channels)) if positions == "learned" else None
        self.in_weight = nn.Parameter(torch.empty(3 * channels, channels))
        self.in_bias = nn.Parameter(torch.zeros(3 * channels))
        self.out = nn.Linear(channels, channels)
        self.norm_attention = nn.LayerNorm(channels)
        self.expand = nn.Linear(channels, feedforward)
        self.contract = nn.Linear(feedforward, channels)
        self.norm_feedforward = nn.LayerNorm(channels)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        if self.positions is not None:
            nn.init.normal_(self.positions, std=0.02)
        nn.init.xavier_uniform_(self.in_weight)
        for linear in (self.out, self.expand, self.contract):
            nn.init.xavier_uniform_(linear.weight)
            nn.init.zeros_(linear.bias)

    def position_table(self, steps: int) -> Tensor:
        """`[T, C]`: the first T rows, or all of them stretched to T by linear interpolation."""
        assert self.positions is not None
        if steps <= len(self.positions):
            return self.positions[:steps]
        table = self.positions.t().unsqueeze(0)
        return F.interpolate(table, size=steps, mode="linear", align_corners=True)[0].t()

    def _placed(self, spikes: Tensor) -> Tensor:
        if self.positions is None:
            return spikes
        return spikes + self.position_table(len(spikes)).unsqueeze(1)

    def forward(self, spikes: Tensor) -> Tensor:
        return self.forward_with_attention(spikes)[0]

    def forward_folded(self, spikes: Tensor) -> Tensor:
        """The last step `[B, C]` from its own query alone; only for learned positions."""
        x = self._placed(spikes)
        last = x[-1]
        w_query, w_key, w_value = self.in_weight.chunk(3)
        b_query, _, b_value = self.in_bias.chunk(3)
        width = last.shape[-1] // self.heads
        query = F.linear(last, w_query, b_query).unflatten(-1, (self.heads, -1)) / math.sqrt(width)
        # The key bias adds the same to every step's logit, and the softmax does not see it.
        folded = torch.einsum("bhd,hdc->bhc", query, w_key.unflatten(0, (self.heads, -1)))
        attention = self._drop(torch.einsum("tbc,bhc->tbh", x, folded).softmax(dim=0))
        pooled = torch.einsum("tbh,tbc->bhc", attention, x)
        mixed = torch.einsum("bhc,hdc->bhd", pooled, w_value.unflatten(0, (self.heads, -1)))
        # Dropout leaves weights that no longer add up to one, so the value bias is weighted too.
        mixed = mixed + attention.sum(dim=0).unsqueeze(-1) * b_value.unflatten(0, (self.heads, -1))
        return self._finish(last, mixed.flatten(-2))

    def forward_with_attention(self, spikes: Tensor) -> tuple[Tensor, Tensor]:
        """The whole encoder: the last step `[B, C]`, and the attention `[B, H, T, T]` (query, key)."""
        x = self._placed(spikes)
        query, key, value = (
            part.unflatten(-1, (self.heads, -1)).permute(1, 2, 0, 3)
            for part in F.linear(x, self.in_weight, self.in_bias).chunk(3, dim=-1)
        )
        if self.positions is None:
            query, key = _rotate(query), _rotate(key)
        logits = query @ key.transpose(-1, -2) / math.sqrt(query.shape[-1])
        attention = F.dropout(logits.softmax(dim=-1), self.dropout, self.training)
        mixed = (attention @ value).permute(2, 0, 1, 3).flatten(-2)
        return self._finish(x, mixed)[-1], attention

    def _finish(self, x: Tensor, mixed: Tensor) -> Tensor:
        """The rest of the layer, after the heads: `[..., C]` each."""
        y = self.norm_attention(x + self._drop(self.out(mixed)))
        inner = self._drop(F.relu(self.expand(y)))
        result: Tensor = self.norm_feedforward(y + self._drop(self.contract(inner)))
        return result

    def _drop(self, x: Tensor) -> Tensor:
        return F.dropout(x, self.dropout, self.training)


def _rotate(x: Tensor, base: float = 10_000.0) -> Tensor:
    """Rotary positions: channel pairs of `[..., T, d]` turned by an angle proportional to the step."""
    steps, width = x.shape[-2:]
    half = width // 2
    rates = base ** (-torch.arange(half, device=x.device, dtype=torch.float32) / half)
    angles = torch.arange(steps, device=x.device, dtype=torch.float32).unsqueeze(1) * rates
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    first, second, rest = x[..., :half], x[..., half : 2 * half], x[..., 2 * half :]
    return torch.cat([first * cos - second * sin, first * sin + second * cos, rest], dim=-1)
