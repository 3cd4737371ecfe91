"""Times into steps: one per distinct time, of equal event counts, or of equal width.

Widths are microseconds to weeks, months and years of the calendar, or plain numbers.
"""

from __future__ import annotations

import re
from dataclasses import replace
from fractions import Fraction
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray

from chronospike.data.events import Steps
from chronospike.data.reading.times import MOST_YEARS, as_date, as_number
from chronospike.data.time_text import format_time
from chronospike.errors import InputError

MOST_DISTINCT, MOST_STEPS = 1000, 10_000
# Parts of a rule that tell that later events decide where a step ends.
EQUAL_COUNTS, LAST_MADE_OF = "of equal event counts", "the last of"
SECOND = 1_000_000
UNITS = {"us": 1, "ms": 1000, "s": SECOND, "min": 60 * SECOND, "h": 3600 * SECOND, "d": 86400 * SECOND,
         "w": 7 * 86400 * SECOND}  # fmt: skip
MONTHS = {"mo": 1, "q": 3, "y": 12}
SPELLINGS = {
    "sec": "s", "second": "s", "minute": "min", "hr": "h", "hour": "h", "day": "d", "week": "w", "month": "mo",
    "quarter": "q", "yr": "y", "year": "y", "min": "min", "mo": "mo",
}  # fmt: skip
YEAR_ZERO = np.datetime64("0000-01-01", "us")


def make_steps(
    time: NDArray[Any],
    *,
    steps: int | None = None,
    every: str | float | None = None,
    origin: Any = None,
    merge: int = 1,
) -> Steps:
    """Steps by the user's choice: `steps` of equal event counts, `every` of equal width, else one per distinct time.

    Args:
        time: `[E]` int64, float64 or datetime64[us].
        origin: a time at which a step of `every` begins; see `equal_width_steps`.
        merge: how many consecutive steps to make one of afterwards.
    """
    for name, number in (("steps", 1 if steps is None else steps), ("merge", merge)):
        if not isinstance(number, Integral):
            raise InputError(f"--{name} {number!r}: a whole number is needed")
    if steps is not None and every is not None:
        raise InputError("--steps and --every exclude each other: give one of them")
    if origin is not None and every is None:
        raise InputError(f"--origin {origin}: it sets where steps of equal width begin, so it needs --every WIDTH")
    if not len(time):
        raise InputError("no events, so no steps can be made")
    if steps is not None:
        made = equal_count_steps(time, steps)
    elif every is not None:
        made = equal_width_steps(time, every, origin)
    else:
        made = distinct_steps(time, MOST_DISTINCT * max(merge, 1))
    return merge_steps(made, merge)


def distinct_steps(time: NDArray[Any], limit: int = MOST_DISTINCT) -> Steps:
    """One step per distinct time; it starts and ends at that time."""
    moments, index = np.unique(time, return_inverse=True)
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
    moments, place, events = np.unique(time, return_inverse=True, return_counts=True)
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
    return Steps(step[place], moments[cuts[:-1]], moments[cuts[1:] - 1], f"{count} {EQUAL_COUNTS}")


def merge_steps(steps: Steps, k: int) -> Steps:
    """Every `k` consecutive steps as one; the last may be made of fewer."""
    if k < 1:
        raise InputError(f"--merge {k}: at least 1 is needed")
    if k == 1:
        return steps
    k = min(k, 2**31 - 1)  # what the index of a step holds
    last = np.minimum(np.arange(k - 1, len(steps) + k - 1, k), len(steps) - 1)
    left = len(steps) % k
    return replace(
        steps, index=steps.index // np.int32(k), start=steps.start[::k], end=steps.end[last],
        rule=f"{steps.rule}, merged by {k}" + (f" ({LAST_MADE_OF} {left})" if left else ""),
    )  # fmt: skip


def equal_width_steps(time: NDArray[Any], every: str | float, origin: Any = None) -> Steps:
    """Steps of one width, from the one that holds the first event on; those without events are kept.

    Step k holds the times from `start[k]` up to, but not including, `end[k]`, which is `start[k + 1]`. The bounds lie
    at the origin and whole widths before and after it. Without an origin, months, quarters and years begin where
    those of the calendar do, counted from the year 0, and all other steps at the first event.

    Args:
        time: `[E]` int64, float64 or datetime64[us], at least one.
        every: for dates a number and a unit: `15min`, `6h`, `30d`, `2w`, `1mo`, `1y`; for numbers a number.
        origin: a date for dates, a number for numbers. Months count from it too: from 31 January, `1mo` leads to
            the last day of February, then to 31 March.
    """
    amount, unit = _parse_width(str(every))
    is_date = time.dtype.kind == "M"
    if is_date and not unit:
        raise InputError(f"--every {every}: the times are dates, so a unit is needed, such as {every}d")
    if not is_date and unit:
        raise InputError(
            f"--every {every}: the times are plain numbers, so the width must be one too, such as 0.1. Unix seconds "
            "or milliseconds are taken as dates with --time-unit s or --time-unit ms"
        )
    given = None if origin is None else _parse_origin(origin, is_date)
    rule = f"every {every}"
    if given is not None or unit not in MONTHS:
        rule += f" from {format_time(time.min() if given is None else given)}"
    try:
        if unit in MONTHS:
            bounds = _calendar_bounds(time, amount * MONTHS[unit], YEAR_ZERO if given is None else given)
            index = _places(bounds, time)
        elif is_date:
            moments = time.astype(np.int64)
            zero = moments.min() if given is None else given.astype(np.int64)
            whole, index = _even_steps(moments, Fraction(round(amount * UNITS[unit])), _exact(zero))
            bounds = whole.astype(time.dtype)
        else:
            bounds, index = _even_steps(time, amount, _exact(time.min() if given is None else given))
    except InputError as error:
        raise InputError(f"--every {every}: {error}") from None
    except OverflowError:
        raise InputError(f"--every {every}: a step would begin or end beyond what 64-bit times can hold") from None
    return Steps(index, bounds[:-1], bounds[1:], rule)


def without_origin(rule: str) -> str:
    """The part of a rule that two graphs can share: `every 30d` of `every 30d from 2022-01-03`."""
    return re.sub(r" from [^,]*| \(.*\)", "", rule)


def _parse_width(text: str) -> tuple[Fraction, str]:
    found = re.fullmatch(r"\s*([0-9]*\.?[0-9]+(?:e[+-]?[0-9]+)?)\s*([a-z]*)\s*", text.lower())
    if not found or not 0 < float(found[1]) < np.inf:
        raise InputError(f"--every {text}: not a width. Give a number above 0, for dates with a unit: 30d, 6h, 1mo, 1y")
    unit = found[2]
    if unit == "m":
        raise InputError(f"--every {text}: 'm' may mean minutes or months. Write 'min' or 'mo'")
    unit = SPELLINGS.get(unit.rstrip("s") or unit, unit)
    if unit and unit not in UNITS and unit not in MONTHS:
        raise InputError(f"--every {text}: unknown unit '{unit}'. The units are: {', '.join([*UNITS, *MONTHS])}")
    return Fraction(found[1]), unit


def _parse_origin(origin: Any, is_date: bool) -> Any:
    value = as_date(origin) if is_date else as_number(origin)
    if value is None:
        wanted = "dates, so a date is needed, such as 2020-01-01" if is_date else "plain numbers, so a number is needed"
        raise InputError(f"--origin {origin}: the times are {wanted}")
    return value


def _exact(number: Any) -> Fraction:
    """The number as people write it: 0.1 is a tenth here, so that three of them are 0.3 and not a little more."""
    return Fraction(repr(number.item() if isinstance(number, np.generic) else number))


def _even_steps(time: NDArray[Any], width: Fraction, zero: Fraction) -> tuple[NDArray[Any], NDArray[np.int32]]:
    """Bounds `[T + 1]` at whole widths from `zero`, and the step of each time."""
    if not width:
        raise InputError("narrower than a microsecond")
    if time.dtype.kind == "i" and width.denominator == zero.denominator == 1:
        numbers = _numbers_of_bounds(time, width, zero)
        bounds = np.array([int(zero + k * width) for k in (*numbers, numbers[-1] + 1)], dtype=np.int64)
        return bounds, _places(bounds, time)
    time = time.astype(np.float64)
    numbers = _numbers_of_bounds(time, width, zero)
    around = range(numbers[0], numbers[-1] + 3)
    bounds = np.array([float(zero + k * width) for k in around])
    if (np.diff(bounds) <= 0).any():
        raise InputError("narrower than the resolution of the times")
    # Sums of floats come out a little under the bound they mean (3 * 0.7 < 2.1), and belong to the step above it.
    slack = 1e-9 * float(width) * np.clip(np.abs(np.array(around, dtype=np.float64)), 1, 1e6)
    index = _places(bounds - slack, time)
    bounds, index = bounds[index.min() : index.max() + 2], index - index.min()
    np.minimum.at(bounds, index, time)
    return bounds, index


def _numbers_of_bounds(time: NDArray[Any], width: Fraction, zero: Fraction) -> range:
    """k of the bounds zero + k * width that start the steps from the first to the last event."""
    low, high = ((_exact(moment) - zero) // width for moment in (time.min(), time.max()))
    _check_count(high - low + 1, time)
    return range(low, high + 1)


def _calendar_bounds(time: NDArray[Any], months: Fraction, zero: np.datetime64) -> NDArray[np.datetime64]:
    """`[T + 1]` dates that lie a whole multiple of `months` from `zero`, on its day of the month or the last one."""
    if months.denominator != 1:
        raise InputError("a width in months, quarters or years must be a whole number of months")
    step, origin = int(months), _month(zero)
    day = zero.astype("datetime64[D]") - zero.astype("datetime64[M]").astype("datetime64[D]")
    clock = zero - zero.astype("datetime64[D]")

    def bounds(low: int, high: int) -> NDArray[np.datetime64]:
        numbers = [origin + k * step for k in range(low, high + 1)]
        if abs(numbers[0]) > 12 * MOST_YEARS or abs(numbers[-1]) > 12 * MOST_YEARS:
            raise OverflowError
        month = np.array(numbers, dtype=np.int64).astype("datetime64[M]")
        longest = (month + 1).astype("datetime64[D]") - month.astype("datetime64[D]") - np.timedelta64(1, "D")
        return np.asarray((month.astype("datetime64[D]") + np.minimum(day, longest)).astype("datetime64[us]") + clock)

    ends = []
    for moment in (time.min(), time.max()):
        k = (_month(moment) - origin) // step
        # A month may begin before its boundary day, and a time in between belongs to the step before.
        ends.append(k - int(bounds(k, k)[0] > moment))
    low, high = ends
    _check_count(high - low + 1, time)
    return bounds(low, high + 1)


def _month(moment: np.datetime64) -> int:
    """Months since January 1970."""
    return int(moment.astype("datetime64[M]").astype(np.int64))


def _places(bounds: NDArray[Any], time: NDArray[Any]) -> NDArray[np.int32]:
    """`[E]` the last bound that is not above each time."""
    return (np.searchsorted(bounds, time, side="right") - 1).astype(np.int32)


def _check_count(count: int, time: NDArray[Any]) -> None:
    if count > MOST_STEPS:
        first, last = format_time(time.min()), format_time(time.max())
        raise InputError(
            f"makes {count:,} steps from {first} to {last}, and at most {MOST_STEPS:,} are allowed. Widen them"
        )
