"""Correct and Smooth: the training labels, diffused over the edges, correct a trained model's probabilities.

Correct: the error on the training nodes is diffused, scaled to the mean size of a known error, and added.
Smooth: the training nodes take their labels, and the corrected probabilities are diffused.
The strengths are chosen on the validation nodes; the test nodes choose nothing.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from chronospike.data.graph import DynamicGraph
from chronospike.data.label_propagation import Operator, diffuse, one_hot, recency_operator
from chronospike.errors import InputError

Nodes = NDArray[np.integer[Any]]
Values = NDArray[np.float64]


@dataclass(frozen=True)
class Strengths:
    """How far each stage diffuses, and how much recent edges count. An alpha of 0 leaves its stage out."""

    correct: float
    smooth: float
    recency: float


GRID = [Strengths(*values) for values in product((0.0, 0.5, 0.8), (0.0, 0.5, 0.8, 0.9), (0.0, 3.0))]


def correct_and_smooth(
    operator: Operator, probabilities: Values, labels: Nodes, train: Nodes, strengths: Strengths, rounds: int = 50
) -> Values:
    """Mended probabilities `[N, C]`, each row adding up to one."""
    known = one_hot(train, labels, (len(probabilities), probabilities.shape[1]))
    values = probabilities
    if strengths.correct > 0:
        error = np.zeros_like(probabilities)
        error[train] = known[train] - probabilities[train]
        spread = diffuse(operator, error, strengths.correct, rounds)
        # Diffusion shrinks the errors; each row is brought back to the mean size of those that are known.
        size = np.abs(spread).sum(axis=1, keepdims=True)
        typical = np.abs(error[train]).sum(axis=1).mean()
        scale = np.divide(typical, size, where=size > 1e-12, out=np.zeros_like(size))
        values = probabilities + np.where(scale > 1000, 0.0, scale) * spread
    if strengths.smooth > 0:
        start = values.copy()
        start[train] = known[train]
        values = diffuse(operator, start, strengths.smooth, rounds)
    values = np.clip(values, 0.0, None)
    total = values.sum(axis=1, keepdims=True)
    return np.where(total > 0, np.divide(values, total, where=total > 0, out=np.zeros_like(values)), probabilities)


def choose_and_smooth(
    graph: DynamicGraph,
    probabilities: Values,
    train: Nodes,
    validation: Nodes,
    first: Values | None = None,
    last_step: int | None = None,
) -> tuple[Values, dict[str, float]]:
    """The best strengths of `GRID` by validation Micro-F1 (the weaker of equals), and what they give.

    The validation labels choose the strengths and are not spread themselves. If the model has learned from them, the
    probabilities of the `first` one, which had not, are what is tried; then all labels are spread. Edges after
    `last_step` are left out.
    """
    if not len(train) or not len(validation):
        raise InputError("smoothing needs labels of training and of validation nodes, and too few are in the graph")
    assert graph.labels is not None
    labels = np.asarray(graph.labels)
    operators = {one: recency_operator(graph, one, last_step) for one in {strengths.recency for strengths in GRID}}
    tried = probabilities if first is None else first
    best, best_score, best_values = GRID[0], -1.0, tried
    for strengths in GRID:
        values = correct_and_smooth(operators[strengths.recency], tried, labels, train, strengths)
        score = float((values[validation].argmax(axis=1) == labels[validation]).mean())
        if score > best_score:
            best, best_score, best_values = strengths, score, values
    if first is not None:
        known = np.union1d(train, validation)
        best_values = correct_and_smooth(operators[best.recency], probabilities, labels, known, best)
    return best_values, {**asdict(best), "validation_micro_f1": best_score}
