"""JSON into typed columns: an array or an object on each line, or one array of them. Parsed, never evaluated."""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from chronospike.data.reading.tables import Sheet, first_line, open_stream
from chronospike.errors import InputError

BLOCK_BYTES = 1 << 19  # larger ones are slower: more rows are alive at once
HEAD_BYTES = 1 << 12
# Stands for a column with arrays or objects in it, which cannot be used, whatever they hold.
NESTED = pa.list_(pa.null())
EXPECTED = "Expected is an array or an object on each line, or one array of them"
# One array or object over several lines, or one array of arrays or objects.
DOCUMENT = re.compile(rb"\[\s*[\[{]|[\[{]\s*[\r\n]|\[\s*\]\s*$")


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")


DECODER = json.JSONDecoder(parse_constant=_refuse)


def read_json(path: Path) -> Sheet:
    """Columns of JSON arrays, all of one length, or of objects, whose keys become the names.

    They stand on a line each (JSON lines), or in one array, which is the whole file.
    """
    try:
        with open_stream(path) as stream:
            head = stream.read(HEAD_BYTES).removeprefix(b"\xef\xbb\xbf").lstrip()
        blanks: list[int] = []
        rows = _document(path) if DOCUMENT.match(head) else _lines(path, blanks)
        return _sheet(path, rows, blanks)
    except OSError as error:
        raise InputError(f"{path.name}: cannot be read: {first_line(error)}") from error
    except UnicodeEncodeError as error:
        raise InputError(f"{path.name}: text with half a character, {error.object[error.start]!a}") from error


def _sheet(path: Path, blocks: Iterable[list[Any]], blanks: list[int]) -> Sheet:
    columns: dict[str, list[pa.Array]] = {}
    total, named, width = 0, False, 0
    only: Any = None
    for rows in blocks:
        if not rows:
            continue
        if total == 0:
            only = rows[0]
            named, width = isinstance(only, dict), len(only)
        _check_shape(rows, named, width, path, total, blanks)
        _append(columns, rows, named, total)
        total += len(rows)
    if total == 0:
        raise InputError(f"{path.name}: no rows")
    if total == 1 and named and any(isinstance(value, (list, dict)) for value in only.values()):
        raise InputError(f"{path.name}: {_described(only)}. {EXPECTED}")
    table = pa.table({name: _one_type(chunks) for name, chunks in columns.items()})
    return Sheet(table, path.name, named, row_of=lambda index: index + 1 + bisect_right(blanks, index))


def _document(path: Path) -> Iterator[list[Any]]:
    """The rows of a file that is one JSON array."""
    with open_stream(path) as stream:
        content = stream.read()
    try:
        rows = DECODER.decode(content.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise InputError(f"{path.name}: not UTF-8 text. Save the file as UTF-8") from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path.name}: not JSON: {first_line(error)}. {EXPECTED}") from error
    if not isinstance(rows, list) or (rows and not isinstance(rows[0], (list, dict))):
        raise InputError(f"{path.name}: {_described(rows)}. {EXPECTED}")
    yield rows


def _lines(path: Path, blanks: list[int]) -> Iterator[list[Any]]:
    """The rows of JSON lines, some thousands at a time."""
    total = 0
    for lines in _blocks(path):
        rows = _parse(lines, path, total + len(blanks), blanks, total)
        yield rows
        total += len(rows)


def _blocks(path: Path) -> Iterator[list[bytes]]:
    """Lines, some megabytes at a time."""
    rest: list[bytes] = []
    with open_stream(path) as stream:
        while block := stream.read(BLOCK_BYTES):
            rest.append(block)
            if b"\n" in block:
                *lines, last = b"".join(rest).split(b"\n")
                rest = [last]
                yield lines
    if any(rest):
        yield [b"".join(rest)]


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
            expected = "an object" if named else f"an array of {width}"
            raise InputError(f"{path.name} row {number}: {_shape(row)}, expected {expected}")


def _shape(row: Any) -> str:
    if isinstance(row, dict):
        return "an object"
    return f"an array of {len(row)}" if isinstance(row, list) else "a plain value"


def _described(document: Any) -> str:
    """What a JSON document that is no table is, in words."""
    if not isinstance(document, dict):
        return f"{_shape(document)} plain values"
    names = ", ".join(f"'{name}'" for name in list(document)[:5]) + (", ..." if len(document) > 5 else "")
    if document and all(isinstance(column, list) for column in document.values()):
        return f"one JSON object of columns ({names})"
    return f"one JSON object ({names or 'empty'})"


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
    """Numbers as numbers; text, or anything mixed with text, as text; nothing of what is nested."""
    kinds = set(map(type, values)) - {type(None)}
    if kinds & {list, dict}:
        return pa.nulls(len(values), NESTED)
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
    if any(chunk.type == NESTED for chunk in chunks):
        return pa.chunked_array([pa.nulls(sum(map(len, chunks)), NESTED)])
    kinds = {chunk.type for chunk in chunks if chunk.null_count < len(chunk)} or {pa.string()}
    kind = next(kind for kind in (pa.string(), pa.float64(), pa.int64(), pa.int32()) if kind in kinds)
    try:
        return pa.chunked_array([chunk.cast(kind) for chunk in chunks])
    except pa.ArrowInvalid:  # a float would not hold all digits of a whole number
        return pa.chunked_array([chunk.cast(pa.string()) for chunk in chunks])
