from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from chronospike.data.build import build_graph
from chronospike.data.events import Events, Steps
from chronospike.data.ids import NodeIds
from chronospike.data.neighbour_means import neighbour_means
from tests.six_nodes import six_nodes

VALUES = np.array([[1.0, 10.0], [2.0, 20.0], [4.0, 40.0], [8.0, 80.0], [16.0, 160.0], [32.0, 320.0]])


def test_six_nodes_by_hand() -> None:
    """Up to step 1 there are 0-1, 0-2 and 1-2, whatever repeats; at the end 0-3, 0-4 and 2-3 too."""
    everyone = np.arange(6)
    early = neighbour_means(six_nodes(), 1, everyone, VALUES.__getitem__)
    assert early[:, 0].tolist() == [3, 2.5, 1.5, 0, 0, 0]
    late = neighbour_means(six_nodes(), 3, everyone, VALUES.__getitem__)
    np.testing.assert_allclose(late[:, 0], [(2 + 4 + 8 + 16) / 4, 2.5, (1 + 2 + 8) / 3, 2.5, 1, 0], rtol=1e-6)
    np.testing.assert_allclose(late[:, 1], 10 * late[:, 0])


def test_of_directed_edges_sources_come_before_targets() -> None:
    """Edges 0 -> 1, 1 -> 0, 0 -> 2, 1 -> 2, 3 -> 0, 0 -> 4 and 2 -> 3."""
    found = neighbour_means(six_nodes(directed=True), 3, np.arange(6), VALUES[:, :1].__getitem__)
    sources, targets = found.T
    np.testing.assert_allclose(sources, [(2 + 8) / 2, 1, (1 + 2) / 2, 4, 1, 0])
    np.testing.assert_allclose(targets, [(2 + 4 + 16) / 3, (1 + 4) / 2, 8, 1, 0, 0], rtol=1e-6)


@pytest.mark.parametrize("directed", [False, True])
def test_some_nodes_in_any_order_have_the_same_bits_and_ask_for_their_neighbours_alone(directed: bool) -> None:
    graph, asked = six_nodes(directed), []

    def values(nodes: Any) -> Any:
        asked.extend(nodes.tolist())
        return np.sqrt(VALUES[nodes])

    whole = neighbour_means(graph, 3, np.arange(6), values)
    asked.clear()
    some = np.array([4, 1, 4])
    assert np.array_equal(neighbour_means(graph, 3, some, values), whole[some])
    assert set(asked) <= {0, 1, 2}


def test_sums_do_not_depend_on_the_order_of_neighbours() -> None:
    """A star whose leaves are numbered in two ways."""
    rng = np.random.default_rng()
    values, order = rng.normal(size=(41, 3)).astype(np.float32), np.r_[0, 1 + rng.permutation(40)]
    one, other = (
        build_graph(
            Events(np.zeros(40, dtype=np.int64), ends, np.zeros(40, dtype=np.int64), NodeIds.range(41)),
            Steps(np.zeros(40, dtype=np.int32), np.zeros(1), np.zeros(1)),
        )
        for ends in (np.arange(1, 41), order[1:])
    )
    moved = np.empty_like(values)
    moved[order] = values
    first = neighbour_means(one, 0, np.array([0]), values.__getitem__)
    assert np.array_equal(first, neighbour_means(other, 0, np.array([0]), moved.__getitem__))
    np.testing.assert_allclose(first[0], values[1:].mean(axis=0), atol=1e-5)


def test_without_columns_there_are_none() -> None:
    assert neighbour_means(six_nodes(), 3, np.arange(6), VALUES[:, :0].__getitem__).shape == (6, 0)
