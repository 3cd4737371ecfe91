"""What a person should be told of imported data: it may be right, and often is not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from chronospike.data.attributes import Column, kept_values
from chronospike.data.events import Events, NodeLabels, Steps
from chronospike.data.reading.columns import letters
from chronospike.data.reading.tables import ABSENT_WORDS
from chronospike.data.reading.times import unix_unit
from chronospike.data.time_text import format_time

# Things of different kinds are often numbered from 1 each.
_KINDS = {
    "user", "customer", "client", "member", "account", "card", "device", "terminal", "merchant", "shop", "store",
    "item", "product", "article", "page", "video", "movie", "song", "author", "paper", "post", "thread", "topic",
}  # fmt: skip
# That an attribute tells the class is said where so many nodes are not of the largest one. Nodes looked at; few values.
_ENOUGH_NODES, _MOST_NODES, _FEW_VALUES = 10, 10_000, 50
# The same number or name, written in another way.
_LEADING_ZEROS, _DECIMAL_ZERO = r"^0+([0-9])", r"^([0-9]+)[.]0$"
_SCIENTIFIC = r"^[0-9]([.,][0-9]+)?[eE][+][0-9]+$"
_UNKNOWN = {*map(str.lower, ABSENT_WORDS.to_pylist()), "unknown", "unlabeled", "unlabelled", "undefined", "missing"}


def warnings_about_ids(events: Events, in_both: int) -> list[str]:
    """Ids that may be one node although they differ, several although they are equal, or none.

    Args:
        in_both: how many ids occur both as a source and as a target.
    """
    found = []
    twins = written_in_two_ways(events.ids.values)
    if twins is not None:
        count, one, other = twins
        seem = "1 id seems" if count == 1 else f"{count:,} ids seem"
        found.append(f"{seem} to be written in two ways, such as {one!r} and {other!r}: these are two nodes")
    if events.ids.is_text:
        rounded = events.ids.values.filter(pc.match_substring_regex(events.ids.values, _SCIENTIFIC))
        if len(rounded):
            found.append(
                f"{rounded[0].as_py()!r} looks like a number that a spreadsheet has rounded: several ids may be one now"
            )
        words = events.ids.values.filter(pc.is_in(events.ids.values, value_set=ABSENT_WORDS.cast(pa.large_string())))
        found += [
            f"{word!r} is a node like any other. If it stands for no id, leave it empty" for word in words.to_pylist()
        ]
    if events.columns and in_both:
        source, target = events.columns[:2]
        kinds = [letters(name).removesuffix("id") for name in (source, target)]
        if kinds[0] != kinds[1] and _KINDS.issuperset(kinds):
            found.append(
                f"{in_both:,} ids occur both in '{source}' and in '{target}', and each is one node. "
                "Where they are different things, write a letter before one of them"
            )
    return found


def warnings_about_times(time: NDArray[Any]) -> list[str]:
    """Numbers that are dates: as Unix time, or whole ones whose next after the last day of a month is 70 further on."""
    unit = unix_unit(time)
    if unit is not None:
        return [
            f"times such as {format_time(time[0])} are read as plain numbers. If they are Unix time, set the time unit "
            f"to {unit!r}: the time of the day and of the week is then read too"
        ]
    if time.dtype.kind != "i":
        return []
    year, month, day = time // 10_000, time // 100 % 100, time % 100
    is_date = (year >= 1900) & (year <= 2100) & (month >= 1) & (month <= 12) & (day >= 1) & (day <= 31)
    if not is_date.all():
        return []
    first = str(time[0])
    written = f"{first[:4]}-{first[4:6]}-{first[6:]}"
    return [f"times such as {first} are read as plain numbers. If they are dates, write them as {written}"]


def warnings_about_steps(steps: Steps) -> list[str]:
    """Steps mostly without events: often one event has a wrong time, such as 1970-01-01 where there was none."""
    busy = np.unique(steps.index)
    empty = len(steps) - len(busy)
    if 2 * empty <= len(steps) or len(busy) < 2:
        return []
    widest = int(np.argmax(np.diff(busy)))
    first, last = format_time(steps.end[busy[widest]]), format_time(steps.start[busy[widest + 1]])
    return [f"{empty:,} of {len(steps):,} steps have no event, most of them in a row from {first} to {last}"]


def warnings_about_classes(labels: NodeLabels) -> list[str]:
    """Class names that may be one class, numbers, or none."""
    twins = written_in_two_ways(pa.array(labels.names, pa.large_string()))
    found = [] if twins is None else [f"classes {twins[1]!r} and {twins[2]!r} are different: they are kept as written"]
    sizes = np.bincount(labels.codes[labels.codes >= 0], minlength=len(labels.names))
    single = np.flatnonzero(sizes == 1)
    if len(single) > max(5, len(sizes) / 2):
        name = labels.names[int(single[0])]
        found.append(f"{len(single):,} of {len(sizes):,} classes have only one node, such as {name!r}")
    words = [name for name in labels.names if name.strip().lower() in _UNKNOWN]
    return found + [f"{word!r} is a class like any other. If it stands for no label, leave it empty" for word in words]


def warnings_about_attributes(values: NDArray[Any], columns: Sequence[Column]) -> list[str]:
    """Attributes `[..., c]` of text with so many values that most are read as `other`."""
    found = []
    for index, column in enumerate(columns):
        if column.kind == "category":
            known = values[..., index]
            codes = known[~np.isnan(known)].astype(np.int64)
            sizes = np.bincount(codes, minlength=len(column.values))
            if 2 * sizes[kept_values(sizes)].sum() < len(codes):
                found.append(f"{column.name} ({len(column.values):,} values, such as {column.values[0]!r})")
    if not found:
        return []
    shown = ", ".join(found[:5]) + (f" and {len(found) - 5} more" if len(found) > 5 else "")
    return [f"attributes of text with mostly rare values, which are all read as 'other': {shown}"]


def warnings_about_leaks(values: NDArray[Any], columns: Sequence[Column], labels: NDArray[Any] | None) -> list[str]:
    """Attributes `[..., c]` that tell the class alone, by one of few values or by a missing one: often they follow
    from it."""
    if labels is None:
        return []
    labelled = np.flatnonzero(np.asarray(labels) >= 0)
    some = labelled[:: 1 + len(labelled) // _MOST_NODES]
    classes = np.asarray(labels)[some].astype(np.int64)
    count = int(classes.max(initial=0)) + 1
    guessed_wrong = len(some) - int(np.bincount(classes, minlength=1).max())
    if guessed_wrong < _ENOUGH_NODES:
        return []
    found = []
    for index, column in enumerate(columns):
        given = np.asarray(values[-1] if values.ndim == 3 else values)[some, index]
        distinct, codes = np.unique(given, return_inverse=True)
        if len(distinct) > min(_FEW_VALUES, len(some) // 10):
            codes = np.isnan(given).astype(np.int64)
        sizes = np.bincount(codes * count + classes, minlength=count * (int(codes.max()) + 1)).reshape(-1, count)
        wrong = len(some) - int(sizes.max(axis=1).sum())
        if wrong <= guessed_wrong / 20:
            found.append(f"'{column.name}'")
    shown = ", ".join(found[:5]) + (f" and {len(found) - 5} more" if len(found) > 5 else "")
    tell = "tells" if len(found) == 1 else "tell"
    return [f"{shown} {tell} the class alone. What is known only after the class must be left out"] if found else []


def written_in_two_ways(values: pa.Array) -> tuple[int, str, str] | None:
    """Distinct texts that differ only in blanks around them, capitals, leading zeros or a `.0`: how many more there
    are than of others, and the first two; None if there are none."""
    if not pa.types.is_large_string(values.type):
        return None
    plain = pc.utf8_lower(pc.utf8_trim_whitespace(values))
    plain = pc.replace_substring_regex(plain, _LEADING_ZEROS, r"\1")
    plain = pc.replace_substring_regex(plain, _DECIMAL_ZERO, r"\1").dictionary_encode()
    if len(plain.dictionary) == len(values):
        return None
    codes = plain.indices.to_numpy()
    first = int(np.argmax(np.bincount(codes)[codes] > 1))
    one, other = np.flatnonzero(codes == codes[first])[:2].tolist()
    return len(values) - len(plain.dictionary), values[one].as_py(), values[other].as_py()
