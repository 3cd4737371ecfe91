"""What every reader returns: a list of timestamped edges between numbered nodes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from chronospike.data.csr import IntArray
from chronospike.data.ids import NodeIds


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
    """

    source: IntArray
    target: IntArray
    time: NDArray[Any]
    ids: NodeIds
    origin: str = "arrays"
    dropped: int = 0
    unused: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.source)


@dataclass(frozen=True)
class NodeLabels:
    """Classes of some or all nodes.

    Attributes:
        codes: `[N]` class index, -1 where a node has no label.
        names: the class names in the order of their indices, as the user wrote them.
    """

    codes: NDArray[np.int64]
    names: tuple[str, ...]


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
