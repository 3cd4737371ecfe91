"""Events from the perspective of each of their two nodes; the history before an event is a prefix.

An event between u and v is two records: one in the row of u, whose neighbour is v, and its mirror in the row of v. A
row is in the order of time, and of the input where times are equal, so that the h neighbours that a node had last
before the record at place p are those at p - 1, …, p - h, as far as the row goes. It is the same for directed graphs:
an event makes each of its nodes part of the other's past, whichever of them it came from.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from chronospike.data.csr import smallest_int
from chronospike.data.events import EventLog
from chronospike.errors import InputError

Index = NDArray[np.signedinteger[Any]]


@dataclass(frozen=True)
class EventRecords:
    """R = 2 E records of E events, by (node, time, order of the input), and the M distinct times of the events.

    Attributes:
        indptr: `[N + 1]` where the row of each node starts.
        node, neighbour: `[R]` int32, whose record it is, and with whom.
        moment: `[R]` int32, index into `times`.
        mirror: `[R]` the place of the same event in the row of the neighbour.
        times: `[M]` ascending, scaled to [0, 1]; zero if there is only one.
        population: `[M]` how many nodes had an event by then.
        added: `[M]` how many events happened then.
    """

    indptr: NDArray[np.int64]
    node: NDArray[np.int32]
    neighbour: NDArray[np.int32]
    moment: NDArray[np.int32]
    mirror: Index
    times: NDArray[np.float32]
    population: NDArray[np.int64]
    added: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.node)

    def degrees(self) -> NDArray[np.int64]:
        """`[N]` events of each node."""
        return np.diff(self.indptr)


def event_records(log: EventLog, num_nodes: int) -> EventRecords:
    """The records of all events of the log."""
    ends = np.stack([log.source, log.target], axis=1).reshape(-1)
    # The log is in the order of time, which a stable sort by node keeps. Records 2 e and 2 e + 1 are of event e.
    order = np.argsort(ends, kind="stable").astype(smallest_int(max(len(ends), 2**15)))
    place = np.empty_like(order)
    place[order] = np.arange(len(order), dtype=order.dtype)
    partner = order ^ 1
    indptr = np.zeros(num_nodes + 1, dtype=np.int64)
    np.cumsum(np.bincount(ends, minlength=num_nodes), out=indptr[1:])
    times, moments = _moments(log.time)
    # A node is there from the first record of its row on.
    first = moments[order[indptr[:-1][np.diff(indptr) > 0]] >> 1]
    return EventRecords(
        indptr,
        ends[order],
        ends[partner],
        moments[order >> 1],
        place[partner],
        times,
        np.cumsum(np.bincount(first, minlength=len(times))),
        np.bincount(moments, minlength=len(times)),
    )


def _moments(time: NDArray[Any]) -> tuple[NDArray[np.float32], NDArray[np.int32]]:
    """The distinct values of ascending times, scaled, and `[E]` which of them each is."""
    is_new = np.ones(len(time), dtype=bool)
    is_new[1:] = time[1:] != time[:-1]
    return _scaled(time[is_new]), np.cumsum(is_new, dtype=np.int32) - np.int32(1)


def _scaled(time: NDArray[Any]) -> NDArray[np.float32]:
    """Ascending distinct times from 0 to 1."""
    if len(time) < 2:
        return np.zeros(len(time), dtype=np.float32)
    if time.dtype.kind == "f":
        # Halves, since the difference of two floats may be more than a float holds.
        since = time / 2 - time[0] / 2
    else:
        # Integers and dates are counted without a sign, since the difference of two may need the 64th bit.
        ticks = time.astype(np.int64).view(np.uint64)
        since = (ticks - ticks[0]).astype(np.float64)
    if not np.isfinite(since[-1]):
        raise InputError("a time of the events is not finite. Drop such events and import the graph again")
    return np.asarray(since / since[-1], dtype=np.float32)
