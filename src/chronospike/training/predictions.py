"""The predictions of a run, as a table by the user's own ids."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from chronospike.data.graph import DynamicGraph
from chronospike.data.splits import Split
from chronospike.table_files import write_table


def write_predictions(
    path: Path,
    graph: DynamicGraph,
    nodes: NDArray[np.integer[Any]],
    probabilities: NDArray[Any],
    split: Split | None,
    kind: str = "csv",
    seen: NDArray[np.bool_] | None = None,
    threshold: float = 0.0,
) -> None:
    """A table with the node ids, the predicted class, its probabilities and, if any are known, class and split.

    Args:
        seen: `[N]` if given, which nodes had an edge by the date of the prediction.
        threshold: nodes whose highest probability is below it get no class.
    """
    names = np.array(graph.class_names, dtype=object)
    columns: dict[str, Any] = {"node": graph.ids.take(nodes)}
    classes = np.where(probabilities.max(axis=1) >= threshold, names[probabilities.argmax(axis=1)], None)
    columns["class"] = pa.array(classes, type=pa.string())
    for index, name in enumerate(graph.class_names):
        columns[f"probability {name}"] = np.round(probabilities[:, index].astype(np.float64), 6)
    if graph.labels is not None and len(graph.labelled):
        codes = np.asarray(graph.labels)[nodes]
        columns["label"] = pa.array(np.where(codes >= 0, names[codes], None), type=pa.string())
    if split is not None and len(graph.labelled):
        part = np.full(graph.num_nodes, "", dtype=object)
        for name, members in (("train", split.train), ("validation", split.validation), ("test", split.test)):
            part[members] = name
        columns["split"] = pa.array(part[nodes], type=pa.string())
    if seen is not None:
        columns["seen"] = pa.array(seen[nodes])
    write_table(path, pa.table(columns), kind)
