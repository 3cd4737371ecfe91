"""The labels of all folds at once against `diffuse` of one fold after another."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from chronospike.data import label_features as features_module
from chronospike.data.build import build_graph
from chronospike.data.events import Events, Steps
from chronospike.data.graph import DynamicGraph
from chronospike.data.ids import NodeIds
from chronospike.data.label_features import DIFFUSIONS, EARLIEST, RECENCIES, label_features
from chronospike.data.label_kernel import spread_rows
from chronospike.data.label_propagation import diffuse, recency_adjacency, recency_operator

NODES, CLASSES, FOLDS = 60, 5, 4


def _random(seed: int, directed: bool) -> DynamicGraph:
    """Sixty nodes, some without an edge, that meet more than once over five steps."""
    rng = np.random.default_rng(seed)
    source, target = rng.integers(0, 50, (2, 150))
    step, times = rng.integers(0, 5, 150).astype(np.int32), np.arange(5)
    events = Events(source, target, times[step], NodeIds.range(NODES))
    labels, names = rng.integers(0, CLASSES, NODES), tuple("abcde")
    return build_graph(events, Steps(step, times, times), directed=directed).with_labels(labels, names)


def _shares(values: NDArray[np.float64]) -> NDArray[np.float64]:
    total = values.sum(axis=1, keepdims=True)
    return values / np.where(total > 0, total, 1)


def _one_hot(nodes: NDArray[np.int64], labels: NDArray[np.int64]) -> NDArray[np.float64]:
    values = np.zeros((NODES, CLASSES))
    values[nodes, labels[nodes]] = 1
    return values


def _twice(operator: Any, start: NDArray[np.float64]) -> NDArray[np.float64]:
    values: NDArray[np.float64] = operator @ (operator @ start)
    return values


def _plainly(
    graph: DynamicGraph, known: NDArray[np.int64], folds: NDArray[np.int64], last_step: int | None
) -> NDArray[np.float64]:
    """The definition: a node of a fold reads the labels of the other folds, everyone else reads all.

    Every class counts as much as any other: what is read of it is divided by the labels of it that are read.
    """
    labels = np.asarray(graph.labels)
    fold_of = np.full(NODES, -1)
    fold_of[known] = folds
    columns = []
    for recency in RECENCIES:
        operator = recency_operator(graph, recency, last_step)

        two_hops = partial(_twice, operator)
        far = [two_hops, *(partial(diffuse, operator, alpha=alpha, rounds=rounds) for alpha, rounds in DIFFUSIONS)]
        columns.append(_shares(operator @ _one_hot(known, labels)))
        for of in far:
            values = np.empty((NODES, CLASSES))
            for fold in (-1, *range(FOLDS)):
                start = _one_hot(known[folds != fold], labels)
                read = of(start) / np.maximum(1, start.sum(axis=0))
                values[fold_of == fold] = read[fold_of == fold]
            columns.append(_shares(values))
        if graph.directed:
            columns += [_shares(values) for values in _by_direction(graph, _one_hot(known, labels), recency, last_step)]
    end = graph.num_steps - 1 if last_step is None else last_step
    columns.append(_shares(recency_adjacency(graph, EARLIEST, end) @ _one_hot(known, labels)))
    return np.concatenate(columns, axis=1)


def _by_direction(
    graph: DynamicGraph, start: NDArray[np.float64], recency: float, last_step: int | None
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The labels of sources and of targets, edge by edge."""
    sources, targets = np.zeros((2, NODES, CLASSES))
    end = graph.num_steps - 1 if last_step is None else last_step
    for node, step, source in zip(*graph.snapshot.entries(), strict=True):
        if step <= end:
            weight = np.exp(-recency * (1 - step / end))
            sources[node] += weight * start[source]
            targets[source] += weight * start[node]
    return sources, targets


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("last_step", [None, 2])
@pytest.mark.parametrize("seed", range(3))
def test_all_folds_at_once_are_what_plain_diffusion_gives_fold_by_fold(
    seed: int, last_step: int | None, directed: bool
) -> None:
    graph = _random(seed, directed)
    known = np.random.default_rng(seed + 10).permutation(NODES)[:35]
    folds = np.arange(35) % FOLDS
    found = label_features(graph, known, np.asarray(graph.labels)[known], folds, last_step=last_step)
    np.testing.assert_allclose(found, _plainly(graph, known, folds, last_step), atol=2e-6)


@pytest.mark.parametrize("classes_at_once", [1, 2, 4])
def test_classes_may_be_diffused_some_at_a_time(classes_at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    graph, known = _random(3, directed=False), np.arange(40)
    labels, folds = np.asarray(graph.labels)[known], known % FOLDS
    whole = label_features(graph, known, labels, folds)
    monkeypatch.setattr(features_module, "MOST_VALUES", classes_at_once * NODES * FOLDS)
    assert np.array_equal(label_features(graph, known, labels, folds), whole)


def test_fewer_values_than_one_class_takes_are_diffused_class_by_class(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, known = _random(4, directed=False), np.arange(40)
    labels, folds = np.asarray(graph.labels)[known], known % FOLDS
    whole = label_features(graph, known, labels, folds)
    monkeypatch.setattr(features_module, "MOST_VALUES", 1)
    assert np.array_equal(label_features(graph, known, labels, folds), whole)


def test_one_round_by_hand_touches_its_rows_alone() -> None:
    """S has rows [0, 2] and [3, 0]; of its second row, [3, 30], one sum takes half and the other nothing."""
    indptr, indices = np.array([0, 1, 2]), np.array([1, 0])
    weights = np.array([2, 3], dtype=np.float32)
    values = np.array([[1, 10], [7, 70]], dtype=np.float32)
    out, sums = np.full_like(values, -1), np.ones((2, 2, 2), dtype=np.float32)
    spread_rows(indptr, indices, weights, values, out, sums, np.array([0.5, 0], dtype=np.float32), 1, 2)
    assert out.tolist() == [[-1, -1], [3, 30]]
    assert sums.tolist() == [[[1, 1], [2.5, 16]], [[1, 1], [1, 1]]]
