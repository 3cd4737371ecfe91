"""Which step a date names: the last one with an event that had ended by then."""

from __future__ import annotations

from typing import Any

import numpy as np

from chronospike.data.graph import DynamicGraph
from chronospike.data.reading.times import as_date, as_number
from chronospike.data.steps import EQUAL_COUNTS, LAST_MADE_OF
from chronospike.data.time_text import format_time
from chronospike.errors import InputError


def step_as_of(graph: DynamicGraph, as_of: Any) -> int:
    """The step that `as_of` names: a step by its number, or the last one that had ended by a time.

    A step that had only begun by then also holds events that come later, so it is not counted. The end of a step of
    equal width is outside it, and that of any other step is its last event's own time: either way a step has ended
    when its end is not after the given time. Empty steps at the end are not counted either: a graph ends with its last
    event, and as of a time it ends with the last event by then, whether or not others follow.

    Args:
        as_of: a whole number below the number of steps is a step. Anything else is a time: a number where the times
            are numbers; a date (ISO text, `2019-06`, `2019`, datetime, numpy, pandas) in UTC where they are dates.
            Text is read by the same rules.

    Raises:
        InputError: it is neither, or no step had ended by then.
    """
    number, dated = as_number(as_of), graph.step_end.dtype.kind == "M"
    if isinstance(number, int) and 0 <= number < graph.num_steps:
        return number
    time = as_date(as_of) if dated else number
    # A number past the end is more likely a miscounted step than a time to come.
    if time is None or (isinstance(time, int) and time > graph.step_end[-1].item()):
        raise InputError(_refusal(graph, as_of))
    ended = int(np.count_nonzero(graph.step_end <= time))
    if not ended:
        raise InputError(f"as_of {as_of}: no step had ended by then. The first ends {format_time(graph.step_end[0])}")
    step, offsets = ended - 1, graph.snapshot.step_offsets
    while step > 0 and np.array_equal(offsets[:, step], offsets[:, step + 1]):
        step -= 1
    return step


def depends_on_future(graph: DynamicGraph) -> bool:
    """Whether events after a step could have moved its end, so that `as_of` a time before them knows of them.

    Steps of equal event counts are cut where the events of the whole file divide, and when merging leaves too few
    steps for the last one, the next ones would still have joined it. Steps of one width and distinct times stay where
    they are, whatever comes later.
    """
    rule = str(graph.facts.get("step_rule", ""))
    return EQUAL_COUNTS in rule or LAST_MADE_OF in rule


def _refusal(graph: DynamicGraph, as_of: Any) -> str:
    number, last = as_number(as_of), format_time(graph.step_end[-1])
    dated, steps = graph.step_end.dtype.kind == "M", f"0 to {graph.num_steps - 1}"
    if isinstance(number, int):
        return f"as_of {number}: steps are {steps}, " + (
            f"dates are written like {last}" if dated else f"times run to {last}"
        )
    shown = repr(as_of)[:60]
    if dated:
        return f"as_of {shown} is neither a step ({steps}) nor a date such as {last}"
    why = "the times of this graph are numbers" if as_date(as_of) is not None else "not a number"
    return f"as_of {shown}: {why}. Give a step ({steps}) or a time up to {last}"
