"""`chronospike data`: import, get, list, info, validate."""

from __future__ import annotations

import time as clock
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from chronospike.cli.common import human_bytes, print_json, print_table, say
from chronospike.cli.options import AsJson

if TYPE_CHECKING:
    from chronospike.data.graph import DynamicGraph
    from chronospike.data.reading.describe import EdgeFile

app = typer.Typer(help="Import, inspect and check graphs.", no_args_is_help=True, rich_markup_mode=None)

Output = Annotated[Path, typer.Option("-o", "--output", help="The graph folder to write.")]
Origin = Annotated[
    str | None,
    typer.Option(
        help="A time at which a step of --every begins. Default: the first event; for mo, q and y the calendar."
    ),
]
ErrorOrDrop = Literal["error", "drop"]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace an existing graph folder.")]


@app.command("import")
def import_(
    edges: Annotated[Path, typer.Argument(help="CSV, TSV, text, Parquet or JSON lines with timestamped edges.")],
    output: Output,
    labels: Annotated[Path | None, typer.Option(help="A file with a node and a label column.")] = None,
    features: Annotated[Path | None, typer.Option(help="Node features: a table with a node column, or .npy.")] = None,
    source: Annotated[str | None, typer.Option(help="Name of the source column.")] = None,
    target: Annotated[str | None, typer.Option(help="Name of the target column.")] = None,
    time: Annotated[str | None, typer.Option(help="Name of the time column.")] = None,
    time_unit: Annotated[
        Literal["s", "ms", "us", "ns"] | None, typer.Option(help="Read numeric times as Unix time in this unit.")
    ] = None,
    node: Annotated[str | None, typer.Option(help="Name of the node column in labels and features.")] = None,
    label: Annotated[str | None, typer.Option(help="Name of the label column.")] = None,
    header: Annotated[
        bool | None,
        typer.Option("--header/--no-header", help="Whether the first row is a header. Default: auto-detected."),
    ] = None,
    delimiter: Annotated[str | None, typer.Option(help="Column separator. Default: auto-detected.")] = None,
    steps: Annotated[int | None, typer.Option(help="Number of steps, with equal event counts.")] = None,
    every: Annotated[str | None, typer.Option(help="Steps of equal width: 30d, 1mo, 1y, 6h, 0.1 …")] = None,
    origin: Origin = None,
    merge: Annotated[int, typer.Option(help="Merge this many consecutive steps into one.")] = 1,
    directed: Annotated[bool, typer.Option("--directed", help="Keep the direction of edges.")] = False,
    on_missing: Annotated[ErrorOrDrop, typer.Option(help="What to do with rows that have an empty value.")] = "error",
    on_unknown: Annotated[ErrorOrDrop, typer.Option(help="What to do with labels of nodes without an edge.")] = "error",
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Import a file of timestamped edges into a graph folder. By default, every distinct time is a step."""
    from chronospike.files import check_target

    check_target(output, overwrite=overwrite)
    from chronospike.data.ingest import import_graph
    from chronospike.data.storage import save_graph

    begin = clock.perf_counter()
    graph = import_graph(
        edges,
        labels=labels,
        features=features,
        source=source,
        target=target,
        time=time,
        time_unit=time_unit,
        node=node,
        label=label,
        header=header,
        delimiter=delimiter,
        steps=steps,
        every=every,
        origin=origin,
        merge=merge,
        directed=directed,
        on_missing=on_missing,
        on_unknown=on_unknown,
    )
    save_graph(graph, output, overwrite=overwrite)
    _report(graph, output, clock.perf_counter() - begin, as_json)
    unused = graph.facts.get("unused_columns")
    if unused and not as_json:
        say(f"not used: {_listed(unused)}")


@app.command("get")
def get(
    name: Annotated[str, typer.Argument(help="A dataset; see 'chronospike data list'.")],
    output: Output,
    root: Annotated[Path | None, typer.Option(help="Folder with downloaded dataset files.")] = None,
    like: Annotated[
        Literal["dblp", "tmall", "patent"] | None,
        typer.Option(help="For synthetic: make a graph of this benchmark's size."),
    ] = None,
    merge: Annotated[
        int | None, typer.Option(help="Merge this many consecutive steps into one. Default: the dataset's.")
    ] = None,
    steps: Annotated[int | None, typer.Option(help="Number of steps; for files, with equal event counts.")] = None,
    every: Annotated[str | None, typer.Option(help="Steps of equal width: 30d, 1mo, 1y, 0.1 …")] = None,
    origin: Origin = None,
    directed: Annotated[bool, typer.Option("--directed", help="Keep the direction of edges.")] = False,
    seed: Annotated[int | None, typer.Option(help="For synthetic: random seed (default 0).")] = None,
    nodes: Annotated[int | None, typer.Option(help="For synthetic: number of nodes.")] = None,
    classes: Annotated[int | None, typer.Option(help="For synthetic: number of classes.")] = None,
    degree: Annotated[float | None, typer.Option(help="For synthetic: mean degree in a snapshot.")] = None,
    structure: Annotated[float | None, typer.Option(help="For synthetic: class signal in the edges, 0 to 1.")] = None,
    timing: Annotated[float | None, typer.Option(help="For synthetic: class signal in the timing, 0 to 1.")] = None,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Make a graph folder from a known dataset or a synthetic graph."""
    from chronospike.files import check_target

    check_target(output, overwrite=overwrite)
    from chronospike.data.datasets import load_dataset
    from chronospike.data.storage import save_graph

    begin = clock.perf_counter()
    given = {
        "like": like, "steps": steps, "every": every, "origin": origin, "directed": directed or None, "seed": seed,
        "nodes": nodes, "classes": classes, "degree": degree, "structure": structure, "timing": timing,
    }  # fmt: skip
    options: dict[str, Any] = {key: value for key, value in given.items() if value is not None}
    if name == "synthetic":
        options.setdefault("seed", 0)
    graph = load_dataset(name, root=root, merge=merge, **options)
    save_graph(graph, output, overwrite=overwrite)
    if name == "synthetic" and not as_json:
        say(f"  seed {options['seed']}")
    _report(graph, output, clock.perf_counter() - begin, as_json)


@app.command("list")
def list_(as_json: AsJson = False) -> None:
    """List the datasets that 'data get' can make."""
    from chronospike.data.datasets import DATASETS

    if as_json:
        print_json([asdict(spec) for spec in DATASETS.values()])
        return
    print_table([(name, spec.description) for name, spec in DATASETS.items()])


@app.command("info")
def info(
    folder: Annotated[Path, typer.Argument(help="A graph folder, or a file with timestamped edges.")],
    features: Annotated[str | None, typer.Option(help="A feature set by name.")] = None,
    as_json: AsJson = False,
) -> None:
    """Describe a graph folder or a file of edges."""
    if folder.is_file():
        _info_of_file(folder, features, as_json)
        return
    from chronospike.data.storage import feature_sets, open_graph

    graph = open_graph(folder, features=features)
    summary = {**graph.summary(), "feature_sets": feature_sets(folder)}
    if as_json:
        print_json(summary)
    else:
        say(str(folder))
        print_table(_described(graph, summary))


@app.command("validate")
def validate(folder: Annotated[Path, typer.Argument(help="A graph folder.")]) -> None:
    """Check a graph folder: its checksums and its contents."""
    from chronospike.data.storage import feature_sets, open_graph

    for name in [None, *feature_sets(folder)]:
        open_graph(folder, features=name, verify=True).validate()
    say(f"{folder}: checksums and contents are valid")


def _report(graph: DynamicGraph, output: Path, seconds: float, as_json: bool) -> None:
    if as_json:
        print_json({**graph.summary(), "output": str(output)})
        return
    print_table(_described(graph, graph.summary()))
    say(f"wrote {output} in {seconds:.1f} s")


def _info_of_file(path: Path, features: str | None, as_json: bool) -> None:
    from chronospike.data.reading.describe import describe_edges
    from chronospike.errors import InputError

    if features is not None:
        raise InputError(f"--features {features} needs a graph folder, and {path} is a file")
    found = describe_edges(path)
    if as_json:
        print_json({**asdict(found), "import": found.import_command})
        return
    say(f"{path}: a file, not a graph folder")
    print_table(_described_file(found))


def _described_file(found: EdgeFile) -> list[tuple[str, str]]:
    parts = (("source", found.source), ("target", found.target), ("time", found.time))
    columns = ", ".join(f"{role}: {name or 'not found'}" for role, name in parts)
    rows = [
        ("rows", f"{found.rows:,}" + (f", {found.incomplete:,} of them incomplete" if found.incomplete else "")),
        ("columns", columns + (f"; not used: {_listed(found.unused)}" if found.unused else "")),
    ]
    if found.times is not None:
        times = f"{found.times.distinct:,} distinct {found.times.kind}, from {found.times.first} to {found.times.last}"
        unix = f"; as Unix time in {found.times.unit} with --time-unit {found.times.unit}" if found.times.unit else ""
        rows.append(("times", times + unix))
    if found.problem is not None:
        rows.append(("problem", found.problem))
    return [*rows, ("import with", found.import_command)]


def _listed(names: Sequence[str], most: int = 20) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def _described(graph: DynamicGraph, summary: dict[str, Any]) -> list[tuple[str, str]]:
    """The summary in words, for people."""
    from chronospike.data.time_text import format_time, time_span

    per_step = graph.snapshot_edges / graph.num_steps
    rule = "" if summary.get("step_rule", "distinct") == "distinct" else f", {summary['step_rule']}"
    ends = summary.get("in_both_columns")
    in_both = f"; {ends:,} are both a source and a target" if isinstance(ends, int) else ""
    rows = [
        ("nodes", f"{graph.num_nodes:,}, {summary['isolated']:,} without an edge{in_both}"),
        ("steps", f"{graph.num_steps}, {time_span(summary)}{rule}"),
        ("edges", f"{graph.snapshot_edges:,} over the steps ({per_step:,.0f} a step), {graph.union_edges:,} distinct"),
        ("direction", "kept" if graph.directed else "undirected"),
    ]
    if "columns" in summary:
        names = zip(("source", "target", "time"), summary["columns"], strict=True)
        rows.append(("columns", ", ".join(f"{role}: {name}" for role, name in names)))
    if graph.events is not None:
        first, last = (format_time(time) for time in graph.events.time[[0, -1]])
        rows.append(("events", f"{len(graph.events):,} from {first} to {last}, repeats included"))
    if all(isinstance(summary.get(name), int) for name in ("rows", "duplicates", "self_loops", "rows_dropped")):
        dropped = summary.get("rows_dropped", 0)
        rows.append(
            (
                "rows read",
                f"{summary['rows']:,}; repeats within a step {summary['duplicates']:,}, "
                f"self-loops {summary['self_loops']:,} (both left out)"
                + (f", incomplete and dropped {dropped:,}" if dropped else ""),
            )
        )
    if graph.num_classes:
        sizes = ", ".join(f"{name} {size:,}" for name, size in list(summary["class_sizes"].items())[:8])
        more = ", …" if graph.num_classes > 8 else ""
        unknown = _counts(summary).get("labels_unknown")
        left_out = f"; {unknown:,} of nodes without an edge left out" if unknown else ""
        counted = f"{summary['labelled']:,} nodes in {graph.num_classes} classes: {sizes}{more}"
        rows.append(("labels", counted + left_out))
        if "label_column" in _counts(summary):
            others = _counts(summary)["label_columns_other"]
            listed = f"; other columns: {_listed(others)}" if others else ""
            rows.append(("label", f"column {_counts(summary)['label_column']}{listed}"))
    else:
        rows.append(("labels", "none"))
    shape = summary["features"]
    rows.append(("features", f"{shape['shape']} {shape['dtype']}" if shape else "none"))
    if graph.features is not None:
        rows.append(("attributes", _attributes(graph, summary)))
    if summary.get("feature_sets"):
        rows.append(("feature sets", ", ".join(summary["feature_sets"])))
    rows += [("note", warning) for warning in summary.get("warnings", ())]
    rows.append(("in memory", human_bytes(summary["graph_bytes"]) + " for both views of the graph"))
    return rows


def _counts(summary: dict[str, Any]) -> dict[str, Any]:
    """What was counted as labels and attributes were read."""
    provenance = summary.get("provenance")
    return provenance if isinstance(provenance, dict) else {}


def _attributes(graph: DynamicGraph, summary: dict[str, Any]) -> str:
    """The columns by name, and what is missing in them."""
    named = [
        f"{column.name} ({len(column.values):,} values)" if column.kind == "category" else column.name
        for column in graph.columns[:8]
    ]
    shown = ", ".join(named) + (f", … ({len(graph.columns)})" if len(graph.columns) > 8 else "")
    counts = _counts(summary)
    for name, what in (
        ("nodes_without_features", "nodes without a row"),
        ("features_unknown", "rows of nodes without an edge left out"),
        ("features_after_end", "rows after the last step left out"),
    ):
        shown += f"; {counts[name]:,} {what}" if counts.get(name) else ""
    left_out = counts.get("features_left_out")
    return shown + (f"; not used: {_listed(left_out)}" if left_out else "")
