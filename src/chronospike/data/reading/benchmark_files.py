"""The files of the SpikeNet benchmark, as they are published: DBLP and Tmall as text, Patent as JSON lines."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from chronospike.data.events import Events, NodeLabels
from chronospike.data.reading.columns import LABEL, NODE, find_column
from chronospike.data.reading.edges import add_nodes, events_from_table, read_events, read_sheet
from chronospike.data.reading.json_lines import read_json_lines
from chronospike.data.reading.labels import labels_from_table
from chronospike.data.reading.tables import PathLike, existing_file


@dataclass(frozen=True)
class BenchmarkFiles:
    """Events and labels of one benchmark graph, with the counts of reading the labels."""

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
    events = read_events(edges)
    sheet = read_sheet(nodes, (NODE, LABEL))
    events = add_nodes(events, sheet.column(find_column(sheet, NODE)))
    labels, facts = labels_from_table(sheet, events.ids)
    return BenchmarkFiles(events, labels, facts)


def read_json_lines_events(path: PathLike, *, on_missing: str = "error") -> Events:
    """Events from JSON lines, whatever the file is called: arrays or objects, Patent's years made of its days."""
    return events_from_table(read_json_lines(existing_file(path)), on_missing=on_missing)
