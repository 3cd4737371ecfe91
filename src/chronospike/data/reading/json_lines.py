"""JSON lines, one array or one object a line, into typed columns. Parsed as JSON, never evaluated."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from chronospike.data.reading.tables import Sheet, first_line
from chronospike.data.reading.text_files import open_stream
from chronospike.errors import InputError

BLOCK_BYTES = 1 << 19  # larger ones are slower: more rows are alive at once
# What a calendar day written as one number, 19630101, can be.
FIRST_DAY, LAST_DAY = 1500_01_01, 2200_12_31


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")


DECODER = json.JSONDecoder(parse_constant=_refuse)


def read_json_lines(path: Path) -> Sheet:
    """Columns of a file of JSON arrays, all of one length, or of objects, whose keys become the names.

    The two files of the Patent benchmark are known by their shape: arrays `[source, target, day, …, …]` and
    `[node, …, day, class]` with the day as YYYYMMDD. Of the first, the day becomes its year.
    """
    columns: dict[str, list[pa.Array]] = {}
    blanks: list[int] = []
    total, named, width = 0, False, 0
    try:
        for lines in _blocks(path):
            rows = _parse(lines, path, total + len(blanks), blanks, total)
            if not rows:
                continue
            if total == 0:
                named, width = isinstance(rows[0], dict), len(rows[0])
            _check_shape(rows, named, width, path, total, blanks)
            _append(columns, rows, named, total)
            total += len(rows)
    except OSError as error:
        raise InputError(f"{path.name}: cannot be read: {first_line(error)}") from error
    if total == 0:
        raise InputError(f"{path}: no rows, only blank lines")
    table = pa.table({name: _one_type(chunks) for name, chunks in columns.items()})
    sheet = Sheet(table, path.name, named, row_of=lambda index: index + 1 + bisect_right(blanks, index))
    return sheet if named else _known_layout(sheet)


def _blocks(path: Path) -> Iterator[list[bytes]]:
    """Lines, some megabytes at a time."""
    rest = b""
    with open_stream(path) as stream:
        while block := stream.read(BLOCK_BYTES):
            *lines, rest = (rest + block).split(b"\n")
            yield lines
    if rest:
        yield [rest]


def _parse(lines: list[bytes], path: Path, before: int, blanks: list[int], rows_before: int) -> list[Any]:
    """The rows of these lines; the index of the row after each blank line is noted in `blanks`."""
    count = len(lines)
    block = b",\n".join(lines)
    # If every line is one flat array or object, all of them can be parsed in one call, twice as fast.
    for opening, closing, seam in ((b"[", b"]", b"],\n["), (b"{", b"}", b"},\n{")):
        if block.count(seam) == count - 1 and block.count(opening) == count == block.count(closing):
            try:
                rows: list[Any] = DECODER.decode(f"[{block.decode()}]")
            except (ValueError, RecursionError):
                break
            if len(rows) == count:
                return rows
    rows = []
    for offset, line in enumerate(lines):
        if not line.strip():
            blanks.append(rows_before + len(rows))
            continue
        try:
            row = DECODER.decode(line.decode("utf-8-sig"))
        except (ValueError, RecursionError):
            row = None
        if not isinstance(row, (list, dict)):
            raise InputError(f"{path.name} row {before + offset + 1}: not a JSON array or object: {_shown(line)}")
        rows.append(row)
    return rows


def _shown(line: bytes) -> str:
    text = line.decode("utf-8", errors="replace").strip()
    return text if len(text) <= 60 else text[:57] + "..."


def _check_shape(rows: list[Any], named: bool, width: int, path: Path, before: int, blanks: list[int]) -> None:
    kind = dict if named else list
    for k, row in enumerate(rows):
        if type(row) is not kind or (not named and len(row) != width):
            number = before + k + 1 + bisect_right(blanks, before + k)
            found = "an object" if isinstance(row, dict) else f"an array of {len(row)}"
            expected = "an object" if named else f"an array of {width}"
            raise InputError(f"{path.name} row {number}: {found}, expected {expected}")


def _append(columns: dict[str, list[pa.Array]], rows: list[Any], named: bool, before: int) -> None:
    if not named:
        for k, values in enumerate(zip(*rows, strict=True)):
            columns.setdefault(str(k + 1), []).append(_array(values))
        return
    for name in dict.fromkeys(key for row in rows for key in row):
        columns.setdefault(name, [pa.nulls(before, pa.string())] if before else [])
    for name, chunks in columns.items():
        chunks.append(_array(tuple(row.get(name) for row in rows)))


def _array(values: tuple[Any, ...]) -> pa.Array:
    """Numbers as numbers; text, or anything mixed with text, as text."""
    kinds = set(map(type, values)) - {type(None)}
    try:
        if kinds == {int}:
            whole = pa.array(values, type=pa.int64())
            bounds = pc.min_max(whole)
            small = bounds["min"].as_py() >= -(2**31) and bounds["max"].as_py() < 2**31
            return whole.cast(pa.int32()) if small else whole
        if kinds and kinds <= {int, float}:
            return pa.array(values, type=pa.float64())
    except (OverflowError, pa.ArrowInvalid):
        pass
    return pa.array([_text(value) for value in values], type=pa.string())


def _text(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _one_type(chunks: list[pa.Array]) -> pa.ChunkedArray:
    kinds = {chunk.type for chunk in chunks if chunk.null_count < len(chunk)} or {pa.string()}
    if pa.string() in kinds:
        kind = pa.string()
    elif pa.float64() in kinds:
        kind = pa.float64()
    else:
        kind = pa.int64() if pa.int64() in kinds else pa.int32()
    return pa.chunked_array([chunk.cast(kind) for chunk in chunks])


def _known_layout(sheet: Sheet) -> Sheet:
    width = len(sheet.names)
    if width not in (4, 5) or not pa.types.is_integer(sheet.table.column(2).type):
        return sheet
    day = sheet.table.column(2)
    bounds = pc.min_max(day)
    if day.null_count or bounds["min"].as_py() < FIRST_DAY or bounds["max"].as_py() > LAST_DAY:
        return sheet
    if width == 4:
        return Sheet(sheet.table, sheet.origin, False, {"node": 0, "label": 3}, sheet.row_of)
    table = sheet.table.set_column(2, "3", pc.divide(day, 10000))
    return Sheet(table, sheet.origin, False, {"source": 0, "target": 1, "time": 2}, sheet.row_of)
