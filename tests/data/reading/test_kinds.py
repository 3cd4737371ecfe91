from __future__ import annotations

import bz2
import gzip
from pathlib import Path

import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as parquet
import pytest

from chronospike.data.reading.kinds import file_kind, open_stream


def written(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


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
