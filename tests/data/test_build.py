from __future__ import annotations

import numpy as np
import pytest

from chronospike.data.build import build_graph
from chronospike.data.events import Events, Steps
from chronospike.data.ids import NodeIds
from chronospike.errors import ChronoSpikeError
from tests.six_nodes import six_nodes


def test_self_loops_and_repeats_are_counted() -> None:
    facts = six_nodes().facts
    assert (facts["rows"], facts["self_loops"], facts["duplicates"]) == (10, 2, 1)


def test_a_directed_graph_keeps_both_directions_apart() -> None:
    graph = six_nodes(directed=True)
    assert graph.facts["duplicates"] == 0
    assert graph.snapshot_edges == 8
    assert graph.snapshot.at(0, 0).tolist() == [1]
    assert graph.snapshot.at(0, 2).tolist() == [3]


def _single(source: list[int], target: list[int]) -> None:
    count = len(source)
    events = Events(
        np.array(source, dtype=np.int64), np.array(target, dtype=np.int64), np.zeros(count), NodeIds.range(2)
    )
    build_graph(events, Steps(np.zeros(count, dtype=np.int32), np.zeros(1), np.zeros(1)))


def test_no_edges_is_an_error() -> None:
    with pytest.raises(ChronoSpikeError, match="arrays: no edges"):
        _single([], [])


def test_nothing_but_self_loops_is_an_error() -> None:
    with pytest.raises(ChronoSpikeError, match="all 2 rows are self-loops"):
        _single([0, 1], [0, 1])
