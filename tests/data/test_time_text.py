from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from chronospike.data.time_text import format_time, time_span


@pytest.mark.parametrize(
    ("moment", "shown"),
    [
        ("2023-06-05", "2023-06-05"),
        ("2023-06-05T13:45", "2023-06-05 13:45"),
        ("2023-06-05T10:00", "2023-06-05 10:00"),
        ("2023-06-05T00:00:30", "2023-06-05 00:00:30"),
        ("2023-06-05T13:45:07.250", "2023-06-05 13:45:07.25"),
        ("2023-06-05T00:00:00.000001", "2023-06-05 00:00:00.000001"),
    ],
)
def test_a_date_shows_no_more_of_the_clock_than_it_has(moment: str, shown: str) -> None:
    assert format_time(np.datetime64(moment, "us")) == shown


@pytest.mark.parametrize(("number", "shown"), [(np.int64(2010), "2010"), (np.float64(0.1), "0.1"), (-3, "-3")])
def test_a_number_stays_as_it_is(number: Any, shown: str) -> None:
    assert format_time(number) == shown


@pytest.mark.parametrize(
    ("more", "shown"),
    [
        ({"last_event": "6"}, "from 1 to 9 (last event 6)"),
        ({"last_event": "9"}, "from 1 to 9"),
        ({}, "from 1 to 9"),
    ],
    ids=["before the end", "at the end", "not recorded"],
)
def test_the_last_event_is_named_where_it_is_not_the_end(more: dict[str, str], shown: str) -> None:
    assert time_span({"first_time": "1", "last_time": "9", **more}) == shown
