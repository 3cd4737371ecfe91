from __future__ import annotations

from datetime import date
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from chronospike.data.events import Steps
from chronospike.data.steps import (
    distinct_steps,
    equal_count_steps,
    equal_width_steps,
    make_steps,
    merge_steps,
    without_origin,
)
from chronospike.data.time_text import format_time
from chronospike.errors import InputError


def test_each_distinct_time_is_a_step_that_starts_and_ends_there() -> None:
    steps = distinct_steps(np.array([5, 2, 5, 9]))
    assert steps.index.tolist() == [1, 0, 1, 2]
    assert steps.index.dtype == np.int32
    assert steps.start.tolist() == steps.end.tolist() == [2, 5, 9]


def test_too_many_distinct_times_are_counted_and_a_way_out_is_named() -> None:
    with pytest.raises(InputError, match=r"1,001 distinct times.*--steps 20.*--every"):
        distinct_steps(np.arange(1001))


def test_equal_counts_split_ten_events_into_five_and_five() -> None:
    steps = equal_count_steps(np.arange(10), 2)
    assert np.bincount(steps.index).tolist() == [5, 5]
    assert steps.start.tolist() == [0, 5]
    assert steps.end.tolist() == [4, 9]


def test_equal_counts_never_split_events_of_one_time() -> None:
    # Six of eight events at time 1: the cut nearest to the half, 4, is after them (6) or before (1): after is nearer.
    steps = equal_count_steps(np.array([0, 1, 1, 1, 1, 1, 1, 2]), 2)
    assert steps.index.tolist() == [0] * 7 + [1]


def test_equal_counts_leave_no_step_empty_when_one_time_holds_nearly_all() -> None:
    steps = equal_count_steps(np.array([0] * 97 + [1, 2, 3]), 4)
    assert np.bincount(steps.index, minlength=4).tolist() == [97, 1, 1, 1]


@given(hnp.arrays(np.int64, st.integers(1, 60), elements=st.integers(0, 12)), st.integers(1, 13))
def test_equal_counts_keep_order_and_fill_every_step(time: np.ndarray, count: int) -> None:
    if count > len(np.unique(time)):
        with pytest.raises(InputError, match="distinct time"):
            equal_count_steps(time, count)
        return
    steps = equal_count_steps(time, count)
    assert sorted(set(steps.index.tolist())) == list(range(count))
    assert (np.diff(steps.index[np.argsort(time, kind="stable")]) >= 0).all()
    assert ((steps.start[steps.index] <= time) & (time <= steps.end[steps.index])).all()
    assert all(len(set(steps.index[time == value].tolist())) == 1 for value in time)


def test_more_steps_than_distinct_times_says_how_many_there_are() -> None:
    with pytest.raises(InputError, match="only 2 distinct times"):
        equal_count_steps(np.array([1, 1, 7]), 3)


@pytest.mark.parametrize(
    ("rule", "shared"),
    [
        ("every 1w from 2022-01-03 08:30", "every 1w"),
        ("every 1w from 2022-01-03, merged by 2 (the last of 1)", "every 1w, merged by 2"),
        ("every 1mo", "every 1mo"),
    ],
)
def test_the_kind_of_steps_does_not_tell_where_they_begin(rule: str, shared: str) -> None:
    assert without_origin(rule) == shared


@pytest.mark.parametrize(("count", "k", "left"), [(186, 10, 19), (25, 2, 13), (27, 1, 27), (3, 5, 1)])
def test_merging_gives_the_rounded_up_number_of_steps(count: int, k: int, left: int) -> None:
    steps = merge_steps(distinct_steps(np.arange(count)), k)
    assert len(steps) == len(steps.end) == left
    assert steps.index.max() == left - 1


def test_merged_steps_span_from_the_first_start_to_the_last_end() -> None:
    steps = merge_steps(distinct_steps(np.array([1, 2, 4, 8, 16])), 2)
    assert steps.index.tolist() == [0, 0, 1, 1, 2]
    assert steps.start.tolist() == [1, 4, 16]
    assert steps.end.tolist() == [2, 8, 16]


@pytest.mark.parametrize(
    ("count", "rule"), [(5, "distinct, merged by 2 (the last of 1)"), (6, "distinct, merged by 2")]
)
def test_the_rule_says_if_the_last_merged_step_is_made_of_fewer(count: int, rule: str) -> None:
    assert merge_steps(distinct_steps(np.arange(count)), 2).rule == rule


def test_steps_and_every_exclude_each_other() -> None:
    with pytest.raises(InputError, match="exclude each other"):
        make_steps(np.arange(3), steps=2, every="1")


def test_an_origin_needs_a_width() -> None:
    with pytest.raises(InputError, match="--origin 3: .* needs --every"):
        make_steps(np.arange(3), steps=2, origin=3)


def test_no_events_are_no_steps() -> None:
    with pytest.raises(InputError, match="no events"):
        make_steps(np.array([], dtype=np.int64), every="1")


def test_the_limit_on_distinct_times_holds_after_merging() -> None:
    assert len(make_steps(np.arange(2000), merge=2)) == 1000


@pytest.mark.parametrize("k", [4, 2**31, 10**30])
def test_merging_more_than_there_are_makes_one_step(k: int) -> None:
    steps = merge_steps(distinct_steps(np.arange(3)), k)
    assert (len(steps), steps.index.tolist(), steps.end.tolist()) == (1, [0, 0, 0], [2])


@pytest.mark.parametrize(("steps", "merge"), [(0, 1), (None, 0)])
def test_counts_below_one_are_refused(steps: int | None, merge: int) -> None:
    with pytest.raises(InputError, match="at least"):
        make_steps(np.arange(3), steps=steps, merge=merge)


def dates(*texts: str) -> np.ndarray:
    return np.array(texts, dtype="datetime64[us]")


def test_equal_width_of_integers_is_half_open_and_keeps_empty_steps() -> None:
    steps = equal_width_steps(np.array([10, 14, 15, 27]), "5")
    assert steps.index.tolist() == [0, 0, 1, 3]
    assert steps.start.tolist() == [10, 15, 20, 25]
    assert steps.end.tolist() == [15, 20, 25, 30]


def test_equal_width_of_floats_puts_a_time_on_the_boundary_into_the_step_that_starts_there() -> None:
    time = np.arange(11) / 10  # 0.3 / 0.1 < 3 in floating point
    steps = equal_width_steps(time, "0.1")
    assert steps.index.tolist() == list(range(11))
    assert (np.searchsorted(steps.start, time, side="right") - 1).tolist() == list(range(11))


def test_equal_width_of_days() -> None:
    steps = equal_width_steps(dates("2020-01-01", "2020-01-30T23:59:59", "2020-01-31", "2020-03-15"), "30d")
    assert steps.index.tolist() == [0, 0, 1, 2]
    assert steps.start.astype("datetime64[D]").astype(str).tolist() == ["2020-01-01", "2020-01-31", "2020-03-01"]


@pytest.mark.parametrize(
    ("every", "hours"),
    [("6h", 6), ("15min", 0.25), ("2w", 336), ("1 day", 24), ("30s", 1 / 120), ("0.5d", 12), ("2 hours", 2)],
)
def test_units_of_fixed_length(every: str, hours: float) -> None:
    steps = equal_width_steps(dates("2020-01-01", "2020-01-01T00:00:01"), every)
    assert (steps.end[0] - steps.start[0]) / np.timedelta64(1, "s") == hours * 3600


def starts(steps: Steps) -> list[str]:
    return [format_time(moment) for moment in steps.start]


@pytest.mark.parametrize(
    ("every", "bounds"),
    [
        ("1mo", ["2020-02-01", "2020-03-01", "2020-04-01", "2020-05-01", "2020-06-01"]),
        ("2mo", ["2020-01-01", "2020-03-01", "2020-05-01", "2020-07-01"]),
        ("1q", ["2020-01-01", "2020-04-01", "2020-07-01"]),
        ("0.5y", ["2020-01-01", "2020-07-01"]),
        ("1y", ["2020-01-01", "2021-01-01"]),
        ("10y", ["2020-01-01", "2030-01-01"]),
        ("100 years", ["2000-01-01", "2100-01-01"]),
    ],
)
def test_months_quarters_and_years_begin_where_those_of_the_calendar_do(every: str, bounds: list[str]) -> None:
    steps = equal_width_steps(dates("2020-02-17T10:00", "2020-05-31T23:59"), every)
    assert [*starts(steps), format_time(steps.end[-1])] == bounds


def test_an_event_at_the_start_of_a_month_belongs_to_it() -> None:
    assert equal_width_steps(dates("2019-12-31T23:59:59.999999", "2020-01-01"), "1y").index.tolist() == [0, 1]


def test_months_from_an_origin_keep_its_day_or_take_the_last_of_the_month() -> None:
    time = dates("2020-01-31T12:00", "2020-02-29T11:59", "2020-02-29T12:00", "2020-04-01")
    steps = equal_width_steps(time, "1mo", "2020-01-31T12:00")
    assert steps.index.tolist() == [0, 0, 1, 2]
    assert starts(steps) == ["2020-01-31 12:00", "2020-02-29 12:00", "2020-03-31 12:00"]
    assert format_time(steps.end[-1]) == "2020-04-30 12:00"


def test_years_from_an_origin_follow_the_calendar_across_leap_days() -> None:
    time = dates("2019-06-01", "2020-05-31", "2020-06-01", "2021-06-01")
    assert equal_width_steps(time, "1y", "2015-06-01").index.tolist() == [0, 0, 1, 2]


@pytest.mark.parametrize(
    ("time", "every", "origin", "bounds"),
    [
        (dates("2020-01-05", "2020-01-20"), "10d", "2020-01-01", ["2020-01-01", "2020-01-11", "2020-01-21"]),
        (dates("2020-01-05", "2020-01-20"), "10d", "2020-03-01", ["2020-01-01", "2020-01-11", "2020-01-21"]),
        (dates("2020-01-05", "2020-01-20"), "1mo", date(2025, 7, 15), ["2019-12-15", "2020-01-15", "2020-02-15"]),
        (dates("2020-01-05"), "1w", "2020", ["2020-01-01", "2020-01-08"]),
        (np.array([7, 12]), "5", "0", ["5", "10", "15"]),
        (np.array([7, 12]), 5, 101, ["6", "11", "16"]),
        (np.array([-7]), "5", 0, ["-10", "-5"]),
        (np.array([7, 12]), "5", 0.5, ["5.5", "10.5", "15.5"]),
        (np.array([0.35, 0.4]), "0.1", "1e0", ["0.3", "0.4", "0.5"]),
        (np.array([0.7]), "0.1", "-0.1", ["0.7", "0.8"]),
    ],
)
def test_bounds_lie_at_whole_widths_before_and_after_the_origin(
    time: np.ndarray, every: str | int, origin: Any, bounds: list[str]
) -> None:
    steps = equal_width_steps(time, every, origin)
    assert [*starts(steps), format_time(steps.end[-1])] == bounds


@pytest.mark.parametrize(
    ("every", "origin"),
    [("1mo", None), ("1q", None), ("1mo", "2020-01-31"), ("30d", "2020-01-01"), ("6h", "2030-01-01")],
)
def test_one_more_event_at_the_front_moves_no_bound(every: str, origin: str | None) -> None:
    time = dates("2020-02-17T10:00", "2020-03-01", "2020-05-31T23:59")
    steps = equal_width_steps(time, every, origin)
    more = equal_width_steps(np.append(time, dates("2019-11-11T11:11")), every, origin)
    assert more.start[-len(steps) :].tolist() == steps.start.tolist()
    assert more.end[-len(steps) :].tolist() == steps.end.tolist()


@pytest.mark.parametrize(
    ("time", "every", "origin", "rule"),
    [
        (dates("2022-01-03T09:30"), "30d", None, "every 30d from 2022-01-03 09:30"),
        (dates("2022-01-03T09:30"), "30d", "2022-01", "every 30d from 2022-01-01"),
        (dates("2022-01-03T09:30"), "1mo", None, "every 1mo"),
        (dates("2022-01-03T09:30"), "1mo", "2022-01-02", "every 1mo from 2022-01-02"),
        (np.array([3]), 5, None, "every 5 from 3"),
    ],
)
def test_the_rule_says_where_steps_begin(time: np.ndarray, every: Any, origin: str | None, rule: str) -> None:
    assert equal_width_steps(time, every, origin).rule == rule


@pytest.mark.parametrize(
    "origin", ["", " ", "now", "today", "NaT", "soon", "5.5", 2020, 1.5, True, np.datetime64("NaT")]
)
def test_an_origin_that_is_no_date_is_refused_for_dates(origin: Any) -> None:
    with pytest.raises(InputError, match="--origin .*the times are dates"):
        equal_width_steps(dates("2020-01-01"), "1d", origin)


@pytest.mark.parametrize("origin", ["", "2020-01-01", "nan", "inf", float("nan"), float("inf"), True, date(2020, 1, 1)])
def test_an_origin_that_is_no_number_is_refused_for_numbers(origin: Any) -> None:
    with pytest.raises(InputError, match="--origin .*the times are plain numbers"):
        equal_width_steps(np.array([1, 2]), "1", origin)


def test_a_bound_in_decimals_is_the_decimal_number() -> None:
    steps = equal_width_steps(np.array([0.0, 0.95]), "0.1")
    assert steps.start.tolist() == [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9]


def test_sums_of_floats_belong_to_the_bound_they_mean() -> None:
    time = np.arange(10) * 0.7  # 3 * 0.7 < 2.1 in floating point
    assert equal_width_steps(time, "0.7").index.tolist() == list(range(10))
    assert equal_width_steps(time, "0.7", 10**6).index.tolist()[:2] == [0, 1]


def test_plain_numbers_and_a_width_of_days_name_the_time_unit() -> None:
    with pytest.raises(
        InputError, match=r"plain numbers.*Unix seconds or milliseconds.*--time-unit s or --time-unit ms"
    ):
        equal_width_steps(np.array([1577836800]), "30d")


@pytest.mark.parametrize(
    ("time", "every", "message"),
    [
        (np.array([1, 2]), "30d", "plain numbers"),
        (dates("2020-01-01"), "5", "a unit is needed"),
        (dates("2020-01-01"), "5m", "minutes or months"),
        (dates("2020-01-01"), "5 parsecs", "unknown unit"),
        (dates("2020-01-01"), "0.5mo", "whole number of months"),
        (np.array([1, 2]), "0", "above 0"),
        (np.array([1, 2]), "-1", "not a width"),
        (np.array([2**62]), "9e18", "beyond what 64-bit"),
        (np.array([1e308]), "1e308", "beyond what 64-bit"),
        (np.array([1e17, 1e17 + 16]), "0.01", "resolution of the times"),
        (dates("2020-01-01"), "1e9y", "beyond what 64-bit"),
        (dates("2020-01-01"), "1e300d", "beyond what 64-bit"),
        (dates("2020-01-01"), "1e-3us", "narrower than a microsecond"),
        (dates("2020-01-01"), "1e999y", "not a width"),
        (np.array([1, 2]), "1e-999999999", "not a width"),
        (np.array([0, 10**6]), "1", "makes 1,000,001 steps"),
        (np.array([0.0, 1e6]), "0.5", "makes 2,000,001 steps"),
        (dates("1000-01-01", "2020-01-01"), "1mo", r"makes 12,2\d\d steps"),
    ],
)
def test_widths_that_make_no_sense_are_refused(time: np.ndarray, every: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        equal_width_steps(time, every)


@pytest.mark.parametrize(("name", "value"), [("steps", 2.0), ("steps", "2"), ("merge", 1.5), ("merge", None)])
def test_a_number_of_steps_that_is_not_whole_is_refused(name: str, value: Any) -> None:
    with pytest.raises(InputError, match=f"--{name} {value!r}: a whole number is needed"):
        make_steps(np.array([1, 2, 3]), **{name: value})
