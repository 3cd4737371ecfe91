"""The nodes to predict: a file with one id per line, or a table with a node column."""

from __future__ import annotations

import csv
from contextlib import suppress
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from chronospike.data.ids import NodeIds
from chronospike.data.reading.columns import NODE, find_optional, letters
from chronospike.data.reading.edges import read_sheet
from chronospike.data.reading.numbering import positions_in
from chronospike.data.reading.tables import PathLike, Sheet, existing_file, file_kind, first_line, missing, open_stream
from chronospike.errors import InputError


def read_nodes(path: PathLike, ids: NodeIds) -> NDArray[np.int64]:
    """`[K]` node indices in the order of the file, repeats kept; ids that are not in the graph are an error.

    A line is an id, letter for letter. A file whose first line is none, but names a node column, is a table (such as
    predictions.csv); so is one whose lines are no ids where the values of its first column are.
    """
    file = existing_file(path)
    if file_kind(file) in ("parquet", "arrow"):
        return _checked(*_from_table(read_sheet(file, (NODE,)), ids), file)
    names = _lines(file)
    found = ids.lookup(names)
    if found[0] < 0 and (_names_a_node(names[0]) or file_kind(file) == "json"):
        found, names = _from_table(read_sheet(file, (NODE,), header=True), ids)
    elif not (found >= 0).any():
        # Where the lines make no table either, it is the lines that are unknown.
        with suppress(InputError):
            index, values = _from_table(read_sheet(file, (NODE,)), ids)
            if (index >= 0).any():
                found, names = index, values
    return _checked(found, names, file)


def _lines(file: Path) -> list[str]:
    try:
        with open_stream(file) as stream:
            text = stream.read().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{file.name}: not UTF-8 text. Save the file as UTF-8") from error
    except OSError as error:
        raise InputError(f"{file.name}: cannot be read: {first_line(error)}") from error
    # Not str.splitlines, which would also cut an id at a form feed or a Unicode line separator.
    names = [line.removesuffix("\r") for line in text.split("\n")]
    names = [name for name in names if name.strip()]
    if not names:
        raise InputError(f"{file.name} contains no nodes")
    return names


def _names_a_node(line: str) -> bool:
    fields = next(csv.reader([line]), []) + line.split("\t")
    return any(letters(field) in NODE.known for field in fields)


def _from_table(sheet: Sheet, ids: NodeIds) -> tuple[NDArray[np.int64], list[str]]:
    if not sheet.named and len(sheet) == 1 < len(sheet.names):
        # More likely a list of nodes than a table of one.
        raise InputError(f"{sheet.origin}: {len(sheet.names)} values in one row. Write a node on each line")
    place = find_optional(sheet, NODE)
    column = sheet.column(place or 0)
    gap = missing(column)
    if gap.any():
        raise InputError(f"{sheet.at(int(np.argmax(gap)))}: the node is empty")
    return positions_in(ids, column), [str(value) for value in column.to_pylist()]


def _checked(index: NDArray[np.int64], names: list[str], file: Path) -> NDArray[np.int64]:
    unknown = [names[k] for k in np.flatnonzero(index < 0)]
    if unknown:
        first = ", ".join(repr(name) for name in unknown[:3])
        raise InputError(f"{file.name}: {len(unknown)} node(s) are not in the graph, the first: {first}")
    return index
