"""Numbers and lists as a reader of the report sees them."""

from __future__ import annotations

import math
from collections.abc import Sequence

# A no-break space: the sign stays with its number.
GAP = "\N{NO-BREAK SPACE}"


def percent(share: float, digits: int = 1) -> str:
    """`0.793` as `79.3 %`."""
    return f"{100 * share:.{digits}f}{GAP}%" if math.isfinite(share) else "not a number"


def points(difference: float) -> str:
    """A difference of two shares, without its sign: `0.012` as `1.2 points`."""
    size = f"{100 * abs(difference):.1f}"
    return f"{size}{GAP}point{'' if size == '1.0' else 's'}"


def count(number: float) -> str:
    """`5617` as `5,617`."""
    return f"{number:,.0f}"


def counted(number: int, thing: str, things: str = "") -> str:
    """`3` and `node` as `3 nodes`; `things` is the plural where it is not formed by an s."""
    return f"{number:,}{GAP}{thing if number == 1 else things or f'{thing}s'}"


def listing(items: Sequence[str], limit: int = 8) -> str:
    """`a, b and c`, with whatever is past `limit` only counted."""
    shown = list(items) if len(items) <= limit else [*items[:limit], f"{len(items) - limit:,} more"]
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"


def shorten(text: str, length: int) -> str:
    """`text` with at most `length` characters, the end replaced by an ellipsis."""
    return text if len(text) <= length else f"{text[: length - 1].rstrip()}…"
