"""Packages that may or may not be there."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec


@cache
def has_triton() -> bool:
    """Whether Triton is installed."""
    return find_spec("triton") is not None
