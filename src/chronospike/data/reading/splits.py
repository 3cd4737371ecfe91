"""A user's own split of the labelled nodes into training, validation and test."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from chronospike.data.graph import DynamicGraph
from chronospike.data.reading.columns import NODE, Role, find_column
from chronospike.data.reading.edges import read_sheet
from chronospike.data.reading.labels import contradiction, known_nodes, refuse_gaps
from chronospike.data.reading.numbering import positions_in
from chronospike.data.reading.tables import PathLike
from chronospike.data.splits import Split
from chronospike.errors import InputError

PART = Role("split", ("split", "part", "set", "fold", "subset", "use"), 1)
_SPELLINGS = {"train": 0, "training": 0, "validation": 1, "valid": 1, "val": 1, "dev": 1, "test": 2, "testing": 2}


def read_split(path: PathLike, graph: DynamicGraph) -> Split:
    """The split in a file with a node and `train`, `validation` or `test` in each row; other nodes are not used.

    Every node must be in the graph and have a label, and there must be some to train on and some to test on.
    """
    graph.require(classes=2)
    assert graph.labels is not None
    sheet = read_sheet(path, (NODE, PART))
    node_at = find_column(sheet, NODE)
    nodes = sheet.column(node_at)
    refuse_gaps(sheet, nodes)
    words = sheet.column(find_column(sheet, PART, taken=[node_at])).cast(pa.large_string())
    parts = [_SPELLINGS.get(word or "", -1) for word in pc.utf8_lower(pc.utf8_trim_whitespace(words)).to_pylist()]
    part = np.array(parts, dtype=np.int64)
    if (part < 0).any():
        row = int(np.argmax(part < 0))
        raise InputError(f"{sheet.at(row)}: '{words[row]}' is none of train, validation, test")
    index = positions_in(graph.ids, nodes)
    known_nodes(sheet, nodes, index, graph.ids, "listed", "error")
    unlabelled = np.flatnonzero(np.asarray(graph.labels)[index] < 0)
    if len(unlabelled):
        row = int(unlabelled[0])
        raise InputError(f"{sheet.at(row)}: node '{nodes[row]}' has no label. Leave it out of the split")
    last = np.full(graph.num_nodes, -1, dtype=np.int64)
    last[index] = part
    clash = contradiction(index, part, last)
    if clash is not None:
        where, again = sheet.at(clash[1]), sheet.row_of(clash[0])
        raise InputError(f"{where}: node '{nodes[clash[1]]}' is in another part in row {again}. Keep one")
    train, validation, test = (np.unique(index[part == number]) for number in range(3))
    for name, members in (("train", train), ("test", test)):
        if not len(members):
            raise InputError(f"{sheet.origin}: no node is in the part '{name}'")
    if len(np.unique(np.asarray(graph.labels)[train])) < 2:
        raise InputError(f"{sheet.origin}: the training nodes have one class, and 2 are needed")
    alone = graph.isolated[test]
    notes = [f"read from {sheet.origin}"]
    if not len(validation):
        notes.append("no validation nodes: the training nodes choose the best epoch")
    facts = {
        "order": "own", "labelled": len(graph.labelled), "train": len(train), "validation": len(validation),
        "test": int((~alone).sum()), "dropped_isolated": int(alone.sum()), "notes": notes,
    }  # fmt: skip
    return Split(train, validation, test[~alone], int(alone.sum()), facts)
