from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from chronospike.data.build import build_graph
from chronospike.data.events import Events, Steps
from chronospike.data.graph import DynamicGraph
from chronospike.data.ids import NodeIds
from chronospike.data.triangles import share_closed
from tests.six_nodes import six_nodes


def drawn(rng: np.random.Generator, directed: bool) -> DynamicGraph:
    """Fifty nodes, two of which know nearly everyone, over four steps."""
    hubs = rng.integers(0, 2, 70), rng.integers(0, 50, 70)
    source, target = (np.concatenate([ends, rng.integers(0, 50, 150)]) for ends in hubs)
    keep = source != target
    step, times = rng.integers(0, 4, keep.sum()).astype(np.int32), np.arange(4)
    events = Events(source[keep], target[keep], times[step], NodeIds.range(50))
    return build_graph(events, Steps(step, times, times), directed=directed)


def plain(graph: DynamicGraph, last_step: int) -> NDArray[np.float64]:
    """Triangles as closed walks of three steps, by a dense product."""
    rows, step, neighbours = graph.history.entries()
    met = np.zeros((graph.num_nodes, graph.num_nodes))
    met[rows[step <= last_step], neighbours[step <= last_step]] = 1
    met = np.maximum(met, met.T)
    degree = met.sum(axis=1)
    return np.asarray(np.diag(met @ met @ met) / np.maximum(1, degree * (degree - 1)))


def test_six_nodes_by_hand() -> None:
    """Up to step 1 nodes 0, 1 and 2 know each other; then 3 meets 0, and at last 4 meets 0, and 3 meets 2."""
    graph = six_nodes()
    assert share_closed(graph, 0).tolist() == [0] * 6
    assert share_closed(graph, 1).tolist() == [1, 1, 1, 0, 0, 0]
    assert share_closed(graph, 2).tolist() == [1 / 3, 1, 1, 0, 0, 0]
    assert share_closed(graph, 3).tolist() == [2 / 6, 1, 2 / 3, 1, 0, 0]


@given(st.integers(0, 2**32 - 1), st.booleans())
def test_the_kernel_agrees_with_a_product_of_matrices(seed: int, directed: bool) -> None:
    graph = drawn(np.random.default_rng(seed), directed)
    for last in range(4):
        assert np.array_equal(share_closed(graph, last), plain(graph, last))


def test_threads_and_the_numbers_of_nodes_change_no_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    graph = drawn(rng, directed=False)
    expected = share_closed(graph, 3)
    monkeypatch.setattr("chronospike.data.triangles.default_threads", lambda: 1)
    assert np.array_equal(share_closed(graph, 3), expected)
    order = rng.permutation(50)
    assert graph.events is not None
    events = Events(order[graph.events.source], order[graph.events.target], graph.events.time, NodeIds.range(50))
    steps = Steps(graph.events.step, np.arange(4), np.arange(4))
    assert np.array_equal(share_closed(build_graph(events, steps), 3)[order], expected)
