from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from chronospike import memory
from chronospike.data.attributes import Column
from chronospike.data.build import build_graph
from chronospike.data.graph import DynamicGraph
from chronospike.data.reading.attributes import encode_column, read_features
from chronospike.data.reading.edges import events_from_arrays
from chronospike.data.reading.tables import Sheet
from chronospike.data.steps import distinct_steps, equal_width_steps
from chronospike.errors import InputError

NAN = float("nan")


@pytest.fixture
def graph() -> DynamicGraph:
    """Nodes a, b, c; steps at 10, 20 and 30."""
    events = events_from_arrays(["a", "b", "c"], ["b", "c", "a"], [10, 20, 30])
    return build_graph(events, distinct_steps(events.time))


def over_time(table: dict[str, Any], graph: DynamicGraph) -> np.ndarray:
    """`[T, N]` values of the only attribute."""
    return np.asarray(read_features(table, graph)[0][:, :, 0])


def written(folder: Path, text: str) -> Path:
    path = folder / "nodes.csv"
    path.write_text(text, encoding="utf-8")
    return path


def test_numbers_and_categories_side_by_side(tmp_path: Path, graph: DynamicGraph) -> None:
    path = written(tmp_path, "node,age,colour\nc,3,red\na,1,blue\n")
    values, columns, facts = read_features(path, graph)
    assert values.dtype == np.float32
    np.testing.assert_array_equal(values, [[1, 0], [NAN, NAN], [3, 1]])
    assert columns == (Column("age"), Column("colour", "category", ("blue", "red")))
    assert facts == {
        "feature_rows": 2,
        "features_unknown": 0,
        "features_after_end": 0,
        "nodes_without_features": 1,
    }


def test_without_header_the_first_column_is_the_node(tmp_path: Path, graph: DynamicGraph) -> None:
    values, columns, _ = read_features(written(tmp_path, "a,1,2\nb,3,4\nc,5,6\n"), graph)
    assert values.tolist() == [[1, 2], [3, 4], [5, 6]]
    assert columns == (Column("2"), Column("3"))


def test_a_value_holds_from_its_step_until_replaced(graph: DynamicGraph) -> None:
    table = {"node": ["a", "a", "b"], "time": [20, 10, 20], "x": [5.0, 1.0, 7.0]}
    np.testing.assert_array_equal(over_time(table, graph), [[1, NAN, NAN], [5, 7, NAN], [5, 7, NAN]])


def test_a_value_from_before_the_first_step_holds_from_it(graph: DynamicGraph) -> None:
    assert over_time({"node": ["a"], "time": [3], "x": [5.0]}, graph)[:, 0].tolist() == [5, 5, 5]


def test_a_value_between_two_steps_is_not_known_at_the_earlier(graph: DynamicGraph) -> None:
    found = over_time({"node": ["a"], "time": [15], "x": [5.0]}, graph)[:, 0]
    np.testing.assert_array_equal(found, [NAN, 5, 5])


def test_a_value_after_the_last_step_is_left_out_and_counted(graph: DynamicGraph) -> None:
    values, _, facts = read_features({"node": ["a", "a"], "time": [10, 31], "x": [5.0, 9.0]}, graph)
    assert values[:, 0, 0].tolist() == [5, 5, 5]
    assert facts["features_after_end"] == 1


def test_the_latest_of_several_values_within_a_step_counts() -> None:
    events = events_from_arrays(["a", "b"], ["b", "a"], ["2020-01-01", "2020-03-01"])
    graph = build_graph(events, equal_width_steps(events.time, "1mo"))
    table = {"node": ["a"] * 3, "time": ["2020-01-20", "2020-01-05", "2020-02-01"], "x": [3.0, 2.0, 4.0]}
    assert over_time(table, graph)[:, 0].tolist() == [3, 4, 4]


def test_values_over_time_that_do_not_fit_into_memory_are_refused(
    graph: DynamicGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = {"node": ["a", "b"], "time": [10, 20], "x": [1, 2], "y": [3, 4]}
    needed = 4 * 3 * 3 * 2  # three steps, three nodes, two columns
    monkeypatch.setattr(memory, "available_bytes", lambda: needed)
    assert read_features(table, graph)[0].nbytes == needed
    monkeypatch.setattr(memory, "available_bytes", lambda: needed - 1)
    with pytest.raises(InputError, match=r"attributes at every step needs about .* Leave out columns"):
        read_features(table, graph)


def test_the_node_column_can_be_chosen(graph: DynamicGraph) -> None:
    table = {"who": ["a", "b", "c"], "x": [1, 2, 3], "z": [7, 8, 9]}
    values, columns, _ = read_features(table, graph, node="who")
    assert values.tolist() == [[1, 7], [2, 8], [3, 9]]
    assert columns == (Column("x"), Column("z"))


def test_unknown_nodes_are_named_or_dropped(tmp_path: Path, graph: DynamicGraph) -> None:
    path = written(tmp_path, "node,x\na,1\nz,2\n")
    with pytest.raises(InputError, match="nodes.csv: 1 described node is not in the graph, 'z'. Pass --on-unknown"):
        read_features(path, graph)
    values, _, facts = read_features(path, graph, on_unknown="drop")
    np.testing.assert_array_equal(values[:, 0], [1, NAN, NAN])
    assert facts["features_unknown"] == 1
    with pytest.raises(InputError, match="none of the described nodes is in the graph. They are written '1.0'"):
        read_features(written(tmp_path, "node,x\n1.0,1\n2.0,2\n"), graph, on_unknown="drop")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("node,x\na,1\nb,inf\n", "nodes.csv row 3: 'x' is inf"),
        ("node,x,x\na,1,2\nb,1,2\n", "nodes.csv: two columns are called 'x'"),
        ("node,x\na,1\n,3\n", "nodes.csv row 3: 'node' is empty"),
        ("node,x\na,1\nb,2\na,3\n", "nodes.csv row 4: node 'a' has other features in row 2"),
        ("node,time,x\na,,1\nb,20,2\n", "nodes.csv row 2: 'time' is empty"),
        (
            "node,time,x\na,2020-01-01,1\n",
            "nodes.csv: the times in 'time' are dates, but those of the graph are numbers",
        ),
        ("node\na\nb\n", "nodes.csv: no feature columns besides 'node'"),
    ],
)
def test_bad_features_get_one_line(tmp_path: Path, graph: DynamicGraph, text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        read_features(written(tmp_path, text), graph)
    assert message in str(caught.value)


@pytest.mark.parametrize(("shape", "dtype"), [((3, 2), np.float32), ((3, 3, 2), np.float16)])
def test_arrays_are_opened_by_memory_map(
    tmp_path: Path, graph: DynamicGraph, shape: tuple[int, ...], dtype: type
) -> None:
    np.save(tmp_path / "x.npy", np.ones(shape, dtype=dtype))
    values, columns, facts = read_features(tmp_path / "x.npy", graph)
    assert isinstance(values, np.memmap)
    assert values.dtype == dtype
    assert columns == (Column("x0"), Column("x1"))
    assert facts == {}


def test_arrays_of_doubles_and_integers_become_single_precision(tmp_path: Path, graph: DynamicGraph) -> None:
    np.save(tmp_path / "x.npy", np.arange(3)[:, None])
    assert read_features(tmp_path / "x.npy", graph)[0].dtype == np.float32


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.ones((4, 2)), r"shape \[4, 2\], expected \[3, d\] or \[3, 3, d\]"),
        (np.ones(3), r"shape \[3\]"),
        (np.array([[1.0], [np.nan], [2.0]]), r"the value at \[1, 0\] is NaN"),
        (np.array([[1.0], [2.0], [1e300]]), r"the value at \[2, 0\] is NaN, infinite or too large"),
        (np.array([["a"], ["b"], ["c"]]), "an array of numbers is needed"),
        (np.array([[object()]] * 3), "not a readable .npy array"),
    ],
)
def test_bad_arrays_get_one_line(tmp_path: Path, graph: DynamicGraph, array: np.ndarray, message: str) -> None:
    np.save(tmp_path / "x.npy", array, allow_pickle=True)
    with pytest.raises(InputError, match=f"x.npy: {message}"):
        read_features(tmp_path / "x.npy", graph)


def encoded(values: Any) -> tuple[list[float | None], Column]:
    """The values of the column, None for NaN, and what it is."""
    block, column = encode_column(Sheet(pa.table({"x": values}), "nodes.csv"), 0)
    assert block.dtype == np.float32
    return [None if np.isnan(value) else float(value) for value in block], column


@pytest.mark.parametrize("values", [["1.5", " -2", "+3e0"], [1.5, -2.0, 3.0], pa.array(["1.5", "-2", "3"])])
def test_numbers_are_kept_as_they_are(values: Any) -> None:
    assert encoded(values) == ([1.5, -2.0, 3.0], Column("x"))


@pytest.mark.parametrize("values", [["1,5", "2", ""], ["1,234.5", "7,000"], ["-0,5", None, "3.5"], ["1.234,50", "7"]])
def test_numbers_with_commas_are_refused(values: Any) -> None:
    with pytest.raises(InputError, match=f"'x' holds numbers with commas, such as {values[0]}. Write decimals with"):
        encode_column(Sheet(pa.table({"x": values}), "table"), 0)


@pytest.mark.parametrize("values", [["1,5", "red"], ["1,", "2,"], ["1,2;3", "4"], ["1.2,3", "4"]])
def test_other_text_with_commas_is_a_category(values: Any) -> None:
    assert encode_column(Sheet(pa.table({"x": values}), "table"), 0)[1].kind == "category"


def test_text_becomes_the_codes_of_its_values_in_their_order() -> None:
    assert encoded(["red", "blue", "red"]) == ([1, 0, 1], Column("x", "category", ("blue", "red")))


def test_booleans_and_categories_are_encoded_alike() -> None:
    assert encoded([True, False]) == ([1, 0], Column("x", "category", ("false", "true")))
    assert encoded(pa.array(["b", "a"]).dictionary_encode()) == ([1, 0], Column("x", "category", ("a", "b")))


@pytest.mark.parametrize(
    "values", [[date(1970, 1, 3), None], ["1970-01-03", ""], ["1970-01-03T00:00:00", None], ["1970/01/03", ""]]
)
def test_dates_become_days(values: Any) -> None:
    assert encoded(values) == ([2.0, None], Column("x"))


@pytest.mark.parametrize(
    "values",
    [
        pa.array([90_000, None], pa.duration("ms")),
        pa.array([90, None], pa.duration("s")),
        pa.array([90, None], pa.time32("s")),
        pa.array([90 * 10**9, None], pa.time64("ns")),
    ],
)
def test_durations_and_times_of_day_become_seconds(values: Any) -> None:
    assert encoded(values) == ([90.0, None], Column("x"))


def test_a_date_that_is_none_is_named_with_its_attribute() -> None:
    with pytest.raises(InputError, match=r"nodes.csv row 3: attribute 'x' with the value '0000-00-00' is not"):
        encoded(["1970-01-03", "", "0000-00-00"])


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
