"""Other processes that hold a lock until a test lets them go on."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

CLAIM = """
import sys
from pathlib import Path
from chronospike.locks import claim
with claim(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.readline()
"""

WAIT_FOR = """
import sys
from pathlib import Path
from chronospike.locks import wait_for
with wait_for(Path(sys.argv[1]), "at work"):
    print("held", flush=True)
    sys.stdin.readline()
"""


@contextmanager
def started(program: str, *arguments: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that runs `program` and has printed its first line; it is ended with the block if it still runs."""
    process = subprocess.Popen(
        [sys.executable, "-c", program, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline()
        yield process
    finally:
        process.kill()
        process.communicate()


def let_go_on(process: subprocess.Popen[str], word: str = "") -> None:
    """Give the process the line that it waits for."""
    assert process.stdin is not None
    process.stdin.write(f"{word}\n")
    process.stdin.flush()
