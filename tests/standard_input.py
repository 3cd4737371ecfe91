"""Something to read on standard input, for tests in this process."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def standard_input(content: bytes) -> Iterator[None]:
    """Descriptor 0 is a pipe that holds `content`, less than a pipe's buffer."""
    before = os.dup(0)
    reading, writing = os.pipe()
    os.write(writing, content)
    os.close(writing)
    os.dup2(reading, 0)
    os.close(reading)
    try:
        yield
    finally:
        os.dup2(before, 0)
        os.close(before)
