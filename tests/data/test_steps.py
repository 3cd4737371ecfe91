from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from chronospike.data.steps import distinct_steps, equal_count_steps, make_steps, merge_steps
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


@pytest.mark.parametrize(("steps", "merge"), [(0, 1), (None, 0)])
def test_counts_below_one_are_refused(steps: int | None, merge: int) -> None:
    with pytest.raises(InputError, match="at least"):
        make_steps(np.arange(3), steps=steps, merge=merge)
