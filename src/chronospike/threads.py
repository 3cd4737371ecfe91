"""Splitting work over the CPUs this process may use.

Kernels release the interpreter lock and run serially on a contiguous share each. Unlike numba's own parallel
loops this is safe when several Python threads do it at once (a sampler running ahead of the training step).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from itertools import pairwise


def default_threads() -> int:
    """CPUs available to this process."""
    return len(os.sched_getaffinity(0))


@lru_cache(maxsize=4)
def _pool(threads: int, process: int) -> ThreadPoolExecutor:
    # Keyed by process: threads do not survive a fork.
    del process
    return ThreadPoolExecutor(threads, thread_name_prefix="chronospike")


def run_chunks(work: Callable[[int, int], None], total: int, threads: int | None = None) -> None:
    """Call `work(start, stop)` on contiguous shares of `range(total)`, one per thread, and wait for all.

    The calling thread takes the first share itself. An exception in any share is raised here.
    """
    threads = min(threads or default_threads(), total)
    if threads <= 1:
        if total > 0:
            work(0, total)
        return
    bounds = [total * i // threads for i in range(threads + 1)]
    pool = _pool(threads - 1, os.getpid())
    rest = [pool.submit(work, low, high) for low, high in pairwise(bounds[1:])]
    try:
        work(bounds[0], bounds[1])
    finally:
        for future in rest:
            future.result()
