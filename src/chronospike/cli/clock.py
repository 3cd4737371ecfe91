"""The time limit of a `train` command, and Ctrl-C as a way to end it early."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, current_thread, main_thread

from chronospike.cli.common import human_seconds, say

# What is left after the deadline of a fit: scores, predictions, the report.
_AFTERWARDS = 0.1


class Clock:
    """Counts from `began`, on the clock of `time.monotonic`.

    Args:
        limit: seconds for the whole command; None for as long as it takes.
        is_asked: the user has said how much work it is worth, so the first Ctrl-C ends the training, not the command.
    """

    def __init__(self, began: float, limit: float | None, is_asked: bool) -> None:
        self.began, self.limit, self.is_asked = began, limit, is_asked
        self.stop = Event()
        self.deadline: float | None = None

    def left(self) -> float:
        """Seconds."""
        return 0.0 if self.limit is None else self.began + self.limit - time.monotonic()

    def text(self) -> str:
        return "" if self.limit is None else human_seconds(self.limit)

    @contextmanager
    def share(self, runs: int) -> Iterator[None]:
        """For the first of so many runs: its deadline, and the first Ctrl-C ends it with what there is by then."""
        if self.limit is not None:
            self.deadline = time.monotonic() + (1 - _AFTERWARDS) * max(0.0, self.left()) / runs
        before = signal.getsignal(signal.SIGINT)
        # In the background of a script Ctrl-C is for others, and ignored.
        if not self.is_asked or current_thread() is not main_thread() or before is signal.SIG_IGN:
            yield
            return

        def on_interrupt(number: int, frame: object) -> None:
            signal.signal(signal.SIGINT, before)
            self.stop.set()
            say("stopping after this epoch and keeping the results so far; press Ctrl-C again to exit immediately")

        signal.signal(signal.SIGINT, on_interrupt)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)
