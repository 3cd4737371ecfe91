"""Class labels of nodes, from files, tables and mappings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from chronospike.data.events import NodeLabels
from chronospike.data.ids import NodeIds
from chronospike.data.reading.columns import LABEL, NODE, Given, find_column
from chronospike.data.reading.edges import ERROR_OR_DROP, read_sheet, unused_columns
from chronospike.data.reading.numbering import as_column, number_values, positions_in
from chronospike.data.reading.tables import Sheet, missing
from chronospike.errors import InputError, check_choice

Ints = NDArray[np.int64]


def read_labels(
    data: Any,
    ids: NodeIds,
    node: Given = None,
    label: Given = None,
    *,
    on_unknown: str = "error",
    header: bool | None = None,
) -> tuple[NodeLabels, dict[str, Any]]:
    """Labels from a file or an Arrow-compatible table with a column of nodes and one of classes, or from a mapping of
    node id to class, such as a pandas Series.

    Classes that are whole numbers are ordered by size, then come the others by their letters. An empty one is no label.

    Args:
        node, label: column names, or positions from 1; found by the usual names if not given.
        on_unknown: what to do with nodes that are not in `ids`: "error" or "drop".

    Returns:
        The labels, and the counts `label_rows`, `labels_missing`, `labels_unknown`, `labels_repeated`; `label_column`
        and `label_columns_other` are names of columns, if they have any.
    """
    check_choice("on_unknown", on_unknown, ERROR_OR_DROP)
    if isinstance(data, Mapping) or (hasattr(data, "items") and not hasattr(data, "columns")):
        pairs = list(data.items())
        data = pa.table({name: as_column([pair[k] for pair in pairs]) for k, name in enumerate(("node", "label"))})
        node, label = "node", "label"
    sheet = read_sheet(data, (NODE, LABEL), given=(node, label), header=header, origin="labels")
    node_at = find_column(sheet, NODE, node)
    # Of two columns the other one holds the labels, whatever its name.
    is_pair = label is None and len(sheet.names) == 2
    label_at = 1 - node_at if is_pair else find_column(sheet, LABEL, label, taken=[node_at])
    nodes, classes = sheet.column(node_at), sheet.column(label_at)
    refuse_gaps(sheet, nodes)
    given = ~missing(classes)
    labelled, rows = nodes.filter(pa.array(given)), np.flatnonzero(given)
    index = positions_in(ids, labelled)
    known = known_nodes(sheet, labelled, index, ids, "labelled", on_unknown)
    names, (codes,) = number_values(classes.filter(pa.array(given)).filter(pa.array(known)))
    if len(names) < 2:
        found = f"only one class, {names[0]!r}" if len(names) else "no label of a node in the graph"
        raise InputError(f"{sheet.origin}: {found}; at least two classes are needed")
    result = np.full(len(ids), -1, dtype=np.int64)
    index, rows = index[known], rows[known]
    result[index] = codes
    clash = contradiction(index, codes, result)
    if clash is not None:
        here, there = (f"'{names[int(codes[row])]}'" for row in clash[::-1])
        raise InputError(
            f"{sheet.at(rows[clash[1]])}: node '{ids[int(index[clash[0]])]}' is {here} here and {there} in row "
            f"{sheet.row_of(int(rows[clash[0]]))}. Keep one of the two"
        )
    facts: dict[str, Any] = {
        "label_rows": len(sheet),
        "labels_missing": int(len(sheet) - given.sum()),
        "labels_unknown": int((~known).sum()),
        "labels_repeated": len(index) - int((result >= 0).sum()),
    }
    if sheet.named:
        facts["label_column"] = sheet.names[label_at]
        facts["label_columns_other"] = list(unused_columns(sheet, (node_at, label_at)))
    return NodeLabels(result, tuple(str(name) for name in names), sheet.names[label_at]), facts


def refuse_gaps(sheet: Sheet, nodes: pa.ChunkedArray) -> None:
    """Every row must say which node it is about."""
    gap = missing(nodes)
    if gap.any():
        raise InputError(f"{sheet.at(int(np.argmax(gap)))}: 'node' is empty. Give a node id or drop the row")


def known_nodes(
    sheet: Sheet, nodes: pa.ChunkedArray, index: Ints, ids: NodeIds, kind: str, on_unknown: str
) -> NDArray[np.bool_]:
    """`[K]` True where the node is in the graph; the others are an error unless they may be dropped, and some are left.

    Args:
        index: `[K]` the index of each of the `nodes` in `ids`, -1 for unknown ones.
        kind: how to call such nodes: "labelled".
    """
    known = index >= 0
    if known.all() or (known.any() and on_unknown == "drop"):
        return known
    if not known.any():
        here, there = (
            ", ".join(f"'{name}'" for name in some) for some in (nodes[:3], ids.take(np.arange(min(3, len(ids)))))
        )
        raise InputError(
            f"{sheet.origin}: none of the {kind} nodes is in the graph. They are written {here}, and those of the "
            f"graph {there}"
        )
    strangers = dict.fromkeys(str(node) for node in nodes.filter(pa.array(~known)).to_pylist())
    count = f"1 {kind} node is" if len(strangers) == 1 else f"{len(strangers):,} {kind} nodes are"
    first = ", ".join(f"'{name}'" for name in list(strangers)[:3])
    shown = first if len(strangers) <= 3 else f"the first three: {first}"
    raise InputError(f"{sheet.origin}: {count} not in the graph, {shown}. Pass --on-unknown drop to leave them out.")


def contradiction(index: Ints, codes: NDArray[Any], last: Ints) -> tuple[int, int] | None:
    """Two rows that say different things of one node, if there are any, the earlier one first.

    Args:
        index, codes: `[K]` the node and the class of each row.
        last: `[N]` what the last row of each node says.
    """
    differs = np.flatnonzero(last[index] != codes)
    if not len(differs):
        return None
    one = int(differs[0])
    other = int(np.flatnonzero((index == index[one]) & (codes == last[index[one]]))[0])
    return min(one, other), max(one, other)
