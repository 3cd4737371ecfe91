from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from chronospike.data.activity import SPANS, SUMMARY_WIDTH, activity_profile, profile_width
from chronospike.data.build import build_graph
from chronospike.data.events import Events, Steps
from chronospike.data.graph import DynamicGraph
from chronospike.data.ids import NodeIds
from tests.six_nodes import EDGES, six_nodes
from tests.small_runs import small_graph, with_other_future

DEGREES = np.array([[1, 1, 2, 1], [1, 1, 1, 0], [0, 2, 0, 1], [0, 0, 1, 1], [0, 0, 0, 1], [0, 0, 0, 0]])


# Of the profile: log(1 + degree) in all, the largest, the mean since the first edge, distinct neighbours; shares of
# the steps since the first and since the last edge, and with an edge; burstiness. Then of the events: log(1 + events)
# in all, at most in a step, and by degree; time between them and its burstiness; their time of the day and of the week.
# Then 64 degrees, then of neighbours, and how many of them know each other.
TOTAL, MOST, MEAN, DISTINCT, SINCE_FIRST, SINCE_LAST, ACTIVE, BURSTINESS = range(8)
EVENTS, MOST_EVENTS, REPEATS, PAUSE, EVENT_BURSTINESS = range(8, 13)
OF_DAY, OF_WEEK = slice(13, 15), slice(15, 17)
RECENT, OF_NEIGHBOURS, CLOSED = slice(17, 81), slice(81, 84), 84


def test_the_profile_of_six_nodes_by_hand() -> None:
    values = activity_profile(six_nodes())
    assert values.shape == (6, 8 + 9 + 64 + 3 + 1)
    expected: dict[int, Any] = {
        TOTAL: np.log1p([5, 3, 3, 2, 1, 0]),
        MOST: np.log1p([2, 1, 2, 1, 1, 0]),
        # Over the 4, 4, 3, 2 and 1 steps since the first edge.
        MEAN: np.log1p([5 / 4, 3 / 4, 1, 1, 1, 0]),
        DISTINCT: np.log1p([4, 2, 3, 2, 1, 0]),
        SINCE_FIRST: [1, 1, 3 / 4, 2 / 4, 1 / 4, 0],
        SINCE_LAST: [0, 1 / 4, 0, 0, 0, 1],
        ACTIVE: [1, 3 / 4, 2 / 4, 2 / 4, 1 / 4, 0],
        # Of the six pairs that 0 meets, 1 and 2 know each other, and 2 and 3.
        CLOSED: [2 / 6, 1, 2 / 3, 1, 0, 0],
    }
    for column, wanted in expected.items():
        np.testing.assert_allclose(values[:, column], wanted, rtol=1e-6)
    # Node 0 has degrees 1, 1, 2, 1: σ² = 7/4 - 25/16 = 3/16. Node 2 has 2, 0, 1: σ² = 5/3 - 1 = 2/3.
    deviation, other = math.sqrt(3 / 16), math.sqrt(2 / 3)
    assert values[0, BURSTINESS] == pytest.approx((deviation - 5 / 4) / (deviation + 5 / 4))
    assert values[2, BURSTINESS] == pytest.approx((other - 1) / (other + 1))


def test_the_events_of_six_nodes_by_hand() -> None:
    """Node 0 has events at 0, 0, 1/3, 2/3, 2/3 and 1, node 4 has one, node 5 none."""
    values = activity_profile(six_nodes())
    np.testing.assert_allclose(np.expm1(values[:, EVENTS]), [6, 4, 3, 2, 1, 0], atol=1e-5)
    np.testing.assert_allclose(np.expm1(values[:, MOST_EVENTS]), [2, 2, 2, 1, 1, 0], atol=1e-5)
    np.testing.assert_allclose(values[:, REPEATS], np.log([7 / 6, 5 / 4, 1, 1, 1, 1]), rtol=1e-5)
    gaps = np.array([0, 1, 1, 0, 1]) / 3
    assert values[0, PAUSE] == pytest.approx(math.sqrt(gaps.mean()))
    assert values[0, EVENT_BURSTINESS] == pytest.approx((gaps.std() - gaps.mean()) / (gaps.std() + gaps.mean()))
    assert values[[4, 5], PAUSE].tolist() == [1, 1]
    assert values[[4, 5], EVENT_BURSTINESS].tolist() == [0, 0]


def test_neighbours_of_six_nodes_by_hand() -> None:
    """Node 3 meets 0 and 2, whose degrees are 5 and 3; node 5 meets nobody."""
    values = activity_profile(six_nodes())
    degree, age, burstiness = values[3, OF_NEIGHBOURS]
    assert degree == pytest.approx(np.log([6, 4]).mean())
    assert age == pytest.approx(np.mean([1, 3 / 4]))
    assert burstiness == pytest.approx(values[[0, 2], BURSTINESS].mean())
    assert not values[5, OF_NEIGHBOURS].any()


def test_times_of_day_and_week_by_hand() -> None:
    """Midnight on a Thursday, on which Unix time began, six hours later, and noon on the Sunday that followed."""
    times = np.array(["1970-01-01T00", "1970-01-01T06", "1970-01-04T12"], dtype="datetime64[us]")
    step = np.arange(3, dtype=np.int32)
    events = Events(np.array([0, 0, 1]), np.array([1, 2, 2]), times, NodeIds.range(4))
    graph = build_graph(events, Steps(step, times, times))
    values = activity_profile(graph)
    np.testing.assert_allclose(values[:, OF_DAY], [[0.5, 0.5], [0.0, 0.0], [-0.5, 0.5], [0.0, 0.0]], atol=1e-6)
    quarter, half = 2 * math.pi / 28, math.pi
    assert values[0, OF_WEEK].tolist() == pytest.approx([(1 + math.cos(quarter)) / 2, math.sin(quarter) / 2])
    np.testing.assert_allclose(values[1, OF_WEEK], [(1 + math.cos(half)) / 2, 0.0], atol=1e-6)
    directed = activity_profile(build_graph(events, Steps(step, times, times), directed=True))
    incoming = directed[:, 81 + OF_DAY.start : 81 + OF_DAY.stop]
    np.testing.assert_allclose(incoming, [[0.0, 0.0], [1.0, 0.0], [-0.5, 0.5], [0.0, 0.0]], atol=1e-6)


def test_without_dates_there_is_no_time_of_day() -> None:
    graph = six_nodes()
    assert not activity_profile(graph)[:, OF_DAY.start : OF_WEEK.stop].any()
    assert not activity_profile(replace(graph, events=None))[:, OF_DAY.start : OF_WEEK.stop].any()


def test_without_stored_events_each_edge_of_a_snapshot_is_one() -> None:
    for directed in (False, True):
        graph = six_nodes(directed)
        without = activity_profile(replace(graph, events=None))
        other = activity_profile(graph)
        is_of_events = np.zeros(other.shape[1], dtype=bool)
        is_of_events[8:13] = is_of_events[89:94] = directed
        is_of_events[8:13] = True
        assert np.array_equal(without[:, ~is_of_events], other[:, ~is_of_events])
        np.testing.assert_allclose(without[:, EVENTS], without[:, TOTAL])
        np.testing.assert_allclose(without[:, MOST_EVENTS], without[:, MOST])
        assert not without[:, REPEATS].any()
        # Nodes 3 and 4 have no event twice.
        np.testing.assert_allclose(without[3:], other[3:])


def test_times_change_nothing_but_the_columns_of_times_between_events() -> None:
    graph = six_nodes()
    assert graph.events is not None
    times = graph.events.time.astype(np.float64)
    times[graph.events.step == 1] += 5
    other = replace(graph, events=replace(graph.events, time=times))
    changed = np.flatnonzero((activity_profile(graph) != activity_profile(other)).any(axis=0))
    assert changed.tolist() == [PAUSE, EVENT_BURSTINESS] or changed.tolist() == [EVENT_BURSTINESS]
    moved = replace(graph, events=replace(graph.events, time=graph.events.time * 1000 + 7))
    np.testing.assert_allclose(activity_profile(graph), activity_profile(moved), rtol=1e-6)


def test_a_graph_of_few_steps_has_zeros_before_it_begins() -> None:
    recent = activity_profile(six_nodes())[:, RECENT]
    assert not recent[:, :60].any()
    np.testing.assert_allclose(recent[:, 60:], np.log1p(DEGREES), rtol=1e-6)


def test_a_constant_activity_has_a_burstiness_of_minus_one_and_none_at_all_of_zero() -> None:
    values = activity_profile(six_nodes())[:, BURSTINESS]
    assert values[[3, 4]].tolist() == [-1, -1]
    assert values[5] == 0


def test_a_node_without_an_edge_is_at_rest_all_the_time() -> None:
    isolated = activity_profile(six_nodes())[5]
    assert np.flatnonzero(isolated).tolist() == [SINCE_LAST, PAUSE]


def _pair(steps: list[int], count: int) -> DynamicGraph:
    """Two nodes that meet at these steps, of so many."""
    index, times = np.array(steps, dtype=np.int32), np.arange(count)
    ends = np.zeros(len(steps), dtype=np.int64)
    return build_graph(Events(ends, ends + 1, times[index], NodeIds.range(2)), Steps(index, times, times))


def test_of_many_steps_each_is_told_and_the_last_one_comes_last() -> None:
    values = activity_profile(_pair([0, 3, 4, 19], 20))[0]
    assert len(values) == profile_width(directed=False) == 8 + 9 + SPANS + 3 + 1
    assert np.flatnonzero(values[RECENT]).tolist() == [44, 47, 48, 63]
    assert values[[TOTAL, DISTINCT]].tolist() == pytest.approx(np.log1p([4, 1]).tolist())
    assert values[[SINCE_FIRST, SINCE_LAST, ACTIVE]].tolist() == pytest.approx([1, 0, 4 / 20])


def test_as_many_steps_as_spans_are_told_one_by_one() -> None:
    values = activity_profile(_pair([0, 1, 63], 64))[0]
    assert np.flatnonzero(values[RECENT]).tolist() == [0, 1, 63]


def test_twice_as_many_steps_are_added_up_two_by_two() -> None:
    """Steps 0 and 1 are the first span, steps 6 and 7 the fourth, steps 126 and 127 the last."""
    spans = activity_profile(_pair([0, 1, 6, 127], 128))[0, RECENT]
    assert np.flatnonzero(spans).tolist() == [0, 3, 63]
    assert spans[[0, 3, 63]].tolist() == pytest.approx(np.log1p([2, 1, 1]).tolist())


@pytest.mark.parametrize("count", [65, 100, 127, 200])
def test_every_step_is_in_one_span_and_spans_differ_by_one_step_at_most(count: int) -> None:
    """Nodes that meet once at every step: a span counts its steps."""
    lengths = np.expm1(activity_profile(_pair(list(range(count)), count))[0, RECENT])
    assert lengths.sum() == pytest.approx(count, rel=1e-5)
    assert set(np.round(lengths)) <= {count // 64, -(-count // 64)}


def test_of_directed_edges_both_ends_have_neighbours() -> None:
    """Every edge is told apart by its direction: 0 and 1 know each other twice."""
    one, other = activity_profile(six_nodes()), activity_profile(six_nodes(directed=True))
    np.testing.assert_allclose(np.expm1(other[:, TOTAL]), [6, 4, 3, 2, 1, 0], atol=1e-5)
    np.testing.assert_allclose(np.expm1(other[:, DISTINCT]), [5, 3, 3, 2, 1, 0], atol=1e-5)
    assert np.array_equal(one[2:, :SUMMARY_WIDTH], other[2:, :SUMMARY_WIDTH])
    assert np.array_equal(one[2:, RECENT], other[2:, RECENT])


def test_of_directed_edges_the_incoming_ones_follow_alone_by_hand() -> None:
    """Edges 0 → 1 and 2 → 1 at step 0, and 1 → 0 at step 1."""
    times = np.array([0, 1])
    events = Events(np.array([0, 2, 1]), np.array([1, 1, 0]), np.array([0, 0, 1]), NodeIds.range(3))
    graph = build_graph(events, Steps(np.array([0, 0, 1], dtype=np.int32), times, times), directed=True)
    values = activity_profile(graph)
    assert values.shape == (3, profile_width(directed=True)) == (3, 81 + 81 + 3 + 3 + 1 + 1)
    both, incoming, sources, targets = values[:, :81], values[:, 81:162], values[:, 162:165], values[:, 165:168]
    np.testing.assert_allclose(np.expm1(both[:, TOTAL]), [2, 3, 1], atol=1e-5)
    np.testing.assert_allclose(np.expm1(incoming[:, TOTAL]), [1, 2, 0], atol=1e-5)
    np.testing.assert_allclose(np.expm1(incoming[:, DISTINCT]), [1, 2, 0], atol=1e-5)
    np.testing.assert_allclose(np.expm1(incoming[:, -2:]), [[0, 1], [2, 0], [0, 0]], atol=1e-5)
    np.testing.assert_allclose(np.expm1(both[:, EVENTS]), [2, 3, 1], atol=1e-5)
    np.testing.assert_allclose(np.expm1(incoming[:, MOST_EVENTS]), [1, 2, 0], atol=1e-5)
    # The mean degree of 0 and 2, both sources of 1; and of whom each has an edge to.
    np.testing.assert_allclose(sources[:, 0], [np.log(4), np.log([3, 2]).mean(), 0], rtol=1e-6)
    np.testing.assert_allclose(targets[:, 0], [np.log(4), np.log(3), np.log(4)], rtol=1e-6)
    # 0 and 1 are source and target of each other, 2 is a source of 1 only.
    np.testing.assert_allclose(values[:, 169], [1, 1 / 2, 0])


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("last", [0, 1, 2])
def test_the_profile_as_of_a_step_is_that_of_the_graph_cut_there(last: int, directed: bool) -> None:
    source, target, step = (np.array(column) for column in zip(*[e for e in EDGES if e[2] <= last], strict=True))
    times = np.arange(last + 1)
    events = Events(source, target, times[step], NodeIds.range(6))
    cut = build_graph(events, Steps(step.astype(np.int32), times, times), directed=directed)
    assert np.array_equal(activity_profile(six_nodes(directed), last), activity_profile(cut))


def test_the_profile_as_of_a_step_is_blind_to_later_edges() -> None:
    graph = small_graph()
    one, other = (activity_profile(g, 2) for g in (graph, with_other_future(graph, 2)))
    assert np.array_equal(one, other)
