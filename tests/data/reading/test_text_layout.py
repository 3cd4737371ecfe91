from __future__ import annotations

from pathlib import Path

import pytest

from chronospike.data.reading.text_layout import RUNS, Layout, detect_layout
from chronospike.errors import InputError

KNOWN = frozenset({"source", "target", "time", "u", "v", "t", "node", "label"})


def layout(text: str, name: str = "edges.txt", header: bool | None = None, delimiter: str | None = None) -> Layout:
    return detect_layout(text.encode(), True, Path(name), header=header, delimiter=delimiter, known=KNOWN)


@pytest.mark.parametrize(
    ("text", "delimiter"),
    [
        ("a,b,1\nc,d,2\n", ","),
        ("a\tb\t1\nc\td\t2\n", "\t"),
        ("a;b;1\nc;d;2\n", ";"),
        ("a|b|1\nc|d|2\n", "|"),
        ("52 53 0.0\n52 53 0.1\n", RUNS),
        ("52   53  0.0\n", RUNS),
        ("1;2;0,5\n3;4;0,7\n", ";"),
        ("x y,b|c,3\nx y,d|e,4\n", ","),
        ("source,target,time,tags\na,b,1,p;q;r;s;t\na,c,2,p;q;r;s;t\n", ","),
        ("a,b,1\nc,d\n", ","),
        ('"a b" c 1\n"d e" f 2\n', " "),
    ],
)
def test_delimiter_is_found(text: str, delimiter: str) -> None:
    assert layout(text).delimiter == delimiter


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("u,v,t\na,b,1\n", True),
        ("a,b,2020-01-01\nc,d,2020-01-02\n", False),
        ("a,b,2020/01/01\nc,d,2020/01/02\n", False),
        ("52 53 0.0\n52 53 0.1\n", False),
        ("u,v,1\na,b,2\n", False),
        ("one,two,three\na,b,2020-01-01\n", True),
        ("node,label\na,red\nb,blue\n", True),
        ("a,red\nb,blue\n", False),
        ("source,target,time\n", True),
        ("a,b,1\n", False),
        ("Source,TARGET,Time\na,b,yesterday\n", True),
    ],
)
def test_header_is_told_from_data(text: str, named: bool) -> None:
    assert layout(text).named is named


def test_header_can_be_said() -> None:
    assert layout("a,b,1\nc,d,2\n", header=True).names == ("a", "b", "1")
    assert layout("u,v,t\na,b,1\n", header=False).names == ("1", "2", "3")


def test_comments_and_blank_lines_at_the_top_are_skipped_and_counted() -> None:
    found = layout("# a graph\n% of 2 edges\n\n1 2 3\n4 5 6\n")
    assert (found.skip_rows, found.skip_bytes) == (3, 24)
    assert not found.named


@pytest.mark.parametrize("first", ["sep=;", '"sep=;"', "SEP=;"])
def test_a_line_that_names_the_separator_is_skipped(first: str) -> None:
    found = layout(f"\ufeff{first}\r\nsource;target;time\r\na,1;b,2;3\r\n")
    assert (found.delimiter, found.names, found.skip_rows) == (";", ("source", "target", "time"), 2)
    assert layout("sep=x\n").names == ("1",)


def test_last_comment_is_the_header_if_it_names_the_columns() -> None:
    found = layout("# written today\n# time source target\n1 a b\n")
    assert found.named
    assert found.names == ("time", "source", "target")


def test_byte_order_mark_is_not_part_of_the_first_name() -> None:
    assert layout("\ufeffu,v,t\na,b,1\n").names == ("u", "v", "t")


def test_header_with_a_quoted_line_break_is_one_row() -> None:
    text = 'u,v,t,"a\nnote"\na,b,1,x\n'
    found = layout(text)
    assert (found.skip_rows, found.skip_bytes) == (1, text.index("a,b"))


def test_blank_after_each_comma_belongs_to_the_delimiter() -> None:
    assert layout("a, b, 1\nc, d, 2\n").padded
    assert not layout("a, b,1\nc, d,2\n").padded
    assert layout('u, v, t\na, "b,c", 1\n').padded
    assert not layout("u, v, t\na,b,1\n").padded


def test_blank_after_each_comma_but_not_in_the_header() -> None:
    found = layout("u,v,t\na, b, 1\nc, d, 2\n")
    assert (found.padded, found.names) == (True, ("u", "v", "t"))


def test_a_cut_sample_ignores_its_last_row() -> None:
    found = detect_layout(b"a,b,1\nc,d,2\ne,f", False, Path("edges.csv"))
    assert found.names == ("1", "2", "3")


def test_tsv_is_split_at_tabs_whatever_else_it_holds() -> None:
    assert layout("a,b\t1,2\n", "edges.tsv").delimiter == "\t"


@pytest.mark.parametrize(("text", "message"), [("# only\n% this\n", "only comments"), ("\n \n", "only blank lines")])
def test_file_without_rows_is_refused(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        layout(text)


@pytest.mark.parametrize("delimiter", ["::", "§", '"'])
def test_delimiter_that_is_not_one_plain_character_is_refused(delimiter: str) -> None:
    with pytest.raises(InputError, match="one ASCII character"):
        layout("a,b,1\n", delimiter=delimiter)
