"""Timestamped edges between numbered nodes: as every reader returns them, and as a graph keeps them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from chronospike.data.csr import IntArray
from chronospike.data.ids import NodeIds
from chronospike.errors import GraphError

_EVENT_DTYPES = {
    "source": ("int32",),
    "target": ("int32",),
    "time": ("int64", "float64", "datetime64[us]"),
    "step_offsets": ("int64",),
}


@dataclass(frozen=True)
class Events:
    """E timestamped edges, as they were given: repeats and self-loops still in.

    Attributes:
        source, target: `[E]` node indices into `ids`.
        time: `[E]` int64, float64 or datetime64[us].
        ids: the user's own N node ids.
        origin: where they came from, for messages and provenance.
        dropped: rows left out because a value was missing.
        unused: columns that were there and are neither source, target nor time.
        columns: what those three are called, if they have names.
    """

    source: IntArray
    target: IntArray
    time: NDArray[Any]
    ids: NodeIds
    origin: str = "arrays"
    dropped: int = 0
    unused: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.source)


@dataclass(frozen=True)
class EventLog:
    """The E events of a graph in the order of their times; those of one time in the order they were given in.

    Repeats are kept, and the direction is as given even if the graph is undirected. Self-loops are left out, as in
    the snapshots: every event is an edge of the snapshot of its step.

    Attributes:
        source, target: `[E]` int32 node indices.
        time: `[E]` int64, float64 or datetime64[us], as imported.
        step_offsets: `[T + 1]` int64; entry t counts the events before step t.
    """

    source: NDArray[np.int32]
    target: NDArray[np.int32]
    time: NDArray[Any]
    step_offsets: NDArray[np.int64]

    @classmethod
    def of(
        cls, source: IntArray, target: IntArray, time: NDArray[Any], step: NDArray[np.int32], num_steps: int
    ) -> EventLog:
        """The log of events in any order, each `[E]`. Nothing is shared with the arrays given."""
        order = slice(None) if (time[:-1] <= time[1:]).all() else np.argsort(time, kind="stable")
        step = step[order]
        if (step[:-1] > step[1:]).any():
            raise GraphError("a later event is in an earlier step")
        offsets = np.searchsorted(step, np.arange(num_steps + 1, dtype=step.dtype)).astype(np.int64)
        return cls(source[order].astype(np.int32), target[order].astype(np.int32), np.array(time[order]), offsets)

    def __len__(self) -> int:
        return len(self.time)

    @property
    def num_steps(self) -> int:
        return len(self.step_offsets) - 1

    @cached_property
    def step(self) -> NDArray[np.int32]:
        """`[E]` the step of each event."""
        return np.repeat(np.arange(self.num_steps, dtype=np.int32), np.diff(self.step_offsets))

    def until(self, step: int) -> EventLog:
        """What had happened by the end of `step`: a prefix, not a copy."""
        if not 0 <= step < self.num_steps:
            raise GraphError(f"step {step} is outside 0..{self.num_steps - 1}")
        end = int(self.step_offsets[step + 1])
        return EventLog(self.source[:end], self.target[:end], self.time[:end], self.step_offsets[: step + 2])

    def check(self, num_nodes: int, num_steps: int) -> None:
        """Raise `GraphError` naming what does not fit a graph of so many nodes and steps."""
        for name, kinds in _EVENT_DTYPES.items():
            array = getattr(self, name)
            length = num_steps + 1 if name == "step_offsets" else len(self)
            if array.dtype not in kinds or array.shape != (length,):
                wanted = f"{' or '.join(kinds)} [{length}] is needed"
                raise GraphError(f"{name} of the events is {array.dtype} {list(array.shape)}; {wanted}")
        counts = np.asarray(self.step_offsets)
        if not len(self) or counts[0] != 0 or counts[-1] != len(self) or (np.diff(counts) < 0).any():
            raise GraphError(f"the step offsets of the events do not ascend from 0 to {len(self)}")
        for ends in (self.source, self.target):
            if not 0 <= ends.min() <= ends.max() < num_nodes:
                raise GraphError(f"an event names a node outside 0..{num_nodes - 1}")
        # No comparison with a NaN or NaT is true, not even with itself.
        if self.time[0] != self.time[0] or not (self.time[:-1] <= self.time[1:]).all():
            raise GraphError("the times of the events do not ascend")


@dataclass(frozen=True)
class NodeLabels:
    """Classes of some or all nodes.

    Attributes:
        codes: `[N]` class index, -1 where a node has no label.
        names: the class names in the order of their indices, as the user wrote them.
        column: what the column is called that they were read from, if any: its place from 1 where it has no name.
    """

    codes: NDArray[np.int64]
    names: tuple[str, ...]
    column: str | None = None


@dataclass(frozen=True)
class Steps:
    """Which step each event falls into, and the bounds of each step in the user's own times.

    Attributes:
        index: `[E]` step of each event, 0..T-1.
        start, end: `[T]` first and last time of each step, in the dtype of the event times.
        rule: how they were made, e.g. `"distinct"`, `"20 of equal event counts"`, `"every 1mo"`,
            `"every 30d from 2022-01-03"`; with what `merge` did to them.
    """

    index: NDArray[np.int32]
    start: NDArray[Any]
    end: NDArray[Any]
    rule: str = "distinct"

    def __len__(self) -> int:
        return len(self.start)
