"""Leaky integrate-and-fire neurons with a time constant, threshold and surrogate slope per channel.

For channel i, with k = 1 / τ_i and θ_1 = V_i (Eq. 10-12):

    u_t     = u'_{t-1} + k (h_t - (u'_{t-1} - u_reset))     integrate
    s_t     = 1 if u_t >= θ_t else 0                        fire; u_t > θ_t if `strict`
    u'_t    = (1 - s_t) u_t + s_t u_reset                   reset
    θ_{t+1} = decay θ_t + jump s_t                          adapt; with decay 1 and jump 0, the default, θ_t = V_i

`lif_step` and `lif_sequence` are pure functions; state is passed, never hidden. `lif_sequence` has three
implementations of one meaning: `"plain"`, autograd through `lif_step`, and one kernel each way for the CPU (`"numba"`,
`nn/cpu/lif.py`) and for GPUs (`"triton"`, `nn/kernels/lif.py`). Whoever changes the equation changes these three files;
`tests/nn/test_lif.py` holds them together. Backward, from the last step to the first, with g_t the gradient of
the spikes that go out, d_t = u_t - θ_t, λ_t = ∂L/∂u_t and μ_t = ∂L/∂θ_t, a kernel follows

    G_t = g_t + jump μ_{t+1}
    λ_t = G_t σ'(d_t) + r_t λ'_t,   λ'_t = (1 - k) λ_{t+1}
    μ_t = decay μ_{t+1} - G_t σ'(d_t)
    ∂L/∂h_t = k λ_t,   ∂L/∂k += λ_t (h_t - (u'_{t-1} - u_reset)),   ∂L/∂V = μ_1

where r_t is 1 - s_t (the reset blocks the membrane's past), or 1 for `straight_through`; with `full`, G_t also takes
λ'_t (u_reset - u_t), the spike's own part in the reset.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from chronospike.nn.dispatch import Implementation
from chronospike.nn.surrogate import COMPILED, Surrogate, spike

ResetGradient = Literal["detach", "full", "straight_through"]


@dataclass(frozen=True)
class LIFParameters:
    """Per-channel parameters `[C]`, the reset potential, and how neurons fire and adapt.

    `reset_gradient` says how the reset enters the backward pass: `"detach"` takes the spike in Eq. 12 for a
    constant (Theorem 3), `"full"` differentiates it through the surrogate, `"straight_through"` passes the
    gradient as if there had been no reset. The spike's part in the next threshold always has its gradient.
    """

    tau: Tensor
    threshold: Tensor
    alpha: Tensor
    u_reset: float = 0.0
    reset_gradient: ResetGradient = "detach"
    threshold_decay: float = 1.0
    threshold_jump: float = 0.0
    surrogate: Surrogate = "rational"
    strict: bool = False

    @property
    def adapts(self) -> bool:
        """Whether thresholds move."""
        return self.threshold_decay != 1 or self.threshold_jump != 0


class LIFState(NamedTuple):
    """What a neuron carries from step to step: its membrane after the reset and its threshold, both `[..., C]`."""

    membrane: Tensor
    threshold: Tensor


def lif_step(h: Tensor, state: LIFState, parameters: LIFParameters) -> tuple[Tensor, Tensor, LIFState]:
    """One step of input `h` `[..., C]`.

    Returns:
        The spikes, the membrane before the reset, and the state after this step.
    """
    p, (membrane, threshold) = parameters, state
    before = membrane + (1 / p.tau) * (h - (membrane - p.u_reset))
    spikes = spike(before, threshold, p.alpha, surrogate=p.surrogate, strict=p.strict)
    if p.reset_gradient == "straight_through":
        after = before + (spikes * (p.u_reset - before)).detach()
    else:
        gate = spikes if p.reset_gradient == "full" else spikes.detach()
        after = (1 - gate) * before + gate * p.u_reset
    if p.adapts:
        threshold = p.threshold_decay * threshold + p.threshold_jump * spikes
    return spikes, before, LIFState(after, threshold)


def lif_sequence(
    h: Tensor,
    parameters: LIFParameters,
    *,
    dropout: float = 0.0,
    implementation: Implementation = "plain",
    wants_membranes: bool = True,
) -> tuple[Tensor, Tensor]:
    """All steps of inputs `[T, ..., C]`, from a membrane of zero and the thresholds of `parameters`.

    Args:
        dropout: share of the spikes set to zero on the way out, the rest scaled up; the neurons do not notice.
        implementation: `"numba"` takes single precision on the CPU, `"triton"` single or half precision on a GPU; both
            have the rational and the sigmoid surrogate. `dispatch.neuron_kernel` chooses.
        wants_membranes: if not, a kernel may leave them out and return an empty tensor in their place.

    Returns:
        Spikes `[T, ..., C]` and membranes before the reset `[T, ..., C]`. The membranes carry no gradient.
    """
    if implementation == "plain":
        spikes, membranes = _plain_sequence(h, parameters)
        return nn.functional.dropout(spikes, dropout) if dropout else spikes, membranes
    p = parameters
    if p.surrogate not in COMPILED:
        raise ValueError(f"the {p.surrogate} surrogate has no {implementation} kernel")
    if implementation == "triton":
        from chronospike.nn.kernels.lif import TritonLIF

        kernel: Any = TritonLIF
    else:
        from chronospike.nn.cpu.lif import NumbaLIF

        kernel = NumbaLIF
    # Asked here: inside a function of autograd's the answer is lost.
    keeps = wants_membranes or torch.is_grad_enabled()
    spikes, membranes = kernel.apply(
        h, p.tau, p.threshold, p.alpha, p.u_reset, p.reset_gradient, dropout, keeps,
        p.threshold_decay, p.threshold_jump, p.surrogate, p.strict,
    )  # fmt: skip
    return spikes, membranes


def _plain_sequence(h: Tensor, parameters: LIFParameters) -> tuple[Tensor, Tensor]:
    state = LIFState(torch.zeros_like(h[0]), parameters.threshold)
    steps = []
    for h_t in h:
        spikes, before, state = lif_step(h_t, state, parameters)
        steps.append((spikes, before.detach()))
    return torch.stack([s for s, _ in steps]), torch.stack([u for _, u in steps])


# In single precision ½ + softplus(x) rounds to ½ itself for x below -17; the margin keeps τ strictly above.
_TAU_FLOOR = 0.5 + 1e-4


def inverse_softplus(value: float) -> float:
    """The x with softplus(x) = `value`."""
    return math.log(math.expm1(value))


class AdaptiveLIF(nn.Module):
    """A layer of LIF neurons whose τ, V_th and α are learned per channel.

    With `form="softplus"`, τ = ½ + softplus(τ̃) and α = softplus(α̃) stay where the dynamics are stable (τ > ½)
    and the surrogate is finite (α > 0) under any step of the optimiser; `"raw"` is the paper's bare
    parameters. `learn=False` fixes all three at their initial values (the ablation "w/o Adaptive LIF").
    """

    raw_tau: Tensor
    raw_alpha: Tensor
    threshold: Tensor

    def __init__(
        self,
        channels: int,
        *,
        tau: float = 1.0,
        threshold: float = 1.0,
        alpha: float = 1.0,
        u_reset: float = 0.0,
        form: Literal["softplus", "raw"] = "softplus",
        reset_gradient: ResetGradient = "detach",
        learn: bool = True,
    ) -> None:
        super().__init__()
        self.u_reset = u_reset
        self.form = form
        self.reset_gradient: ResetGradient = reset_gradient
        raw_tau, raw_alpha = tau, alpha
        if form == "softplus":
            raw_tau, raw_alpha = inverse_softplus(tau - _TAU_FLOOR), inverse_softplus(alpha)
        for name, value in (("raw_tau", raw_tau), ("threshold", threshold), ("raw_alpha", raw_alpha)):
            tensor = torch.full((channels,), float(value))
            if learn:
                self.register_parameter(name, nn.Parameter(tensor))
            else:
                self.register_buffer(name, tensor)

    @property
    def tau(self) -> Tensor:
        """`[C]` time constants."""
        return self.raw_tau if self.form == "raw" else _TAU_FLOOR + nn.functional.softplus(self.raw_tau)

    @property
    def alpha(self) -> Tensor:
        """`[C]` surrogate slopes."""
        return self.raw_alpha if self.form == "raw" else nn.functional.softplus(self.raw_alpha)

    def current(self) -> LIFParameters:
        """The values this layer computes with."""
        return LIFParameters(self.tau, self.threshold, self.alpha, self.u_reset, self.reset_gradient)

    def forward(
        self, h: Tensor, dropout: float = 0.0, implementation: Implementation = "plain", wants_membranes: bool = True
    ) -> tuple[Tensor, Tensor]:
        """Inputs `[T, ..., C]` to spikes and membranes of the same shape, in single precision at least.

        A membrane that is rounded to half precision at every step would drift.
        """
        h = h if h.dtype == torch.float64 else h.float()
        return lif_sequence(
            h, self.current(), dropout=dropout, implementation=implementation, wants_membranes=wants_membranes
        )

    def extra_repr(self) -> str:
        learned = "learned" if isinstance(self.raw_tau, nn.Parameter) else "fixed"
        return f"{len(self.raw_tau)}, {learned}, {self.form}, reset_gradient={self.reset_gradient}"
