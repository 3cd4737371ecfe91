"""The labels a model may learn from: checked node indices, class codes, and the part held out for validation.

They are kept by the user's own ids, so that they are found again in a graph with other nodes beside them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from chronospike.data.graph import DynamicGraph
from chronospike.data.splits import Split
from chronospike.errors import InputError, StorageError, one_line
from chronospike.files import atomic_file, require_readable

Nodes = NDArray[np.int64]
PARTS = ("train", "validation", "test", "unused")


@dataclass(frozen=True)
class KnownLabels:
    """Labelled nodes, their classes, and what each is for.

    Attributes:
        ids: `[K]` the nodes by the user's ids, an Arrow array.
        codes: `[K]` position of each node's class among the classes.
        part: `[K]` position among `PARTS`: nodes that train, that choose the best epoch, that are held out, and others.
    """

    ids: pa.Array
    codes: Nodes
    part: NDArray[np.int8]

    @classmethod
    def of(cls, graph: DynamicGraph, split: Split) -> KnownLabels:
        """All labels of a graph, and the part of the split that each node is in."""
        assert graph.labels is not None
        part = np.full(graph.num_nodes, PARTS.index("unused"), dtype=np.int8)
        for index, members in enumerate((split.train, split.validation, split.test)):
            part[members] = index
        nodes = graph.labelled
        return cls(graph.ids.take(nodes), np.asarray(graph.labels)[nodes].astype(np.int64), part[nodes])

    def placed_in(
        self, graph: DynamicGraph, class_names: tuple[str, ...], new_nodes: bool = False
    ) -> tuple[DynamicGraph, Split]:
        """`graph` with these labels, and its split. Nodes that it lacks are left out.

        Args:
            new_nodes: also take the graph's own labels of nodes that are none of these, as test nodes, where their
                class is among `class_names`. By default no other labels are kept.
        """
        places = graph.ids.lookup(self.ids)
        here = places >= 0
        labels = np.full(graph.num_nodes, -1, dtype=np.int64)
        members = [np.sort(places[here & (self.part == part)]) for part in range(3)]
        if new_nodes and graph.labels is not None:
            code_of = {name: code for code, name in enumerate(class_names)}
            own = np.array([code_of.get(name, -1) for name in graph.class_names] + [-1])[np.asarray(graph.labels)]
            own[places[here]] = -1
            labels = own.astype(np.int64)
            members[2] = np.union1d(members[2], np.flatnonzero((labels >= 0) & ~graph.isolated))
        labels[places[here]] = self.codes[here]
        return graph.with_labels(labels, class_names), Split(members[0], members[1], members[2])

    def save(self, path: Path) -> None:
        """Write as a Parquet table of node, class code and part, all or nothing."""
        part = pa.array(np.array(PARTS)[self.part])
        table = pa.table({"node": self.ids, "class": pa.array(self.codes), "part": part})
        with atomic_file(path) as partial:
            pq.write_table(table, partial, write_page_checksum=True)

    @classmethod
    def read(cls, path: Path, classes: int) -> KnownLabels:
        """The inverse of `save`; codes must lie below `classes`."""
        require_readable(path)
        columns = ["node", "class", "part"]
        try:
            table = pq.read_table(path, columns=columns, page_checksum_verification=True).combine_chunks()
            codes = table["class"].to_numpy().astype(np.int64)
            part = np.array([PARTS.index(name) for name in table["part"].to_pylist()], dtype=np.int8)
            known = cls(pa.concat_arrays(table["node"].chunks), codes, part)
        except FileNotFoundError as error:
            raise StorageError(f"{path} is missing. Train the model again") from error
        except (pa.ArrowException, OSError, KeyError, ValueError, TypeError) as error:
            raise StorageError(f"{path} is damaged ({one_line(error)})") from error
        if len(codes) and not 0 <= codes.min() <= codes.max() < classes:
            raise StorageError(f"{path} names class {codes.max()}, and the model has {classes} classes")
        return known


def check_nodes(graph: DynamicGraph, nodes: Any) -> Nodes:
    """`[K]` node indices, each in the graph; a column `[K, 1]` will do. None is every node."""
    if nodes is None:
        return np.arange(graph.num_nodes)
    array = _as_array("nodes", nodes)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.size == 0:
        array = array.reshape(-1).astype(np.int64)
    if array.ndim != 1:
        raise InputError(f"nodes have shape {list(array.shape)}; give one list of node indices")
    if array.dtype.kind not in "iu":
        way_out = "np.flatnonzero(mask)" if array.dtype.kind == "b" else "graph.ids.lookup(ids)"
        raise InputError(f"nodes are given as {array.dtype}; give node indices, such as {way_out}")
    bad = np.flatnonzero((array < 0) | (array >= graph.num_nodes))
    if len(bad):
        raise InputError(
            f"node {array[bad[0]]} (position {bad[0]}) is not in the graph, which has nodes 0..{graph.num_nodes - 1}"
        )
    return array.astype(np.int64)


def known_labels(
    graph: DynamicGraph, nodes: Any, y: Any, validation: float, seed: int
) -> tuple[KnownLabels, NDArray[Any]]:
    """What to learn from, and the classes `[C]` in the order of their codes.

    Args:
        nodes: node indices; None for every labelled node, or every node if `y` is given.
        y: a class for each of `nodes`; None takes the graph's own labels and all of its classes.
        validation: share of the nodes to hold out, with the classes in proportion.
    """
    if y is None:
        graph.require(classes=2)
        chosen = graph.labelled if nodes is None else check_nodes(graph, nodes)
        codes = np.asarray(graph.labels)[chosen]
        classes = np.array(graph.class_names)
        if (codes < 0).any():
            node = int(chosen[codes < 0][0])
            raise InputError(f"node {node} (id {graph.ids[node]!r}) has no label. Leave it out, or give its class in y")
    else:
        chosen = check_nodes(graph, nodes)
        values = check_classes(graph, chosen, y)
        classes, codes = np.unique(values, return_inverse=True)
    chosen, codes = _each_once(chosen, codes.astype(np.int64), classes)
    if len(np.unique(codes)) < 2:
        raise InputError(f"{len(chosen)} labelled nodes hold {len(np.unique(codes))} class(es); at least 2 are needed")
    return KnownLabels(graph.ids.take(chosen), codes, hold_out(codes, validation, seed).astype(np.int8)), classes


def check_classes(graph: DynamicGraph, nodes: Nodes, y: Any) -> NDArray[Any]:
    """`y` as an array `[K]` of text, whole numbers or truth values, none of them missing."""
    values = _as_array("y", y)
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.shape != nodes.shape:
        raise InputError(f"y has shape {list(values.shape)}, and there are {len(nodes)} nodes; give one class for each")
    items = values.tolist()
    missing = next((i for i, item in enumerate(items) if _is_missing(item)), None)
    if missing is not None:
        raise InputError(f"y[{missing}] of node {nodes[missing]} is missing. Leave the node out")
    if values.dtype == object:
        if len({isinstance(item, str) for item in items}) > 1:
            raise InputError("y mixes text and numbers; write all classes the same way")
        values = np.array(items)
    if values.dtype.kind not in "biufU" or (values.dtype.kind == "f" and np.any(values % 1 != 0)):
        raise InputError(f"y holds {values.dtype} such as {items[0]!r}; classes are text or whole numbers")
    if graph.labels is not None and np.array_equal(values, np.asarray(graph.labels)[nodes]) and -1 in items:
        raise InputError(f"y[{items.index(-1)}] is -1, an unlabelled node in graph.labels. Leave such nodes out")
    return values


def _as_array(what: str, values: Any) -> NDArray[Any]:
    if hasattr(values, "detach"):
        values = values.detach().cpu()
    try:
        return np.asarray(values)
    except ValueError as error:
        raise InputError(f"{what} must be one list of numbers or text ({one_line(error)})") from None


def _is_missing(value: Any) -> bool:
    try:
        return value is None or bool(value != value)
    except TypeError:  # pandas' NA is neither equal to itself nor different
        return True


def hold_out(codes: Nodes, share: float, seed: int) -> NDArray[np.bool_]:
    """`[K]` True for a `share` of the nodes, at least one, with the classes in proportion.

    One node of every class always stays behind, so that no class is left without training nodes.
    """
    order = np.random.default_rng(seed).permutation(len(codes))
    order = order[np.argsort(codes[order], kind="stable")]
    grouped = codes[order]
    sizes = np.bincount(grouped)
    rank = np.arange(len(order)) - (np.cumsum(sizes) - sizes)[grouped]
    # The nodes of a class at even distances on 0..1: any prefix of the line holds the classes in proportion.
    place = (rank + 0.5) / sizes[grouped]
    movable = np.flatnonzero(rank < sizes[grouped] - 1)
    count = max(1, math.floor(share * len(codes) + 1e-9))
    held = np.zeros(len(codes), dtype=bool)
    held[order[movable[np.argsort(place[movable], kind="stable")][:count]]] = True
    return held


def _each_once(nodes: Nodes, codes: Nodes, classes: NDArray[Any]) -> tuple[Nodes, Nodes]:
    """Ascending nodes without repeats; a node given with two classes is an error."""
    unique, first, inverse = np.unique(nodes, return_index=True, return_inverse=True)
    clash = np.flatnonzero(codes[first][inverse] != codes)
    if len(clash):
        i = int(clash[0])
        one, other = classes[codes[first[inverse[i]]]], classes[codes[i]]
        raise InputError(f"node {nodes[i]} is given as {one.item()!r} and as {other.item()!r}; give it one class")
    return unique, codes[first]
