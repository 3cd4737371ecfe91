"""The training objective (section 4.5, Algorithm 2): cross-entropy and the contrastive term."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from chronospike.nn.dispatch import PLAIN, KernelPlan

# A similarity that no softmax notices; finite, so that rows to be ignored stay finite too.
_NEVER = -1e9
# What cross-entropy takes for a row that does not count.
_IGNORED = -100


@dataclass(frozen=True)
class Objective:
    """Cross-entropy with label smoothing, plus `contrastive` times InfoNCE of two dropout views."""

    smoothing: float = 0.0
    contrastive: float = 0.1
    view_dropout: float = 0.1
    temperature: float = 0.5

    def losses(
        self,
        logits: Tensor,
        z: Tensor,
        targets: Tensor,
        class_weights: Tensor | None = None,
        valid: Tensor | None = None,
        plan: KernelPlan = PLAIN,
    ) -> Tensor:
        """`[3]`: total, classification and contrastive loss, means over the rows that are `valid [B]`, or all.

        `targets` are classes `[B]`, or probabilities `[B, classes]`, for which there is no kernel.
        """
        if plan.losses.implementation == "triton":
            from chronospike.nn.kernels.losses import TritonLosses

            result: Tensor = TritonLosses.apply(  # type: ignore[no-untyped-call]
                self, plan.half, logits, z, targets, class_weights, valid
            )
            return result
        classification = classification_loss(logits, targets, class_weights, self.smoothing, valid)
        contrastive = logits.new_zeros(())
        if self.contrastive > 0:
            contrastive = contrastive_loss(z, self.view_dropout, self.temperature, valid)
        return torch.stack([classification + self.contrastive * contrastive, classification, contrastive])


def info_nce(first: Tensor, second: Tensor, temperature: float = 0.5, valid: Tensor | None = None) -> Tensor:
    """InfoNCE of two views `[B, C]` of the same B nodes, in one direction.

    Row i of `first` should be nearer, by cosine, to row i of `second` than to any other row. Rows that are not
    `valid [B]`, the filling of a last batch, count neither as nodes nor as others.
    """
    # Both at once: on a GPU the number of operations is what this costs.
    one, other = F.normalize(torch.stack([first, second]), dim=-1)
    similarity = one @ other.t() / temperature
    own = torch.arange(len(first), device=first.device)
    if valid is not None:
        own = own.masked_fill(~valid, _IGNORED)
        similarity = similarity.masked_fill(~valid, _NEVER)
    return F.cross_entropy(similarity, own)


def contrastive_loss(
    embedding: Tensor, dropout: float = 0.1, temperature: float = 0.5, valid: Tensor | None = None
) -> Tensor:
    """InfoNCE of two independent dropout views of the embeddings `[B, C]`."""
    first, second = F.dropout(embedding.repeat(2, 1, 1), dropout)
    return info_nce(first, second, temperature, valid)


def classification_loss(
    logits: Tensor,
    targets: Tensor,
    class_weights: Tensor | None = None,
    smoothing: float = 0.0,
    valid: Tensor | None = None,
) -> Tensor:
    """Cross-entropy of `logits [B, classes]`, a weighted mean over the rows that are `valid [B]`, or all.

    `targets` are classes `[B]`, or probabilities `[B, classes]` whose one-hot rows mean the same.
    """
    if targets.ndim == 2:
        rows = F.cross_entropy(logits, targets, weight=class_weights, label_smoothing=smoothing, reduction="none")
        sizes = (targets if class_weights is None else targets * class_weights).sum(dim=1)
        if valid is not None:
            rows, sizes = rows.masked_fill(~valid, 0.0), sizes.masked_fill(~valid, 0.0)
        return rows.sum() / sizes.sum()
    if valid is not None:
        targets = targets.masked_fill(~valid, _IGNORED)
    return F.cross_entropy(logits, targets, weight=class_weights, label_smoothing=smoothing)
