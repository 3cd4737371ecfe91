from __future__ import annotations

from datetime import date
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from chronospike.data.attributes import Column
from chronospike.data.reading.encoding import encode_column
from chronospike.data.reading.tables import Sheet
from chronospike.errors import InputError


def encoded(values: Any) -> tuple[list[float | None], Column]:
    """The values of the column, None for NaN, and what it is."""
    block, column = encode_column(Sheet(pa.table({"x": values}), "nodes.csv"), 0)
    assert block.dtype == np.float32
    return [None if np.isnan(value) else float(value) for value in block], column


@pytest.mark.parametrize("values", [["1.5", " -2", "+3e0"], [1.5, -2.0, 3.0], pa.array(["1.5", "-2", "3"])])
def test_numbers_are_kept_as_they_are(values: Any) -> None:
    assert encoded(values) == ([1.5, -2.0, 3.0], Column("x"))


def test_text_becomes_the_codes_of_its_values_in_their_order() -> None:
    assert encoded(["red", "blue", "red"]) == ([1, 0, 1], Column("x", "category", ("blue", "red")))


def test_booleans_and_categories_are_encoded_alike() -> None:
    assert encoded([True, False]) == ([1, 0], Column("x", "category", ("false", "true")))
    assert encoded(pa.array(["b", "a"]).dictionary_encode()) == ([1, 0], Column("x", "category", ("a", "b")))


@pytest.mark.parametrize("values", [[date(1970, 1, 3), None], ["1970-01-03", ""], ["1970-01-03T00:00:00", None]])
def test_dates_become_days(values: Any) -> None:
    assert encoded(values) == ([2.0, None], Column("x"))


@pytest.mark.parametrize("values", [["1", "", "NaN", "n/a", None], [1.0, None, float("nan"), None, None]])
def test_missing_numbers_are_not_numbers(values: Any) -> None:
    assert encoded(values) == ([1.0, None, None, None, None], Column("x"))


def test_a_missing_category_is_no_category() -> None:
    assert encoded(["a", "", None, "b"])[0] == [0, None, None, 1]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (["1", "2", "-inf"], "nodes.csv row 3: 'x' is -inf, not a finite number"),
        (["1", "1e39"], "nodes.csv row 2: 'x' is 1e39, not a finite number in single precision"),
    ],
)
def test_infinite_numbers_are_named(values: Any, message: str) -> None:
    with pytest.raises(InputError) as caught:
        encoded(values)
    assert message in str(caught.value)
