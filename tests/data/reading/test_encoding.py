from __future__ import annotations

from datetime import date
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from chronospike.data.reading.encoding import encode_column
from chronospike.data.reading.tables import Sheet
from chronospike.errors import InputError


def encoded(values: Any) -> tuple[list[list[float]], list[str]]:
    block, names = encode_column(Sheet(pa.table({"x": values}), "nodes.csv"), 0)
    assert block.dtype == np.float32
    return block.tolist(), names


@pytest.mark.parametrize("values", [["1.5", " -2", "+3e0"], [1.5, -2.0, 3.0], pa.array(["1.5", "-2", "3"])])
def test_numbers_are_used_as_they_are(values: Any) -> None:
    assert encoded(values) == ([[1.5], [-2.0], [3.0]], ["x"])


def test_text_becomes_a_column_per_value_in_their_order() -> None:
    assert encoded(["red", "blue", "red"]) == ([[0, 1], [1, 0], [0, 1]], ["x=blue", "x=red"])


def test_booleans_and_categories_are_encoded_alike() -> None:
    assert encoded([True, False]) == ([[0, 1], [1, 0]], ["x=false", "x=true"])
    assert encoded(pa.array(["b", "a"]).dictionary_encode()) == ([[0, 1], [1, 0]], ["x=a", "x=b"])
    assert encoded([date(2020, 1, 2)]) == ([[1]], ["x=2020-01-02"])


def test_a_missing_category_is_all_zeros() -> None:
    assert encoded(["a", "", None, "b"])[0] == [[1, 0], [0, 0], [0, 0], [0, 1]]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (["1", "", "3"], "nodes.csv row 2: 'x' is empty"),
        ([1.0, None], "nodes.csv row 2: 'x' is empty"),
        (["1", "NaN"], "nodes.csv row 2: 'x' is NaN, not a finite number"),
        (["1", "2", "-inf"], "nodes.csv row 3: 'x' is -inf, not a finite number"),
        ([1.0, float("nan")], "nodes.csv row 2: 'x' is nan, not a finite number"),
        (["1", "1e39"], "nodes.csv row 2: 'x' is 1e39, not a finite number in single precision"),
        ([f"user {k}" for k in range(1001)], "nodes.csv: 'x' has 1,001 different values"),
    ],
)
def test_values_that_cannot_be_features_are_named(values: Any, message: str) -> None:
    with pytest.raises(InputError) as caught:
        encoded(values)
    assert message in str(caught.value)
