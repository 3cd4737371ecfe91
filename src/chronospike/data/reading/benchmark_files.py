"""The files of the SpikeNet benchmark, as they are published: DBLP and Tmall as text, Patent as JSON lines."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from chronospike.data.events import Events, NodeLabels
from chronospike.data.reading.columns import LABEL, NODE, SOURCE, TARGET, TIME, find_column
from chronospike.data.reading.edges import add_nodes, events_from_table, read_sheet
from chronospike.data.reading.labels import labels_from_table
from chronospike.data.reading.tables import PathLike, Sheet
from chronospike.errors import InputError

# What a calendar day written as one number, 19630101, can be.
FIRST_DAY, LAST_DAY = 1500_01_01, 2200_12_31
# The place of the class in a row of Patent's nodes, counted from 1.
PATENT_CLASS = 4


@dataclass(frozen=True)
class BenchmarkFiles:
    """Events and labels of one published graph, with the counts of reading the labels."""

    events: Events
    labels: NodeLabels
    facts: dict[str, int]


def benchmark_paths(folder: PathLike, name: str) -> tuple[Path, Path]:
    """The files with the edges and with the classes of the nodes."""
    root = Path(folder)
    if name == "patent":
        return root / "patent_edges.json", root / "patent_nodes.json"
    return root / f"{name}.txt", root / "node2label.txt"


def read_benchmark(folder: PathLike, name: str) -> BenchmarkFiles:
    """One benchmark graph from its two files; nodes that have a class but no edge belong to it too.

    Text: `source target time` and `node label`. Patent: `[source, target, day, …, …]` and `[node, …, day, class]`
    on each line, with the year of the day as the time and the class as given.
    """
    edges, nodes = benchmark_paths(folder, name)
    links = read_sheet(edges, (SOURCE, TARGET, TIME))
    events = events_from_table(_with_years(links) if name == "patent" else links)
    sheet = read_sheet(nodes, (NODE, LABEL))
    events = add_nodes(events, sheet.column(find_column(sheet, NODE)))
    labels, facts = labels_from_table(sheet, events.ids, label=PATENT_CLASS if name == "patent" else None)
    return BenchmarkFiles(events, labels, facts)


def _with_years(sheet: Sheet) -> Sheet:
    """Patent's edges with the year of the day for a time."""
    day = sheet.table.column(2) if len(sheet.names) > 2 else pa.chunked_array([], type=pa.string())
    bounds = pc.min_max(day) if pa.types.is_integer(day.type) else {}
    if not bounds or day.null_count or bounds["min"].as_py() < FIRST_DAY or bounds["max"].as_py() > LAST_DAY:
        raise InputError(f"{sheet.origin}: the third value of each row must be a day such as 19630101")
    return replace(sheet, table=sheet.table.set_column(2, sheet.names[2], pc.divide(day, 10000)))
