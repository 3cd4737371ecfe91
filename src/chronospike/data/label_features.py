"""The known labels around a node, in numbers: what the strongest simple methods read.

With Y the one-hot known labels and S the operator of label propagation at some recency, a node reads S Y, S² Y and
diffusions of Y, each row normalised. A node must never see its own label. One hop does not lead back to it. For the
rest the known nodes are divided into folds, and what a known node reads comes from the labels of the other folds:
taking its own label alone away would show it all the same, as what is missing beside the rows of those with the same
neighbours. All other nodes read all known labels.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from chronospike.data.graph import DynamicGraph
from chronospike.data.label_propagation import diffuse, recency_operator
from chronospike.threads import run_chunks

Nodes = NDArray[np.integer[Any]]
RECENCIES = (0.0, 3.0, 8.0)
# (alpha, rounds) each.
DIFFUSIONS = ((0.9, 30), (0.5, 15))


def stratified_folds(labels: Nodes, folds: int, seed: int) -> NDArray[np.int64]:
    """`[K]` a fold for each known node, drawn by the seed: equally many nodes, and of each class, up to one."""
    order = np.random.default_rng(seed).permutation(len(labels))
    order = order[np.argsort(labels[order], kind="stable")]
    result = np.empty(len(labels), dtype=np.int64)
    result[order] = np.arange(len(labels)) % folds
    return result


def label_features(
    graph: DynamicGraph,
    known: Nodes,
    labels: Nodes,
    folds: Nodes,
    *,
    recencies: Sequence[float] = RECENCIES,
    diffusions: Sequence[tuple[float, int]] = DIFFUSIONS,
    last_step: int | None = None,
) -> NDArray[np.float32]:
    """`[N, F C]` of all nodes, F = recencies · (2 + diffusions); a row of C that no label reaches is zero.

    Args:
        known, labels, folds: `[K]` each: nodes without repeats, their classes and their folds.
        diffusions: alpha and rounds of each.
        last_step: edges after it are left out; by default none are.
    """
    classes, kinds = graph.num_classes, 2 + len(diffusions)
    fold_of = np.full(graph.num_nodes, -1)
    fold_of[known] = folds
    result = np.empty((graph.num_nodes, len(recencies), kinds, classes), dtype=np.float32)

    def work(first: int, last: int) -> None:
        for place in range(first, last):
            operator = recency_operator(graph, recencies[place], last_step)
            everyone = _one_hot(graph.num_nodes, classes, known, labels)
            result[:, place, 0] = _shares(operator @ everyone)
            sums = [np.zeros((graph.num_nodes, classes)) for _ in range(kinds - 1)]
            # Added up fold by fold: taking a fold away from the sum over all would leave its labels in the last digits.
            for fold in np.unique(folds):
                here = folds == fold
                start = _one_hot(graph.num_nodes, classes, known[here], labels[here])
                others = (fold_of != fold)[:, None]
                spread = (operator @ (operator @ start), *(diffuse(operator, start, *how) for how in diffusions))
                for total, found in zip(sums, spread, strict=True):
                    np.add(total, found, out=total, where=others)
            for kind, total in enumerate(sums, start=1):
                result[:, place, kind] = _shares(total)

    run_chunks(work, len(recencies))
    return result.reshape(graph.num_nodes, -1)


def _one_hot(nodes: int, classes: int, known: Nodes, labels: Nodes) -> NDArray[np.float64]:
    values = np.zeros((nodes, classes))
    values[known, labels] = 1.0
    return values


def _shares(values: NDArray[np.float64]) -> NDArray[np.float64]:
    total = values.sum(axis=1, keepdims=True)
    shares: NDArray[np.float64] = np.divide(values, total, where=total > 0, out=np.zeros_like(values))
    return shares
