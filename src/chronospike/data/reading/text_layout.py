"""The layout of a text table: its separator, its comments, and whether the first row is a header."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from chronospike.data.reading.columns import letters
from chronospike.errors import InputError

RUNS = "whitespace"  # any run of blanks and tabs is one separator
DELIMITERS = {"tab": "\t", "comma": ",", "semicolon": ";", "pipe": "|", "space": " ", "\\t": "\t"}
SAMPLE_ROWS = 100
SEPARATOR_LINE = re.compile('"?sep=([^"])"?', re.IGNORECASE)  # as spreadsheets write at the top
VALUE = re.compile(
    r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|nan|[+-]?inf|\d{4}[-/]\d\d([-/]\d\d)?([T ].*)?", re.IGNORECASE
)


@dataclass(frozen=True)
class Layout:
    """What has to be known before a text table can be read.

    Attributes:
        delimiter: one character, or `RUNS`.
        padded: the delimiter is always followed by a blank, which belongs to it: `a, b, 3`.
        names: the columns' names; "1", "2", … if the file has none.
        named: whether they came from the file.
        skip_bytes, skip_rows: what stands before the first row of data.
    """

    delimiter: str
    padded: bool
    names: tuple[str, ...]
    named: bool
    skip_bytes: int
    skip_rows: int


@dataclass(frozen=True)
class _Record:
    fields: list[str]
    row: int  # counted from 1, blank ones included
    end: int  # lines consumed up to and with this record


def detect_layout(
    head: bytes,
    complete: bool,
    path: Path,
    *,
    header: bool | None = None,
    delimiter: str | None = None,
    known: Collection[str] = (),
    asked: Collection[str] = (),
) -> Layout:
    """The layout of a text table from its first bytes.

    A line `sep=;` at the top names the delimiter. Lines there that start with '#' or '%' are comments; the last one is
    taken as the header if it has as many fields as the data and holds a known name (`# source target time`).

    Args:
        head: the beginning of the file, long enough to hold some rows.
        complete: whether that is the whole file.
        header: whether the first row is one; None to find out.
        delimiter: one character, a word such as "tab", "whitespace" for runs of blanks; None to find out.
        known: names, letters and digits only, that mark a header.
        asked: columns the user named; the file must then have a header.
    """
    mark = 3 if head.startswith(b"\xef\xbb\xbf") else 0
    raw = head[mark:].splitlines(keepends=True)
    if not complete and len(raw) > 1:
        raw.pop()  # cut short
    lines = [line.decode("utf-8", errors="surrogateescape") for line in raw]
    top = next((k for k, line in enumerate(lines) if line.strip() and line[0] not in "#%"), len(lines))
    if top == len(lines):
        raise InputError(f"{path.name}: no rows, only {'comments' if any(map(str.strip, lines)) else 'blank lines'}")
    told = SEPARATOR_LINE.fullmatch(lines[top].strip())
    if told and top + 1 < len(lines):
        top, delimiter = top + 1, delimiter or told[1]
    body = lines[top:]
    split = _delimiter_given(delimiter) if delimiter else _guess_delimiter(body, complete, path, known)
    records = _sample(body, split, complete, padded=False)
    padded = split not in (RUNS, " ") and _is_padded([record.fields for record in records])
    if padded:
        records = _sample(body, split, complete, padded=True)
    fields = [record.fields for record in records]
    comment = _comment_header(lines[:top], split, len(fields[0]), known) if header is None else None
    has_header = header if header is not None else comment is None and _has_header(fields[0], fields[1:], known, asked)
    names = fields[0] if has_header else comment or [str(k + 1) for k in range(len(fields[0]))]
    names = [name.strip() for name in names]
    if any("\udc80" <= letter <= "\udcff" for name in names for letter in name):
        raise InputError(f"{path.name}: the header is not UTF-8 text. Save the file as UTF-8")
    skipped_lines = top + (records[0].end if has_header else 0)
    return Layout(
        delimiter=split,
        padded=padded,
        names=tuple(names),
        named=has_header or comment is not None,
        skip_bytes=mark + sum(map(len, raw[:skipped_lines])),
        skip_rows=top + (records[0].row if has_header else 0),
    )


def split_rows(lines: Iterator[str], delimiter: str, padded: bool) -> Iterator[list[str]]:
    """The fields of each row; an empty list for a blank line."""
    if delimiter == RUNS:
        # Only blanks and tabs: str.split would also split at a no-break space inside an id.
        return ([field for field in re.split("[ \t]+", line.strip(" \t\r\n")) if field] for line in lines)
    return csv.reader(lines, delimiter=delimiter, skipinitialspace=padded)


def _sample(lines: list[str], delimiter: str, complete: bool, padded: bool) -> list[_Record]:
    """The first rows that are not blank."""
    rows, records = split_rows(iter(lines), delimiter, padded), list[_Record]()
    try:
        for row, fields in enumerate(rows, 1):
            if fields:
                # A quoted field may run over several lines, which the reader counts.
                records.append(_Record(fields, row, getattr(rows, "line_num", row)))
            if len(records) == SAMPLE_ROWS:
                return records
    except csv.Error:
        # A field without end, say: the rows before it tell the layout, and reading it all will name the row.
        if not records:
            raise
        return records
    # A quoted field may be open where the sample ends.
    return records if complete or len(records) < 3 else records[:-1]


def _is_padded(rows: list[list[str]]) -> bool:
    """Whether a blank follows each separator, or stands before a quote, which then opens a value."""
    if any(re.match(' +"', field) for row in rows for field in row[1:]):
        return True
    # The first may be a header, written in another way.
    return all(len(row) > 1 and all(field.startswith(" ") for field in row[1:]) for row in rows[1:] or rows)


def _delimiter_given(delimiter: str) -> str:
    split = DELIMITERS.get(delimiter, delimiter)
    if split != RUNS and (len(split) != 1 or split in '"\r\n' or not split.isascii()):
        raise InputError(
            f"delimiter {delimiter!r}: one ASCII character is needed, or one of: {', '.join(DELIMITERS)}, {RUNS}"
        )
    return split


def _guess_delimiter(lines: list[str], complete: bool, path: Path, known: Collection[str]) -> str:
    """The separator that splits most rows alike, and among those into most fields; blanks if no other does.

    One that splits the first row into known names comes before all others.
    """
    if ".tsv" in path.suffixes:
        return "\t"
    best, best_score = "", (False, 0.0, 1)
    for candidate in ",\t;|":
        try:
            records = _sample(lines, candidate, complete, padded=False)
        except csv.Error:
            continue
        counts = Counter(len(record.fields) for record in records)
        width, rows = counts.most_common(1)[0]
        names = sum(letters(field) in known for field in records[0].fields)
        score = (names > 1, rows / len(records), width)
        if width > 1 and score > best_score:
            best, best_score = candidate, score
    if best:
        return best
    if any('"' in line for line in lines[:SAMPLE_ROWS]):
        return " "
    return RUNS if len(lines[0].split()) > 1 else ","


def _is_value(field: str) -> bool:
    return VALUE.fullmatch(field.strip()) is not None


def _has_header(first: list[str], rest: list[list[str]], known: Collection[str], asked: Collection[str]) -> bool:
    """Whether the first row names the columns.

    It does if it has a word where the other rows have numbers or dates. Where no column tells, known names decide.
    """
    if any(not name.isdecimal() for name in asked):
        return True
    columns = [[row[k] for row in rest if k < len(row) and row[k].strip()] for k in range(len(first))]
    typed = [k for k, values in enumerate(columns) if values and all(map(_is_value, values))]
    if typed:
        return any(first[k].strip() and not _is_value(first[k]) for k in typed)
    return not any(map(_is_value, first)) and any(letters(field) in known for field in first)


def _comment_header(comments: list[str], delimiter: str, width: int, known: Collection[str]) -> list[str] | None:
    last = next((line for line in reversed(comments) if line.strip()), "")
    try:
        fields = next(split_rows(iter([last.strip().lstrip("#% ")]), delimiter, padded=True), [])
    except csv.Error:
        return None
    names = [letters(field) for field in fields]
    return fields if len(fields) == width and sum(name in known for name in names) > 1 else None
