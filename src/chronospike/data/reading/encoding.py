"""One column of a table as feature columns: a number stays one, a category becomes one column per value."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from chronospike.data.reading.numbering import number_values
from chronospike.data.reading.tables import Sheet, is_text, missing
from chronospike.data.reading.times import NUMBER
from chronospike.errors import InputError

MOST_CATEGORIES = 1000
# How programs write a number that is not there; in a column of numbers, never a category.
ABSENT = pa.array(["", "na", "n/a", "nan", "null", "none", "inf", "-inf", "+inf", "infinity", "-infinity"])


def encode_column(sheet: Sheet, index: int) -> tuple[NDArray[np.float32], list[str]]:
    """`[E, k]` values of column `index` and their names, `column` or `column=value`."""
    column, name = sheet.column(index), sheet.names[index]
    if is_text(column):
        trimmed = pc.utf8_trim_whitespace(column)
        absent = pc.is_in(pc.utf8_lower(trimmed), value_set=ABSENT)
        number = pc.fill_null(pc.match_substring_regex(trimmed, NUMBER), False)
        if pc.any(number).as_py() and pc.all(pc.or_(number, pc.or_(absent, pc.is_null(column)))).as_py():
            readable = pc.if_else(number, pc.utf8_ltrim(trimmed, "+"), pa.scalar(None, column.type))
            return _numbers(sheet, index, column, readable.cast(pa.float64())), [name]
    elif pa.types.is_integer(column.type) or pa.types.is_floating(column.type):
        return _numbers(sheet, index, column, column.cast(pa.float64(), safe=False)), [name]
    return _one_hot(sheet, column, name)


def _numbers(sheet: Sheet, index: int, written: pa.ChunkedArray, numbers: pa.ChunkedArray) -> NDArray[np.float32]:
    with np.errstate(over="ignore"):
        values = np.asarray(numbers.to_numpy(), dtype=np.float64).astype(np.float32)
    bad = np.flatnonzero(~np.isfinite(values))
    if len(bad):
        row, name = int(bad[0]), sheet.names[index]
        value = written[row].as_py()
        if value is None or value == "":
            raise InputError(f"{sheet.at(row)}: '{name}' is empty. Give every row a number, or leave the column out")
        raise InputError(f"{sheet.at(row)}: '{name}' is {value}, not a finite number in single precision")
    return values[:, None]


def _one_hot(sheet: Sheet, column: pa.ChunkedArray, name: str) -> tuple[NDArray[np.float32], list[str]]:
    """A column per distinct value, in order; a missing value has zeros in all of them."""
    texts = column.cast(pa.large_string())
    present = ~missing(texts)
    values, (codes,) = number_values(texts.filter(pa.array(present)))
    if len(values) > MOST_CATEGORIES:
        raise InputError(
            f"{sheet.origin}: '{name}' has {len(values):,} different values, such as '{values[len(values) // 2]}'; at "
            f"most {MOST_CATEGORIES:,} can be one-hot encoded. Leave the column out or make it a number"
        )
    encoded = np.zeros((len(texts), len(values)), dtype=np.float32)
    encoded[np.flatnonzero(present), codes] = 1
    return encoded, [f"{name}={value}" for value in values]
