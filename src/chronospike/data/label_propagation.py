"""Diffusing values over the edges of all steps, recent edges weighted higher.

An edge at step t weighs exp(-recency (1 - t / (T - 1))), so that with recency 3 the last step counts twenty
times the first; an edge that returns counts each time. The operator is normalised symmetrically,
S = D^-½ A D^-½, and diffusion iterates  F ← α S F + (1 - α) F₀.

Label propagation is diffusion of the known labels: no learning at all, and the row every table of results carries.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from chronospike.data.graph import DynamicGraph
from chronospike.errors import GraphError

Operator = Any  # scipy's csr_array has no type of its own here


def recency_adjacency(graph: DynamicGraph, recency: float, last_step: int, symmetric: bool = True) -> Operator:
    """The weighted adjacency `[N, N]` over steps 0..`last_step` as a sparse matrix.

    Args:
        symmetric: False keeps the direction of a directed graph: row v has the sources of edges into v.
    """
    # Here, so that what only predicts does not wait for scipy.
    import scipy.sparse as sp

    rows, steps, neighbours = graph.snapshot.entries()
    keep = steps <= last_step
    weights = np.exp(-recency * (1 - steps[keep] / max(1, last_step)))
    shape = (graph.num_nodes, graph.num_nodes)
    adjacency = sp.csr_array((weights, (rows[keep], neighbours[keep])), shape=shape)
    return adjacency + adjacency.T if graph.directed and symmetric else adjacency


def recency_operator(graph: DynamicGraph, recency: float = 3.0, last_step: int | None = None) -> Operator:
    """The normalised adjacency `[N, N]` over steps 0..`last_step` (by default all), as a sparse matrix.

    The direction of edges is ignored: a class spreads both ways.
    """
    import scipy.sparse as sp

    adjacency = recency_adjacency(graph, recency, graph.num_steps - 1 if last_step is None else last_step)
    degree = np.asarray(adjacency.sum(axis=1)).ravel()
    scale = sp.diags_array(np.divide(1, np.sqrt(degree), where=degree > 0, out=np.zeros_like(degree)))
    return (scale @ adjacency @ scale).tocsr()


def diffuse(
    operator: Operator, start: NDArray[np.float64], alpha: float = 0.9, rounds: int = 50
) -> NDArray[np.float64]:
    """F after `rounds` of F ← α S F + (1 - α) F₀, from F₀ = `start` `[N, C]`."""
    values = start
    for _ in range(rounds):
        values = alpha * (operator @ values) + (1 - alpha) * start
    return values


def one_hot(
    nodes: NDArray[np.integer[Any]], labels: NDArray[np.integer[Any]], shape: tuple[int, int]
) -> NDArray[np.float64]:
    """`[N, C]` with a one at each node's label and zeros elsewhere."""
    values = np.zeros(shape)
    values[nodes, labels[nodes]] = 1.0
    return values


def label_propagation(
    graph: DynamicGraph,
    train: NDArray[np.integer[Any]],
    *,
    recency: float = 3.0,
    alpha: float = 0.9,
    rounds: int = 50,
    last_step: int | None = None,
) -> NDArray[np.float64]:
    """Class probabilities `[N, C]` of all nodes from the labels of the `train` nodes.

    A node that no label reaches gets the class shares of the training nodes.
    """
    graph.require(classes=2)
    assert graph.labels is not None
    if len(train) == 0:
        raise GraphError("label propagation needs at least one training node")
    labels = np.asarray(graph.labels)
    start = one_hot(train, labels, (graph.num_nodes, graph.num_classes))
    values = diffuse(recency_operator(graph, recency, last_step), start, alpha, rounds)
    total = values.sum(axis=1, keepdims=True)
    prior = np.bincount(labels[train], minlength=graph.num_classes) / len(train)
    return np.where(total > 0, np.divide(values, total, where=total > 0, out=np.zeros_like(values)), prior)
