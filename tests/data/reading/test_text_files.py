from __future__ import annotations

import bz2
import csv
import gzip
from pathlib import Path

import pytest

from chronospike.data.reading.text_files import read_text_table
from chronospike.errors import InputError

KNOWN = frozenset({"u", "v", "t"})


def written(folder: Path, data: str | bytes, name: str = "edges.csv") -> Path:
    path = folder / name
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return path


def rows(path: Path, header: bool | None = None) -> list[list[str]]:
    table = read_text_table(path, header=header, known=KNOWN).table
    return [list(row) for row in zip(*(column.to_pylist() for column in table.columns), strict=True)]


def test_values_come_back_letter_for_letter(tmp_path: Path) -> None:
    wanted = [["007", "a,b", "1"], ['say "hi"', "two\nlines", "2"], ["NA", " é\t", "3"], ["null", "1e5", "4"]]
    with (tmp_path / "edges.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([["u", "v", "t"], *wanted])
    assert rows(tmp_path / "edges.csv") == wanted


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_any_line_end_is_read(tmp_path: Path, end: str) -> None:
    assert rows(written(tmp_path, end.join(["u,v,t", "a,b,1", "c,d,2", ""]))) == [["a", "b", "1"], ["c", "d", "2"]]


def test_last_line_needs_no_end(tmp_path: Path) -> None:
    assert rows(written(tmp_path, "u,v,t\na,b,1")) == [["a", "b", "1"]]


def test_runs_of_blanks_separate_once(tmp_path: Path) -> None:
    path = written(tmp_path, "  1 2\t\t0.5  \n3   4 0.7\r\n \n5 6 0.9", "edges.txt")
    assert rows(path) == [["1", "2", "0.5"], ["3", "4", "0.7"], ["5", "6", "0.9"]]


def test_other_white_space_does_not_separate(tmp_path: Path) -> None:
    assert rows(written(tmp_path, "a\u00a0b c 1\nd e 2\n", "edges.txt"))[0] == ["a\u00a0b", "c", "1"]


def test_blank_after_comma_is_not_part_of_the_value(tmp_path: Path) -> None:
    assert rows(written(tmp_path, 'u, v, t\na, "b, c", 1\n')) == [["a", "b, c", "1"]]
    assert rows(written(tmp_path, 'u, v, t\na, "b,c", 1\n')) == [["a", "b,c", "1"]]


@pytest.mark.parametrize(("suffix", "squeeze"), [(".gz", gzip.compress), (".bz2", bz2.compress)])
def test_compressed_text_is_read(tmp_path: Path, suffix: str, squeeze: type[bytes]) -> None:
    path = written(tmp_path, squeeze(b"# note\nu,v,t\na,b,1\n"), f"edges.csv{suffix}")
    assert rows(path) == [["a", "b", "1"]]


def test_byte_order_mark_without_header_is_not_part_of_the_first_value(tmp_path: Path) -> None:
    assert rows(written(tmp_path, "\ufeffa,b,1\nc,d,2\n"))[0] == ["a", "b", "1"]


def test_repeated_and_empty_column_names_are_kept_apart(tmp_path: Path) -> None:
    sheet = read_text_table(written(tmp_path, "u,u,,t\na,b,c,1\n"), known=KNOWN)
    assert sheet.names == ["u", "u", "", "t"]
    assert sheet.column(1).to_pylist() == ["b"]


@pytest.mark.parametrize(
    ("text", "index", "row"),
    [
        ("u,v,t\na,b,1\nc,d,2\n", 1, 3),
        ("a,b,1\nc,d,2\n", 1, 2),
        ("# note\n\nu,v,t\n\na,b,1\n\nc,d,2\n", 1, 7),
        ('u,v,t\n"a\nb",c,1\nd,e,2\n', 1, 3),
    ],
)
def test_rows_are_counted_as_a_person_sees_them(tmp_path: Path, text: str, index: int, row: int) -> None:
    assert read_text_table(written(tmp_path, text), known=KNOWN).row_of(index) == row


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"u,v,t\na,b,1\nc,d\n", r"edges.csv row 3: 2 columns, expected 3"),
        (b"u,v,t\na,b,1\n\nc,d,2,5\n", r"edges.csv row 4: 4 columns, expected 3"),
        (b"u, v, t\na, b, 1\n" + b"c, d, 2\n" * 200 + b"c, d\n", r"edges.csv row 203: 2 columns, expected 3"),
        (b"u,v,t\na,b,1\ncaf\xe9,d,2\n", r"edges.csv row 3: not UTF-8"),
        (b"caf\xe9,v,t\na,b,1\n", r"edges.csv: the header is not UTF-8"),
        (b'u,v,t\na,b,1\n"c,d,2\n' + b"e,f,3\n" * 30000, r"edges.csv row 3: .*Is a quote left open"),
        (b"u,v,t\n", r"no rows after the header"),
        (b"u,v,t\n\n\n", r"no rows after the header"),
        (b"\x00\x01\x02PK", r"edges.csv: not a text file"),
        (b"PK\x03\x04\x14\x00", r"edges.csv: a ZIP archive or an Excel workbook. Unpack it"),
        ("u,v,t\n".encode("utf-16"), r"edges.csv: UTF-16"),
    ],
)
def test_what_cannot_be_read_is_named_in_one_line(tmp_path: Path, data: bytes, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        read_text_table(written(tmp_path, data), known=KNOWN)
    assert "\n" not in str(caught.value)


def test_broken_compression_is_an_input_error(tmp_path: Path) -> None:
    path = written(tmp_path, gzip.compress(b"u,v,t\na,b,1\n" * 50)[:30], "edges.csv.gz")
    with pytest.raises(InputError, match="cannot be read"):
        read_text_table(path, known=KNOWN)
