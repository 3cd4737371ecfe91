"""HTNE (Zuo et al., KDD 2018): a node's next neighbour by a Hawkes process over its last ones.

With embeddings e, a decay δ_s for every node and the h neighbours that s had last, at times t_i before t,

    att_i    = softmax_i(-|e_s - e_i|²)
    lambda_y = -|e_s - e_y|² - Σ_i att_i · exp(±δ_s (t - t_i)) · |e_i - e_y|²

and for a record (s, y, t) with noise nodes n drawn by (number of events)^0.75

    loss     = -log(σ(lambda_y) + 1e-6) - Σ_n log(σ(-lambda_n) + 1e-6).

Two things are as in the published program by default. The sign is plus, where the paper has a minus: δ is learned, so
only where it starts differs. And neighbours that are missing take part in the softmax as node 0 at time 0 and are left
out of the sum afterwards only, so that they take attention from the others.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from chronospike.cache_hints import prefetch
from chronospike.compiled import njit
from chronospike.config import Count
from chronospike.methods import hawkes_torch
from chronospike.methods.hawkes import HawkesEmbedder, HawkesLearner, HawkesSettings, Slots
from chronospike.methods.hawkes_kernels import (
    add_row,
    add_scalars,
    attract,
    intensities,
    load_side,
    repel,
    softmax,
    spread_gains,
    through_softmax,
)
from chronospike.methods.hawkes_torch import Side, TensorSlots
from chronospike.training.task import Task


class HTNESettings(HawkesSettings):
    """Defaults of the published program."""

    epochs: Count = 20
    decay_sign: Literal["official", "paper"] = Field(
        "official", description="sign of the decay in the exponent: + as in the published program, or - as in the paper"
    )
    mask: Literal["after", "before"] = Field(
        "after", description="mask missing neighbours after the softmax as in the published program, or before it"
    )


class HTNEEmbedder(HawkesEmbedder):
    """The state is the embeddings and `decays [N]`."""

    def __init__(
        self, task: Task, settings: HTNESettings, compiled: bool | None = None, threads: int | None = None
    ) -> None:
        super().__init__(task, settings, HTNE.sides, compiled=compiled, threads=threads)
        self.sign = 1.0 if settings.decay_sign == "official" else -1.0
        self.before = settings.mask == "before"
        self.decays = torch.ones(task.graph.num_nodes, device=self.device)
        self.parameters = self.vectors.numel() + self.decays.numel()
        self.decay_changes = np.zeros((min(self.batch_size, len(self.records)), 1), dtype=np.float32)

    def tables(self) -> dict[str, Tensor]:
        return {"vectors": self.vectors, "decays": self.decays}

    def gradients(self, slots: Slots, low: int, high: int) -> None:
        _gradients(
            self.vectors.numpy(), self.decays.numpy(), slots.nodes, slots.gaps, slots.lengths,
            self.changes, self.decay_changes, self.losses,
            self.negatives, self.history, self.sign, self.before, self.rate, low, high,
        )  # fmt: skip

    def after_adding(self, slots: Slots) -> None:
        add_scalars(self.decays.numpy(), slots.nodes, 0, self.decay_changes)

    def torch_step(self, slots: TensorSlots) -> Tensor:
        nodes, gaps, present = slots.nodes, slots.gaps[:, 0], slots.present[:, 0]
        first = 2 + self.negatives
        rows, own = self.vectors[nodes], nodes[:, 0]
        side = Side.of(rows[:, 0], rows[:, 1:first], rows[:, first:])
        scores = -side.far
        if self.before:
            scores = scores.masked_fill(present == 0, -torch.inf)
        # Without any neighbour there is nothing to share out.
        shares = scores.softmax(1).nan_to_num(0.0)
        kernel = (self.sign * self.decays[own, None] * gaps).exp() * present
        weights = shares * kernel
        found = side.intensities(weights)
        found[:, 1:].neg_()
        losses, gains = hawkes_torch.attract(found)
        gains[:, 1:].neg_()
        to_own, to_candidates, to_past, influence = side.gradients(weights, gains)
        to_scores = hawkes_torch.through_softmax(shares, influence * kernel)[:, :, None]
        moved = 2 * to_scores * side.neighbours
        to_own = to_own + moved.sum(1)
        to_decay = (influence * weights * gaps).sum(1) * self.sign
        self.add_to_vectors(nodes, torch.cat([to_own[:, None], to_candidates, to_past - moved], dim=1) * -self.rate)
        self.decays.index_add_(0, own, to_decay * -self.rate)
        return losses.sum()


class HTNE(HawkesLearner[HTNESettings]):
    name = "htne"
    title = "HTNE"
    summary = "embeddings by a Hawkes process over each node's last neighbours"
    settings_type = HTNESettings
    sides = 1

    def embedder(self, task: Task) -> HTNEEmbedder:
        return HTNEEmbedder(task, self.settings)


@njit
def _gradients(
    vectors: Any, decays: Any, nodes: Any, gaps: Any, lengths: Any, changes: Any, decay_changes: Any, losses: Any,
    negatives: Any, history: Any, sign: Any, before: Any, rate: Any, low: Any, high: Any,
) -> None:  # fmt: skip
    """Fill `changes [B, 2 + K + h, d]`, `decay_changes [B, 1]` and `losses [B]` of the records low..high-1."""
    count, past = 1 + negatives, 2 + negatives
    rows = np.empty((count + history + 2, vectors.shape[1]), np.float32)
    near, found, gains = np.empty(count), np.empty(count), np.empty(count)
    far, scores, shares = np.empty(history), np.empty(history), np.empty(history)
    weights, kernel, influence = np.empty(history), np.empty(history), np.empty(history)
    for b in range(low, high):
        if b + 1 < high:
            for m in range(nodes.shape[1]):
                prefetch(vectors, nodes[b + 1, m])
        known = lengths[b, 0]
        load_side(vectors, nodes, b, 0, 1, 2, past, rows, near, far)
        for i in range(history):
            scores[i] = -far[i]
        softmax(scores, shares, known if before else history)
        for i in range(history):
            kernel[i] = math.exp(sign * decays[nodes[b, 0]] * gaps[b, i]) if i < known else 0.0
            weights[i] = shares[i] * kernel[i]
        intensities(rows, near, far, weights, found)
        losses[b], gains[0] = attract(found[0])
        for c in range(1, count):
            loss, gains[c] = repel(found[c])
            losses[b] += loss
        changes[b, 0] = changes[b, 1] = np.float32(0)
        spread_gains(rows, near, far, weights, gains, influence, changes, b, 0, 1, 2, past, rate)
        change = 0.0
        for i in range(history):
            change += influence[i] * weights[i] * gaps[b, i]
            influence[i] *= kernel[i]
        decay_changes[b, 0] = -rate * sign * change
        through_softmax(shares, influence)
        for i in range(history):
            step = -2.0 * rate * influence[i]
            add_row(changes, b, 0, rows, count + i, step)
            add_row(changes, b, past + i, rows, count + i, -step)
