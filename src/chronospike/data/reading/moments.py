"""One time that a user gave by hand: a date or a number, as text or as an object."""

from __future__ import annotations

import math
import re
from datetime import UTC, date, datetime
from typing import Any

import numpy as np

from chronospike.data.reading.times import INTEGER, NUMBER, read_date

MOST_YEARS = 290_000  # from 1970, in either direction: what 64 bits of microseconds hold


def as_date(value: Any) -> np.datetime64 | None:
    """datetime64[us] in UTC of a datetime, a date, a numpy or pandas date, or text; None if it is no date.

    Text is an ISO date, `2019-06` for the first of a month or `2019` for the first of a year. Numpy reads "now",
    "today" and an empty text as dates too, so no text is given to it.
    """
    if isinstance(value, str):
        text = value.strip()
        if re.fullmatch(INTEGER, text):  # as in a file: digits alone are a number, except for a year
            text = f"{text}-01-01" if re.fullmatch("[0-9]{4}", text) else ""
        return read_date(text)
    try:
        if isinstance(value, datetime):
            if value != value:  # pandas' NaT
                return None
            value = np.datetime64(value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo else value, "us")
        elif isinstance(value, date):
            value = np.datetime64(value)
    except (ValueError, OverflowError):
        return None
    if not isinstance(value, np.datetime64) or np.isnat(value):
        return None
    in_range = abs(int(value.astype("datetime64[Y]").astype(np.int64))) < MOST_YEARS
    return value.astype("datetime64[us]") if in_range else None


def as_number(value: Any) -> int | float | None:
    """A finite number, given as one or as text; None for anything else, also for truth values and durations."""
    if isinstance(value, str):
        text = value.strip()
        if re.fullmatch(INTEGER, text) and len(text) < 400:  # as a float, more digits would be infinite
            return int(text)
        value = float(text) if re.fullmatch(NUMBER, text) else math.nan
    if isinstance(value, (bool, np.timedelta64)):
        return None
    if isinstance(value, (int, np.integer)):
        return int(value)
    if isinstance(value, (float, np.floating)) and math.isfinite(value):
        return float(value)
    return None
