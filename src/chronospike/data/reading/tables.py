"""A table and the names of its rows in messages, from a file or from any Arrow-compatible object."""

from __future__ import annotations

import errno
import os
import re
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.feather as feather
import pyarrow.parquet as parquet
from numpy.typing import NDArray

from chronospike.data.ids import PLAIN_INTEGER
from chronospike.data.reading.numbering import as_column
from chronospike.errors import InputError, OutOfSpaceError
from chronospike.streams import STDIN, copy_from_stream, descriptor_of, is_stream, stream_name

PathLike = str | os.PathLike[str]

KINDS = {
    "parquet": (".parquet", ".pq"),
    "arrow": (".feather", ".arrow", ".ipc"),
    "json": (".json", ".jsonl", ".ndjson"),
    "text": (".csv", ".tsv", ".tab", ".txt", ".dat"),
}
COMPRESSED = (".gz", ".bz2", ".zst", ".lz4")
_MAGIC = ((b"PAR1", "parquet"), (b"ARROW1", "arrow"), (b"FEA1", "arrow"))
_PACKED = {
    "gzip": rb"\x1f\x8b\x08",
    "bz2": rb"BZh[1-9]1AY&SY",
    "zstd": rb"\x28\xb5\x2f\xfd",
    "lz4": rb"\x04\x22\x4d\x18",
}
_HEAD_BYTES = 1 << 12
# How programs write a number that is not there; among numbers, never an id, a class or a category.
ABSENT = ("na", "n/a", "nan", "null", "none", "\\n", "-", "?")
ABSENT_WORDS = pa.array([*ABSENT, "NA", "N/A", "NaN", "NAN", "NULL", "None", "NONE", "\\N"])


@dataclass(frozen=True)
class Sheet:
    """A table with what a message needs to point at one of its rows.

    Attributes:
        table: its columns; text as it stands in the file, or typed where the format knows types.
        origin: the file name, or a word for an object in memory.
        named: False if the columns have no names of their own and are called "1", "2", ….
        row_of: from the index of a row to its number as a person counts, header and blank lines included.
    """

    table: pa.Table
    origin: str = "table"
    named: bool = True
    row_of: Callable[[int], int] = lambda index: index + 1

    def __len__(self) -> int:
        return int(self.table.num_rows)

    @property
    def names(self) -> list[str]:
        return [str(name) for name in self.table.column_names]

    def called(self, index: int) -> str:
        """The name of column `index`; `column 4` where it has none."""
        return (self.named and self.names[index]) or f"column {index + 1}"

    def column(self, index: int) -> pa.ChunkedArray:
        """Column `index` as plain numbers, text, booleans, dates or timestamps."""
        return plain(self.table.column(index), f"{self.origin}: column '{self.names[index]}'")

    def only(self, rows: NDArray[np.int64]) -> Sheet:
        """The same for messages about values that stand in these rows alone."""
        return replace(self, row_of=lambda index: self.row_of(int(rows[index])))

    def at(self, index: int) -> str:
        """`edges.csv row 1042`, for messages."""
        return f"{self.origin} row {self.row_of(int(index)):d}"


def sheet_of(data: Any, origin: str = "table") -> Sheet:
    """A pyarrow, pandas, polars or duckdb table, anything with `__arrow_c_stream__`, or a mapping of columns."""
    if isinstance(data, Sheet):
        return data
    try:
        if isinstance(data, Mapping):
            return Sheet(pa.table({str(name): as_column(values) for name, values in data.items()}), origin)
        if type(data).__module__.split(".")[0] == "pandas" and hasattr(data, "columns"):
            # An index without a name is row numbers; one with a name is a column, also if it happens to be a range.
            keep = any(name is not None for name in data.index.names)
            return Sheet(pa.Table.from_pandas(data, preserve_index=keep), origin)
        # A column alone (a series) has this, too.
        if not hasattr(data, "to_frame") and (
            hasattr(data, "__arrow_c_stream__") or hasattr(data, "__arrow_c_array__")
        ):
            return Sheet(pa.table(data), origin)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise InputError(f"{origin}: cannot be read as an Arrow table: {first_line(error)}") from error
    raise InputError(
        f"{origin}: a {type(data).__name__} is not a table. Give a pandas, polars or pyarrow table, "
        "a mapping of columns, or anything with __arrow_c_stream__"
    )


def file_kind(file: Path) -> str:
    """ "parquet", "arrow", "json" or "text"; JSON without a telling name opens with a bracket."""
    named = Path(file.stem) if file.suffix.lower() in COMPRESSED else file
    for kind, suffixes in KINDS.items():
        if named.suffix.lower() in suffixes:
            return kind
    with open_stream(file) as stream:
        head = stream.read(_HEAD_BYTES)
    for magic, kind in _MAGIC:
        if head.startswith(magic):
            return kind
    return "json" if head.removeprefix(b"\xef\xbb\xbf").lstrip()[:1] in (b"{", b"[") else "text"


def open_stream(file: Path) -> pa.NativeFile:
    """The file's bytes, decompressed if they are compressed, whatever its name."""
    with file.open("rb") as stream:
        head = stream.read(16)
    packed = next((name for name, magic in _PACKED.items() if re.match(magic, head)), None)
    return pa.input_stream(str(file), compression=packed, buffer_size=1 << 16)


def read_binary_table(path: Path) -> Sheet:
    """A Parquet, Arrow or Feather file, its columns typed."""
    kind = file_kind(path)
    try:
        table = parquet.read_table(path, partitioning=None) if kind == "parquet" else feather.read_table(path)
    except (pa.ArrowException, OSError) as error:
        called = "Parquet" if kind == "parquet" else "Arrow/Feather"
        raise InputError(f"{path.name}: not a readable {called} file: {first_line(error)}") from error
    return Sheet(table, path.name)


def existing_file(path: PathLike) -> Path:
    """The path, if it names a file that can be opened and is not empty; else one line saying why not.

    `-` is standard input. What is no regular file can be read only once, so that a copy is returned, which has its
    name and goes when the process ends.
    """
    file = STDIN if os.fspath(path) == "-" else Path(path)
    called = str(file)
    try:
        if file.is_dir():
            raise InputError(f"{file} is a folder, not a file")
        if is_stream(file):
            called = stream_name(file)
            file = copy_from_stream(file)
        with file.open("rb") as stream:
            empty = not stream.read(1)
    except FileNotFoundError:
        raise InputError(f"{file}: no such file") from None
    except OSError as error:
        if error.errno == errno.ENOSPC:
            place = tempfile.gettempdir()
            raise OutOfSpaceError(f"{called}: no space for a copy in {place}. Set TMPDIR to a larger place") from error
        raise InputError(f"{called}: cannot be read: {error.strerror or error}") from error
    if empty:
        raise InputError(f"{called}: the {'file' if called == str(file) else 'stream'} is empty")
    return file


def refuse_one_stream_twice(*sources: Any) -> None:
    """What can be read only once must not be named as two of the inputs."""
    seen: set[int | str] = set()
    for source in sources:
        if not isinstance(source, (str, os.PathLike)):
            continue
        place = STDIN if os.fspath(source) == "-" else Path(source)
        if is_stream(place):
            number = descriptor_of(place)
            key = os.path.realpath(place) if number is None else number
            if key in seen:
                raise InputError(f"{stream_name(place)} can be read only once. Give one of the inputs as a file")
            seen.add(key)


def first_line(error: BaseException) -> str:
    """The first line of another library's message."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def plain(column: pa.ChunkedArray, what: str) -> pa.ChunkedArray:
    """The column without dictionaries, views and byte strings, so that every compute function takes it."""
    kind = column.type
    try:
        if isinstance(kind, pa.BaseExtensionType):
            return plain(_stored(column, what), what)
        if pa.types.is_dictionary(kind):
            # Not by cast: it does not know dictionaries of text views, which polars hands out.
            parts = [(plain(pa.chunked_array([part.dictionary]), what), part.indices) for part in column.chunks]
            chunks = [chunk for values, indices in parts for chunk in values.take(indices).chunks]
            return pa.chunked_array(chunks) if chunks else pa.chunked_array([], type=pa.large_string())
        if pa.types.is_null(kind):
            return column.cast(pa.string())
        if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):
            return column.cast(pa.large_string())
        if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
            return column.cast(pa.large_binary()).cast(pa.large_string())
        if pa.types.is_decimal(kind):
            return _plain_decimals(column)
    except pa.ArrowException as error:
        raise InputError(f"{what} cannot be used: {first_line(error)}") from error
    if pa.types.is_nested(kind):
        raise InputError(f"{what} contains nested values of type {kind}; plain numbers or text are needed")
    return column


def _stored(column: pa.ChunkedArray, what: str) -> pa.ChunkedArray:
    """The column of an extension type as what it stands for: UUIDs, which databases write, as text."""
    name = column.type.extension_name
    if not name.startswith("arrow."):  # such as the periods of pandas, whose numbers mean nothing alone
        raise InputError(f"{what} contains values of type {column.type}; plain numbers, text or dates are needed")
    stored = pa.chunked_array([chunk.storage for chunk in column.chunks], type=column.type.storage_type)
    if name != "arrow.uuid":
        return stored
    values = stored.combine_chunks().dictionary_encode()
    texts = pa.array([str(UUID(bytes=value)) for value in values.dictionary.to_pylist()], type=pa.large_string())
    return pa.chunked_array([pa.DictionaryArray.from_arrays(values.indices, texts)])


def _plain_decimals(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Whole numbers as such, to the last digit: databases write their ids as decimals."""
    try:
        return column.cast(pa.int64())
    except pa.ArrowInvalid:
        return column.cast(pa.large_string() if column.type.scale <= 0 else pa.float64())


def is_text(column: pa.ChunkedArray | pa.Array) -> bool:
    return bool(pa.types.is_string(column.type) or pa.types.is_large_string(column.type))


def missing(column: pa.ChunkedArray) -> NDArray[np.bool_]:
    """`[E]` True where there is no value: null, empty text or NaN; among whole numbers also the words for it."""
    absent = pc.is_null(column, nan_is_null=True)
    if is_text(column):
        absent = pc.or_(absent, pc.fill_null(pc.equal(column, ""), False))
        words = pc.or_(absent, pc.is_in(column, value_set=ABSENT_WORDS.cast(column.type)))
        if not words.equals(absent):
            rest = column.filter(pc.invert(words))
            if len(rest) and pc.all(pc.match_substring_regex(rest, PLAIN_INTEGER)).as_py():
                absent = words
    return cast(NDArray[np.bool_], np.asarray(absent.to_numpy(), dtype=bool))
