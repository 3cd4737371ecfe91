"""The contrastive term of the training objective (section 4.5, Algorithm 2)."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F


def info_nce(first: Tensor, second: Tensor, temperature: float = 0.5) -> Tensor:
    """InfoNCE of two views `[B, C]` of the same B nodes, in one direction.

    Row i of `first` should be nearer, by cosine, to row i of `second` than to any other row.
    """
    similarity = F.normalize(first, dim=-1) @ F.normalize(second, dim=-1).t() / temperature
    return F.cross_entropy(similarity, torch.arange(len(first), device=first.device))


def contrastive_loss(embedding: Tensor, dropout: float = 0.1, temperature: float = 0.5) -> Tensor:
    """InfoNCE of two independent dropout views of the embeddings `[B, C]`."""
    return info_nce(F.dropout(embedding, dropout), F.dropout(embedding, dropout), temperature)
