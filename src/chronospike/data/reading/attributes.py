"""Users' own node attributes, fixed or changing over time.

A number stays one, a date becomes days, text the code of a category.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from chronospike.data.attributes import Column, default_columns
from chronospike.data.graph import DynamicGraph
from chronospike.data.ids import NodeIds
from chronospike.data.reading.columns import FEATURE_TIME, NODE, Given, find_column, find_optional
from chronospike.data.reading.edges import ERROR_OR_DROP, read_sheet
from chronospike.data.reading.labels import Ints, known_nodes, refuse_gaps
from chronospike.data.reading.numbering import number_values, positions_in
from chronospike.data.reading.tables import ABSENT, PathLike, Sheet, existing_file, is_text, missing
from chronospike.data.reading.times import NUMBER, TIME_UNITS, from_unix, read_times, time_column
from chronospike.errors import InputError, check_choice
from chronospike.files import BAD_ARRAY
from chronospike.memory import require_bytes

Attributes = tuple[NDArray[Any], tuple[Column, ...], dict[str, Any]]

# What pandas calls its row numbers, in CSV files and in Parquet files.
ROW_NUMBERS = re.compile(r"(Unnamed: [0-9]+|__index_level_[0-9]+__)?")
INFINITE = pa.array(["inf", "-inf", "+inf", "infinity", "-infinity"])
_DATE = r"^[0-9]{4}[-/][0-9]{2}[-/][0-9]{2}([T ].*)?$"
# 1,5 may be one and a half, 1,500 that or a thousand and a half; 1.500,5 has its thousands apart.
_COMMAS = r"^[+-]?([0-9]+(,[0-9]+)+([.][0-9]*)?|[0-9]{1,3}([.' \x{a0}\x{202f}][0-9]{3})+,[0-9]+)$"
_DAY = np.timedelta64(1, "D") / np.timedelta64(1, "us")


def load_array(path: PathLike, num_nodes: int, num_steps: int) -> Attributes:
    """A `.npy` array of shape `[N, d]` or `[T, N, d]`, its rows in the order of the sorted node ids.

    Half and single precision stay on disk, opened by memory map; everything else is made single precision.
    """
    file = existing_file(path)
    try:
        values = np.load(file, mmap_mode="r", allow_pickle=False)
    except BAD_ARRAY as error:
        raise InputError(f"{file.name}: not a readable .npy array of numbers: {error}") from error
    if not isinstance(values, np.ndarray) or values.dtype.kind not in "fiub":
        raise InputError(f"{file.name}: an array of numbers is needed, found {getattr(values, 'dtype', type(values))}")
    fixed, moving = (num_nodes,), (num_steps, num_nodes)
    if values.ndim not in (2, 3) or values.shape[:-1] not in (fixed, moving) or not values.shape[-1]:
        raise InputError(
            f"{file.name}: shape {list(values.shape)}, expected [{num_nodes}, d] or [{num_steps}, {num_nodes}, d]"
        )
    if values.dtype not in (np.float16, np.float32):
        with np.errstate(over="ignore"):
            values = values.astype(np.float32)
    for step, block in enumerate(values if values.ndim == 3 else values[None]):
        bad = np.argwhere(~np.isfinite(block))
        if len(bad):
            place = [step, *bad[0].tolist()] if values.ndim == 3 else bad[0].tolist()
            raise InputError(f"{file.name}: the value at {place} is NaN, infinite or too large for single precision")
    return values, default_columns(values.shape[-1]), {}


def read_features(
    data: Any,
    graph: DynamicGraph,
    *,
    node: Given = None,
    time_unit: str | None = None,
    on_unknown: str = "error",
    label: str | None = None,
) -> Attributes:
    """Attributes from a file or an Arrow-compatible table with a column of nodes, or from a file `.npy` (`load_array`).

    Numbers are kept as they are, in single precision, dates become days, durations seconds, text and booleans the codes
    of categories; a missing value is NaN, and so is everything about a node without a row. With a time column the
    result is `[T, N, c]`: a row holds from its step on until the node's next row, and before its first nothing is known
    of a node. So that nothing is known before its time, a row that falls between two steps holds from the later one,
    and one after the last step is left out.

    Args:
        graph: what the nodes and the steps are taken from.
        node: column name, or position from 1; found by the usual names if not given, as is the time, if there is one.
        time_unit: `s`, `ms`, `us` or `ns` if times that are numbers are Unix time.
        on_unknown: what to do with nodes that are not in the graph: "error" or "drop".
        label: the column that holds the labels, which is left out, as row numbers without a name are.

    Returns:
        `[N, c]` or `[T, N, c]` float32, what each column is, and the counts `feature_rows`, `features_unknown`,
        `features_after_end` and `nodes_without_features`; `features_left_out` are the columns left out, if any.
    """
    check_choice("on_unknown", on_unknown, ERROR_OR_DROP)
    if isinstance(data, (str, Path)) and Path(data).suffix.lower() == ".npy":
        return load_array(data, graph.num_nodes, graph.num_steps)
    sheet, ids = read_sheet(data, (NODE, FEATURE_TIME), given=(node,), origin="features"), graph.ids
    node_at = find_column(sheet, NODE, node)
    time_at = find_optional(sheet, FEATURE_TIME, taken=[node_at])
    taken = [node_at] if time_at is None else [node_at, time_at]
    others = [k for k in range(len(sheet.names)) if k not in taken]
    left_out = [k for k in others if sheet.names[k] == label or ROW_NUMBERS.fullmatch(sheet.names[k])]
    chosen = [k for k in others if k not in left_out]
    if not chosen:
        raise InputError(
            f"{sheet.origin}: no feature columns besides {', '.join(repr(sheet.names[k]) for k in taken + left_out)}"
        )
    nodes = sheet.column(node_at)
    refuse_gaps(sheet, nodes)
    index = positions_in(ids, nodes)
    known = known_nodes(sheet, nodes, index, ids, "described", on_unknown)
    names = [sheet.names[k] for k in chosen]
    twin = next((name for name in names if names.count(name) > 1), None)
    if twin is not None:
        raise InputError(f"{sheet.origin}: two columns are called '{twin}'. Rename one")
    encoded = [encode_column(sheet, k) for k in chosen]
    block = np.stack([values for values, _ in encoded], axis=1)
    if time_at is None:
        step, late = np.zeros(len(sheet), dtype=np.int64), np.zeros(len(sheet), dtype=bool)
        times = step
    else:
        times = _times(sheet, time_at, time_unit, graph.step_start)
        # The first step that does not end before each time.
        begun = np.searchsorted(graph.step_start, times, side="right") - 1
        unfinished = np.searchsorted(graph.step_end, times, side="left")
        step = np.minimum(np.maximum(begun, unfinished), graph.num_steps - 1)
        late = times > graph.step_end[-1]
    keep = np.flatnonzero(known & ~late)
    order = keep[np.lexsort((times[keep], index[keep]))]
    _refuse_repeats(sheet, ids, index, times, block, order)
    num_steps = 1 if time_at is None else graph.num_steps
    way_out = "Leave out columns, or make fewer steps"
    require_bytes(4.0 * num_steps * len(ids) * len(chosen), "the table of attributes at every step", way_out)
    values = _spread(block, index, step, order, len(ids), num_steps)
    facts = {
        "feature_rows": len(sheet),
        "features_unknown": int((~known).sum()),
        "features_after_end": int((known & late).sum()),
        "nodes_without_features": len(ids) - len(np.unique(index[keep])),
        **({"features_left_out": [sheet.called(k) for k in left_out]} if left_out else {}),
    }
    return values[0] if time_at is None else values, tuple(column for _, column in encoded), facts


def _times(sheet: Sheet, time_at: int, unit: str | None, step_start: NDArray[Any]) -> NDArray[Any]:
    column = time_column(sheet, time_at)
    gap = missing(column)
    if gap.any():
        raise InputError(f"{sheet.at(int(np.argmax(gap)))}: '{sheet.names[time_at]}' is empty. Give a time")
    times = read_times(sheet, column)
    if unit is not None and times.dtype.kind != "M":
        times = from_unix(sheet, times, unit)
    if (times.dtype.kind == "M") != (step_start.dtype.kind == "M"):
        kinds = ("dates", "numbers") if times.dtype.kind == "M" else ("numbers", "dates")
        raise InputError(
            f"{sheet.origin}: the times in '{sheet.names[time_at]}' are {kinds[0]}, but those of the graph are "
            f"{kinds[1]}. If it is an attribute rather than the time of each row, rename it"
        )
    return times


def _refuse_repeats(
    sheet: Sheet, ids: NodeIds, index: Ints, times: NDArray[Any], block: NDArray[np.float32], order: Ints
) -> None:
    """Two rows of one node and time must agree."""
    one, two = order[:-1], order[1:]
    same = np.flatnonzero((index[one] == index[two]) & (times[one] == times[two]))
    first_rows, second_rows = block[one[same]], block[two[same]]
    both_missing = np.isnan(first_rows) & np.isnan(second_rows)
    clash = same[((first_rows != second_rows) & ~both_missing).any(axis=1)]
    if len(clash):
        first, second = sorted((int(one[clash[0]]), int(two[clash[0]])))
        raise InputError(
            f"{sheet.at(second)}: node '{ids[int(index[second])]}' has other features in row {sheet.row_of(first)}. "
            "Keep one of the two, or add a time column"
        )


def _spread(
    block: NDArray[np.float32], index: Ints, step: Ints, order: Ints, num_nodes: int, num_steps: int
) -> NDArray[np.float32]:
    """`[T, N, c]` with each row of `block` from its step on; `order` sorts by node, then time."""
    values = np.full((num_steps, num_nodes, block.shape[1]), np.nan, dtype=np.float32)
    # Of several rows of one node within one step the latest counts.
    last = np.ones(len(order), dtype=bool)
    last[:-1] = (np.diff(index[order]) != 0) | (np.diff(step[order]) != 0)
    order = order[last]
    for t in range(num_steps):
        if t:
            values[t] = values[t - 1]
        now = order[step[order] == t]
        values[t, index[now]] = block[now]
    return values


def encode_column(sheet: Sheet, index: int) -> tuple[NDArray[np.float32], Column]:
    """`[E]` values of column `index`, NaN where one is missing, and what they are."""
    column, name = sheet.column(index), sheet.names[index]
    if is_text(column):
        return _from_text(sheet, index, column)
    if pa.types.is_date(column.type) or pa.types.is_timestamp(column.type):
        return _days(sheet, column, name), Column(name)
    if pa.types.is_integer(column.type) or pa.types.is_floating(column.type):
        return _numbers(sheet, index, column, column.cast(pa.float64(), safe=False)), Column(name)
    if pa.types.is_duration(column.type) or pa.types.is_time(column.type):
        whole = column.cast(pa.int32() if pa.types.is_time32(column.type) else pa.int64())
        # In seconds: another table of the same column may have another unit.
        seconds = pc.divide(whole.cast(pa.float64(), safe=False), float(TIME_UNITS[column.type.unit]))
        return _numbers(sheet, index, column, seconds), Column(name)
    return _codes(column, name)


def _from_text(sheet: Sheet, index: int, column: pa.ChunkedArray) -> tuple[NDArray[np.float32], Column]:
    name = sheet.names[index]
    trimmed = pc.utf8_trim_whitespace(column)
    lower = pc.utf8_lower(trimmed)
    absent = pc.or_(pc.is_in(lower, value_set=pa.array(["", *ABSENT])), pc.is_null(column))

    def fits(pattern: pa.ChunkedArray) -> bool:
        """Whether every value that is there matches, and one is there."""
        return bool(pc.any(pattern).as_py() and pc.all(pc.or_(pattern, absent)).as_py())

    number = pc.fill_null(pc.match_substring_regex(trimmed, NUMBER), False)
    if fits(pc.or_(number, pc.is_in(lower, value_set=INFINITE))):
        readable = pc.if_else(absent, pa.scalar(None, column.type), pc.utf8_ltrim(lower, "+"))
        return _numbers(sheet, index, column, readable.cast(pa.float64())), Column(name)
    if fits(pc.fill_null(pc.match_substring_regex(trimmed, _DATE), False)):
        return _days(sheet, pc.if_else(absent, pa.scalar(None, column.type), trimmed), name), Column(name)
    commas = pc.fill_null(pc.match_substring_regex(trimmed, _COMMAS), False)
    if fits(pc.or_(number, commas)):
        raise InputError(
            f"{sheet.origin}: '{name}' holds numbers with commas, such as {trimmed.filter(commas)[0].as_py()}. "
            "Write decimals with a point, and thousands without commas"
        )
    return _codes(column, name)


def _numbers(sheet: Sheet, index: int, written: pa.ChunkedArray, numbers: pa.ChunkedArray) -> NDArray[np.float32]:
    absent = np.asarray(pc.is_null(numbers, nan_is_null=True).to_numpy(), dtype=bool)
    with np.errstate(over="ignore"):
        values = np.asarray(pc.fill_null(numbers, 0.0).to_numpy(), dtype=np.float64).astype(np.float32)
    values[absent] = np.nan
    bad = np.flatnonzero(np.isinf(values))
    if len(bad):
        row = int(bad[0])
        where, value = f"{sheet.at(row)}: '{sheet.names[index]}'", written[row].as_py()
        raise InputError(f"{where} is {value}, not a finite number in single precision")
    return values


def _days(sheet: Sheet, column: pa.ChunkedArray, name: str) -> NDArray[np.float32]:
    """Dates as days since 1970."""
    present = ~missing(column)
    values = np.full(len(column), np.nan, dtype=np.float32)
    rows, dates = sheet.only(np.flatnonzero(present)), column.filter(pa.array(present))
    times = read_times(rows, dates, name=f"attribute '{name}' with the value")
    values[present] = times.astype("datetime64[us]").astype(np.int64) / _DAY
    return values


def _codes(column: pa.ChunkedArray, name: str) -> tuple[NDArray[np.float32], Column]:
    """The place of each value among the distinct ones, in order."""
    texts = column.cast(pa.large_string())
    present = ~missing(texts)
    distinct, (codes,) = number_values(texts.filter(pa.array(present)))
    values = np.full(len(texts), np.nan, dtype=np.float32)
    values[present] = codes
    return values, Column(name, "category", tuple(str(value) for value in distinct))
