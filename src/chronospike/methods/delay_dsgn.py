"""Delay-DSGN (Wang et al., ICML 2025), reconstructed from its abstract: SpikeNet with delayed neighbour messages.

No program was published and the equations are ours. Neighbours, layers and neurons are SpikeNet's. The message of step
t is spread over the K steps from t on by a Gaussian around a learned delay d_c of each channel:

    g_c(k) = exp(-(k - d_c)² / 2σ²) / Σ_j exp(-(j - d_c)² / 2σ²)           k, j = 0 … K - 1;  0 <= d_c <= K - 1
    I_t    = W_l h_v + b_l + b_r + Σ_k g(k) W_r mean(h_u at step t - k)    steps before the first have no message
    z      = Σ_t β_t s_t,   β = softmax(w) over the steps there are        s: spikes of the last layer

The loss is the cross-entropy plus λ times the mean over steps of ‖s_t - s_{t-1}‖². Since Σ_k g(k) = 1, delays cannot
amplify: this stands for the condition on σ and K that the paper derives. With K = 1, the pooling of SpikeNet and λ = 0
it is SpikeNet, to the bit.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional

from chronospike.config import AtLeastZero, Count, Dropout, Width
from chronospike.methods.spikenet import SpikeNetNetwork, SpikeNetSettings, SpikingLearner
from chronospike.methods.spikenet_model import SpikeNetModule, TreeRows
from chronospike.nn.lif import inverse_softplus
from chronospike.training.task import Nodes

# Delays are learned so many times as fast as weights.
_DELAY_RATE = 10.0
# Delays begin anywhere in the window but at its very ends, which no sigmoid reaches.
_MARGIN = 0.01


class DelayDSGNSettings(SpikeNetSettings):
    """Delay-DSGN; what it shares with SpikeNet has SpikeNet's defaults."""

    hidden: tuple[Width, ...] = Field((128, 64), min_length=1, max_length=16, description="channels per layer")
    dropout: Dropout = Field(0.5, description="dropout on the spikes between layers")
    kernel_size: Count = Field(5, description="number of steps over which a message arrives")
    sigma: AtLeastZero = Field(0.0, description="initial width of the delay kernels; 0: a quarter of kernel_size")
    learn_sigma: bool = Field(True, description="learn a width for each layer")
    delay_per: Literal["channel", "layer"] = Field("channel", description="what a separate delay is learned for")
    pooling: Literal["weighted", "concat"] = Field(
        "weighted", description="over steps: a learned weighted mean, or concatenation as in SpikeNet"
    )
    smoothness: AtLeastZero = Field(1e-3, description="weight λ of the change of spikes from step to step")


def gaussian_kernel(delay: Tensor, sigma: Tensor, size: int) -> Tensor:
    """`[K, C]` the weights g_c(k) for delays `[C]`; the largest are found first, so that σ may be tiny."""
    k = torch.arange(size, device=delay.device, dtype=delay.dtype)[:, None]
    return torch.softmax(-((k - delay) ** 2) / (2 * sigma**2), dim=0)


class _Delayed(torch.autograd.Function):
    """Shifted multiply-adds, both ways: autograd of them would copy all messages for each tap."""

    @staticmethod
    def forward(ctx: Any, messages: Tensor, kernel: Tensor) -> Tensor:
        ctx.save_for_backward(messages, kernel)
        out = messages * kernel[0]
        for k in range(1, min(len(kernel), len(messages))):
            out[k:].addcmul_(messages[:-k], kernel[k])
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor]:
        (grad,), (messages, kernel) = grads, ctx.saved_tensors
        grad_messages, grad_kernel = grad * kernel[0], torch.zeros_like(kernel)
        grad_kernel[0] = (grad * messages).sum(dim=(0, 1))
        for k in range(1, min(len(kernel), len(messages))):
            grad_messages[:-k].addcmul_(grad[k:], kernel[k])
            grad_kernel[k] = (grad[k:] * messages[:-k]).sum(dim=(0, 1))
        return grad_messages, grad_kernel


def delayed(messages: Tensor, kernel: Tensor) -> Tensor:
    """`[T, R, C]`: Σ_k g_c(k) m_{t-k} of messages `[T, R, C]`, with a kernel `[K, C]`."""
    found: Tensor = _Delayed.apply(messages, kernel)  # type: ignore[no-untyped-call]
    return found


class Delays(nn.Module):
    """The delays of a layer and their width, both held where every number is allowed.

    d = (K - 1) sigmoid(δ) and σ = softplus(σ̃). AdamW takes steps of one size for all parameters, so what is stored
    is δ / 10: its steps count ten times.
    """

    raw_sigma: Tensor

    def __init__(self, channels: int, settings: DelayDSGNSettings) -> None:
        super().__init__()
        s = settings
        self.size, self.channels = s.kernel_size, channels
        begin = torch.empty(channels if s.delay_per == "channel" else 1)
        nn.init.uniform_(begin, _MARGIN, 1 - _MARGIN)
        self.raw_delay = nn.Parameter(torch.logit(begin) / _DELAY_RATE)
        raw_sigma = torch.tensor(inverse_softplus(s.sigma or s.kernel_size / 4))
        if s.learn_sigma:
            self.raw_sigma = nn.Parameter(raw_sigma)
        else:
            self.register_buffer("raw_sigma", raw_sigma)

    @property
    def delay(self) -> Tensor:
        """`[C]` in steps, from 0 to K - 1."""
        return ((self.size - 1) * torch.sigmoid(_DELAY_RATE * self.raw_delay)).expand(self.channels)

    @property
    def sigma(self) -> Tensor:
        return functional.softplus(self.raw_sigma)

    def forward(self, messages: Tensor) -> Tensor:
        """`[T, R, C]`, delayed."""
        return delayed(messages, gaussian_kernel(self.delay, self.sigma, self.size))


class DelayDSGNModule(SpikeNetModule):
    """SpikeNet's layers with delays, and a readout of their weighted mean."""

    settings: DelayDSGNSettings

    def __init__(self, inputs: int, classes: int, steps: int, settings: DelayDSGNSettings) -> None:
        # What is shared comes first and begins with the weights that SpikeNet has for the same seed.
        super().__init__(inputs, classes, steps, settings)
        self.delays = nn.ModuleList(Delays(channels, settings) for channels in settings.hidden)
        if settings.pooling == "weighted":
            self.step_weights = nn.Parameter(torch.zeros(steps))

    @property
    def width(self) -> int:
        return self.settings.hidden[-1] if self.settings.pooling == "weighted" else super().width

    def delay(self, layer: int) -> nn.Module | None:
        return self.delays[layer]

    def pool(self, spikes: Tensor) -> Tensor:
        if self.settings.pooling == "concat":
            return super().pool(spikes)
        shares = self.step_weights[: len(spikes)].softmax(dim=0)
        return (shares[:, None, None] * spikes).sum(dim=0)


def step_changes(spikes: Tensor) -> Tensor:
    """The mean over steps and nodes of ‖s_t - s_{t-1}‖² for spikes `[T, B, C]`; nothing where there is one step."""
    if len(spikes) < 2:
        return spikes.new_zeros(())
    return (spikes[1:] - spikes[:-1]).square().sum(dim=2).mean()


class DelayDSGNNetwork(SpikeNetNetwork):
    """Delay-DSGN for a task."""

    module_type = DelayDSGNModule
    settings: DelayDSGNSettings
    loss_terms: ClassVar[tuple[str, ...]] = ("classification_loss", "smoothness_loss")

    def losses(self, module: nn.Module, prepared: TreeRows, nodes: Nodes) -> Tensor:
        logits, _, spikes = module(prepared, self.kernels)
        classification, changes = functional.cross_entropy(logits, self.labels(nodes)), step_changes(spikes)
        return torch.stack([classification + self.settings.smoothness * changes, classification, changes])

    def description(self) -> dict[str, Any]:
        s = self.settings
        delays = {"kernel_size": s.kernel_size, "delay_per": s.delay_per, "learn_sigma": s.learn_sigma}
        return {**super().description(), **delays, "pooling": s.pooling}


class DelayDSGN(SpikingLearner[DelayDSGNSettings]):
    name = "delay-dsgn"
    title = "Delay-DSGN"
    summary = "SpikeNet with learned delays of the neighbours' messages, reconstructed from its abstract"
    settings_type = DelayDSGNSettings
    network_type = DelayDSGNNetwork
    held = 10
