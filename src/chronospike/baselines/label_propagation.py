"""Label propagation: no learning at all, and the row every table of results carries."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from chronospike.data.diffusion import diffuse, one_hot, recency_operator
from chronospike.data.graph import DynamicGraph
from chronospike.errors import GraphError


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
