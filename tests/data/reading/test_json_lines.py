from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from chronospike.data.reading import json_lines
from chronospike.data.reading.json_lines import read_json
from chronospike.errors import InputError


def written(folder: Path, text: str) -> Path:
    path = folder / "edges.json"
    path.write_text(text, encoding="utf-8")
    return path


def test_arrays_become_columns_without_names(tmp_path: Path) -> None:
    sheet = read_json(written(tmp_path, '[1, 2, 0.5]\n[3, "a]b", 1]\n'))
    assert not sheet.named
    assert sheet.table.to_pydict() == {"1": [1, 3], "2": ["2", "a]b"], "3": [0.5, 1.0]}


def test_objects_become_columns_by_their_keys(tmp_path: Path) -> None:
    sheet = read_json(written(tmp_path, '{"source": "a", "time": 1}\n{"time": 2, "source": "b", "x": {"y": 1}}\n'))
    assert sheet.named
    assert sheet.names == ["source", "time", "x"]
    assert [sheet.column(k).to_pylist() for k in (0, 1)] == [["a", "b"], [1, 2]]


def test_types_are_settled_over_all_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_lines, "BLOCK_BYTES", 16)
    text = "".join(f"[{k}, {k}]\n" for k in range(50)) + '["x", 9999999999]\n{}'
    table = read_json(written(tmp_path, text.removesuffix("{}"))).table
    assert table.column(0).to_pylist() == [*map(str, range(50)), "x"]
    assert table.column(1).to_pylist() == [*range(50), 9999999999]


def test_whole_numbers_too_long_for_a_float_keep_their_digits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_lines, "BLOCK_BYTES", 16)
    sheet = read_json(written(tmp_path, "[12345678901234567]\n[null]\n[null]\n[null]\n[1.5]\n"))
    assert sheet.column(0).to_pylist() == ["12345678901234567", None, None, None, "1.5"]


def test_a_key_first_seen_late_is_null_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_lines, "BLOCK_BYTES", 16)
    sheet = read_json(written(tmp_path, '{"u": 1}\n{"u": 2}\n{"u": 3}\n{"u": 4, "w": 7}\n'))
    assert sheet.table.column("w").to_pylist() == [None, None, None, 7]


@pytest.mark.parametrize("text", ["[0, 1, 19630101, 7, 8]\n", "[0, 7, 19630101, 4]\n"])
def test_values_that_look_like_days_are_left_as_they_are(tmp_path: Path, text: str) -> None:
    assert read_json(written(tmp_path, text)).column(2).to_pylist() == [19630101]


def test_compressed_lines_with_carriage_returns_are_read(tmp_path: Path) -> None:
    path = tmp_path / "edges.jsonl.gz"
    path.write_bytes(gzip.compress(b"[1, 2, 3]\r\n[4, 5, 6]\r\n"))
    assert read_json(path).table.column(0).to_pylist() == [1, 4]


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
        read_json(written(tmp_path, text))
    assert message in str(caught.value)


def test_rows_count_blank_lines(tmp_path: Path) -> None:
    sheet = read_json(written(tmp_path, "\n[1]\n\n\n[2]\n[3]\n"))
    assert [sheet.row_of(k) for k in range(3)] == [2, 5, 6]


@pytest.mark.parametrize(
    "text",
    ["[[1, 2, 3], [4, 5, 6]]", "[\n  [1, 2, 3],\n  [4, 5, 6]\n]\n", "\ufeff\r\n[\r\n[1, 2, 3],\r\n[4,\n5, 6]]"],
)
def test_one_array_of_arrays_is_a_table(tmp_path: Path, text: str) -> None:
    sheet = read_json(written(tmp_path, text))
    assert not sheet.named
    assert sheet.table.to_pydict() == {"1": [1, 4], "2": [2, 5], "3": [3, 6]}


@pytest.mark.parametrize("indent", [None, 2])
def test_one_array_of_objects_is_a_table(tmp_path: Path, indent: int | None) -> None:
    rows = [{"source": "a", "time": 1}, {"source": "b", "time": 2}]
    sheet = read_json(written(tmp_path, json.dumps(rows, indent=indent)))
    assert sheet.named
    assert sheet.table.to_pylist() == rows


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"source": [0, 1], "target": [1, 2]}', "edges.json: one JSON object of columns ('source', 'target'). Exp"),
        ('{\n  "source": [0, 1]\n}', "edges.json: one JSON object of columns ('source'). Expected is an array or an"),
        ('{"directed": false, "links": [{"source": 0}]}', "edges.json: one JSON object ('directed', 'links')"),
        ("{\n}", "edges.json: one JSON object (empty)"),
        ("[\n  1,\n  2\n]", "edges.json: an array of 2 plain values. Expected"),
        ("[[1, 2, 3], 4]", "edges.json row 2: a plain value, expected an array of 3"),
        ("[[1, 2, 3], [4, 5]]", "edges.json row 2: an array of 2, expected an array of 3"),
        ('[{"a": 1}, [1]]', "edges.json row 2: an array of 1, expected an object"),
        ("[[1, 2, 3], [4, 5", "edges.json: not JSON: Expecting ',' delimiter: line 1 column 18"),
        ("[[1, 2], 3]\n[[1, 2], 3]\n", "edges.json: not JSON: Extra data: line 2"),
        ("[]", "edges.json: no rows"),
        ('["\\ud800", 2, 3]', "edges.json: text with half a character, '\\ud800'"),
    ],
)
def test_a_document_that_is_no_table_is_described(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        read_json(written(tmp_path, text))
    assert message in str(caught.value)


def test_nested_values_are_refused_only_where_they_are_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_lines, "BLOCK_BYTES", 16)
    sheet = read_json(written(tmp_path, '{"u": 1, "x": 1}\n{"u": 2, "x": {"y": 1}}\n{"u": 3, "x": "z"}\n'))
    assert sheet.column(0).to_pylist() == [1, 2, 3]
    with pytest.raises(InputError, match="edges.json: column 'x' contains nested values"):
        sheet.column(1)
