"""Splitting work over the CPUs that this process may use.

Kernels release the interpreter lock and run serially on a contiguous share each. Unlike numba's own parallel
loops this is safe when several Python threads do it at once (a sampler running ahead of the training step).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import lru_cache
from itertools import pairwise
from threading import Thread
from typing import TypeVar

# OpenMP's threads (torch computes with them) keep a CPU busy while they wait for the next piece of work. Beside
# another busy program that takes the CPU from whoever has work to do, and an epoch takes many times as long.
# The first two are read by GNU's OpenMP, which torch brings along, the last by Intel's and LLVM's.
_QUIET = {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "0", "KMP_BLOCKTIME": "0"}


Found = TypeVar("Found")


def in_background(work: Callable[[], Found]) -> Future[Found]:
    """`work` in a thread of its own, which ends with the program if nobody asks for its result."""
    future: Future[Found] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)

    Thread(target=run, daemon=True).start()
    return future


def wait_quietly() -> None:
    """Let OpenMP's threads sleep while they wait, unless the user's environment says how they are to wait.

    OpenMP reads the environment once, when torch loads it: afterwards this changes nothing.
    """
    if "torch" not in sys.modules and not _QUIET.keys() & os.environ.keys():
        os.environ.update(_QUIET)


def default_threads() -> int:
    """CPUs available to this process."""
    return len(os.sched_getaffinity(0))


@lru_cache(maxsize=8)
def pool(threads: int, process: int, name: str = "chronospike") -> ThreadPoolExecutor:
    """The threads of this name. Keyed by process: threads do not survive a fork."""
    del process
    return ThreadPoolExecutor(threads, thread_name_prefix=name)


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
    others = pool(threads - 1, os.getpid())
    rest = [others.submit(work, low, high) for low, high in pairwise(bounds[1:])]
    try:
        work(bounds[0], bounds[1])
    finally:
        for future in rest:
            future.result()
