"""The contents of a file of timestamped edges, before it is imported."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from chronospike.data.reading.columns import SOURCE, TARGET, TIME, find_optional
from chronospike.data.reading.edges import read_sheet, unused_columns
from chronospike.data.reading.tables import Sheet, missing
from chronospike.data.reading.times import TIME_UNITS, read_times, time_column, unix_unit
from chronospike.data.steps import MOST_DISTINCT
from chronospike.data.time_text import format_time
from chronospike.errors import InputError

KINDS = {"i": "whole numbers", "f": "numbers", "M": "dates"}
DAYS = {"1min": 1 / 1440, "1h": 1 / 24, "1d": 1, "1w": 7, "1mo": 30, "1q": 91, "1y": 365}
STEPS_ENOUGH = 60


@dataclass(frozen=True)
class Times:
    """Attributes:
    kind: whole numbers, numbers or dates.
    unit: the unit in which numbers would be Unix times of our days, else None.
    width: a width of steps that suits the dates, if there are too many for one step each.
    """

    kind: str
    first: str
    last: str
    distinct: int
    unit: str | None = None
    width: str | None = None


@dataclass(frozen=True)
class EdgeFile:
    """Attributes:
    source, target, time: the columns with these parts, None where none was found by its name.
    unused: the columns without a part.
    incomplete: rows that lack one of the three.
    times: None if there is no time column, or one that cannot be read: `problem` then says why.
    """

    file: str
    rows: int
    source: str | None
    target: str | None
    time: str | None
    unused: tuple[str, ...]
    incomplete: int
    times: Times | None
    problem: str | None

    @property
    def import_command(self) -> str:
        """A command that imports the file; capitals stand where the user must choose."""
        parts = ["chronospike", "data", "import", self.file, "-o", f"graphs/{Path(self.file).name.split('.')[0]}"]
        for role, found in (("source", self.source), ("target", self.target), ("time", self.time)):
            parts += [f"--{role}", "COLUMN"] if found is None else []
        if self.incomplete:
            parts += ["--on-missing", "drop"]
        if self.times is not None:
            parts += ["--time-unit", self.times.unit] if self.times.unit else []
            if self.times.distinct > MOST_DISTINCT:
                parts += ["--every", self.times.width] if self.times.width else ["--steps", "20"]
        return shlex.join(parts)


def describe_edges(path: Path) -> EdgeFile:
    """Read a file as `import` would and say what is found; only a file that is no table at all is refused."""
    sheet = read_sheet(path, (SOURCE, TARGET, TIME))
    u = find_optional(sheet, SOURCE)
    v = find_optional(sheet, TARGET, taken=[k for k in (u,) if k is not None])
    t = find_optional(sheet, TIME, taken=[k for k in (u, v) if k is not None])
    found = [k for k in (u, v, t) if k is not None]
    gaps = [missing(time_column(sheet, k) if k == t else sheet.column(k)) for k in found]
    gap = np.logical_or.reduce(gaps) if gaps else np.zeros(len(sheet), dtype=bool)
    source, target, time = (None if k is None else sheet.called(k) for k in (u, v, t))
    times, problem = (None, None) if t is None else _times(sheet, t, gap)
    return EdgeFile(
        file=str(path),
        rows=len(sheet),
        source=source,
        target=target,
        time=time,
        unused=unused_columns(sheet, found),
        incomplete=int(gap.sum()),
        times=times,
        problem=problem,
    )


def _times(sheet: Sheet, index: int, gap: NDArray[np.bool_]) -> tuple[Times | None, str | None]:
    rows = np.flatnonzero(~gap)
    if not len(rows):
        return None, f"{sheet.origin}: no row has a source, a target and a time"
    try:
        times = read_times(sheet.only(rows), time_column(sheet, index).filter(pa.array(~gap)))
    except InputError as error:
        return None, str(error)
    first, last = times.min(), times.max()
    unit = unix_unit(times)
    shown = format_time(first), format_time(last), len(np.unique(times)), unit
    return Times(KINDS[times.dtype.kind], *shown, _width(first, last, unit)), None


def _width(first: Any, last: Any, unit: str | None) -> str | None:
    """The narrowest usual width that makes no more than a few dozen steps; None for plain numbers."""
    if isinstance(first, np.datetime64):
        seconds = float((last - first) / np.timedelta64(1, "s"))
    elif unit is not None:
        seconds = float(last - first) / TIME_UNITS[unit]
    else:
        return None
    return next((width for width, days in DAYS.items() if seconds / 86400 / days <= STEPS_ENOUGH), "1y")
