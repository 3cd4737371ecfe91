"""The known labels around a node, in numbers: what the strongest simple methods read.

With Y the one-hot known labels and S the operator of label propagation at some recency, a node reads S Y, S² Y and
diffusions of Y, each row normalised. A node must never see its own label. One hop does not lead back to it; of two hops
its own part, the diagonal of S², is taken away, in whole numbers, so that nothing is left in the last digits. For
diffusions the known nodes are divided into folds, and what a known node reads comes from the labels of the other folds.
All other nodes read all known labels.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from chronospike.data.graph import DynamicGraph
from chronospike.data.label_propagation import Operator, recency_operator
from chronospike.threads import run_chunks

Nodes = NDArray[np.integer[Any]]
RECENCIES = (0.0, 3.0, 8.0)
# (alpha, rounds) each.
DIFFUSIONS = ((0.9, 30), (0.5, 15))
# Numbers of all nodes, folds and some of the classes that are diffused at once.
_MOST_VALUES = 2**28


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

    everyone = _one_hot(graph.num_nodes, classes, known, labels)
    for place, recency in enumerate(recencies):
        operator = recency_operator(graph, recency, last_step)
        result[:, place, 0] = _shares(operator @ everyone)
        result[:, place, 1] = _shares(two_hops(operator, everyone))
        for kind, values in enumerate(_diffused(operator, fold_of, everyone, diffusions), start=2):
            result[:, place, kind] = _shares(values)
    return result.reshape(graph.num_nodes, -1)


def _diffused(
    operator: Operator, fold_of: Nodes, start: NDArray[np.float64], diffusions: Sequence[tuple[float, int]]
) -> NDArray[np.float64]:
    """`[D, N, C]` the diffusions of Y = `start [N, C]`, of every node without the labels of its own fold.

    R rounds of F ← α S F + (1 - α) Y give (1 - α) Σ αᵏ Sᵏ Y over k < R, and α^R S^R Y: all diffusions are sums of the
    same powers.
    """
    from chronospike.data.label_kernel import spread_rows

    (nodes, classes), folds = start.shape, max(1, int(fold_of.max(initial=0)) + 1)
    result = np.zeros((len(diffusions), nodes, classes))
    weights = operator.data.astype(np.float32)
    at_once = max(1, _MOST_VALUES // (nodes * folds))
    for first in range(0, classes if diffusions else 0, at_once):
        some = start[:, first : first + at_once].astype(np.float32)
        values = np.zeros((nodes, folds * some.shape[1]), dtype=np.float32)
        known = np.flatnonzero(fold_of >= 0)
        values.reshape(nodes, folds, -1)[known, fold_of[known]] = some[known]
        out = np.empty_like(values)
        sums = np.stack([np.float32(1 - alpha if rounds else 1) * values for alpha, rounds in diffusions])
        for k in range(1, max(rounds for _, rounds in diffusions) + 1):
            shares = np.array([_coefficient(alpha, rounds, k) for alpha, rounds in diffusions], dtype=np.float32)
            work = partial(spread_rows, operator.indptr, operator.indices, weights, values, out, sums, shares)
            run_chunks(work, nodes)
            values, out = out, values
        by_fold = sums.reshape(len(diffusions), nodes, folds, -1)
        # Added up without a node's own fold: taking it away from the sum would leave its labels in the last digits.
        for fold in range(folds):
            result[:, fold_of != fold, first : first + at_once] += by_fold[:, fold_of != fold, fold]
    return result


def _coefficient(alpha: float, rounds: int, k: int) -> float:
    """Of Sᵏ Y after so many rounds of diffusion."""
    return 0.0 if k > rounds else alpha**k if k == rounds else (1 - alpha) * alpha**k


def two_hops(operator: Operator, start: NDArray[np.float64]) -> NDArray[np.float64]:
    """(S² - diag S²) Y for Y = `start` `[N, C]` of zeros and ones: two hops that do not return.

    The sums are exact, of entries of S that are rounded to a multiple of a power of two: with other numbers the parts
    that lead back would not cancel to the last digit, and what remained would tell the node's own label.
    """
    # No sum of products of two entries may exceed 62 bits.
    most = float(operator.sum(axis=1).max(initial=1.0))
    scale = 2.0 ** np.floor(31 - np.log2(max(1.0, most)))
    whole = operator.copy()
    whole.data = np.rint(operator.data * scale).astype(np.int64)
    # S is symmetric but for roundings, and the diagonal must be that of what is multiplied.
    own = np.asarray(whole.multiply(whole.T).sum(axis=1)).reshape(-1, 1)
    labels = start.astype(np.int64)
    found: NDArray[np.float64] = (whole @ (whole @ labels) - own * labels) / scale**2
    return found


def _one_hot(nodes: int, classes: int, known: Nodes, labels: Nodes) -> NDArray[np.float64]:
    values = np.zeros((nodes, classes))
    values[known, labels] = 1.0
    return values


def _shares(values: NDArray[np.float64]) -> NDArray[np.float64]:
    total = values.sum(axis=1, keepdims=True)
    shares: NDArray[np.float64] = np.divide(values, total, where=total > 0, out=np.zeros_like(values))
    return shares
