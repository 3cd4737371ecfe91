from __future__ import annotations

import bz2
import errno
import gzip
import os
import shutil
import threading
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as parquet
import pytest

from chronospike.data.reading.tables import (
    Sheet,
    existing_file,
    file_kind,
    missing,
    open_stream,
    read_binary_table,
    refuse_one_stream_twice,
    sheet_of,
)
from chronospike.errors import InputError, OutOfSpaceError
from tests.standard_input import standard_input

TABLE = pa.table({"u": ["a", "b"], "t": [1, 2]})


class OnlyStream:
    """A table of some other library, known by the Arrow stream protocol alone."""

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return TABLE.__arrow_c_stream__(requested_schema)


@pytest.mark.parametrize(
    "data",
    [TABLE, TABLE.to_batches()[0], TABLE.to_reader(), OnlyStream(), {"u": ["a", "b"], "t": [1, 2]}],
    ids=lambda data: type(data).__name__,
)
def test_arrow_compatible_objects_are_read(data: Any) -> None:
    sheet = sheet_of(data)
    assert sheet.names == ["u", "t"]
    assert sheet.column(0).to_pylist() == ["a", "b"]
    assert sheet.column(1).to_pylist() == [1, 2]


def test_lists_of_numbers_beyond_64_bits_or_of_mixed_kinds_are_read_as_text() -> None:
    sheet = sheet_of({"u": [2**70, 1], "v": ["a", 1]})
    assert [sheet.column(k).to_pylist() for k in (0, 1)] == [[str(2**70), "1"], ["a", "1"]]


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_data_frames_are_read(library: str) -> None:
    frame = pytest.importorskip(library).DataFrame({"u": ["a", "b"], "t": [1, 2]})
    sheet = sheet_of(frame)
    assert [sheet.column(k).to_pylist() for k in (0, 1)] == [["a", "b"], [1, 2]]


def test_polars_categories_are_read_as_text() -> None:
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame({"u": polars.Series(["b", "a", "b"], dtype=polars.Categorical)})
    assert sheet_of(frame).column(0).to_pylist() == ["b", "a", "b"]


def test_pandas_columns_of_mixed_kinds_are_refused_in_one_line() -> None:
    pandas = pytest.importorskip("pandas")
    with pytest.raises(InputError, match="table: cannot be read") as caught:
        sheet_of(pandas.DataFrame({"u": [b"a", 1, "x"]}, dtype=object))
    assert "\n" not in str(caught.value)


def test_what_is_no_table_is_refused() -> None:
    with pytest.raises(InputError, match="a set is not a table"):
        sheet_of({1, 2})


@pytest.mark.parametrize("suffix", [".parquet", ".pq", ".feather", ".arrow"])
def test_binary_tables_are_read(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"edges{suffix}"
    (parquet.write_table if "p" in suffix else feather.write_feather)(TABLE, path)
    assert read_binary_table(path).table.to_pydict() == TABLE.to_pydict()


@pytest.mark.parametrize("suffix", [".parquet", ".feather"])
def test_a_binary_table_that_is_none_is_refused(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"edges{suffix}"
    path.write_bytes(b"u,v,t\na,b,1\n")
    with pytest.raises(InputError, match=f"edges{suffix}: not a readable"):
        read_binary_table(path)


def test_missing_file_folder_and_empty_file_are_told_apart(tmp_path: Path) -> None:
    (tmp_path / "empty.csv").touch()
    for path, message in ((tmp_path / "none.csv", "no such file"), (tmp_path, "is a folder")):
        with pytest.raises(InputError, match=message):
            existing_file(path)
    with pytest.raises(InputError, match="the file is empty"):
        existing_file(tmp_path / "empty.csv")


@pytest.mark.parametrize("name", ["-", "/dev/stdin", "/dev/fd/0"])
def test_standard_input_is_copied_under_its_name(name: str) -> None:
    with standard_input(b"a,b,1\n"):
        file = existing_file(name)
    assert (file.name, file.read_bytes()) == ("standard input", b"a,b,1\n")


def test_a_pipe_is_copied_and_keeps_its_ending(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "edges.tsv")
    writer = threading.Thread(target=lambda: (tmp_path / "edges.tsv").write_text("a\tb\t1\n"))
    writer.start()
    file = existing_file(tmp_path / "edges.tsv")
    writer.join()
    assert (file.name, file.read_text()) == ("edges.tsv", "a\tb\t1\n")


def test_nothing_on_standard_input_is_one_line() -> None:
    with standard_input(b""), pytest.raises(InputError, match="standard input: the stream is empty"):
        existing_file("-")


def test_a_descriptor_that_is_not_open_is_one_line() -> None:
    with pytest.raises(InputError, match="descriptor 999: cannot be read: Bad file descriptor"):
        existing_file("/dev/fd/999")


def test_no_space_for_a_copy_says_where_it_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(shutil, "copyfileobj", full)
    with standard_input(b"x"), pytest.raises(OutOfSpaceError, match="standard input: no space for a copy in .* TMPDIR"):
        existing_file("-")


def test_one_pipe_cannot_be_two_inputs(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("pipe")
    (tmp_path / "file").write_text("x")
    refuse_one_stream_twice("-", tmp_path / "pipe", None, tmp_path / "file", tmp_path / "file", [1])
    with pytest.raises(InputError, match="link can be read only once"):
        refuse_one_stream_twice(tmp_path / "pipe", str(tmp_path / "link"))


def test_null_empty_and_nan_are_missing() -> None:
    assert missing(pa.chunked_array([["a", "", None]])).tolist() == [False, True, True]
    assert missing(pa.chunked_array([[1.0, float("nan"), None]])).tolist() == [False, True, True]


def test_nested_columns_are_refused() -> None:
    with pytest.raises(InputError, match="column 'u' contains nested values"):
        sheet_of({"u": pa.array([[1], [2]])}).column(0)


def test_byte_strings_and_dictionaries_become_text() -> None:
    sheet = sheet_of({"u": pa.array([b"a", b"b"]), "v": pa.array(["x", "y"]).dictionary_encode()})
    assert sheet.column(0).to_pylist() == ["a", "b"]
    assert sheet.column(1).to_pylist() == ["x", "y"]


def written(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


@pytest.mark.parametrize(
    ("texts", "scale", "values"),
    [
        (["9007199254740992", "9007199254740993", None], 0, [2**53, 2**53 + 1, None]),
        (["9007199254740993"], 10, [2**53 + 1]),
        (["1180591620717411303425", "5"], 0, ["1180591620717411303425", "5"]),
        (["1.50", "2.00"], 2, [1.5, 2.0]),
    ],
)
def test_whole_decimals_keep_all_digits(texts: list[str | None], scale: int, values: list[Any]) -> None:
    decimals = [None if text is None else Decimal(text) for text in texts]
    sheet = sheet_of({"id": pa.array(decimals, pa.decimal128(38, scale))})
    assert sheet.column(0).to_pylist() == values


@pytest.mark.parametrize(
    ("name", "kind"),
    [("a.csv", "text"), ("a.TSV", "text"), ("a.json", "json"), ("a.jsonl.gz", "json"), ("a.pq", "parquet"),
     ("a.arrow", "arrow")],
)  # fmt: skip
def test_a_known_ending_tells_the_kind(tmp_path: Path, name: str, kind: str) -> None:
    assert file_kind(written(tmp_path / name, b"[1]")) == kind


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (b"a,b,1\n", "text"),
        (b'\xef\xbb\xbf \n{"u": 1}', "json"),
        (b"[1, 2, 3]", "json"),
        (gzip.compress(b"[1, 2, 3]", mtime=0), "json"),
        (b"", "text"),
    ],
)
def test_without_one_the_first_bytes_do(tmp_path: Path, content: bytes, kind: str) -> None:
    assert file_kind(written(tmp_path / "standard input", content)) == kind


def test_binary_tables_without_an_ending_are_known(tmp_path: Path) -> None:
    table = pa.table({"u": [1]})
    parquet.write_table(table, tmp_path / "one")
    feather.write_feather(table, tmp_path / "two")
    assert [file_kind(tmp_path / name) for name in ("one", "two")] == ["parquet", "arrow"]


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lambda content: content])
def test_what_is_compressed_is_unpacked_whatever_its_name(tmp_path: Path, pack: object) -> None:
    assert callable(pack)
    with open_stream(written(tmp_path / "edges.csv", pack(b"BZhang,b,1\n"))) as stream:
        assert stream.read() == b"BZhang,b,1\n"


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_a_column_alone_is_no_table(library: str) -> None:
    series = pytest.importorskip(library).Series([1, 2])
    with pytest.raises(InputError, match="labels: a Series is not a table. Give a pandas"):
        sheet_of(series, "labels")


def test_a_column_without_a_name_is_called_by_its_place() -> None:
    assert Sheet(pa.table({"": [1], "x": [2]})).called(0) == "column 1"


@pytest.mark.parametrize("word", ["NA", "NaN", "nan", "NULL", "None", "\\N", "?"])
def test_among_whole_numbers_a_word_for_nothing_is_no_value(word: str) -> None:
    assert missing(pa.chunked_array([["1", word], ["-20", "", None]])).tolist() == [False, True, False, True, True]


@pytest.mark.parametrize("others", [["a"], ["1", "b"], ["007"], ["1.5"], []])
def test_among_other_text_it_is_what_it_says(others: list[str]) -> None:
    assert missing(pa.chunked_array([["NA", "None", *others]])).sum() == 0


@pytest.mark.skipif(not hasattr(pa, "uuid"), reason="pyarrow 17 has no UUIDs")
def test_uuids_are_text() -> None:
    """As in Parquet files of databases."""
    given = [UUID(int=1), None, UUID(int=2), UUID(int=1)]
    column = pa.array([None if one is None else one.bytes for one in given], pa.uuid())
    sheet = Sheet(pa.table({"u": pa.chunked_array([column[:2], column[2:]])}))
    assert sheet.column(0).to_pylist() == [None if one is None else str(one) for one in given]


def test_columns_of_unknown_extension_types_are_refused() -> None:
    pandas = pytest.importorskip("pandas")
    sheet = sheet_of(pandas.DataFrame({"month": pandas.period_range("2020-01", periods=3, freq="M")}))
    with pytest.raises(InputError, match="column 'month' contains values of type"):
        sheet.column(0)
