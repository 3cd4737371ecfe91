"""One column of a table as an attribute: a number stays one, a date becomes days, text the code of a category."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from chronospike.data.attributes import Column
from chronospike.data.reading.numbering import number_values
from chronospike.data.reading.tables import Sheet, is_text, missing
from chronospike.data.reading.times import NUMBER, read_times
from chronospike.errors import InputError

# How programs write a number that is not there; in a column of numbers, never a category.
ABSENT = pa.array(["", "na", "n/a", "nan", "null", "none", "-", "?"])
INFINITE = pa.array(["inf", "-inf", "+inf", "infinity", "-infinity"])
_DATE = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}([T ].*)?$"
_DAY = np.timedelta64(1, "D") / np.timedelta64(1, "us")


def encode_column(sheet: Sheet, index: int) -> tuple[NDArray[np.float32], Column]:
    """`[E]` values of column `index`, NaN where one is missing, and what they are."""
    column, name = sheet.column(index), sheet.names[index]
    if is_text(column):
        return _from_text(sheet, index, column)
    if pa.types.is_date(column.type) or pa.types.is_timestamp(column.type):
        return _days(sheet, column), Column(name)
    if pa.types.is_integer(column.type) or pa.types.is_floating(column.type):
        return _numbers(sheet, index, column, column.cast(pa.float64(), safe=False)), Column(name)
    return _codes(column, name)


def _from_text(sheet: Sheet, index: int, column: pa.ChunkedArray) -> tuple[NDArray[np.float32], Column]:
    name = sheet.names[index]
    trimmed = pc.utf8_trim_whitespace(column)
    lower = pc.utf8_lower(trimmed)
    absent = pc.or_(pc.is_in(lower, value_set=ABSENT), pc.is_null(column))

    def fits(pattern: pa.ChunkedArray) -> bool:
        """Whether every value that is there matches, and one is there."""
        return bool(pc.any(pattern).as_py() and pc.all(pc.or_(pattern, absent)).as_py())

    number = pc.fill_null(pc.match_substring_regex(trimmed, NUMBER), False)
    if fits(pc.or_(number, pc.is_in(lower, value_set=INFINITE))):
        readable = pc.if_else(absent, pa.scalar(None, column.type), pc.utf8_ltrim(lower, "+"))
        return _numbers(sheet, index, column, readable.cast(pa.float64())), Column(name)
    if fits(pc.fill_null(pc.match_substring_regex(trimmed, _DATE), False)):
        return _days(sheet, pc.if_else(absent, pa.scalar(None, column.type), trimmed)), Column(name)
    return _codes(column, name)


def _numbers(sheet: Sheet, index: int, written: pa.ChunkedArray, numbers: pa.ChunkedArray) -> NDArray[np.float32]:
    absent = np.asarray(pc.is_null(numbers, nan_is_null=True).to_numpy(), dtype=bool)
    with np.errstate(over="ignore"):
        values = np.asarray(pc.fill_null(numbers, 0.0).to_numpy(), dtype=np.float64).astype(np.float32)
    values[absent] = np.nan
    bad = np.flatnonzero(np.isinf(values))
    if len(bad):
        row = int(bad[0])
        where, value = f"{sheet.at(row)}: '{sheet.names[index]}'", written[row].as_py()
        raise InputError(f"{where} is {value}, not a finite number in single precision")
    return values


def _days(sheet: Sheet, column: pa.ChunkedArray) -> NDArray[np.float32]:
    """Dates as days since 1970."""
    present = ~missing(column)
    values = np.full(len(column), np.nan, dtype=np.float32)
    times = read_times(sheet, column.filter(pa.array(present)), np.flatnonzero(present))
    values[present] = times.astype("datetime64[us]").astype(np.int64) / _DAY
    return values


def _codes(column: pa.ChunkedArray, name: str) -> tuple[NDArray[np.float32], Column]:
    """The place of each value among the distinct ones, in order."""
    texts = column.cast(pa.large_string())
    present = ~missing(texts)
    distinct, (codes,) = number_values(texts.filter(pa.array(present)))
    values = np.full(len(texts), np.nan, dtype=np.float32)
    values[present] = codes
    return values, Column(name, "category", tuple(str(value) for value in distinct))
