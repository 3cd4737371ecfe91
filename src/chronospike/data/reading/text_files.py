"""CSV, TSV and blank-separated text into columns of text, each value letter for letter."""

from __future__ import annotations

import csv
import io
from collections.abc import Collection, Iterator
from itertools import islice
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as arrow_csv

from chronospike.data.reading.tables import Sheet, first_line, open_stream
from chronospike.data.reading.text_layout import RUNS, Layout, detect_layout, split_rows
from chronospike.errors import InputError

HEAD_BYTES = 1 << 20
BLOCK_BYTES = 1 << 24
CHUNK_ROWS = 1 << 17


def read_text_table(
    path: Path,
    *,
    header: bool | None = None,
    delimiter: str | None = None,
    known: Collection[str] = (),
    asked: Collection[str] = (),
) -> Sheet:
    """A text table, plain or compressed (gzip, bz2, zstd, lz4); see `detect_layout` for the arguments."""
    try:
        try:
            head, complete = read_head(path)
            layout = detect_layout(head, complete, path, header=header, delimiter=delimiter, known=known, asked=asked)
        except csv.Error as error:
            raise InputError(f"{path.name}: cannot be split into columns: {error}. Name the separator") from error
        table = _by_python(path, layout) if layout.padded else _by_arrow(path, layout)
    except (pa.ArrowInvalid, csv.Error) as error:
        raise InputError(_explain(path, layout, error)) from error
    except OSError as error:
        raise InputError(f"{path.name}: cannot be read: {first_line(error)}") from error
    if table.num_rows == 0:
        raise InputError(f"{path.name}: no rows after the header")

    def row_of(index: int) -> int:
        try:
            return next(islice(_records(path, layout), index, None))[0]
        except (csv.Error, StopIteration):
            return layout.skip_rows + index + 1

    return Sheet(table, path.name, layout.named, row_of=row_of)


def read_head(path: Path) -> tuple[bytes, bool]:
    """The first bytes and whether they are all; refuses what is not UTF-8 text at first sight."""
    with open_stream(path) as stream:
        head = stream.read(HEAD_BYTES + 1)
    if head[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise InputError(f"{path.name}: UTF-16 text. Save the file as UTF-8")
    if head.startswith(b"PK\x03\x04"):
        raise InputError(f"{path.name}: a ZIP archive or an Excel workbook. Unpack it, or save the sheet as CSV")
    if b"\0" in head:
        raise InputError(f"{path.name}: not a text file. CSV, TSV, TXT, JSON lines, Parquet and Feather can be read")
    return head[:HEAD_BYTES], len(head) <= HEAD_BYTES


def _by_arrow(path: Path, layout: Layout) -> pa.Table:
    with open_stream(path) as stream:
        stream.read(layout.skip_bytes)
        source = _single_blanks(stream) if layout.delimiter == RUNS else stream
        try:
            table = arrow_csv.read_csv(
                source,
                read_options=arrow_csv.ReadOptions(column_names=_keys(layout), block_size=BLOCK_BYTES),
                parse_options=arrow_csv.ParseOptions(
                    delimiter=" " if layout.delimiter == RUNS else layout.delimiter,
                    quote_char=False if layout.delimiter == RUNS else '"',
                    newlines_in_values=True,
                ),
                convert_options=arrow_csv.ConvertOptions(
                    column_types={key: pa.string() for key in _keys(layout)}, strings_can_be_null=False
                ),
            )
        except pa.ArrowInvalid as error:
            if "Empty CSV" in str(error):
                return _no_rows(layout)
            raise
    return table.rename_columns(list(layout.names))


def _by_python(path: Path, layout: Layout) -> pa.Table:
    rows = (fields for _, fields in _records(path, layout))
    chunks = []
    while chunk := list(islice(rows, CHUNK_ROWS)):
        if any(len(fields) != len(layout.names) for fields in chunk):
            raise csv.Error("columns differ")
        try:
            columns = [pa.array(values, type=pa.string()) for values in zip(*chunk, strict=True)]
        except UnicodeEncodeError:
            raise csv.Error("not UTF-8") from None
        chunks.append(pa.table(columns, names=_keys(layout)))
    return pa.concat_tables(chunks).rename_columns(list(layout.names)) if chunks else _no_rows(layout)


def _keys(layout: Layout) -> list[str]:
    # The user's names may repeat or be empty; types are assigned by these instead.
    return [str(k) for k in range(len(layout.names))]


def _no_rows(layout: Layout) -> pa.Table:
    return pa.table([pa.array([], type=pa.string()) for _ in layout.names], names=list(layout.names))


def _single_blanks(stream: pa.NativeFile) -> pa.BufferReader:
    """The bytes with each run of blanks and tabs as one blank, none of them at either end of a line."""
    data: bytes = stream.read()
    data = data.replace(b"\t", b" ") if b"\t" in data else data
    while b"  " in data:
        data = data.replace(b"  ", b" ")
    for loose, tight in ((b" \n", b"\n"), (b" \r", b"\r"), (b"\n ", b"\n"), (b"\r ", b"\r")):
        data = data.replace(loose, tight) if loose in data else data
    return pa.BufferReader(data.strip(b" "))


def _records(path: Path, layout: Layout) -> Iterator[tuple[int, list[str]]]:
    """(row as a person counts, fields) of each row that is not blank; slow, for messages and odd files."""
    with open_stream(path) as stream:
        stream.read(layout.skip_bytes)
        text = io.TextIOWrapper(io.BufferedReader(stream), encoding="utf-8", errors="surrogateescape", newline="")
        for row, fields in enumerate(split_rows(text, layout.delimiter, layout.padded), layout.skip_rows + 1):
            if fields:
                yield row, fields


def _explain(path: Path, layout: Layout, error: Exception) -> str:
    """The first row that cannot be read, and why."""
    row = layout.skip_rows
    try:
        for row, fields in _records(path, layout):
            if len(fields) != len(layout.names):
                count = len(fields)
                return f"{path.name} row {row}: {count} column{'s' * (count != 1)}, expected {len(layout.names)}"
            if any("\udc80" <= letter <= "\udcff" for field in fields for letter in field):
                return f"{path.name} row {row}: not UTF-8 text. Save the file as UTF-8"
    except csv.Error as problem:
        return f"{path.name} row {row + 1}: cannot be split into columns: {problem}. Is a quote left open?"
    return f"{path.name}: cannot be read as a table: {first_line(error)}"
