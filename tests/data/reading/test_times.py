from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from chronospike.data.reading.tables import Sheet
from chronospike.data.reading.times import as_date, as_number, read_times, time_column
from chronospike.errors import InputError


def times(values: Any, unit: str | None = None) -> np.ndarray:
    sheet = Sheet(pa.table({"time": values}), "edges.csv")
    return read_times(sheet, time_column(sheet, 0), unit=unit)


@pytest.mark.parametrize(
    ("texts", "dtype", "values"),
    [
        (["3", "-1", " +7 "], np.int64, [3, -1, 7]),
        (["3", "0.5", "1e3"], np.float64, [3.0, 0.5, 1000.0]),
        (["99999999999999999999", "1"], np.float64, [1e20, 1.0]),
        (["007"], np.int64, [7]),
    ],
)
def test_numbers_written_as_text(texts: list[str], dtype: type, values: list[float]) -> None:
    read = times(texts)
    assert read.dtype == dtype
    assert read.tolist() == values


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2020-03-01", "2020-03-01"),
        ("2020-03-01T10:30", "2020-03-01T10:30"),
        ("2020-03-01 10:30:05.25", "2020-03-01T10:30:05.25"),
        ("2020-03-01T10:30:05.123456789", "2020-03-01T10:30:05.123456"),
        ("2020-03-01T10:30:00Z", "2020-03-01T10:30"),
        ("2020-03-01T00:30:00+05:30", "2020-02-29T19:00"),
        ("2020-03-01 00:30:00-0100", "2020-03-01T01:30"),
        ("2020-03-01 10:30:00 UTC", "2020-03-01T10:30"),
        ("2020-03-01 10:30:05.25 UTC", "2020-03-01T10:30:05.25"),
        ("2020/03/01", "2020-03-01"),
        ("2020/03/01 10:30", "2020-03-01T10:30"),
        ("2020-03", "2020-03-01"),
    ],
)
def test_iso_dates_are_read_in_utc(text: str, moment: str) -> None:
    for texts in ([text], [text, "2021-01-01"], [text, "2021-01-01T00:00:00Z"]):
        read = times(texts)
        assert read.dtype == np.dtype("datetime64[us]")
        assert read[0] == np.datetime64(moment, "us")


def test_typed_dates_and_timestamps_are_read_in_utc() -> None:
    zoned = pa.array([datetime(2020, 1, 1, 2, tzinfo=timezone(timedelta(hours=2)))], pa.timestamp("ns", "Europe/Oslo"))
    for values in (pa.array([date(2020, 1, 1)]), pa.array([datetime(2020, 1, 1)], pa.timestamp("s")), zoned):
        assert times(values)[0] == np.datetime64("2020-01-01", "us")
    assert datetime(2020, 1, 1, tzinfo=UTC) == zoned[0].as_py()


def test_typed_integers_of_any_width_become_int64() -> None:
    assert times(pa.array([1, 2], pa.uint8())).dtype == np.int64


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            ["1", "yesterday", "3"],
            "edges.csv row 2: time 'yesterday' is not a number or an ISO date such as 2020-02-29",
        ),
        (
            ["2020-01-01", "2020-02-30"],
            "edges.csv row 2: time '2020-02-30' is not a number or an ISO date such as 2020-02-29",
        ),
        (
            ["2020-01-01", "2020-01-02x10:30"],
            "row 2: time '2020-01-02x10:30' is not a number or",
        ),
        (["1", "nan"], "row 2: time 'nan' is not a number"),
        (["1", "inf"], "row 2: time 'inf' is not a number"),
        (["1", "0x1F"], "row 2: time '0x1F' is not a number"),
        (["1", "1e999"], "row 2: time '1e999' is too large"),
        (["2020-01-01", "5"], "row 2: time '5' and, in row 1, '2020-01-01': one is a number, the other a date"),
        ([1.0, float("inf")], "row 2: time 'inf' is not finite"),
        ([True, False], "type bool cannot be used"),
        (pa.array([2**63], pa.uint64()), "64-bit"),
    ],
)
def test_unreadable_times_are_named(values: Any, message: str) -> None:
    with pytest.raises(InputError) as caught:
        times(values)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("values", "unit", "moment"),
    [
        ([1577836800], "s", "2020-01-01"),
        (["1577836800"], "s", "2020-01-01"),
        (["1577836800.25"], "s", "2020-01-01T00:00:00.25"),
        ([1577836800.000001], "s", "2020-01-01T00:00:00.000001"),
        ([1577836800123], "ms", "2020-01-01T00:00:00.123"),
        ([1577836800123456], "us", "2020-01-01T00:00:00.123456"),
        ([1577836800123456789], "ns", "2020-01-01T00:00:00.123456"),
        ([-1], "s", "1969-12-31T23:59:59"),
        ([-1], "ns", "1969-12-31T23:59:59.999999"),
        ([253402300799999999], "us", "9999-12-31T23:59:59.999999"),
    ],
)
def test_unix_times_become_dates(values: Any, unit: str, moment: str) -> None:
    read = times(values, unit)
    assert read.dtype == np.dtype("datetime64[us]")
    assert read[0] == np.datetime64(moment, "us")


@pytest.mark.parametrize(
    ("values", "unit", "message"),
    [
        ([0, 1577836800123], "s", "edges.csv row 2: time 1577836800123 in s is outside the years 1 to 9999"),
        (["0", "1e30"], "ms", "edges.csv row 2: time 1e+30 in ms is outside the years 1 to 9999"),
        ([-(2**62)], "us", "edges.csv row 1: time -4611686018427387904 in us is outside"),
        (["2020-01-01"], "s", "edges.csv: the times are dates already. Leave out --time-unit s"),
        ([date(2020, 1, 1)], "ms", "the times are dates already"),
        ([1], "sec", "time_unit 'sec' is not one of: s, ms, us, ns."),
    ],
)
def test_what_is_no_unix_time_is_refused(values: Any, unit: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        times(values, unit)
    assert message in str(caught.value)


def test_rows_left_out_before_are_counted_in_messages() -> None:
    sheet = Sheet(pa.table({"time": ["1", "", "later"]}), "edges.csv")
    with pytest.raises(InputError, match="row 3: time 'later'"):
        read_times(sheet.only(np.array([0, 2])), pa.chunked_array([["1", "later"]]))


def test_many_different_times_are_read_like_few() -> None:
    seconds = np.arange(20_000)
    moments = np.datetime64("2020-01-01T00:00:00", "us") + seconds * np.timedelta64(1, "s")
    assert times([f"{k}" for k in seconds]).tolist() == seconds.tolist()
    assert (times([f"{moment}Z" for moment in moments]) == moments).all()
    with pytest.raises(InputError, match="row 20001: time 'x'"):
        times([*(f"{k}" for k in seconds), "x"])


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
