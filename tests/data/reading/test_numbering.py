from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from chronospike.data.ids import NodeIds
from chronospike.data.reading.numbering import as_column, number_values, positions_in


def test_plain_integers_are_ordered_by_size() -> None:
    ids, (codes,) = number_values(as_column(["10", "9", "10", "-1"]))
    assert list(ids) == [-1, 9, 10]
    assert codes.tolist() == [2, 1, 2, 0]


def test_one_id_that_is_no_plain_integer_makes_all_text() -> None:
    ids, (codes,) = number_values(as_column(["10", "9", "007"]))
    assert list(ids) == ["9", "10", "007"]
    assert codes.tolist() == [1, 0, 2]


def test_columns_share_one_numbering_whatever_their_chunks() -> None:
    left = pa.chunked_array([["b"], ["a", "c"]])
    ids, codes = number_values(left, as_column(["d", "a", "b"]))
    assert list(ids) == ["a", "b", "c", "d"]
    assert [column.tolist() for column in codes] == [[1, 0, 2], [3, 0, 1]]


def test_order_of_rows_does_not_change_the_numbering() -> None:
    one, _ = number_values(as_column(["x", "é", "Z", "y"]))
    two, _ = number_values(as_column(["y", "Z", "é", "x"]))
    assert one == two


@pytest.mark.parametrize("other", [["1", "x"], pa.chunked_array([["1", "x"]], type=pa.large_string())])
def test_integers_beside_text_are_compared_as_text(other: list[str]) -> None:
    ids, codes = number_values(as_column([1, 2]), as_column(other))
    assert list(ids) == ["1", "2", "x"]
    assert [column.tolist() for column in codes] == [[0, 1], [0, 2]]


def test_numbers_keep_their_order_when_a_name_turns_up() -> None:
    ids, _ = number_values(as_column(["10", "9", "b", "-2", "007", "a"]))
    assert list(ids) == ["-2", "9", "10", "007", "a", "b"]


def test_whole_floats_are_integers_and_others_text() -> None:
    assert list(number_values(as_column(np.array([2.0, 1.0])))[0]) == [1, 2]
    assert list(number_values(as_column(np.array([2.5, 1.0])))[0]) == ["1", "2.5"]


def test_integers_beyond_64_bits_are_kept_as_text() -> None:
    assert list(number_values(as_column(np.array([2**63, 5], dtype=np.uint64)))[0]) == ["5", str(2**63)]


def test_no_rows_have_no_values() -> None:
    ids, (codes,) = number_values(pa.chunked_array([], type=pa.string()))
    assert (len(ids), len(codes)) == (0, 0)


def test_positions_of_unknown_values_are_minus_one() -> None:
    assert positions_in(NodeIds.of([5, 7]), as_column(["7", "x", "5", "05"])).tolist() == [1, -1, 0, -1]


def test_what_is_missing_among_mixed_values_stays_missing() -> None:
    assert as_column([1, "a", float("nan"), None]).to_pylist() == ["1", "a", None, None]


@pytest.mark.parametrize("unit", ["Y", "M", "W", "h", "m"])
def test_dates_of_any_unit_are_dates(unit: str) -> None:
    years = np.array(["2020", "2021", "NaT"], dtype="M8[Y]")
    assert as_column(years.astype(f"M8[{unit}]")).cast(pa.timestamp("s")).to_pylist()[1:] == [
        years.astype(f"M8[{unit}]").astype("M8[s]")[1].item(),
        None,
    ]


def test_numbers_of_another_byte_order_are_numbers() -> None:
    assert as_column(np.array([1, 2], dtype=np.int64).astype(">i8")).to_pylist() == [1, 2]
    assert as_column(np.array([1, 2], dtype=np.int64).astype("<i8")).to_pylist() == [1, 2]
