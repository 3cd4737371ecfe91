from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from chronospike.data.events import EventLog
from chronospike.data.ingest import import_graph
from chronospike.errors import GraphError


def _events(data: Any, **options: Any) -> EventLog:
    events = import_graph(data, **options).events
    assert events is not None
    return events


def _rows(events: EventLog) -> list[tuple[int, int, Any]]:
    return list(zip(events.source.tolist(), events.target.tolist(), events.time.tolist(), strict=True))


def _log(times: Sequence[float], steps: Sequence[int], num_steps: int) -> EventLog:
    """Events between node 0 and nodes 1, 2, …"""
    ends = np.arange(1, len(times) + 1)
    return EventLog.of(0 * ends, ends, np.array(times), np.array(steps, dtype=np.int32), num_steps)


def test_events_of_one_time_stay_in_the_order_of_the_file() -> None:
    # Long enough that a sort that is not stable would show.
    source, target = np.arange(200) % 7, 7 + np.arange(200) % 11
    time = np.arange(200)[::-1] // 50
    events = _events((source, target, time))
    assert events.time.tolist() == sorted(time.tolist())
    assert events.source[:50].tolist() == source[150:].tolist()
    assert events.target[-50:].tolist() == (target[:50]).tolist()


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        ([3, -7, 0], np.array([-7, 0, 3])),
        ([0.5, -1.25, 0.0], np.array([-1.25, 0.0, 0.5])),
        (
            ["2020-02-01", "2019-12-31T23:00:00Z", "2020-01-01"],
            np.array(["2019-12-31T23", "2020-01-01", "2020-02-01"], dtype="datetime64[us]"),
        ),
    ],
    ids=["negative", "float", "dates"],
)
def test_times_are_sorted_and_otherwise_as_imported(times: list[Any], expected: NDArray[Any]) -> None:
    events = _events(([0, 1, 2], [1, 2, 0], times))
    assert events.time.dtype == expected.dtype
    assert events.time.tolist() == expected.tolist()
    assert events.source.tolist() == [1, 2, 0]


def test_repeats_are_kept_and_self_loops_left_out() -> None:
    events = _events(([1, 1, 0, 2, 1], [0, 0, 1, 2, 0], [4, 4, 4, 5, 3]))
    assert _rows(events) == [(1, 0, 3), (1, 0, 4), (1, 0, 4), (0, 1, 4)]


def test_a_step_may_hold_nothing_but_a_self_loop() -> None:
    events = _events(([1, 2, 0], [1, 0, 1], [3, 4, 5]))
    assert events.step_offsets.tolist() == [0, 0, 1, 2]
    assert len(events.until(0)) == 0


def test_one_event_is_enough() -> None:
    events = _events((["a"], ["b"], [0.5]))
    assert _rows(events) == [(0, 1, 0.5)]
    assert events.step.tolist() == [0]


def test_wider_steps_leave_events_their_times() -> None:
    events = _events(([0, 1, 2, 0], [1, 2, 0, 2], [0, 9, 10, 31]), every=10)
    assert events.time.tolist() == [0, 9, 10, 31]
    assert events.step.tolist() == [0, 0, 1, 3]
    assert events.step_offsets.tolist() == [0, 2, 3, 3, 4]


def test_every_event_is_an_edge_of_the_snapshot_of_its_step() -> None:
    rng = np.random.default_rng(3)
    graph = import_graph((rng.integers(0, 9, 80), rng.integers(0, 9, 80), rng.random(80)), steps=6, directed=True)
    assert graph.events is not None
    rows, steps, neighbours = graph.snapshot.entries()
    kept = set(zip(neighbours.tolist(), rows.tolist(), steps.tolist(), strict=True))
    events = graph.events
    assert set(zip(events.source.tolist(), events.target.tolist(), events.step.tolist(), strict=True)) == kept


def test_arrays_of_the_user_are_not_shared() -> None:
    time = np.array([1, 2, 3])
    events = _events((np.array([0, 1, 2]), np.array([1, 2, 0]), time))
    time[:] = 0
    assert events.time.tolist() == [1, 2, 3]


def _networkx() -> Any:
    networkx = pytest.importorskip("networkx")
    graph = networkx.MultiGraph()
    graph.add_edges_from([(0, 1, {"time": 5}), (0, 1, {"time": 5}), (1, 2, {"time": 2})])
    return graph


def _pandas() -> Any:
    return pytest.importorskip("pandas").DataFrame({"u": [0, 0, 1], "v": [1, 1, 2], "t": [5, 5, 2]})


def _temporal_data() -> Any:
    class TemporalData:
        src, dst, t = np.array([0, 0, 1]), np.array([1, 1, 2]), np.array([5, 5, 2])

    return TemporalData()


@pytest.mark.parametrize("make", [_networkx, _pandas, _temporal_data, lambda: [(0, 1, 5), (0, 1, 5), (1, 2, 2)]])
def test_graphs_of_other_libraries_keep_their_events(make: Any) -> None:
    assert _rows(_events(make())) == [(1, 2, 2), (0, 1, 5), (0, 1, 5)]


def test_events_of_a_file_come_in_the_order_of_time(tmp_path: Path) -> None:
    file = tmp_path / "edges.csv"
    file.write_text("source,target,time\nb,a,2020-03-01\na,b,2020-01-01\nc,a,2020-03-01\na,c,2020-01-01\n")
    events = _events(file)
    assert list(zip(events.source.tolist(), events.target.tolist(), strict=True)) == [(0, 1), (0, 2), (1, 0), (2, 0)]


def test_until_a_step_is_a_prefix_that_ends_with_it() -> None:
    log = _log([1, 2, 4, 8], [0, 1, 1, 3], 4)
    early = log.until(1)
    assert (early.target.tolist(), early.step.tolist(), early.num_steps) == ([1, 2, 3], [0, 1, 1], 2)
    assert np.shares_memory(early.time, log.time)
    assert len(log.until(2)) == 3
    assert len(log.until(3)) == 4


@pytest.mark.parametrize("step", [-1, 4])
def test_until_a_step_that_is_not_there_is_refused(step: int) -> None:
    with pytest.raises(GraphError, match=rf"step {step} is outside 0\.\.3"):
        _log([1, 2, 4, 8], [0, 1, 1, 3], 4).until(step)
