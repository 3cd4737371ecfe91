from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from chronospike.data.steps import distinct_steps, equal_count_steps, equal_width_steps, make_steps, merge_steps
from chronospike.errors import InputError


def dates(*texts: str) -> np.ndarray:
    return np.array(texts, dtype="datetime64[us]")


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


def test_months_follow_the_calendar_from_the_first_event() -> None:
    steps = equal_width_steps(dates("2020-01-31T12:00", "2020-02-29T11:59", "2020-02-29T12:00", "2020-04-01"), "1mo")
    assert steps.index.tolist() == [0, 0, 1, 2]
    shown = [str(moment)[:16] for moment in steps.start]
    assert shown == ["2020-01-31T12:00", "2020-02-29T12:00", "2020-03-31T12:00"]
    assert str(steps.end[-1])[:16] == "2020-04-30T12:00"


def test_years_follow_the_calendar_across_leap_days() -> None:
    steps = equal_width_steps(dates("2019-06-01", "2020-05-31", "2020-06-01", "2021-06-01"), "1y")
    assert steps.index.tolist() == [0, 0, 1, 2]


@pytest.mark.parametrize(
    ("time", "every", "message"),
    [
        (np.array([1, 2]), "30d", "plain numbers"),
        (dates("2020-01-01"), "5", "a unit is needed"),
        (dates("2020-01-01"), "5m", "minutes or months"),
        (dates("2020-01-01"), "5 parsecs", "unknown unit"),
        (dates("2020-01-01"), "0.5mo", "whole months"),
        (np.array([1, 2]), "0", "above 0"),
        (np.array([1, 2]), "-1", "not a width"),
        (np.array([0, 10**6]), "1", "makes 1,000,001 steps"),
        (np.array([0.0, 1e6]), "0.5", "makes 2,000,001 steps"),
        (dates("1000-01-01", "2020-01-01"), "1mo", r"makes 12,2\d\d steps"),
        (np.array([], dtype=np.int64), "1", "no events"),
    ],
)
def test_widths_that_make_no_sense_are_refused(time: np.ndarray, every: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        equal_width_steps(time, every)


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
    assert steps.rule == "distinct, merged by 2"


def test_steps_and_every_exclude_each_other() -> None:
    with pytest.raises(InputError, match="exclude each other"):
        make_steps(np.arange(3), steps=2, every="1")


def test_the_limit_on_distinct_times_holds_after_merging() -> None:
    assert len(make_steps(np.arange(2000), merge=2)) == 1000


@pytest.mark.parametrize(("steps", "merge"), [(0, 1), (None, 0)])
def test_counts_below_one_are_refused(steps: int | None, merge: int) -> None:
    with pytest.raises(InputError, match="at least"):
        make_steps(np.arange(3), steps=steps, merge=merge)
