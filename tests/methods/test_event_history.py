from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from chronospike.errors import InputError
from chronospike.methods.event_history import event_records
from tests.methods.hawkes_reference import event_graph, random_graph
from tests.six_nodes import six_nodes


def _records(graph: Any) -> Any:
    return event_records(graph.events, graph.num_nodes)


def test_a_row_is_in_the_order_of_time_and_of_the_input() -> None:
    records = _records(six_nodes())
    rows = [records.neighbour[records.indptr[v] : records.indptr[v + 1]].tolist() for v in range(6)]
    assert rows == [[1, 1, 2, 1, 3, 4], [0, 0, 2, 0], [0, 1, 3], [0, 2], [0], []]
    assert records.moment[:6].tolist() == [0, 0, 1, 2, 2, 3]


def test_a_mirror_is_the_same_event_in_the_row_of_the_neighbour() -> None:
    records = _records(random_graph(0))
    places = np.arange(len(records))
    assert np.array_equal(records.mirror[records.mirror], places)
    assert np.array_equal(records.node[records.mirror], records.neighbour)
    assert np.array_equal(records.moment[records.mirror], records.moment)


def test_repeats_have_mirrors_of_their_own() -> None:
    records = _records(event_graph([0, 0, 1], [1, 1, 0], [5, 5, 5]))
    assert records.mirror.tolist() == [3, 4, 5, 0, 1, 2]


def test_a_directed_graph_has_both_records_of_an_event() -> None:
    one, other = (_records(six_nodes(directed)) for directed in (False, True))
    assert np.array_equal(one.neighbour, other.neighbour)
    assert np.array_equal(one.mirror, other.mirror)


def test_nodes_and_events_are_counted_at_each_moment() -> None:
    records = _records(six_nodes())
    assert records.population.tolist() == [2, 3, 4, 5]
    assert records.added.tolist() == [2, 2, 2, 2]


@pytest.mark.parametrize(
    "times",
    [
        [10, 20, 40],
        [0.1, 0.2, 0.4],
        np.array(["2020-01-01", "2020-01-11", "2020-01-31"], dtype="datetime64[D]"),
        [-(2**62) - 2**61, -(2**61), 2**62 + 2**61],
    ],
    ids=["numbers", "floats", "dates", "far apart"],
)
def test_times_are_scaled_from_zero_to_one(times: Any) -> None:
    records = _records(event_graph([0, 1, 2], [1, 2, 0], times))
    np.testing.assert_allclose(records.times, [0, 1 / 3, 1], rtol=1e-6)


def test_floats_as_far_apart_as_can_be_are_scaled() -> None:
    log = event_graph([0, 1, 2], [1, 2, 0], [0.0, 1.0, 2.0]).events
    assert log is not None
    log.time[:] = [-1.7e308, 0, 1.7e308]
    np.testing.assert_allclose(event_records(log, 3).times, [0, 0.5, 1])
    log.time[2] = np.inf
    with pytest.raises(InputError, match="not finite"):
        event_records(log, 3)


def test_one_time_is_zero() -> None:
    assert _records(event_graph([0, 1], [1, 2], [7, 7])).times.tolist() == [0]


def test_a_log_without_events_has_no_records() -> None:
    log = six_nodes().events
    assert log is not None
    none = type(log)(log.source[:0], log.target[:0], log.time[:0], np.zeros(2, dtype=np.int64))
    records = event_records(none, 6)
    assert len(records) == len(records.times) == 0
    assert records.degrees().tolist() == [0] * 6
