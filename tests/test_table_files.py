from __future__ import annotations

import json
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from chronospike.errors import InputError, OutOfSpaceError
from chronospike.table_files import ARRAYS, TABLES, output_format, write_array, write_table

TABLE = pa.table({"node": ["007", 'say "hi"', "a,b\nc"], "p": [0.25, 0.5, 1.0], "label": ["x", None, ""]})


@contextmanager
def small_disk() -> Iterator[None]:
    """No file may grow beyond four kilobytes, not even the one that pytest's output goes to."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 12, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_csv_text_comes_back_letter_for_letter(tmp_path: Path) -> None:
    write_table(tmp_path / "t.csv", TABLE, "csv")
    expected = '"node","p","label"\n"007",0.25,"x"\n"say ""hi""",0.5,\n"a,b\nc",1,""\n'
    assert (tmp_path / "t.csv").read_text(encoding="utf-8") == expected


def test_parquet_is_parquet(tmp_path: Path) -> None:
    write_table(tmp_path / "t.parquet", TABLE, "parquet")
    assert pyarrow.parquet.read_table(tmp_path / "t.parquet").to_pylist() == TABLE.to_pylist()


def test_json_lines_have_an_object_per_row(tmp_path: Path) -> None:
    write_table(tmp_path / "t.jsonl", TABLE, "jsonl")
    lines = (tmp_path / "t.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line) for line in lines] == TABLE.to_pylist()


@pytest.mark.parametrize("transposed", [False, True])
def test_arrays_are_read_by_numpy(tmp_path: Path, transposed: bool) -> None:
    array = np.arange(12, dtype=np.float32).reshape(3, 4)
    array = array.T if transposed else array
    write_array(tmp_path / "z.npy", array)
    np.testing.assert_array_equal(np.load(tmp_path / "z.npy"), array)


@pytest.mark.parametrize("kind", ARRAYS)
def test_a_full_disk_is_one_line_and_leaves_nothing(tmp_path: Path, kind: str) -> None:
    values = np.random.default_rng(0).random((40, 30))
    table = pa.table({f"z{k}": values[:, k] for k in range(30)})
    with small_disk(), pytest.raises(OutOfSpaceError, match="the disk is full"):
        write_array(tmp_path / "x.npy", values) if kind == "npy" else write_table(tmp_path / f"x.{kind}", table, kind)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["p.csv", "p.parquet", "p.jsonl", "P.CSV"])
def test_the_ending_tells_the_format(tmp_path: Path, name: str) -> None:
    assert output_format(tmp_path / name, None, TABLES) == name.lower().split(".")[1]


@pytest.mark.parametrize(
    ("name", "asked", "message"),
    [
        ("p", None, "the extension sets the format. Choose .csv, .parquet or .jsonl"),
        ("p.csv.gz", None, "the extension sets the format"),
        ("p.npy", None, "a .npy file holds numbers only"),
        ("p.csv", "parquet", "--format parquet contradicts the extension .csv"),
        ("p.csv", "pdf", "--format 'pdf' is not one of: csv, parquet, jsonl"),
        ("p", "npy", "--format 'npy' is not one of: csv, parquet, jsonl"),
        (".", None, "is a folder"),
    ],
)
def test_a_name_that_tells_no_format_is_refused(tmp_path: Path, name: str, asked: str | None, message: str) -> None:
    with pytest.raises(InputError) as caught:
        output_format(tmp_path / name, asked, TABLES)
    assert message in str(caught.value)


def test_a_stream_is_csv_unless_asked_otherwise() -> None:
    assert [output_format(Path("/dev/stdout"), asked, ARRAYS) for asked in (None, "npy")] == ["csv", "npy"]


def test_a_name_without_an_ending_takes_the_format_asked_for(tmp_path: Path) -> None:
    assert output_format(tmp_path / "p.out", "jsonl", TABLES) == "jsonl"
