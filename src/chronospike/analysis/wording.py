"""Numbers and lists as a reader of the report sees them."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Sequence

# A no-break space: the sign stays with its number.
GAP = "\N{NO-BREAK SPACE}"
# Longer ids and class names are cut: the page shows the whole of them on pointing, and metrics.json has them.
LONGEST_NAME = 60


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


def visible(text: str) -> str:
    """`text` with what cannot be seen, or turns the text around it about, written as its code point: `⟨U+202E⟩`."""
    return "".join(f"⟨U+{ord(c):04X}⟩" if _is_hidden(c) else c for c in text)


def _is_hidden(character: str) -> bool:
    # Cc is control characters, Zl and Zp break lines; the others override the direction of what follows.
    turns = unicodedata.bidirectional(character) in ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI")
    return turns or unicodedata.category(character) in ("Cc", "Zl", "Zp")


def quoted(name: str) -> str:
    """A class in a sentence, cut if it is very long."""
    return f"‘{shorten(visible(name), LONGEST_NAME)}’"
