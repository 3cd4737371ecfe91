"""The exceptions of ChronoSpike. The command line prints each as one line, without a traceback.

A message names the file, the row, the value and the way out.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable


class ChronoSpikeError(Exception):
    """Base of everything raised on purpose. `exit_code` is what the command line returns."""

    exit_code = 1


class InputError(ChronoSpikeError):
    """What the user gave cannot be used: a file, a column, an option, a value."""

    exit_code = 2


class GraphError(InputError):
    """A graph contradicts itself: an index out of range, features that are not finite, too few steps."""


class StorageError(InputError):
    """A folder on disk is not what it claims: newer version, wrong checksum, missing array."""


class MissingPackageError(InputError):
    """An optional package is needed for this and is not installed; `extra` is the one of ours that brings it."""

    def __init__(self, package: str, purpose: str, extra: str) -> None:
        way_out = f"pip install 'chronospike[{extra}]'"
        super().__init__(f"{purpose} needs the package '{package}', which is not installed. Run: {way_out}")


class OutOfSpaceError(ChronoSpikeError):
    """The disk filled up while writing; nothing half-written is left behind."""

    exit_code = 2


def nearest(name: str, choices: Iterable[str]) -> str:
    """A sentence part such as ` Did you mean 'dblp'?`, or an empty string when nothing is close."""
    close = difflib.get_close_matches(name, list(choices), n=1, cutoff=0.5)
    return f" Did you mean '{close[0]}'?" if close else ""


def one_line(error: BaseException) -> str:
    """Another library's message on one line, cut where it is very long."""
    return " ".join(str(error).split())[:200]


def check_choice(option: str, value: str, choices: Collection[str]) -> None:
    """Refuse a value that is not one of the choices."""
    if value not in choices:
        raise InputError(f"{option} {value!r} is not one of: {', '.join(choices)}.{nearest(str(value), choices)}")
