"""Timestamped edges from files, tables and arrays."""

from __future__ import annotations

import os
import reprlib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from chronospike.data.csr import IntArray, smallest_int
from chronospike.data.events import Events
from chronospike.data.ids import NodeIds, whole_numbers
from chronospike.data.reading.columns import SOURCE, TARGET, TIME, Given, Role, find_column
from chronospike.data.reading.json_lines import read_json
from chronospike.data.reading.numbering import as_column, number_values
from chronospike.data.reading.tables import (
    Sheet,
    existing_file,
    file_kind,
    is_text,
    missing,
    read_binary_table,
    sheet_of,
)
from chronospike.data.reading.text_files import read_text_table
from chronospike.data.reading.times import read_times, time_column
from chronospike.errors import InputError, check_choice

ERROR_OR_DROP = ("error", "drop")
_THREE = "expected [E, 3], a source, a target and a time in each row"


def read_sheet(
    data: Any,
    roles: Iterable[Role],
    *,
    given: Iterable[Given] = (),
    header: bool | None = None,
    delimiter: str | None = None,
    origin: str = "table",
) -> Sheet:
    """A table from a file of any known kind, or from an Arrow-compatible object (see `sheet_of`).

    Args:
        roles: what its columns are for; their known names help to tell a header from data.
        given: columns the user named.
        header: whether a text file's first row names the columns; None to find out.
        delimiter: what separates a text file's columns; None to find out.
        origin: what to call an object in messages. Its rows count from 1.
    """
    if not isinstance(data, (str, os.PathLike)):
        return sheet_of(data, origin)
    file = existing_file(data)
    kind = file_kind(file)
    if kind in ("parquet", "arrow"):
        return read_binary_table(file)
    if kind == "json":
        return read_json(file)
    known = frozenset(name for role in roles for name in role.known)
    asked = [str(name) for name in given if name is not None]
    return read_text_table(file, header=header, delimiter=delimiter, known=known, asked=asked)


def read_events(
    data: Any,
    source: Given = None,
    target: Given = None,
    time: Given = None,
    *,
    time_unit: str | None = None,
    header: bool | None = None,
    delimiter: str | None = None,
    on_missing: str = "error",
    origin: str = "table",
) -> Events:
    """Timestamped edges from a file (CSV, TSV, blank-separated text, JSON, Parquet, Arrow or Feather) or from any
    Arrow-compatible table: pyarrow, pandas, polars, duckdb, a mapping of columns.

    Args:
        source, target, time: column names, or positions from 1; found by the usual names if not given, and the
            first three columns where there are no names.
        time_unit: `s`, `ms`, `us` or `ns` for numbers that are Unix time.
        header, delimiter, origin: see `read_sheet`.
        on_missing: what to do with a row that lacks an id or a time: "error" or "drop".
    """
    check_choice("on_missing", on_missing, ERROR_OR_DROP)
    given = (source, target, time)
    sheet = read_sheet(data, (SOURCE, TARGET, TIME), given=given, header=header, delimiter=delimiter, origin=origin)
    u = find_column(sheet, SOURCE, source)
    v = find_column(sheet, TARGET, target, taken=[u])
    t = find_column(sheet, TIME, time, taken=[u, v])
    columns = {"source": sheet.column(u), "target": sheet.column(v), "time": time_column(sheet, t)}
    kept, left = _complete_rows(sheet, columns, {"source": u, "target": v, "time": t}, on_missing)
    times = read_times(left, kept["time"], time_unit)
    ids, (sources, targets) = number_values(kept["source"], kept["target"])
    dropped = len(sheet) - len(times)
    names = tuple(sheet.names[k] for k in (u, v, t)) if sheet.named else ()
    return Events(sources, targets, times, ids, sheet.origin, dropped, unused_columns(sheet, (u, v, t)), names)


def events_from_arrays(
    source: Any, target: Any, time: Any, ids: Any = None, *, time_unit: str | None = None, on_missing: str = "error"
) -> Events:
    """Timestamped edges from three arrays or lists of one length.

    Args:
        source, target: `[E]` node ids of any kind; with `ids`, indices into it.
        time: `[E]` integers, floats, datetimes or ISO dates.
        ids: `[N]` the node ids, where nodes without an edge belong to the graph too.
        time_unit: `s`, `ms`, `us` or `ns` for numbers that are Unix time.
        on_missing: without `ids`, what to do with an event that lacks an id or a time: "error" or "drop".
    """
    arrays = {"source": source, "target": target, "time": time}
    for name, values in arrays.items():
        if not hasattr(values, "__iter__") or getattr(values, "ndim", 1) != 1:
            raise InputError(f"arrays: '{name}' must be a list or an array of one dimension")
    columns = {name: as_column(values) for name, values in arrays.items()}
    lengths = {name: len(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        raise InputError("arrays: lengths differ: " + ", ".join(f"{name} {count}" for name, count in lengths.items()))
    if ids is None:
        table, names = pa.table(columns), ("source", "target", "time")
        return read_events(table, *names, time_unit=time_unit, on_missing=on_missing, origin="arrays")
    node_ids = ids if isinstance(ids, NodeIds) else NodeIds.of(ids)
    ends = [_indices(name, columns[name], len(node_ids)) for name in ("source", "target")]
    sheet = Sheet(pa.table({"time": columns["time"]}), "arrays")
    moments = time_column(sheet, 0)
    _complete_rows(sheet, {"time": moments}, {"time": 0}, "error")
    return Events(ends[0], ends[1], read_times(sheet, moments, time_unit), node_ids)


def is_rows_of_edges(data: Any) -> bool:
    """Whether `data` is one array or list with a row per edge, rather than an array per column or a list of graphs."""
    if isinstance(data, (list, tuple)):
        is_columns = isinstance(data, tuple) and len(data) in (3, 4)
        return not is_columns and not any(hasattr(row, "edges") for row in data)
    return isinstance(data, np.ndarray) or (hasattr(data, "detach") and hasattr(data, "shape"))


def events_from_rows(data: Any, *, time_unit: str | None = None, on_missing: str = "error") -> Events:
    """Timestamped edges from an array or a tensor `[E, 3]`, or a list of E triples: source, target, time."""
    if not isinstance(data, (list, tuple)):
        if data.ndim != 2 or data.shape[1] != 3:
            raise InputError(f"an array of shape {list(data.shape)} is no list of edges; {_THREE}")
        return events_from_arrays(*data.T, time_unit=time_unit, on_missing=on_missing)
    for index, row in enumerate(data):
        if not hasattr(row, "__len__") or isinstance(row, (str, bytes, Mapping)) or len(row) != 3:
            raise InputError(f"a list whose item {index} is {reprlib.repr(row)} is no list of edges; {_THREE}")
    columns = ([row[k] for row in data] for k in range(3))
    return events_from_arrays(*columns, time_unit=time_unit, on_missing=on_missing)


def add_nodes(events: Events, ids: Any) -> Events:
    """The same events over their own nodes and these, which may have no edge; the ids stay sorted."""
    extra = ids.values if isinstance(ids, NodeIds) else as_column(ids)
    merged, _ = number_values(as_column(events.ids.values), as_column(extra))
    if len(merged) == len(events.ids):
        return events
    moved = merged.lookup(events.ids.values).astype(smallest_int(max(len(merged) - 1, 2**15)))
    return replace(events, source=moved[events.source], target=moved[events.target], ids=merged)


def unused_columns(sheet: Sheet, used: Iterable[int]) -> tuple[str, ...]:
    """What the columns that have no part are called."""
    taken = set(used)
    return tuple(sheet.called(k) for k in range(len(sheet.names)) if k not in taken)


def _complete_rows(
    sheet: Sheet, columns: dict[str, pa.ChunkedArray], places: dict[str, int], on_missing: str
) -> tuple[dict[str, pa.ChunkedArray], Sheet]:
    """The columns without the rows that lack a value, and the sheet for messages about those left."""
    gaps = {role: missing(column) for role, column in columns.items()}
    ends = [columns[role] for role in ("source", "target") if role in columns and is_text(columns[role])]
    if len(ends) == 2:
        # Both hold ids of one kind: beside a text in the other column, `-` is an id and no empty value.
        chunks = [chunk for column in ends for chunk in column.cast(pa.large_string()).chunks]
        gaps["source"], gaps["target"] = np.split(missing(pa.chunked_array(chunks, type=pa.large_string())), 2)
    gap = np.logical_or.reduce(list(gaps.values()))
    if not gap.any():
        return columns, sheet
    if on_missing == "error":
        first = int(np.argmax(gap))
        role = next(role for role, absent in gaps.items() if absent[first])
        name = sheet.names[places[role]] if sheet.named else role
        raise InputError(f"{sheet.at(first)}: '{name}' is empty. Drop the row or pass --on-missing drop.")
    rows = np.flatnonzero(~gap)
    if not len(rows):
        raise InputError(f"{sheet.origin}: no row has a source, a target and a time")
    mask = pa.array(~gap)
    return {role: column.filter(mask) for role, column in columns.items()}, sheet.only(rows)


def _indices(name: str, column: pa.ChunkedArray, count: int) -> IntArray:
    whole = whole_numbers(column)
    if not pa.types.is_integer(whole.type) or whole.null_count:
        raise InputError(f"arrays: '{name}' must hold indices into ids, whole numbers from 0 to {count - 1}")
    values = np.asarray(whole.to_numpy())
    if len(values) and not 0 <= values.min() <= values.max() < count:
        bad = int(np.argmax((values < 0) | (values >= count)))
        raise InputError(f"arrays: {name}[{bad}] is {values[bad]}, and there are {count} ids")
    return values.astype(smallest_int(max(count - 1, 2**15)))
