"""Times into steps: one per distinct time, of equal event counts, or of equal width."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from chronospike.data.events import Steps
from chronospike.errors import InputError

MOST_DISTINCT = 1000
MOST_WIDE = 10_000
SECOND = 1_000_000
UNITS = {"us": 1, "ms": 1000, "s": SECOND, "min": 60 * SECOND, "h": 3600 * SECOND, "d": 86400 * SECOND,
         "w": 7 * 86400 * SECOND}  # fmt: skip
MONTHS = {"mo": 1, "q": 3, "y": 12}
SPELLINGS = {
    "sec": "s", "second": "s", "minute": "min", "hr": "h", "hour": "h", "day": "d", "week": "w", "month": "mo",
    "quarter": "q", "yr": "y", "year": "y", "min": "min", "mo": "mo",
}  # fmt: skip


def make_steps(
    time: NDArray[Any], *, steps: int | None = None, every: str | float | None = None, merge: int = 1
) -> Steps:
    """Steps by the user's choice: `steps` of equal event counts, `every` of equal width, else one per distinct time.

    Args:
        time: `[E]` int64, float64 or datetime64[us].
        merge: how many consecutive steps to make one of afterwards.
    """
    if steps is not None and every is not None:
        raise InputError("--steps and --every exclude each other: give one of them")
    if steps is not None:
        made = equal_count_steps(time, steps)
    elif every is not None:
        made = equal_width_steps(time, every)
    else:
        made = distinct_steps(time, MOST_DISTINCT * max(merge, 1))
    return merge_steps(made, merge)


def distinct_steps(time: NDArray[Any], limit: int = MOST_DISTINCT) -> Steps:
    """One step per distinct time; it starts and ends at that time."""
    moments, index = np.unique(_some(time), return_inverse=True)
    if len(moments) > limit:
        raise InputError(
            f"{len(moments):,} distinct times, and one step for each is too many (at most {limit:,}). "
            "Pass --steps 20 for steps of equal event counts, or --every WIDTH for steps of equal width"
        )
    return Steps(index.astype(np.int32), moments, moments)


def equal_count_steps(time: NDArray[Any], count: int) -> Steps:
    """`count` steps with as equal numbers of events as can be; events of one time stay in one step.

    A step starts and ends at the first and last time of its events.
    """
    if count < 1:
        raise InputError(f"--steps {count}: at least one step is needed")
    moments, place, events = np.unique(_some(time), return_inverse=True, return_counts=True)
    if count > len(moments):
        have = f"only {len(moments):,} distinct time{'s' * (len(moments) != 1)}"
        raise InputError(f"--steps {count}: there are {have}, and events of one time stay together")
    until = np.cumsum(events)
    # Cut where the running count is nearest to k/count of all, leaving each step at least one time.
    ideal = np.arange(1, count) * until[-1] / count
    high = np.searchsorted(until, ideal)
    below = np.where(high > 0, until[high - 1], 0)
    nearer = np.where(until[high] - ideal <= ideal - below, high + 1, high)
    cuts = np.array([0, *nearer, len(moments)])
    for k in range(1, count):
        cuts[k] = min(max(cuts[k], cuts[k - 1] + 1), len(moments) - (count - k))
    step = np.repeat(np.arange(count, dtype=np.int32), np.diff(cuts))
    return Steps(step[place], moments[cuts[:-1]], moments[cuts[1:] - 1], f"{count} of equal event counts")


def equal_width_steps(time: NDArray[Any], every: str | float, limit: int = MOST_WIDE) -> Steps:
    """Steps of one width from the first event on; those without events are kept.

    Step k holds the times from `start[k]` up to, but not including, `end[k]`, which is `start[k + 1]`. Months and
    years follow the calendar: from 31 January, `1mo` leads to the last day of February, then to 31 March.

    Args:
        every: for dates a number and a unit: `15min`, `6h`, `30d`, `2w`, `1mo`, `1y`; for numbers a number.
    """
    amount, unit = _parse_width(str(every))
    first, last = _some(time).min(), time.max()
    is_date = time.dtype.kind == "M"
    if is_date and not unit:
        raise InputError(f"--every {every}: the times are dates, so a unit is needed, such as {every}d")
    if not is_date and unit:
        raise InputError(f"--every {every}: the times are plain numbers, so the width must be one too, such as 0.1")
    bounds: NDArray[Any]
    if unit in MONTHS:
        bounds = _calendar_bounds(first, last, amount * MONTHS[unit], every, limit)
    elif is_date:
        width = round(amount * UNITS[unit])
        if width < 1:
            raise InputError(f"--every {every}: narrower than a microsecond")
        bounds = _even_bounds(first.astype(np.int64), last.astype(np.int64), width, every, limit).astype(time.dtype)
    elif time.dtype.kind == "i" and amount == int(amount):
        bounds = _even_bounds(first, last, int(amount), every, limit)
    else:
        return _fractional_steps(time.astype(np.float64), amount, every, limit)
    index = np.searchsorted(bounds, time, side="right") - 1
    return Steps(index.astype(np.int32), bounds[:-1], bounds[1:], f"every {every}")


def merge_steps(steps: Steps, k: int) -> Steps:
    """Every `k` consecutive steps as one; the last may be made of fewer."""
    if k < 1:
        raise InputError(f"--merge {k}: at least 1 is needed")
    if k == 1:
        return steps
    last = np.minimum(np.arange(k - 1, len(steps) + k - 1, k), len(steps) - 1)
    return replace(
        steps, index=steps.index // np.int32(k), start=steps.start[::k], end=steps.end[last],
        rule=f"{steps.rule}, merged by {k}",
    )  # fmt: skip


def _some(time: NDArray[Any]) -> NDArray[Any]:
    if not len(time):
        raise InputError("no events, so no steps can be made")
    return time


def _parse_width(text: str) -> tuple[float, str]:
    found = re.fullmatch(r"\s*([0-9]*\.?[0-9]+(?:e-?[0-9]+)?)\s*([a-z]*)\s*", text.lower())
    amount, unit = (float(found[1]), found[2]) if found else (0.0, "")
    if not found or not 0 < amount < np.inf:
        raise InputError(f"--every {text}: not a width. Give a number above 0, for dates with a unit: 30d, 6h, 1mo, 1y")
    if unit == "m":
        raise InputError(f"--every {text}: 'm' may mean minutes or months. Write 'min' or 'mo'")
    unit = SPELLINGS.get(unit.rstrip("s") or unit, unit)
    if unit and unit not in UNITS and unit not in MONTHS:
        raise InputError(f"--every {text}: unknown unit '{unit}'. The units are: {', '.join([*UNITS, *MONTHS])}")
    return amount, unit


def _too_many(every: str | float, count: float, limit: int) -> InputError:
    return InputError(f"--every {every}: makes {count:,.0f} steps, and at most {limit:,} are allowed. Widen them")


def _even_bounds(first: Any, last: Any, width: int, every: str | float, limit: int) -> NDArray[np.int64]:
    count = (int(last) - int(first)) // width + 1
    if count > limit:
        raise _too_many(every, count, limit)
    if int(first) + count * width > np.iinfo(np.int64).max:
        raise InputError(f"--every {every}: the last step would end beyond what 64-bit times can hold")
    return int(first) + np.arange(count + 1, dtype=np.int64) * width


def _calendar_bounds(
    first: np.datetime64, last: np.datetime64, months: float, every: str | float, limit: int
) -> NDArray[np.datetime64]:
    if months != int(months):
        raise InputError(f"--every {every}: months, quarters and years must come to whole months")
    origin = first.astype("datetime64[M]")
    span = int((last.astype("datetime64[M]") - origin).astype(np.int64))
    count = span // int(months) + 1
    if count > limit:
        raise _too_many(every, count, limit)
    month = origin + np.arange(count + 2) * int(months)
    day = first.astype("datetime64[D]") - origin.astype("datetime64[D]")
    longest = (month + 1).astype("datetime64[D]") - month.astype("datetime64[D]") - np.timedelta64(1, "D")
    clock = first - first.astype("datetime64[D]")
    bounds = (month.astype("datetime64[D]") + np.minimum(day, longest)).astype(first.dtype) + clock
    # The last month may begin before its boundary day, so the event in it can still belong to the step before.
    ended = int(np.searchsorted(bounds, last, side="right"))
    return np.asarray(bounds[: ended + 1])


def _fractional_steps(time: NDArray[np.float64], width: float, every: str | float, limit: int) -> Steps:
    first = time.min()
    ratio = (time - first) / width
    if not ratio.max() < limit:
        raise _too_many(every, np.floor(ratio.max()) + 1, limit)
    nearest = np.rint(ratio)
    # 0.3 / 0.1 is a little under 3 in floating point, and an event at 0.3 belongs to the step that starts there.
    close = np.abs(ratio - nearest) <= 1e-9 * np.maximum(nearest, 1)
    index = np.where(close, nearest, np.floor(ratio)).astype(np.int32)
    bounds = first + np.arange(int(index.max()) + 2) * width
    np.minimum.at(bounds, index, time)
    return Steps(index, bounds[:-1], bounds[1:], f"every {every}")
