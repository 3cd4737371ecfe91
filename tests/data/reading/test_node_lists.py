from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from chronospike.data.ids import NodeIds
from chronospike.data.reading.node_lists import read_nodes
from chronospike.errors import InputError

IDS = NodeIds.of(["007", "7", "x,y", 'say "hi"', "Ann Lee", "node", "a\u2028b"])


def written(folder: Path, text: str, name: str = "nodes.txt") -> Path:
    (folder / name).write_bytes(text.encode())
    return folder / name


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("7\n007\n7\n", [1, 0, 1]),
        ("\ufeff007\r\n\r\n7\r\n", [0, 1]),
        ('x,y\nsay "hi"\nAnn Lee\na\u2028b', [2, 3, 4, 6]),
        ("node\n7\n", [5, 1]),
    ],
    ids=["repeats", "BOM and CRLF", "letter for letter", "a node called node"],
)
def test_a_line_is_an_id(tmp_path: Path, text: str, expected: list[int]) -> None:
    assert read_nodes(written(tmp_path, text), IDS).tolist() == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('"node","class","probability a"\n"x,y","a",0.5\n"007","b",1\n"say ""hi""","b",1\n', [2, 0, 3]),
        ("class,node\na,007\nb,7\n", [0, 1]),
        ("score\tid\n0.5\t7\n", [1]),
        ("id\n7\n007\n", [1, 0]),
        ("007;a\n7;b\n", [0, 1]),
        ("paper,score\n007,0.5\n7,1\n", [0, 1]),
    ],
    ids=["predictions", "by name", "tabs", "one column", "first column", "first column, header"],
)
def test_a_table_has_a_column_of_nodes(tmp_path: Path, text: str, expected: list[int]) -> None:
    assert read_nodes(written(tmp_path, text), IDS).tolist() == expected


def test_parquet_and_json_lines_have_a_column_of_nodes(tmp_path: Path) -> None:
    parquet.write_table(pa.table({"p": [1.0], "node": ["007"]}), tmp_path / "p.parquet")
    assert read_nodes(tmp_path / "p.parquet", IDS).tolist() == [0]
    assert read_nodes(written(tmp_path, '{"p": 1.0, "node": "007"}\n', "p.jsonl"), IDS).tolist() == [0]


def test_whole_numbers_are_found_among_whole_numbers(tmp_path: Path) -> None:
    parquet.write_table(pa.table({"node": [30, 10]}), tmp_path / "p.parquet")
    assert read_nodes(tmp_path / "p.parquet", NodeIds.of([10, 20, 30])).tolist() == [2, 0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("007\nx\ny\nz\nv\n", "nodes.txt: 4 node(s) are not in the graph, the first: 'x', 'y', 'z'"),
        ("p,q\nr\n", "nodes.txt: 2 node(s) are not in the graph, the first: 'p,q', 'r'"),
        ("id,class\n007,a\nw,b\n", "nodes.txt: 1 node(s) are not in the graph, the first: 'w'"),
        ("id,class\n007,a\n,b\n", "nodes.txt row 3: the node is empty"),
        ("\n \n", "nodes.txt contains no nodes"),
        ("", "nodes.txt: the file is empty"),
    ],
)
def test_what_is_unknown_is_named(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        read_nodes(written(tmp_path, text), IDS)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("nodes.json", '["007", "7"]', "nodes.json: 2 values in one row. Write a node on each line"),
        ("nodes.txt", "007 7 x\n", "1 node\\(s\\) are not in the graph, the first: '007 7 x'"),
    ],
)
def test_nodes_in_one_row_are_not_taken_for_the_first_of_them(
    tmp_path: Path, name: str, text: str, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        read_nodes(written(tmp_path, text, name), IDS)


def test_text_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    (tmp_path / "nodes.txt").write_bytes("Zürich\n".encode("latin-1"))
    with pytest.raises(InputError, match="not UTF-8"):
        read_nodes(tmp_path / "nodes.txt", IDS)
