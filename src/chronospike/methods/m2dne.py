"""M2DNE (Lu et al., CIKM 2019): single events by attention over the past of both nodes, and the growth of the network.

**Micro.** For a record (s, t, τ) each node has its own h last neighbours, met Δ_i before τ. For the side of s

    att_i = softmax_i(LeakyReLU(exp(-δ_s Δ_i) · a·[W e_s ; W e_i])),   z = Σ_i att_i W e_i

for t alike, and β_s, β_t are the softmax over both sides of tanh(linear(z · exp(-δ mean Δ))). Then

    lambda(s, t) = -|e_s - e_t|² - β_s Σ_i att_i exp(δ_s Δ_i) |e_i - e_t|² - (the same of t's neighbours and s)

and with K noise nodes n in place of t, and K others in place of s, for which only one side counts,

    micro = -log(σ(lambda(s, t)) + 1e-6) - Σ log(σ(-lambda(s, n)) + 1e-6) - Σ log(σ(-lambda(n, t)) + 1e-6).

**Macro.** Of the number of events at τ, with n(τ) nodes seen so far,

    predicted = σ(-|e_s - e_t|²) / (τ + 1e-6)^θ · n(τ) · ζ (n(τ) - 1)^γ,   macro = (log predicted - log true)²

and a batch has the loss (1 - ε) Σ micro + ε mean macro.

W, a and the linear layer are seen through three vectors only, p = W a₁, r = W a₂ and v = W·linear: the score of a
neighbour is p·e_s + r·e_i, and what it adds to a side is v·e_i. So no row is multiplied by W.

By default two things are as in the published program: W, a and the linear layer stay as they were drawn, and both sides
have their decay from one table, with that of s in the attention of t's side as well.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from chronospike.config import Count, Positive, Share
from chronospike.methods.event_history import EventRecords
from chronospike.methods.hawkes import HawkesEmbedder, HawkesLearner, HawkesSettings, Slots
from chronospike.methods.hawkes_kernels import add_scalars
from chronospike.methods.hawkes_torch import Side, TensorSlots, attract, through_softmax
from chronospike.methods.m2dne_kernels import LEAST_ZETA, LONGEST_STEP, descend_growth, m2dne_gradients
from chronospike.rng import stream
from chronospike.training.task import Task

_HIDDEN, _GAIN, _SMALL, _LEAK = 128, 1.414, 1e-6, 0.2


class M2DNESettings(HawkesSettings):
    """Defaults of the published program for DBLP."""

    epochs: Count = 100
    history: Count = Field(5, description="number of last neighbours in a node's history")
    negatives: Count = Field(5, description="negative samples for each of the two nodes of an event")
    learning_rate: Positive = Field(0.02, description="per event: gradients of a batch are summed")
    batch_size: Count = Field(100, description="events per update")
    epsilon: Share = Field(0.4, description="share of the macro part in the loss")
    train_attention: bool = Field(
        False, description="train W, a and the linear layer; if false, they stay as initialised"
    )
    tie_delta: bool = Field(
        True, description="one table of decays for both sides as in the published program; else one for each"
    )


class Attention:
    """W, a and the linear layer, and the three vectors that they amount to.

    Attributes:
        weights: `W [d, 128]`, `a [256]`, `linear [128]` and its `bias [1]`.
    """

    def __init__(self, dimension: int, seed: int, device: torch.device) -> None:
        generator = torch.Generator().manual_seed(stream(seed, "m2dne attention"))

        def uniform(bound: float, *shape: int) -> Tensor:
            return ((2 * torch.rand(shape, generator=generator) - 1) * bound).to(device)

        self.weights = {
            "W": uniform(_GAIN * math.sqrt(6 / (dimension + _HIDDEN)), dimension, _HIDDEN),
            "a": uniform(_GAIN * math.sqrt(6 / (2 * _HIDDEN + 1)), 2 * _HIDDEN),
            "linear": uniform(1 / math.sqrt(_HIDDEN), _HIDDEN),
            "bias": uniform(1 / math.sqrt(_HIDDEN), 1),
        }

    def vectors(self) -> Tensor:
        """`[3, d]` p, r and v."""
        return self._columns() @ self.weights["W"].t()

    def _columns(self) -> Tensor:
        return torch.cat([self.weights["a"].view(2, -1), self.weights["linear"][None]])

    def descend(self, gradient: Tensor, bias: Tensor, rate: float) -> None:
        """A step down the gradient `[3, d]` of the vectors and that of the bias, `[1]`."""
        to_columns = gradient @ self.weights["W"]
        self.weights["W"] -= rate * (gradient.t() @ self._columns())
        self.weights["a"] -= rate * to_columns[:2].reshape(-1)
        self.weights["linear"] -= rate * to_columns[2]
        self.weights["bias"] -= rate * bias


def growth_logs(records: EventRecords) -> NDArray[np.float64]:
    """`[M, 4]` logarithms for each moment: of n - 1, of the time, of n, and of the number of events."""
    n, time = records.population.astype(np.float64), records.times.astype(np.float64)
    return np.log(np.stack([n - 1, time + _SMALL, n, records.added + _SMALL], axis=1))


class M2DNEEmbedder(HawkesEmbedder):
    """The state: embeddings, `decays` and `other_decays [N]`, `growth [3]` (ζ, γ, θ); attention if it is learned."""

    def __init__(
        self, task: Task, settings: M2DNESettings, compiled: bool | None = None, threads: int | None = None
    ) -> None:
        super().__init__(task, settings, M2DNE.sides, compiled=compiled, threads=threads)
        self.epsilon, self.is_tied, self.learns_attention = (
            settings.epsilon, settings.tie_delta, settings.train_attention,
        )  # fmt: skip
        nodes = task.graph.num_nodes
        self.decays, self.other_decays = (torch.ones(nodes, device=self.device) for _ in range(2))
        self.growth = torch.ones(3, dtype=torch.float64, device=self.device)
        self.attention = Attention(settings.dimension, self.seed, self.device)
        self.attention_vectors = self.attention.vectors()
        self.parameters = sum(table.numel() for table in self.tables().values())
        self.logs = growth_logs(self.records)
        self.device_logs = torch.from_numpy(self.logs).to(self.device)
        size = min(self.batch_size, len(self.records))
        self.decay_changes = np.zeros((size, 2), dtype=np.float32)
        self.growth_changes = np.zeros((size, 4))
        self.attention_changes = np.zeros((size, 3 + 4 * self.history), dtype=np.float32)

    def tables(self) -> dict[str, Tensor]:
        learned = self.attention.weights if self.learns_attention else {}
        return {
            "vectors": self.vectors,
            "decays": self.decays,
            "other_decays": self.other_decays,
            "growth": self.growth,
            **learned,
        }

    @property
    def _second_decays(self) -> Tensor:
        return self.decays if self.is_tied else self.other_decays

    def load_state(self, state: dict[str, Tensor]) -> None:
        super().load_state(state)
        self.attention_vectors = self.attention.vectors()

    def gradients(self, slots: Slots, low: int, high: int) -> None:
        m2dne_gradients(
            self.vectors.numpy(), self.decays.numpy(), self._second_decays.numpy(), self.is_tied,
            self.attention_vectors.numpy(), self.attention.weights["bias"].numpy(), self.growth.numpy(), self.logs,
            slots.nodes, slots.gaps, slots.lengths, slots.moments,
            self.changes, self.decay_changes, self.losses, self.growth_changes, self.attention_changes,
            self.negatives, self.history, self.epsilon, float(len(slots.nodes)), self.rate, low, high,
        )  # fmt: skip

    def before_adding(self, slots: Slots) -> None:
        if not self.learns_attention:
            return
        # The rows are those that the gradients were taken at.
        table, found, half = self.vectors.numpy(), self.attention_changes[: len(slots.nodes)], 3 + 2 * self.history
        own, past = table[slots.nodes[:, :2].ravel()], table[slots.nodes[:, 2 + 2 * self.negatives :].ravel()]
        gradient = found[:, 1:3].ravel() @ own, found[:, 3:half].ravel() @ past, found[:, half:].ravel() @ past
        self._descend(torch.from_numpy(np.stack(gradient)), torch.from_numpy(found[:, :1].sum(0)))

    def after_adding(self, slots: Slots) -> None:
        add_scalars(self.decays.numpy(), slots.nodes, 0, self.decay_changes)
        add_scalars(self._second_decays.numpy(), slots.nodes, 1, self.decay_changes)
        descend_growth(self.growth.numpy(), self.growth_changes, len(slots.nodes), self.rate)

    def _descend(self, gradient: Tensor, bias: Tensor) -> None:
        self.attention.descend(gradient, bias, self.rate)
        self.attention_vectors = self.attention.vectors()

    def _grow(self, changes: Tensor) -> None:
        """`m2dne_kernels.descend_growth` in torch: of the sums `[4]`."""
        step = (LONGEST_STEP / changes[3].clamp(min=_SMALL)).clamp(max=self.rate)
        self.growth -= step * changes[:3]
        self.growth[0].clamp_(min=LEAST_ZETA)

    def torch_step(self, slots: TensorSlots) -> Tensor:
        nodes, gaps, present = slots.nodes, slots.gaps, slots.present
        count, ends = len(nodes), nodes[:, :2]
        rows = self.vectors[nodes]
        own, drawn, past = rows.split([2, 2 * self.negatives, 2 * self.history], dim=1)
        drawn, past = (part.unflatten(1, (2, -1)) for part in (drawn, past))
        candidates = torch.cat([own.flip(1)[:, :, None], drawn], dim=2)
        side = Side.of(*(part.flatten(0, 1) for part in (own, candidates, past)))
        decay = torch.stack([self.decays[ends[:, 0]], self._second_decays[ends[:, 1]]], dim=1)
        used = decay[:, :1].expand_as(decay) if self.is_tied else decay

        p, r, v = self.attention_vectors
        scores, values = (own @ p)[:, :, None] + past @ r, (past @ v) * present
        fades, kernel = (-used[:, :, None] * gaps).exp(), (decay[:, :, None] * gaps).exp() * present
        shares = torch.nn.functional.leaky_relu(fades * scores, _LEAK).softmax(2)
        mean = gaps.mean(2)
        level, fade = (shares * values).sum(2), (-decay * mean).exp()
        out = (level * fade + self.attention.weights["bias"]).tanh()
        mix = out.softmax(1)
        weights = mix[:, :, None] * shares * kernel
        found = side.intensities(weights.flatten(0, 1)).view(count, 2, -1)
        # Both sides have the distance of the two nodes, which counts once.
        distance = side.near.view(count, 2, -1)[:, 0, 0]
        loss, gain = attract(found[:, :, 0].sum(1) + distance)
        more, slopes = attract(-found[:, :, 1:])
        gains = torch.cat([gain.view(-1, 1, 1).expand(-1, 2, 1), -slopes], dim=2) * (1 - self.epsilon)
        large, slope, growth = self._growth(distance, slots.moments)

        to_own, to_candidates, to_past, influence = (
            part.unflatten(0, (count, 2))
            for part in side.gradients(weights.flatten(0, 1), gains.flatten(0, 1))
        )  # fmt: skip
        apart = 2 * (gains[:, 0, 0] + slope)[:, None] * (own[:, 0] - own[:, 1])
        to_mix = (influence * shares * kernel).sum(2)
        to_sum = through_softmax(mix, to_mix) * (1 - out.square())
        to_level = to_sum * fade
        to_shares = influence * mix[:, :, None] * kernel + to_level[:, :, None] * values
        to_scores = through_softmax(shares, to_shares) * fades * torch.where(scores > 0, 1.0, _LEAK)
        to_values = to_level[:, :, None] * shares * present
        to_decay = (influence * weights * gaps).sum(2) - to_level * level * mean
        to_used = -(to_scores * scores * gaps).sum(2)

        to_base = to_scores.sum(2)
        to_own = to_own + to_candidates[:, :, 0].flip(1) + to_base[:, :, None] * p
        to_own = to_own + torch.stack([apart, -apart], dim=1)
        to_past = to_past + to_scores[:, :, :, None] * r + to_values[:, :, :, None] * v
        changes = torch.cat([to_own, to_candidates[:, :, 1:].flatten(1, 2), to_past.flatten(1, 2)], dim=1)
        if self.learns_attention:
            gradient = [
                torch.einsum("bs,bsd->d", to_base, own),
                torch.einsum("bsh,bshd->d", to_scores, past),
                torch.einsum("bsh,bshd->d", to_values, past),
            ]
            self._descend(torch.stack(gradient), to_sum.sum().view(1))
        self.add_to_vectors(nodes, changes * -self.rate)
        first = to_decay[:, 0] + (to_used.sum(1) if self.is_tied else to_used[:, 0])
        second = to_decay[:, 1] + (0 if self.is_tied else to_used[:, 1])
        self.decays.index_add_(0, ends[:, 0], first * -self.rate)
        self._second_decays.index_add_(0, ends[:, 1], second * -self.rate)
        self._grow(growth)
        return (1 - self.epsilon) * (loss.sum() + more.sum()) + large

    def _growth(self, distance: Tensor, moments: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The macro loss of a batch, `[B]` its derivative to the squared distances, and `[4]` what `_grow` takes."""
        fewer, time, known, added = self.device_logs[moments].unbind(1)
        zeta, gamma, theta = self.growth
        factor = self.epsilon / min(self.batch_size, len(distance))
        far = distance.double()
        logarithm = torch.nn.functional.logsigmoid(-far) + known + zeta.log() + gamma * fewer - theta * time
        predicted = logarithm.exp()
        miss = (predicted + _SMALL).log() - added
        slope = 2 * factor * miss * predicted / (predicted + _SMALL)
        curvature = 2 * factor * (zeta**-2 + fewer.square() + time.square())
        changes = torch.stack([slope / zeta, slope * fewer, -slope * time, curvature]).sum(1)
        return factor * miss.square().sum(), (-slope * far.sigmoid()).to(distance.dtype), changes


class M2DNE(HawkesLearner[M2DNESettings]):
    name = "m2dne"
    title = "M2DNE"
    summary = "embeddings by attention over the histories of both nodes of an event, and the growth of the network"
    settings_type = M2DNESettings
    sides = 2

    def embedder(self, task: Task) -> M2DNEEmbedder:
        return M2DNEEmbedder(task, self.settings)
