"""The dynamic graph: T snapshots over one set of nodes, with features and labels."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from chronospike.data.attributes import Column, check_codes, default_columns
from chronospike.data.csr import TimeSlicedCSR
from chronospike.data.events import EventLog
from chronospike.data.ids import NodeIds
from chronospike.data.time_text import format_time
from chronospike.errors import GraphError


@dataclass(frozen=True, eq=False)
class DynamicGraph:
    """A graph that changes over T steps.

    Attributes:
        history: each neighbour once, at its first step; a row prefix is what is known before a step.
        snapshot: each neighbour once per active step; a row slice is one step.
        ids: the user's own node ids.
        step_start, step_end: `[T]` bounds of each step in the user's own times.
        directed: False if each edge stands in both rows; True if row v holds the sources of edges into v.
        labels: `[N]` class index, -1 for unlabelled nodes; None if the graph has no labels.
        class_names: the classes as the user wrote them.
        features: the nodes' own attributes as they were given, `[N, c]` or `[T, N, c]`; NaN where one is missing.
        columns: what each of them is; numbers called x0, x1, … if left out.
        made_features: feature sets made from the edges, `[T, N, d]` each.
        recipes: how each of these was made, with `edges`, the fingerprint of the edges; empty if that is not known.
        events: the events with their own times and repeats; None if the folder is of a version that did not keep them.
        facts: counts from building (`rows`, `duplicates`, `self_loops`, …) and provenance.
    """

    history: TimeSlicedCSR
    snapshot: TimeSlicedCSR
    ids: NodeIds
    step_start: NDArray[Any]
    step_end: NDArray[Any]
    directed: bool = False
    labels: NDArray[np.int64] | None = None
    class_names: tuple[str, ...] = ()
    features: NDArray[Any] | None = None
    columns: tuple[Column, ...] = ()
    made_features: tuple[NDArray[Any], ...] = ()
    recipes: tuple[dict[str, Any], ...] = ()
    events: EventLog | None = None
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def num_nodes(self) -> int:
        return self.history.num_nodes

    @property
    def num_steps(self) -> int:
        return self.history.num_steps

    @property
    def num_classes(self) -> int:
        return len(self.class_names)

    def __post_init__(self) -> None:
        if self.features is not None and not self.columns:
            object.__setattr__(self, "columns", default_columns(self.features.shape[-1]))

    @property
    def has_features(self) -> bool:
        """Whether there are any, own or made."""
        return self.features is not None or bool(self.made_features)

    @property
    def snapshot_edges(self) -> int:
        """Distinct edges summed over the steps (pairs if undirected)."""
        return len(self.snapshot.neighbours) // (1 if self.directed else 2)

    @property
    def union_edges(self) -> int:
        """Distinct edges over all steps together (pairs if undirected)."""
        return len(self.history.neighbours) // (1 if self.directed else 2)

    @cached_property
    def node_keys(self) -> NDArray[np.int64]:
        """`[N]` what random draws for a node are keyed by: a function of its id, not of which other nodes there are."""
        return self.ids.keys()

    @cached_property
    def isolated(self) -> NDArray[np.bool_]:
        """`[N]` True for nodes without an edge at any step."""
        alone: NDArray[np.bool_] = self.history.degrees() == 0
        if self.directed:
            alone[np.asarray(self.history.neighbours)] = False
        return alone

    @cached_property
    def labelled(self) -> NDArray[np.int64]:
        """Indices of the labelled nodes."""
        if self.labels is None:
            return np.zeros(0, dtype=np.int64)
        return np.flatnonzero(np.asarray(self.labels) >= 0)

    @cached_property
    def first_steps(self) -> NDArray[np.int64]:
        """`[N]` the step of each node's first edge; T for a node that has none."""
        offsets = self.history.step_offsets
        # The row prefix before step t is empty up to the first edge, so the empty ones count the steps.
        first = np.zeros(self.num_nodes, dtype=np.int64)
        for step in range(1, self.num_steps + 1):
            first += np.asarray(offsets[:, step]) == 0
        if self.directed:
            # A row holds edges into its node; those that leave it stand in the rows of others.
            _, steps, sources = self.history.entries()
            np.minimum.at(first, sources, steps)
        return first

    def seen_by(self, step: int) -> NDArray[np.bool_]:
        """`[N]` True for the nodes that have an edge by the end of `step`."""
        return self.first_steps <= step

    def with_features(self, features: NDArray[Any] | None, columns: tuple[Column, ...] = ()) -> DynamicGraph:
        """The same graph with other attributes, `[N, c]` or `[T, N, c]`, checked; without `columns` all are numbers."""
        if features is not None and not isinstance(features, np.ndarray):
            features = np.asarray(features)
        graph = replace(self, features=features, columns=columns)
        graph._check_shapes()
        if features is not None and not columns:
            self._require_finite(features)
        graph._check_features()
        return graph

    def with_made_features(self, *features: NDArray[Any], recipes: Iterable[dict[str, Any]] = ()) -> DynamicGraph:
        """The same graph with other features made from its edges, `[T, N, d]` each."""
        graph = replace(self, made_features=features, recipes=tuple(recipes))
        graph._check_features()
        return graph

    def with_labels(self, labels: NDArray[np.int64], class_names: tuple[str, ...]) -> DynamicGraph:
        """The same graph with other labels."""
        graph = replace(self, labels=np.asarray(labels), class_names=tuple(class_names))
        graph._check_labels()
        return graph

    def validate(self, *, full: bool = True) -> DynamicGraph:
        """Check every invariant and return the graph; raise `GraphError` naming what is wrong.

        Without `full` two that take long are left out: that no node id repeats and that features are finite.
        """
        # Numba takes a while to load, and most of what imports this module never gets here.
        from chronospike.data.csr_check import check_views

        check_views(self.history, self.snapshot, self.directed)
        if len(self.ids) != self.num_nodes:
            raise GraphError(f"{len(self.ids)} node ids for {self.num_nodes} nodes")
        _check_steps(self.step_start, self.step_end, self.num_steps)
        if self.events is not None:
            self.events.check(self.num_nodes, self.num_steps)
        self._check_labels()
        self._check_features(finite=full)
        if full and len(self.ids.values.unique()) != self.num_nodes:
            raise GraphError(f"node ids repeat: {self.num_nodes} ids, {len(self.ids.values.unique())} distinct")
        return self

    def require(
        self,
        *,
        steps: int = 1,
        classes: int = 0,
        features: bool = False,
        own_features: bool = False,
        events: bool = False,
    ) -> DynamicGraph:
        """Return the graph if it has at least so many steps and classes (and the rest), else say what is missing."""
        if self.num_steps < steps:
            raise GraphError(
                f"the graph has {self.num_steps} step, and {steps} are needed. "
                "Import it with --steps N or --every WIDTH, or give a time column with more than one value"
            )
        if classes and self.labels is None:
            raise GraphError("the graph has no labels. Import it with --labels FILE")
        if self.num_classes < classes:
            raise GraphError(f"the labels have {self.num_classes} class, and {classes} are needed")
        if own_features and self.features is None:
            raise GraphError("the graph has no attributes of its own. Import it with features=...")
        if features and not self.has_features:
            raise GraphError("the graph has no features. Make some with: chronospike features deepwalk GRAPH")
        if events and self.events is None:
            raise GraphError(
                "the graph was imported without its events, which earlier versions did not keep. "
                "Import it again with --overwrite"
            )
        return self

    def summary(self) -> dict[str, Any]:
        """Counts and bounds, ready for JSON; `facts` are merged in."""
        shown = self.features if self.features is not None else next(iter(self.made_features), None)
        features = None if shown is None else {"shape": list(shown.shape), "dtype": str(shown.dtype)}
        counted = {
            "nodes": self.num_nodes,
            "steps": self.num_steps,
            "classes": self.num_classes,
            "snapshot_edges": self.snapshot_edges,
            "union_edges": self.union_edges,
            "events": None if self.events is None else len(self.events),
            "directed": self.directed,
            "labelled": len(self.labelled),
            "isolated": int(self.isolated.sum()),
            "first_time": format_time(self.step_start[0]),
            "last_time": format_time(self.step_end[-1]),
            "features": features,
            "graph_bytes": self.history.nbytes + self.snapshot.nbytes,
        }
        if self.labels is not None:
            sizes = np.bincount(np.asarray(self.labels)[self.labelled], minlength=self.num_classes)
            counted["class_sizes"] = dict(zip(self.class_names, sizes.tolist(), strict=True))
        return {**self.facts, **counted}

    def __repr__(self) -> str:
        kind = "directed" if self.directed else "undirected"
        labels = f"{len(self.labelled):,} labelled in {self.num_classes} classes" if self.num_classes else "no labels"
        shapes = [list(x.shape) for x in (self.features, *self.made_features) if x is not None]
        features = f"features {' and '.join(map(str, shapes))}" if shapes else "no features"
        first, last = format_time(self.step_start[0]), format_time(self.step_end[-1])
        return (
            f"DynamicGraph({self.num_nodes:,} nodes, {self.num_steps} steps from {first} to {last}, "
            f"{self.snapshot_edges:,} {kind} edges, {self.union_edges:,} in the union, {labels}, {features})"
        )

    def _check_labels(self) -> None:
        if self.labels is None:
            return
        if self.labels.shape != (self.num_nodes,):
            raise GraphError(f"labels have shape {list(self.labels.shape)}, expected [{self.num_nodes}]")
        if self.labels.dtype.kind not in "iu":
            raise GraphError(f"labels are {self.labels.dtype}; whole numbers are needed")
        low, high = int(self.labels.min(initial=0)), int(self.labels.max(initial=-1))
        if low < -1 or high >= self.num_classes:
            raise GraphError(f"labels run from {low} to {high}, but there are {self.num_classes} class names")
        if len(set(self.class_names)) != self.num_classes:
            repeated = next(name for name in self.class_names if self.class_names.count(name) > 1)
            raise GraphError(f"two classes are called {repeated!r}")

    def _check_shapes(self) -> None:
        for x in (self.features, *self.made_features):
            if x is None:
                continue
            wanted = (self.num_nodes,) if x.ndim == 2 else (self.num_steps, self.num_nodes)
            if x.ndim not in (2, 3) or x.shape[:-1] != wanted or x.shape[-1] < 1:
                raise GraphError(
                    f"features have shape {list(x.shape)}, expected [{self.num_nodes}, d] "
                    f"or [{self.num_steps}, {self.num_nodes}, d]"
                )
            if x.dtype.kind not in "biuf":
                raise GraphError(f"features are {x.dtype}; numbers are needed")

    def _check_features(self, finite: bool = True) -> None:
        """Without `finite` only what compiled code takes for granted."""
        self._check_shapes()
        if self.features is not None:
            if len(self.columns) != self.features.shape[-1]:
                raise GraphError(f"{len(self.columns)} names for the {self.features.shape[-1]} columns of the features")
            wrong = check_codes(self.features, self.columns, finite)
            if wrong:
                raise GraphError(wrong)
        for x in self.made_features if finite else ():
            self._require_finite(x)

    def _require_finite(self, features: NDArray[Any]) -> None:
        for step, block in enumerate(features if features.ndim == 3 else features[None]):
            bad = np.flatnonzero(~np.isfinite(block).all(axis=1))
            if len(bad):
                where = f" at step {step}" if features.ndim == 3 else ""
                raise GraphError(
                    f"features of {len(bad)} node(s){where} are NaN or infinite, "
                    f"the first is node {self.ids[int(bad[0])]!r}"
                )


def _check_steps(start: NDArray[Any], end: NDArray[Any], steps: int) -> None:
    if start.shape != (steps,) or end.shape != (steps,):
        raise GraphError(f"{list(start.shape)} and {list(end.shape)} step bounds for {steps} steps")
    if {start.dtype.kind, end.dtype.kind} != {"M"} and not {start.dtype.kind, end.dtype.kind} <= set("iuf"):
        raise GraphError(f"step bounds are {start.dtype} and {end.dtype}; either numbers or dates are needed")
    # No comparison with a NaN or NaT is true.
    if not (np.all(start <= end) and np.all(start[:-1] <= start[1:])):
        raise GraphError("the step bounds do not ascend")
