"""Times into steps: one per distinct time, of equal event counts, or of equal width."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from chronospike.data.equal_width import equal_width_steps
from chronospike.data.events import Steps
from chronospike.errors import InputError

MOST_DISTINCT = 1000
# Parts of a rule that tell that later events decide where a step ends.
EQUAL_COUNTS, LAST_MADE_OF = "of equal event counts", "the last of"


def make_steps(
    time: NDArray[Any],
    *,
    steps: int | None = None,
    every: str | float | None = None,
    origin: Any = None,
    merge: int = 1,
) -> Steps:
    """Steps by the user's choice: `steps` of equal event counts, `every` of equal width, else one per distinct time.

    Args:
        time: `[E]` int64, float64 or datetime64[us].
        origin: a time at which a step of `every` begins; see `equal_width_steps`.
        merge: how many consecutive steps to make one of afterwards.
    """
    if steps is not None and every is not None:
        raise InputError("--steps and --every exclude each other: give one of them")
    if origin is not None and every is None:
        raise InputError(f"--origin {origin}: it says where steps of equal width begin, so it needs --every WIDTH")
    if not len(time):
        raise InputError("no events, so no steps can be made")
    if steps is not None:
        made = equal_count_steps(time, steps)
    elif every is not None:
        made = equal_width_steps(time, every, origin)
    else:
        made = distinct_steps(time, MOST_DISTINCT * max(merge, 1))
    return merge_steps(made, merge)


def distinct_steps(time: NDArray[Any], limit: int = MOST_DISTINCT) -> Steps:
    """One step per distinct time; it starts and ends at that time."""
    moments, index = np.unique(time, return_inverse=True)
    if len(moments) > limit:
        raise InputError(
            f"{len(moments):,} distinct times, and one step for each is too many (at most {limit:,}). "
            "Pass --steps 20 for steps of equal event counts, or --every WIDTH for steps of equal width"
        )
    return Steps(index.astype(np.int32), moments, moments)


def equal_count_steps(time: NDArray[Any], count: int) -> Steps:
    """`count` steps with as equal numbers of events as can be; events of one time stay in one step.

    A step starts and ends at the first and last time of its events.
    """
    if count < 1:
        raise InputError(f"--steps {count}: at least one step is needed")
    moments, place, events = np.unique(time, return_inverse=True, return_counts=True)
    if count > len(moments):
        have = f"only {len(moments):,} distinct time{'s' * (len(moments) != 1)}"
        raise InputError(f"--steps {count}: there are {have}, and events of one time stay together")
    until = np.cumsum(events)
    # Cut where the running count is nearest to k/count of all, leaving each step at least one time.
    ideal = np.arange(1, count) * until[-1] / count
    high = np.searchsorted(until, ideal)
    below = np.where(high > 0, until[high - 1], 0)
    nearer = np.where(until[high] - ideal <= ideal - below, high + 1, high)
    cuts = np.array([0, *nearer, len(moments)])
    for k in range(1, count):
        cuts[k] = min(max(cuts[k], cuts[k - 1] + 1), len(moments) - (count - k))
    step = np.repeat(np.arange(count, dtype=np.int32), np.diff(cuts))
    return Steps(step[place], moments[cuts[:-1]], moments[cuts[1:] - 1], f"{count} {EQUAL_COUNTS}")


def merge_steps(steps: Steps, k: int) -> Steps:
    """Every `k` consecutive steps as one; the last may be made of fewer."""
    if k < 1:
        raise InputError(f"--merge {k}: at least 1 is needed")
    if k == 1:
        return steps
    last = np.minimum(np.arange(k - 1, len(steps) + k - 1, k), len(steps) - 1)
    left = len(steps) % k
    return replace(
        steps, index=steps.index // np.int32(k), start=steps.start[::k], end=steps.end[last],
        rule=f"{steps.rule}, merged by {k}" + (f" ({LAST_MADE_OF} {left})" if left else ""),
    )  # fmt: skip
