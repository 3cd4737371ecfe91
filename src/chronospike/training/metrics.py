"""Macro- and Micro-F1 from a confusion matrix that is counted where the predictions are."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Scores:
    """F1 scores of one set of nodes, between 0 and 1.

    Attributes:
        per_class: F1 of each class; 0 for a class that neither occurs nor is predicted.
        confusion: `[C, C]` counts, true class by predicted class.
    """

    macro_f1: float
    micro_f1: float
    per_class: tuple[float, ...]
    confusion: tuple[tuple[int, ...], ...]


def score_predictions(truth: Tensor, predicted: Tensor, classes: int) -> Scores:
    """F1 scores of predicted classes `[K]` against true ones `[K]`.

    Macro-F1 averages over the classes that occur or are predicted, as scikit-learn does; Micro-F1 of
    single-label classification is the share that is right.
    """
    confusion = torch.bincount(truth * classes + predicted, minlength=classes * classes).view(classes, classes)
    counts = confusion.double().cpu()
    right = counts.diagonal()
    occurring = counts.sum(dim=1) + counts.sum(dim=0)
    f1 = torch.where(occurring > 0, 2 * right / occurring.clamp(min=1), 0.0)
    present = occurring > 0
    macro = f1[present].mean().item() if present.any() else 0.0
    micro = (right.sum() / counts.sum().clamp(min=1)).item()
    table = tuple(tuple(int(n) for n in row) for row in counts.long().tolist())
    return Scores(macro, micro, tuple(f1.tolist()), table)
