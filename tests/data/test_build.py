from __future__ import annotations

import numpy as np
import pytest

from chronospike.data.build import build_graph
from chronospike.data.events import Events, Steps
from chronospike.data.ids import NodeIds
from chronospike.data.steps import make_steps
from chronospike.errors import ChronoSpikeError
from tests.six_nodes import six_nodes


def test_self_loops_and_repeats_are_counted() -> None:
    facts = six_nodes().facts
    assert (facts["rows"], facts["self_loops"], facts["duplicates"]) == (10, 2, 1)


@pytest.mark.parametrize(
    ("every", "bounds"), [(None, ("2020-01-05", "2020-03-07 08:30")), ("1mo", ("2020-01-01", "2020-04-01"))]
)
def test_the_first_and_last_event_are_kept_beside_the_bounds_of_the_steps(
    every: str | None, bounds: tuple[str, str]
) -> None:
    time = np.array(["2020-03-07T08:30", "2020-01-05"], dtype="datetime64[us]")
    events = Events(np.array([0, 1]), np.array([1, 2]), time, NodeIds.range(3))
    found = build_graph(events, make_steps(time, every=every)).summary()
    assert (found["first_event"], found["last_event"]) == ("2020-01-05", "2020-03-07 08:30")
    assert (found["first_time"], found["last_time"]) == bounds


def test_a_directed_graph_keeps_both_directions_apart() -> None:
    graph = six_nodes(directed=True)
    assert graph.facts["duplicates"] == 0
    assert graph.snapshot_edges == 8
    assert graph.snapshot.at(0, 0).tolist() == [1]
    assert graph.snapshot.at(0, 2).tolist() == [3]


def test_events_keep_repeats_and_direction_but_no_self_loops() -> None:
    events = six_nodes().events
    assert events is not None
    found = list(zip(events.source.tolist(), events.target.tolist(), events.time.tolist(), strict=True))
    assert found == [
        (0, 1, 10), (1, 0, 10), (0, 2, 20), (1, 2, 20), (0, 1, 30), (3, 0, 30), (0, 4, 40), (2, 3, 40),
    ]  # fmt: skip


def test_steps_that_go_back_in_time_are_refused() -> None:
    events = Events(np.array([0, 1]), np.array([1, 2]), np.array([5, 7]), NodeIds.range(3))
    with pytest.raises(ChronoSpikeError, match="a later event is in an earlier step"):
        build_graph(events, Steps(np.array([1, 0], dtype=np.int32), np.arange(2), np.arange(2)))


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
