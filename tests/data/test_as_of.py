from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from chronospike.data.as_of import depends_on_future, step_as_of
from chronospike.data.graph import DynamicGraph
from chronospike.data.ingest import import_graph
from chronospike.data.time_text import format_time
from chronospike.errors import InputError
from tests.edges import edges_at
from tests.six_nodes import six_nodes


def graph_at(*times: Any, **how: Any) -> DynamicGraph:
    """A graph with an edge at each of the times."""
    return import_graph((np.arange(len(times)), np.arange(len(times)) + 1, list(times)), **how)


def monthly() -> DynamicGraph:
    """Steps of January to April 2020."""
    return graph_at("2020-01-10", "2020-02-10", "2020-04-10", every="1mo")


@pytest.mark.parametrize(
    ("as_of", "step"),
    [("2020-02-01", 0), ("2020-02-29T23:59", 0), ("2020-03-01", 1), ("2020-04-30", 1), ("2020-05-01", 3), ("2031", 3)],
)
def test_a_date_names_the_last_step_with_an_event_that_had_ended(as_of: str, step: int) -> None:
    assert step_as_of(monthly(), as_of) == step


@pytest.mark.parametrize(("as_of", "step"), [(10, 0), (19.5, 0), (20.0, 1), ("20", 1), ("39.9", 2), (40, 3), (99.0, 3)])
def test_a_step_that_ends_with_an_event_has_ended_at_its_time(as_of: Any, step: int) -> None:
    assert step_as_of(six_nodes(), as_of) == step


@pytest.mark.parametrize("as_of", [2, np.int64(2), np.uint8(2), "2", " 02 "])
def test_a_whole_number_below_the_number_of_steps_is_a_step(as_of: Any) -> None:
    assert step_as_of(monthly(), as_of) == 2
    assert step_as_of(six_nodes(), as_of) == 2


@pytest.mark.parametrize(
    "as_of",
    ["2020-03", "2020-03-01T00:00Z", "2020-03-01T02:00+02:00", date(2020, 3, 1), datetime(2020, 3, 1),
     datetime(2020, 3, 1, tzinfo=UTC), np.datetime64("2020-03-01"), np.datetime64("2020-03", "M")],
)  # fmt: skip
def test_a_date_may_come_in_any_form(as_of: Any) -> None:
    assert step_as_of(monthly(), as_of) == 1


def test_four_digits_that_are_no_step_are_a_year_among_dates_and_a_time_among_numbers() -> None:
    assert step_as_of(graph_at("2018-05-05", "2019-06-06", "2021-01-01", every="1y"), "2020") == 1
    assert step_as_of(graph_at(2001, 2003, 2005), "2004") == 1


def test_a_time_before_the_first_end_says_when_that_is() -> None:
    with pytest.raises(InputError, match=r"as_of 2020-01-31: no step had ended by then\. The first ends 2020-02-01"):
        step_as_of(monthly(), "2020-01-31")
    for as_of in (9, -5, "-5", 9.5, -(10**30)):
        with pytest.raises(InputError, match="The first ends 10"):
            step_as_of(six_nodes(), as_of)


@pytest.mark.parametrize("as_of", [19, "19", -1, "-1", "20200301", 10**30])
def test_a_number_that_is_no_step_is_refused_among_dates(as_of: Any) -> None:
    with pytest.raises(InputError, match=f"as_of {as_of}: steps are 0 to 3, dates are written like 2020-05-01"):
        step_as_of(monthly(), as_of)


@pytest.mark.parametrize("as_of", [41, "41", 10**400])
def test_a_number_past_the_last_time_is_more_likely_a_miscounted_step(as_of: Any) -> None:
    with pytest.raises(InputError, match=f"as_of {as_of}: steps are 0 to 3, times run to 40"):
        step_as_of(six_nodes(), as_of)
    with pytest.raises(InputError, match="times run to 2.5"):
        step_as_of(graph_at(1.5, 2.5), as_of)


NEITHER = ["", "  ", "NaT", "now", "today", "soon", "nan", "inf", float("nan"), float("inf"), None, True, [2],
           np.datetime64("NaT"), np.timedelta64(2, "D"), b"2"]  # fmt: skip


@pytest.mark.parametrize("as_of", [*NEITHER, 1.5, "1.5", "1e0"])
def test_what_is_no_date_is_refused_in_one_line_among_dates(as_of: Any) -> None:
    with pytest.raises(InputError, match=r"^as_of .* is neither a step \(0 to 3\) nor a date such as 2020-05-01$"):
        step_as_of(monthly(), as_of)


@pytest.mark.parametrize("as_of", [*NEITHER, "2020-01-01", date(2020, 1, 1)])
def test_what_is_no_number_is_refused_in_one_line_among_numbers(as_of: Any) -> None:
    with pytest.raises(InputError, match=r"^as_of .*number.*\. Give a step \(0 to 3\) or a time up to 40$"):
        step_as_of(six_nodes(), as_of)


@pytest.mark.parametrize(
    ("how", "depends"),
    [
        ({}, False),
        ({"every": 2}, False),
        ({"steps": 2}, True),
        ({"merge": 2}, True),
        ({"merge": 5}, False),
        ({"every": 1, "merge": 2}, True),
        ({"steps": 4, "merge": 2}, True),
    ],
)
def test_equal_counts_and_an_incomplete_last_merge_depend_on_later_events(how: dict[str, Any], depends: bool) -> None:
    assert depends_on_future(graph_at(1, 2, 3, 4, 5, **how)) is depends


def test_a_graph_that_does_not_say_how_its_steps_were_made_is_taken_as_it_is() -> None:
    assert not depends_on_future(replace(six_nodes(), facts={}))


def moments(kind: str) -> st.SearchStrategy[Any]:
    if kind == "dates":
        return st.integers(0, 400 * 24).map(lambda hour: np.datetime64("2020-01-01", "us") + np.timedelta64(hour, "h"))
    return st.integers(-30, 60) if kind == "integers" else st.integers(-30, 60).map(lambda tenth: tenth / 10)


WIDTHS = {
    "dates": ["1mo", "2mo", "1q", "1y", "1d", "36h", "30d"],
    "integers": ["1", "4", "0.7"],
    "floats": ["0.1", "0.7", "2"],
}


@st.composite
def before_and_after(draw: st.DrawFn) -> tuple[Any, list[Any], list[Any], list[Any], dict[str, Any]]:
    """A time D, events up to it, two different futures after it, and a way to make steps."""
    kind = draw(st.sampled_from(sorted(WIDTHS)))
    one = moments(kind)
    at = draw(one)
    past = [moment for moment in draw(st.lists(one, min_size=1, max_size=12)) if moment <= at]
    assume(past)
    futures = [[moment for moment in draw(st.lists(one, max_size=12)) if moment > at] for _ in range(2)]
    how = {"every": draw(st.sampled_from(WIDTHS[kind])), "origin": draw(st.none() | one)}
    return at, past, futures[0], futures[1], how


@settings(max_examples=150, deadline=None)
@given(before_and_after())
def test_what_happens_after_a_date_changes_nothing_before_it(
    case: tuple[Any, list[Any], list[Any], list[Any], dict[str, Any]],
) -> None:
    at, past, *futures, how = case
    graphs = [graph_at(*past, *future, **how) for future in futures]
    # A whole number would be taken for a step.
    as_of = float(at) if isinstance(at, int) else at
    ended = [int((graph.step_end <= as_of).sum()) for graph in graphs]
    common = min(ended)
    for bounds in ("step_start", "step_end"):
        one, other = (getattr(graph, bounds)[:common].tolist() for graph in graphs)
        assert one == other
    # Edge k was given at the k-th time.
    for step in range(common):
        one, other = (sorted(edges_at(graph, step)[0].tolist()) for graph in graphs)
        assert one == other
    if not common:
        for graph in graphs:
            with pytest.raises(InputError, match=f"The first ends {format_time(graph.step_end[0])}"):
                step_as_of(graph, as_of)
        return
    steps = [step_as_of(graph, as_of) for graph in graphs]
    assert steps[0] == steps[1] < common
    for count, graph, future in zip(ended, graphs, futures, strict=True):
        assert all(not len(edges_at(graph, step)[0]) for step in range(steps[0] + 1, count))
        times = [*past, *future]
        seen = {int(node) for step in range(count) for node in edges_at(graph, step)[0]}
        assert all(times[node] < at for node in seen)
