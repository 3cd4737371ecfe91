"""Features from the known labels around a node, the inputs of the strongest simple methods.

With Y the one-hot known labels and S the operator of label propagation at some recency, a node reads S Y, S² Y and
diffusions of Y, each row normalised, and last the labels that it met first. A node must never read its own label. The
labels of its neighbours do not contain it. For the others, the known nodes are split into folds, and a known node reads
only the labels of the other folds: subtracting its own label would still reveal it, compared with nodes of the same
neighbours. All other nodes read all known labels. The values of a class are divided by the number of its labels that
can be read: otherwise a fold with many nodes of a class would read less of that class, which would leak the labels of
its nodes.

The direction of edges is ignored, but in directed graphs a node also reads the classes of its sources and of its
targets separately.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from chronospike.data.graph import DynamicGraph
from chronospike.data.label_propagation import Operator, recency_adjacency, recency_operator
from chronospike.optional import triton_trouble
from chronospike.threads import run_chunks

if TYPE_CHECKING:
    import torch

Nodes = NDArray[np.integer[Any]]
RECENCIES = (0.0, 3.0, 8.0)
# That of the labels met first: of the neighbours of a node the earliest outweigh all others.
EARLIEST = -30.0
# (alpha, rounds) each.
DIFFUSIONS = ((0.9, 30), (0.5, 15))
# Numbers of all nodes, folds and some of the classes that are diffused at once.
MOST_VALUES = 2**28


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
    device: torch.device | None = None,
) -> NDArray[np.float32]:
    """`[N, F C]` of all nodes, F as in `columns_per_class`; a row of C that no label reaches is zero.

    Args:
        known, labels, folds: `[K]` each: nodes without repeats, their classes and their folds.
        diffusions: alpha and rounds of each.
        last_step: edges after it are left out; by default none are.
        device: to compute on, by default the CPU.
    """
    classes, columns = graph.num_classes, columns_per_class(len(recencies), len(diffusions), graph.directed)
    end = graph.num_steps - 1 if last_step is None else last_step
    fold_of = np.full(graph.num_nodes, -1)
    fold_of[known] = folds
    result = np.empty((graph.num_nodes, columns, classes), dtype=np.float32)
    kinds = (columns - 1) // max(1, len(recencies))

    everyone = np.zeros((graph.num_nodes, classes))
    everyone[known, labels] = 1.0
    weights = _class_weights(fold_of, everyone)
    for place, recency in enumerate(recencies):
        here = result[:, place * kinds : (place + 1) * kinds]
        operator = recency_operator(graph, recency, last_step)
        here[:, 0] = _shares(operator @ everyone)
        found = _by_folds(operator, fold_of, everyone, _coefficients(diffusions), device)
        for kind, values in enumerate(found, start=1):
            here[:, kind] = _shares(values * weights)
        if graph.directed:
            incoming = recency_adjacency(graph, recency, end, symmetric=False)
            here[:, -2], here[:, -1] = (_shares(edges @ everyone) for edges in (incoming, incoming.T))
    result[:, -1] = _shares(recency_adjacency(graph, EARLIEST, end) @ everyone)
    return result.reshape(graph.num_nodes, -1)


def columns_per_class(recencies: int, diffusions: int, directed: bool) -> int:
    """For each recency one hop, two hops, each diffusion, and of a directed graph one hop against and along the edges;
    then the labels met first."""
    return recencies * (2 + diffusions + (2 if directed else 0)) + 1


def _coefficients(diffusions: Sequence[tuple[float, int]]) -> NDArray[np.float32]:
    """`[1 + D, rounds + 1]` of Sᵏ Y for k = 0, 1, …: two hops, then each diffusion.

    R rounds of F ← α S F + (1 - α) Y give (1 - α) Σ αᵏ Sᵏ Y over k < R, and α^R S^R Y.
    """
    result = np.zeros((1 + len(diffusions), 1 + max([2, *(rounds for _, rounds in diffusions)])), dtype=np.float32)
    result[0, 2] = 1
    for row, (alpha, rounds) in enumerate(diffusions, start=1):
        result[row, :rounds] = (1 - alpha) * alpha ** np.arange(rounds)
        result[row, rounds] = alpha**rounds
    return result


def spread(
    operator: Operator,
    values: NDArray[np.float32],
    coefficients: NDArray[np.float32],
    device: torch.device | None = None,
) -> NDArray[np.float32]:
    """`[F, N, K]` sums over k of `coefficients [F, R]` times Sᵏ V, V = `values [N, K]`, which is used up."""
    if device is not None and device.type == "cuda" and triton_trouble(device) is None:
        from chronospike.data.label_kernel_gpu import spread_on_gpu

        return spread_on_gpu(operator, values, coefficients, device)
    from chronospike.data.label_kernel import spread_rows

    out, weights = np.empty_like(values), operator.data.astype(np.float32)
    sums = coefficients[:, 0, None, None] * values
    for shares in coefficients.T[1:]:
        arrays = (operator.indptr, operator.indices, weights, values, out, sums, np.ascontiguousarray(shares))
        run_chunks(partial(spread_rows, *arrays), len(values))
        values, out = out, values
    return sums


def _by_folds(
    operator: Operator,
    fold_of: Nodes,
    start: NDArray[np.float64],
    coefficients: NDArray[np.float32],
    device: torch.device | None,
) -> NDArray[np.float64]:
    """`[F, N, C]` sums of `coefficients [F, R]` times Sᵏ Y, Y = `start [N, C]`, without the labels of a node's fold."""
    (nodes, classes), folds = start.shape, int(fold_of.max(initial=0)) + 1
    result = np.zeros((len(coefficients), nodes, classes))
    at_once = max(1, MOST_VALUES // (nodes * folds))
    for first in range(0, classes, at_once):
        some = start[:, first : first + at_once].astype(np.float32)
        values = np.zeros((nodes, folds * some.shape[1]), dtype=np.float32)
        known = np.flatnonzero(fold_of >= 0)
        values.reshape(nodes, folds, -1)[known, fold_of[known]] = some[known]
        by_fold = spread(operator, values, coefficients, device).reshape(len(coefficients), nodes, folds, -1)
        # Added up without a node's own fold: taking it away from the sum would leave its labels in the last digits.
        by_fold[:, known, fold_of[known]] = 0
        run_chunks(partial(_add_folds, by_fold, result[:, :, first : first + at_once]), nodes)
    return result


def _add_folds(by_fold: NDArray[np.float32], sums: NDArray[np.float64], first: int, last: int) -> None:
    """Add the folds of `by_fold [F, N, folds, C]` to `sums [F, N, C]`, of nodes `first`..`last`."""
    for fold in range(by_fold.shape[2]):
        sums[:, first:last] += by_fold[:, first:last, fold]


def _class_weights(fold_of: Nodes, start: NDArray[np.float64]) -> NDArray[np.float64]:
    """`[N, C]` one over the labels of each class that a node reads, those of the other folds; zero without any."""
    counts = np.zeros((int(fold_of.max(initial=-1)) + 2, start.shape[1]))
    known = np.flatnonzero(fold_of >= 0)
    np.add.at(counts, fold_of[known], start[known])
    # The last row, at -1, is that of nodes without a fold, which read all.
    others = counts.sum(axis=0) - counts
    return np.asarray(np.divide(1, others, where=others > 0, out=np.zeros_like(others))[fold_of])


def _shares(values: NDArray[np.float64]) -> NDArray[np.float64]:
    total = values.sum(axis=1, keepdims=True)
    shares: NDArray[np.float64] = np.divide(values, total, where=total > 0, out=np.zeros_like(values))
    return shares
