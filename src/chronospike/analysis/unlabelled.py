"""Predictions for unlabelled nodes: the share of each class, compared with the training labels."""

from __future__ import annotations

import math
from dataclasses import dataclass

from chronospike.analysis.run_files import Metrics
from chronospike.analysis.simple_methods import margin
from chronospike.analysis.wording import percent, quoted

MOST_ROWS = 40
# Beyond these the predictions are mentioned: one class for nearly all nodes, or shares that differ much.
NEARLY_ALL, NOT_MOST = 0.95, 0.8
FAR_APART = 0.3


@dataclass(frozen=True)
class ClassShare:
    """One class: how many unlabelled nodes are predicted to have it, and both shares."""

    name: str
    nodes: int
    predicted: float
    training: float


def class_shares(metrics: Metrics, limit: int = MOST_ROWS) -> list[ClassShare]:
    """The classes, most predicted first, those past `limit` added up in a last row; empty if nothing is known."""
    rows = _shares(metrics)
    if len(rows) <= limit:
        return rows
    rest = rows[limit - 1 :]
    others = ClassShare(
        name=f"{len(rest)} others",
        nodes=sum(row.nodes for row in rest),
        predicted=sum(row.predicted for row in rest),
        training=sum(row.training for row in rest),
    )
    return [*rows[: limit - 1], others]


def odd_shares(metrics: Metrics) -> list[str]:
    """A sentence or two if the unlabelled nodes are predicted grossly otherwise than the training labels are."""
    rows, nodes = _shares(metrics), sum(metrics.unlabelled.predicted.values())
    if not rows:
        return []
    advice = "These nodes may really differ, or the model may not generalise to them: check some of them."
    first = rows[0]
    surplus = first.predicted - first.training
    if first.predicted > NEARLY_ALL and first.training < NOT_MOST and surplus > margin(first.training, nodes):
        return [
            f"Of the nodes without a label, {percent(first.predicted)} are predicted as {quoted(first.name)}, "
            f"which has {percent(first.training)} of the training labels. {advice}"
        ]
    apart = sum(abs(row.predicted - row.training) for row in rows) / 2
    # Shares counted over few nodes differ by chance, the more classes the more.
    chance = sum(math.sqrt(row.training * (1 - row.training) / nodes) for row in rows) / 2
    if apart > FAR_APART + chance:
        return [
            "The classes predicted for the nodes without a label differ much from those of the training labels: "
            f"{percent(apart)} of these nodes would have to change class for the shares to agree. {advice}"
        ]
    return []


def _shares(metrics: Metrics) -> list[ClassShare]:
    predicted, training = metrics.unlabelled.predicted, metrics.unlabelled.training
    nodes, labels = sum(predicted.values()), sum(training.values())
    if not nodes or not labels:
        return []
    rows = [
        ClassShare(name, predicted.get(name, 0), predicted.get(name, 0) / nodes, training.get(name, 0) / labels)
        for name in {**training, **predicted}
    ]
    return sorted(rows, key=lambda row: (-row.nodes, -row.training))
