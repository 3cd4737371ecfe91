from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import numpy as np
import pytest

from chronospike.data.reading.moments import as_date, as_number

EAST = timezone(timedelta(hours=2))


@pytest.mark.parametrize(
    ("value", "moment"),
    [
        ("2019-06-01", "2019-06-01"),
        (" 2019-06-01T12:30 ", "2019-06-01T12:30"),
        ("2019-06-01T00:30+02:00", "2019-05-31T22:30"),
        ("2019-06-01T00:30Z", "2019-06-01T00:30"),
        ("2019-06", "2019-06-01"),
        ("2019", "2019-01-01"),
        (date(2019, 6, 1), "2019-06-01"),
        (datetime(2019, 6, 1, 12), "2019-06-01T12:00"),
        (datetime(2019, 6, 1, 1, tzinfo=EAST), "2019-05-31T23:00"),
        (np.datetime64("2019-06-01", "D"), "2019-06-01"),
        (np.datetime64("2019", "Y"), "2019-01-01"),
        (np.datetime64("2019-06-01T00:00:00.123456789", "ns"), "2019-06-01T00:00:00.123456"),
    ],
)
def test_dates_in_every_form_become_microseconds_in_utc(value: Any, moment: str) -> None:
    found = as_date(value)
    assert found == np.datetime64(moment, "us")
    assert found is not None
    assert found.dtype == np.dtype("datetime64[us]")


def test_pandas_dates_are_dates_and_its_nat_is_none() -> None:
    pandas = pytest.importorskip("pandas")
    assert as_date(pandas.Timestamp("2019-06-01 02:00", tz="Europe/Berlin")) == np.datetime64("2019-06-01", "us")
    assert as_date(pandas.Timestamp("2019-06-01 00:00:00.123456789")) == np.datetime64("2019-06-01T00:00:00.123456")
    assert as_date(pandas.NaT) is None


@pytest.mark.parametrize(
    "value",
    ["", "  ", "NaT", "nat", "now", "today", "soon", "20", "201", "20190", "2019-13", "2019-02-30", "01/06/2019",
     "2019-06-01x12:00", "2019-6-1", "２０１９", "1e3", None, 2019, 3.5, True, b"2019-06-01", np.datetime64("NaT"),
     np.timedelta64(3, "D"), np.datetime64(10**15, "Y"), datetime.max.replace(tzinfo=timezone(-timedelta(hours=2))),
     ["2019-06-01"]],
)  # fmt: skip
def test_what_is_no_date_is_none(value: Any) -> None:
    assert as_date(value) is None


@pytest.mark.parametrize(
    ("value", "number"),
    [(3, 3), (np.int32(3), 3), ("3", 3), (" 007 ", 7), ("-5", -5), (2.5, 2.5), (np.float32(0.5), 0.5), ("2.", 2.0),
     ("1e3", 1000.0)],
)  # fmt: skip
def test_numbers_and_numbers_as_text(value: Any, number: float) -> None:
    found = as_number(value)
    assert (found, type(found)) == (number, type(number))


@pytest.mark.parametrize(
    "value",
    ["", " ", "nan", "inf", "1e999", "9" * 5000, "0x1F", "1_000", "３", "3 4", None, True, np.bool_(True), float("nan"),
     float("inf"), np.timedelta64(3, "D"), date(2019, 1, 1), datetime(2019, 1, 1, tzinfo=UTC), [3]],
)  # fmt: skip
def test_what_is_no_number_is_none(value: Any) -> None:
    assert as_number(value) is None
