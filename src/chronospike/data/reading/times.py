"""Times as users write them, in columns or one by one, into int64, float64 or datetime64[us]."""

from __future__ import annotations

import math
import re
from datetime import UTC, date, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from chronospike.data.reading.numbering import distinct_values
from chronospike.data.reading.tables import Sheet, is_text
from chronospike.errors import InputError, check_choice

INTEGER = r"^[+-]?[0-9]+$"
SAMPLE_ROWS = 10_000
NUMBER = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$"
# What Python would read beyond ISO, such as any letter between day and hour, is no date.
ISO_LETTERS = re.compile(r"[0-9W-]+([Tt ][0-9:.,+Zz -]+)?")
TIME_UNITS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}  # how many make a second of Unix time
YEAR_1, YEAR_10000 = -62_135_596_800, 253_402_300_800  # in Unix seconds
YEAR_1980, YEAR_2100 = 315_532_800, 4_102_444_800
MOST_YEARS = 290_000  # from 1970, in either direction: what 64 bits of microseconds hold


def unix_unit(times: NDArray[Any]) -> str | None:
    """The unit in which numbers would be Unix times of our days, if there is one."""
    if times.dtype.kind == "M":
        return None
    first, last = times.min(), times.max()
    units = (unit for unit, per in TIME_UNITS.items() if YEAR_1980 * per <= first <= last < YEAR_2100 * per)
    return next(units, None)


def time_column(sheet: Sheet, index: int) -> pa.ChunkedArray:
    """The column, with text freed of surrounding blanks so that a blank time counts as missing."""
    column = sheet.column(index)
    return pc.utf8_trim_whitespace(column) if is_text(column) else column


def read_times(sheet: Sheet, column: pa.ChunkedArray, unit: str | None = None, name: str = "time") -> NDArray[Any]:
    """`[E]` times of a column without missing values, whose k-th value stands in the k-th row of `sheet`.

    Text is read as integers, else as numbers, else as ISO dates; a date with 'Z' or an offset is turned into UTC,
    one without is left as it is. Nothing is guessed: a column of dates and numbers is refused.

    Args:
        unit: `s`, `ms`, `us` or `ns` if the numbers are Unix time; they then become dates.
        name: what a value is called that cannot be read.
    """
    times = _as_given(sheet, column, name)
    return times if unit is None else from_unix(sheet, times, unit)


def as_date(value: Any) -> np.datetime64 | None:
    """datetime64[us] in UTC of a datetime, a date, a numpy or pandas date, or text; None if it is no date.

    Text is an ISO date, `2019-06` for the first of a month or `2019` for the first of a year. Numpy reads "now",
    "today" and an empty text as dates too, so no text is given to it.
    """
    if isinstance(value, str):
        text = value.strip()
        if re.fullmatch(INTEGER, text):  # as in a file: digits alone are a number, except for a year
            text = f"{text}-01-01" if re.fullmatch("[0-9]{4}", text) else ""
        moment: np.datetime64 = _dates(pa.array([text], pa.string()))[0]
        return None if np.isnat(moment) else moment
    try:
        if isinstance(value, datetime):
            if value != value:  # pandas' NaT
                return None
            value = np.datetime64(value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo else value, "us")
        elif isinstance(value, date):
            value = np.datetime64(value)
    except (ValueError, OverflowError):
        return None
    if not isinstance(value, np.datetime64) or np.isnat(value):
        return None
    in_range = abs(int(value.astype("datetime64[Y]").astype(np.int64))) < MOST_YEARS
    return value.astype("datetime64[us]") if in_range else None


def as_number(value: Any) -> int | float | None:
    """A finite number, given as one or as text; None for anything else, also for truth values and durations."""
    if isinstance(value, str):
        text = value.strip()
        if re.fullmatch(INTEGER, text) and len(text) < 400:  # as a float, more digits would be infinite
            return int(text)
        value = float(text) if re.fullmatch(NUMBER, text) else math.nan
    if isinstance(value, (bool, np.timedelta64)):
        return None
    if isinstance(value, (int, np.integer)):
        return int(value)
    if isinstance(value, (float, np.floating)) and math.isfinite(value):
        return float(value)
    return None


def _as_given(sheet: Sheet, column: pa.ChunkedArray, name: str) -> NDArray[Any]:
    if is_text(column):
        return _from_text(sheet, column, name)
    kind = column.type
    if pa.types.is_integer(kind):
        try:
            return np.asarray(column.cast(pa.int64()).to_numpy())
        except pa.ArrowInvalid:
            raise InputError(f"{sheet.origin}: times do not fit into 64-bit integers") from None
    if pa.types.is_floating(kind):
        values = np.asarray(column.cast(pa.float64()).to_numpy())
        if not np.isfinite(values).all():
            bad = int(np.argmin(np.isfinite(values)))
            raise InputError(f"{sheet.at(bad)}: time '{values[bad]}' is not finite")
        return values
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        if pa.types.is_timestamp(kind) and kind.tz is not None:
            # Arrow holds zoned timestamps in UTC; only the mark is taken off.
            column = column.cast(pa.timestamp(kind.unit, tz="UTC")).cast(pa.timestamp(kind.unit))
        return np.asarray(column.cast(pa.timestamp("us"), safe=False).to_numpy())
    raise InputError(f"{sheet.origin}: a time column of type {kind} cannot be used; give numbers or dates")


def from_unix(sheet: Sheet, times: NDArray[Any], unit: str) -> NDArray[Any]:
    """`[E]` dates from Unix time. Those outside the years 1 to 9999 are refused: most likely the unit is another."""
    check_choice("time_unit", unit, TIME_UNITS)
    if times.dtype.kind == "M":
        raise InputError(f"{sheet.origin}: the times are dates already. Leave out --time-unit {unit}")
    inside = (times >= YEAR_1 * TIME_UNITS[unit]) & (times < YEAR_10000 * TIME_UNITS[unit])
    if not inside.all():
        bad = int(np.argmin(inside))
        raise InputError(
            f"{sheet.at(bad)}: time {times[bad]} in {unit} is outside the years 1 to 9999. "
            f"Choose another --time-unit: {', '.join(TIME_UNITS)}"
        )
    scaled = times // 1000 if unit == "ns" else np.round(times * (10**6 // TIME_UNITS[unit]))
    return np.asarray(scaled.astype(np.int64).astype("datetime64[us]"))


def _from_text(sheet: Sheet, column: pa.ChunkedArray, name: str) -> NDArray[Any]:
    texts, codes = _texts(column)
    is_number = np.asarray(pc.match_substring_regex(texts, NUMBER).to_numpy(zero_copy_only=False), dtype=bool)
    if is_number.all():
        return np.take(_numbers(sheet, texts, codes), codes)
    days = _dates(texts.filter(pa.array(~is_number)))
    unreadable = np.zeros(len(texts), dtype=bool)
    unreadable[~is_number] = np.isnat(days)
    if unreadable.any():
        bad = _first(codes, unreadable)
        what = "not a number or an ISO date such as 2020-02-29"
        raise InputError(f"{sheet.at(bad)}: {name} '{column[bad]}' is {what}")
    if is_number.any():
        number, day = _first(codes, is_number), _first(codes, ~is_number)
        raise InputError(
            f"{sheet.at(max(number, day))}: time '{column[max(number, day)]}' and, in row "
            f"{sheet.row_of(min(number, day))}, '{column[min(number, day)]}': one is a number, the other a date"
        )
    return np.take(days, codes)


def _texts(column: pa.ChunkedArray) -> tuple[pa.Array, NDArray[Any]]:
    """The texts to read and which of them each row holds: the distinct ones, unless most rows differ anyway."""
    sample = column.slice(0, SAMPLE_ROWS)
    if len(sample) == SAMPLE_ROWS and len(sample.unique()) > SAMPLE_ROWS // 2:
        return column.cast(pa.large_string()).combine_chunks(), np.arange(len(column))
    return distinct_values(column)


def _numbers(sheet: Sheet, texts: pa.Array, codes: NDArray[Any]) -> NDArray[Any]:
    unsigned = pc.utf8_ltrim(texts, "+")
    if pc.all(pc.match_substring_regex(texts, INTEGER)).as_py():
        try:
            return np.asarray(unsigned.cast(pa.int64()).to_numpy())
        except pa.ArrowInvalid:
            pass  # more digits than int64 holds: as floats, like any other number
    values = np.asarray(unsigned.cast(pa.float64()).to_numpy())
    if not np.isfinite(values).all():
        bad = _first(codes, ~np.isfinite(values))
        raise InputError(f"{sheet.at(bad)}: time '{texts[int(codes[bad])]}' is too large for a number")
    return values


def _dates(texts: pa.Array) -> NDArray[np.datetime64]:
    """datetime64[us] of each text, NaT where it is not an ISO date; `2020/02/29` and `12:30:00 UTC` count as such."""
    found = _cast_dates(texts)
    if found is None:
        texts = pc.replace_substring_regex(texts, "^([0-9]{4})/([0-9]{2})/([0-9]{2})", r"\1-\2-\3")
        texts = pc.replace_substring_regex(texts, "([0-9]) UTC$", r"\1Z")
        found = _cast_dates(texts)
    return np.array([_date(text) for text in texts.to_pylist()], dtype="datetime64[us]") if found is None else found


def _cast_dates(texts: pa.Array) -> NDArray[np.datetime64] | None:
    """The same by Arrow, which reads only the usual forms, and either all with a time zone or none."""
    for kind in (pa.timestamp("us"), pa.timestamp("us", tz="UTC")):
        try:
            texts.slice(0, 100).cast(kind)  # a failure is cheap here and slow over many values
            return np.asarray(texts.cast(kind).cast(pa.timestamp("us")).to_numpy(zero_copy_only=False))
        except pa.ArrowInvalid:
            continue
    return None


def _date(text: str) -> datetime | None:
    if not ISO_LETTERS.fullmatch(text):
        return None
    try:
        # A month alone, 2020-01, is an ISO date too, and starts on its first day.
        moment = datetime.fromisoformat(f"{text}-01" if len(text) == 7 else text)
        return moment.astimezone(UTC).replace(tzinfo=None) if moment.tzinfo else moment
    except (ValueError, OverflowError):
        return None


def _first(codes: NDArray[Any], chosen: NDArray[np.bool_]) -> int:
    return int(np.argmax(chosen[codes]))
