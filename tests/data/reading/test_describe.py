from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from chronospike.cli import run
from chronospike.data.reading.describe import EdgeFile, describe_edges
from chronospike.errors import InputError


def described(folder: Path, text: str, name: str = "edges.csv") -> EdgeFile:
    (folder / name).write_text(text)
    return describe_edges(folder / name)


def test_columns_rows_and_times_are_found(tmp_path: Path) -> None:
    found = described(tmp_path, "weight,src,dst,when\n1,a,b,2020-01-01\n1,b,c,2020-01-03 12:00\n1,a,c,2020-01-01\n")
    assert (found.rows, found.source, found.target, found.time, found.unused) == (3, "src", "dst", "when", ("weight",))
    assert found.times is not None
    assert (found.times.kind, found.times.distinct) == ("dates", 2)
    assert (found.times.first, found.times.last) == ("2020-01-01", "2020-01-03 12:00")


def test_columns_without_names_are_called_by_their_place(tmp_path: Path) -> None:
    found = described(tmp_path, "1 2 0.5\n2 3 1.5\n", "edges.txt")
    assert (found.source, found.time, found.unused) == ("column 1", "column 3", ())
    assert found.times is not None
    assert (found.times.kind, found.times.first, found.times.last) == ("numbers", "0.5", "1.5")


def test_the_time_among_more_columns_without_names_is_left_to_the_user(tmp_path: Path) -> None:
    found = described(tmp_path, "6,2,4,1289241911\n6,5,-2,1289241941\n")
    assert (found.target, found.time, found.unused) == ("column 2", None, ("column 3", "column 4"))
    assert found.import_command.endswith("--time COLUMN")


def test_a_column_that_is_not_found_is_left_to_the_user(tmp_path: Path) -> None:
    found = described(tmp_path, "src,dst,moment\na,b,1\n")
    assert (found.time, found.times, found.unused) == (None, None, ("moment",))
    assert found.import_command.endswith("--time COLUMN")


def test_times_that_cannot_be_read_are_told_and_not_refused(tmp_path: Path) -> None:
    found = described(tmp_path, "src,dst,time\na,b,1\na,b,soon\n")
    assert found.problem == "edges.csv row 3: time 'soon' is not a number or an ISO date such as 2020-02-29"
    assert found.times is None


@pytest.mark.parametrize(
    ("rows", "options"),
    [
        (["a,b,1"], []),
        (["a,b,1", "a,,2"], ["--on-missing", "drop"]),
        (["a,b,2005", "b,c,2010"], []),
        (["a,b,1577836800"], ["--time-unit", "s"]),
        (["a,b,1577836800123.5"], ["--time-unit", "ms"]),
        ([f"a,b,{k}" for k in range(1001)], ["--steps", "20"]),
        ([f"a,b,{1577836800 + 3600 * k}" for k in range(1001)], ["--time-unit", "s", "--every", "1d"]),
        ([f"a,b,{year}-{month:02}-01" for year in range(1900, 2000) for month in range(1, 13)], ["--every", "1y"]),
    ],
    ids=["plain", "incomplete", "years", "seconds", "milliseconds", "many numbers", "many seconds", "many dates"],
)
def test_the_command_given_imports_the_file(tmp_path: Path, rows: list[str], options: list[str]) -> None:
    found = described(tmp_path, "\n".join(["src,dst,time", *rows]), "my edges.csv")
    words = shlex.split(found.import_command)
    assert words[:4] == ["chronospike", "data", "import", str(tmp_path / "my edges.csv")]
    assert words[4:] == ["-o", "graphs/my edges", *options]
    assert run([*words[1:4], "-o", str(tmp_path / "g"), *options]) == 0


def test_a_file_with_no_complete_row_says_so(tmp_path: Path) -> None:
    found = described(tmp_path, "src,dst,time\na,,1\n,b,2\n")
    assert (found.incomplete, found.problem) == (2, "edges.csv: no row has a source, a target and a time")


def test_what_is_no_table_is_refused(tmp_path: Path) -> None:
    (tmp_path / "noise.csv").write_bytes(bytes(range(256)))
    with pytest.raises(InputError, match="noise.csv"):
        describe_edges(tmp_path / "noise.csv")
