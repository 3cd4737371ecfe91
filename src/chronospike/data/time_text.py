"""Times in words, for messages, summaries and reports."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np


def format_time(value: Any) -> str:
    """A date as `2023-06-05`, with `13:45`, seconds and fractions only where it has them; a number as it is."""
    if not isinstance(value, np.datetime64):
        return str(value)
    day, _, clock = str(value.astype("datetime64[us]")).partition("T")
    seconds, _, fraction = clock.partition(".")
    if fraction.strip("0"):
        return f"{day} {seconds}.{fraction.rstrip('0')}"
    shown = seconds.removesuffix(":00")
    return day if shown == "00:00" else f"{day} {shown}"


def time_span(summary: Mapping[str, Any]) -> str:
    """`from 2022-01-03 to 2023-07-27 (last event 2023-07-20 11:02)`, of a graph's summary.

    The last step may end after the last event, which is then named too.
    """
    span = f"from {summary['first_time']} to {summary['last_time']}"
    last = summary.get("last_event")
    return span if last is None or last == summary["last_time"] else f"{span} (last event {last})"
