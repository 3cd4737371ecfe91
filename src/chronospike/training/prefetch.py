"""Preparing the next batch while this one trains."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Ready = TypeVar("Ready")


def prepare_ahead(items: Iterable[Item], prepare: Callable[[Item], Ready]) -> Iterator[tuple[Item, Ready]]:
    """Yield each item with `prepare(item)`, in order; one is prepared in a thread while the last is used.

    An exception in `prepare` is raised where its item would have come. A caller that stops early closes the
    generator (leaving a `for` loop and dropping it is enough), which waits for what is under way and begins no more.
    """
    pool = ThreadPoolExecutor(1, thread_name_prefix="chronospike-ahead")
    waiting: tuple[Item, Future[Ready]] | None = None
    try:
        for item in items:
            following = item, pool.submit(prepare, item)
            if waiting is not None:
                yield waiting[0], waiting[1].result()
            waiting = following
        if waiting is not None:
            yield waiting[0], waiting[1].result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
