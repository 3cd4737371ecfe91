from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from chronospike.data.ids import NodeIds
from chronospike.data.reading.labels import read_labels
from chronospike.errors import InputError

IDS = NodeIds.of(["a", "b", "c", "d"])


def written(folder: Path, text: str) -> Path:
    path = folder / "labels.csv"
    path.write_text(text, encoding="utf-8")
    return path


def test_nodes_without_a_label_are_unlabelled_and_counted(tmp_path: Path) -> None:
    labels, facts = read_labels(written(tmp_path, "node,label\nb,red\na,blue\nc,\n"), IDS)
    assert labels.codes.tolist() == [0, 1, -1, -1]
    assert labels.names == ("blue", "red")
    assert facts == {
        "label_rows": 3,
        "labels_missing": 1,
        "labels_unknown": 0,
        "labels_repeated": 0,
        "label_column": "label",
        "label_columns_other": [],
    }


def test_a_file_without_header_has_node_then_label(tmp_path: Path) -> None:
    labels, _ = read_labels(written(tmp_path, "a red\nb blue\n"), IDS)
    assert labels.codes.tolist() == [1, 0, -1, -1]


@pytest.mark.parametrize("text", ["node,is_fraud\na,yes\nb,no\n", "colour,id\nyes,a\nno,b\n"])
def test_of_two_columns_the_one_beside_the_nodes_holds_the_labels(tmp_path: Path, text: str) -> None:
    labels, _ = read_labels(written(tmp_path, text), IDS)
    assert labels.names == ("no", "yes")
    assert labels.codes.tolist() == [1, 0, -1, -1]


def test_integer_classes_are_ordered_by_size_and_kept_as_written() -> None:
    labels, _ = read_labels({"a": 10, "b": 9, "c": -1}, IDS)
    assert labels.names == ("-1", "9", "10")
    assert labels.codes.tolist() == [2, 1, 0, -1]


def test_classes_that_are_text_come_after_numbers_and_are_kept_as_written() -> None:
    labels, _ = read_labels({"a": "10", "b": "9", "c": "01"}, IDS)
    assert labels.names == ("9", "10", "01")


def test_a_series_is_a_mapping_of_its_index() -> None:
    pandas = pytest.importorskip("pandas")
    labels, _ = read_labels(pandas.Series(["red", None, "blue"], index=["b", "c", "a"]), IDS)
    assert labels.codes.tolist() == [0, 1, -1, -1]
    with pytest.raises(InputError, match="node 'b' is 'blue' here and 'red' in row 1"):
        read_labels(pandas.Series(["red", "blue"], index=["b", "b"]), IDS)


def test_none_and_nan_are_no_label() -> None:
    labels, facts = read_labels({"a": 1.0, "b": None, "c": float("nan"), "d": 2.0}, IDS)
    assert labels.names == ("1", "2")
    assert facts["labels_missing"] == 2


def test_integer_ids_match_ids_written_as_text(tmp_path: Path) -> None:
    labels, _ = read_labels(written(tmp_path, "id,class\n7,x\n5,y\n"), NodeIds.of([5, 7]))
    assert labels.codes.tolist() == [1, 0]


@pytest.mark.parametrize("on_unknown", ["error", "drop"])
def test_labels_of_other_nodes_only_show_how_both_are_written(tmp_path: Path, on_unknown: str) -> None:
    path = written(tmp_path, "node,label\n1.0,x\n2.0,y\n")
    with pytest.raises(InputError, match=r"They are written '1.0', '2.0', and those of the graph '1', '2', '3'"):
        read_labels(path, NodeIds.of([1, 2, 3, 4]), on_unknown=on_unknown)


def test_unknown_nodes_are_counted_and_the_first_three_named(tmp_path: Path) -> None:
    path = written(tmp_path, "node,label\na,1\nz,1\nb,2\ny,2\nx,1\nw,1\n")
    with pytest.raises(InputError) as caught:
        read_labels(path, IDS)
    assert str(caught.value) == (
        "labels.csv: 4 labelled nodes are not in the graph, the first three: 'z', 'y', 'x'. "
        "Pass --on-unknown drop to leave them out."
    )
    labels, facts = read_labels(path, IDS, on_unknown="drop")
    assert labels.codes.tolist() == [0, 1, -1, -1]
    assert facts["labels_unknown"] == 4


def test_classes_of_dropped_nodes_are_no_classes() -> None:
    labels, _ = read_labels({"a": "x", "b": "y", "stranger": "z"}, IDS, on_unknown="drop")
    assert labels.names == ("x", "y")


def test_the_same_label_twice_is_counted(tmp_path: Path) -> None:
    _, facts = read_labels(written(tmp_path, "node,label\na,1\na,1\nb,2\n"), IDS)
    assert facts["labels_repeated"] == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("node,label\na,1\nb,2\na,2\n", "labels.csv row 4: node 'a' is '2' here and '1' in row 2. Keep one"),
        ("node,label\na,1\nb,1\n", "labels.csv: only one class, 1; at least two classes are needed"),
        ("node,label\na,\nb,\n", "labels.csv: no label of a node in the graph"),
        ("node,label\na,1\n,2\n", "labels.csv row 3: 'node' is empty"),
        ("node,hue,tone\na,1,x\nb,2,y\n", "labels.csv: no 'label' column. The columns are: 'node', 'hue', 'tone'"),
    ],
)
def test_bad_labels_get_one_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        read_labels(written(tmp_path, text), IDS)
    assert message in str(caught.value)


def test_columns_can_be_named() -> None:
    table = pa.table({"label": ["x", "y"], "colour": ["red", "blue"], "who": ["a", "b"]})
    assert read_labels(table, IDS, node="who", label="colour")[0].names == ("blue", "red")
