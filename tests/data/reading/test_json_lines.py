from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from chronospike.data.reading import json_lines
from chronospike.data.reading.json_lines import read_json_lines
from chronospike.errors import InputError


def written(folder: Path, text: str) -> Path:
    path = folder / "edges.json"
    path.write_text(text, encoding="utf-8")
    return path


def test_arrays_become_columns_without_names(tmp_path: Path) -> None:
    sheet = read_json_lines(written(tmp_path, '[1, 2, 0.5]\n[3, "a]b", 1]\n'))
    assert not sheet.named
    assert sheet.table.to_pydict() == {"1": [1, 3], "2": ["2", "a]b"], "3": [0.5, 1.0]}


def test_objects_become_columns_by_their_keys(tmp_path: Path) -> None:
    sheet = read_json_lines(
        written(tmp_path, '{"source": "a", "time": 1}\n{"time": 2, "source": "b", "x": {"y": 1}}\n')
    )
    assert sheet.named
    assert sheet.table.to_pydict() == {"source": ["a", "b"], "time": [1, 2], "x": [None, '{"y": 1}']}


def test_types_are_settled_over_all_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_lines, "BLOCK_BYTES", 16)
    text = "".join(f"[{k}, {k}]\n" for k in range(50)) + '["x", 9999999999]\n{}'
    table = read_json_lines(written(tmp_path, text.removesuffix("{}"))).table
    assert table.column(0).to_pylist() == [*map(str, range(50)), "x"]
    assert table.column(1).to_pylist() == [*range(50), 9999999999]


def test_a_key_first_seen_late_is_null_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_lines, "BLOCK_BYTES", 16)
    sheet = read_json_lines(written(tmp_path, '{"u": 1}\n{"u": 2}\n{"u": 3}\n{"u": 4, "w": 7}\n'))
    assert sheet.table.column("w").to_pylist() == [None, None, None, 7]


def test_patent_edges_have_the_year_of_their_day(tmp_path: Path) -> None:
    text = "[0, 1, 19630101, 3858241, 956203]\n[1, 2, 19991231, 3858241, 956203]\n"
    sheet = read_json_lines(written(tmp_path, text))
    assert sheet.column(2).to_pylist() == [1963, 1999]


def test_arrays_of_five_whose_third_is_no_day_are_left_as_they_are(tmp_path: Path) -> None:
    assert read_json_lines(written(tmp_path, "[0, 1, 12345, 7, 8]\n")).column(2).to_pylist() == [12345]


def test_patent_nodes_have_their_class_in_the_fourth_place(tmp_path: Path) -> None:
    sheet = read_json_lines(written(tmp_path, "[0, 3858241, 19630101, 4]\n"))
    assert dict(sheet.positions) == {"node": 0, "label": 3}


def test_compressed_lines_with_carriage_returns_are_read(tmp_path: Path) -> None:
    path = tmp_path / "edges.jsonl.gz"
    path.write_bytes(gzip.compress(b"[1, 2, 3]\r\n[4, 5, 6]\r\n"))
    assert read_json_lines(path).table.column(0).to_pylist() == [1, 4]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[1, 2, 3]\n__import__('os')\n", "edges.json row 2: not a JSON array or object: __import__('os')"),
        ("[1, 2, 3]\n\n(1, 2, 3)\n", "edges.json row 3: not a JSON array"),
        ("[1, 2, 3\n4, 5, 6]\n", "edges.json row 1: not a JSON array"),
        ("[1, 2, 3], [4\n5, 6]\n", "edges.json row 1: not a JSON array"),
        ("[1, 2, 03]\n", "edges.json row 1: not a JSON array"),
        ("[1, 2, NaN]\n", "edges.json row 1: not a JSON array"),
        ('["a, 2]\n[3, b"]\n', "edges.json row 1: not a JSON array"),
        ("7\n", "edges.json row 1: not a JSON array"),
        ("[1, 2, 3]\n\n[1, 2]\n", "edges.json row 3: an array of 2, expected an array of 3"),
        ('[1, 2, 3]\n{"a": 1}\n', "edges.json row 2: an object, expected an array of 3"),
        ("\n\n", "no rows"),
    ],
)
def test_lines_that_are_not_alike_json_are_named(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        read_json_lines(written(tmp_path, text))
    assert message in str(caught.value)


def test_rows_count_blank_lines(tmp_path: Path) -> None:
    sheet = read_json_lines(written(tmp_path, "\n[1]\n\n\n[2]\n[3]\n"))
    assert [sheet.row_of(k) for k in range(3)] == [2, 5, 6]
