"""Sharing the steps of a batch among the CPUs, with small matrix products inside each share."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache

import torch

from chronospike.threads import default_threads


def for_each(new_worker: Callable[[], Callable[[int], None]], count: int) -> None:
    """Put every number below `count` through a worker, the highest first, and wait for all.

    Each thread makes one worker, and with it its own scratch memory, and takes the next number whenever it is done
    with the last: later steps know more edges and take longer. Inside, torch uses one thread, because two ways of
    sharing the same CPUs would wait for each other. The calling thread only waits, so what follows the operators of
    that thread (autograd, a dispatch mode) does not see those inside.
    """
    waiting = iter(range(count - 1, -1, -1))

    def share() -> None:
        torch.set_num_threads(1)
        worker = new_worker()
        for number in waiting:
            worker(number)

    threads, before = min(count, default_threads()), torch.get_num_threads()
    if not threads:
        return
    try:
        for done in [_pool(threads, os.getpid()).submit(share) for _ in range(threads)]:
            done.result()
    finally:
        # The setting is each thread's own, but the last one made is also what a new thread begins with.
        torch.set_num_threads(before)


@lru_cache(maxsize=4)
def _pool(threads: int, process: int) -> ThreadPoolExecutor:
    # Keyed by process: threads do not survive a fork.
    del process
    return ThreadPoolExecutor(threads, thread_name_prefix="chronospike-steps")
