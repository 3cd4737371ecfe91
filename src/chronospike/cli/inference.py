"""Commands that use a finished run: evaluate, predict, embed, report."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from chronospike.cli.common import output_place, print_json, progress, say, tell
from chronospike.cli.options import AsJson, Device
from chronospike.errors import InputError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from chronospike.data.graph import DynamicGraph
    from chronospike.data.splits import Split
    from chronospike.training.learner import Fitted, Learner

Run = Annotated[Path, typer.Argument(help="A run folder.")]
Graph = Annotated[Path | None, typer.Option(help="Another graph folder. Default: the run's own.")]
Nodes = Annotated[
    Path | None, typer.Option(help="A file with one node per line, or a table with a node column. Default: all nodes.")
]
Format = Annotated[
    str | None, typer.Option("--format", help="Output format if the name has no suffix, such as '-'. Default: csv.")
]
AsOf = Annotated[str | None, typer.Option(help="A step or a time; ignore everything later.")]
Smooth = Annotated[bool, typer.Option("--smooth", help="Also smooth with the training labels (Correct and Smooth).")]
Carry = Annotated[
    bool,
    typer.Option("--carry-features", help="Make DeepWalk and SVD features of the other graph from those of the run."),
]
Force = Annotated[bool, typer.Option("--force", help="Proceed even if the features do not match the training.")]


def evaluate(
    run: Run,
    graph: Graph = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="A folder for the scores, predictions and report.")
    ] = None,
    smooth: Smooth = False,
    carry: Carry = False,
    force: Force = False,
    device: Device = "auto",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an earlier evaluation.")] = False,
    as_json: AsJson = False,
) -> None:
    """Score a run again, on its own graph or another.

    On the graph it was trained on, this rewrites the run's metrics, predictions and report. On another graph (--graph,
    or after the graph was imported again), scores are only printed, or written to the folder -o.
    """
    from chronospike.cli.train import print_scores
    from chronospike.files import check_target
    from chronospike.locks import claim
    from chronospike.training.run_folder import METRICS, RUN

    if output is not None:
        if (output / RUN).is_file():
            raise InputError(f"{output} is a run, whose weights would be lost. Choose another folder for the scores")
        check_target(output, overwrite=overwrite, marker=METRICS)
    with claim(run, make=False, tell=tell) if output is None and graph is None else nullcontext():
        opened = _open(run, graph, device, carry=carry, force=force, quiet=as_json)
        metrics = _scored(opened, run, output, smooth, overwrite, as_json)
    if as_json:
        print_json(metrics)
        return
    say(f"seed {opened.fitted.task.seed}, {metrics['test']['nodes']:,} test nodes")
    print_scores(metrics, opened.learner.title)
    if output is not None:
        say(f"wrote {output}: metrics.json, predictions.csv, report.html")
    elif opened.is_other:
        say("nothing was written. Pass -o FOLDER to keep the scores, predictions and a report")


def _scored(
    opened: Opened, run: Path, output: Path | None, smooth: bool, overwrite: bool, as_json: bool
) -> dict[str, Any]:
    """Score, and write what is to be written: to `output`, else to the run if the graph is its own."""
    from chronospike.analysis.report import write_report
    from chronospike.files import atomic_folder
    from chronospike.methods.registry import references
    from chronospike.training.run_folder import CONFIG, EPOCHS, METRICS, RunFolder
    from chronospike.training.runs import evaluate as score

    place: AbstractContextManager[Path | None] = nullcontext(None if opened.is_other else run)
    if output is not None:
        place = atomic_folder(output, overwrite=overwrite, marker=METRICS)
    with place as target:
        if output is not None and target is not None:
            for name in (CONFIG, EPOCHS):
                if (run / name).is_file():
                    shutil.copy(run / name, target / name)
        with progress("nodes") as show:
            metrics = score(
                opened.learner,
                opened.fitted,
                RunFolder(run),
                references(opened.learner),
                smooth=smooth,
                on_nodes=partial(show, "scoring"),
                on_note=None if as_json else say,
                name=opened.name,
                output=target,
            )
        if target is not None:
            write_report(target)
    return metrics


def predict(
    context: typer.Context,
    run: Run,
    output: Annotated[Path, typer.Option("-o", "--output", help="A .csv, .parquet or .jsonl file, or - for stdout.")],
    format: Format = None,
    nodes: Nodes = None,
    as_of: AsOf = None,
    graph: Graph = None,
    smooth: Smooth = False,
    abstain: Annotated[
        float | None,
        typer.Option(min=0.0, max=1.0, metavar="P", help="Predict no class where the highest probability is below P."),
    ] = None,
    carry: Carry = False,
    force: Force = False,
    device: Device = "auto",
) -> None:
    """Write the predicted classes and their probabilities.

    Nodes are identified by your own ids.
    """
    import numpy as np

    from chronospike.table_files import TABLES, output_format
    from chronospike.training.predictions import write_predictions

    output = output_place(context, output)
    kind = output_format(output, format, TABLES)
    opened = _open(run, graph, device, as_of, carry, force)
    fitted, graph_ = opened.fitted, opened.fitted.task.graph
    chosen = _nodes(graph_, nodes)
    if smooth:
        everyone = _shown(fitted.probabilities, np.arange(graph_.num_nodes)).astype(np.float64)
        smoothed, strengths = fitted.smoothed(everyone)
        probabilities = smoothed[chosen]
        said = ", ".join(f"{name.replace('_', ' ')} {value:.3g}" for name, value in strengths.items())
        say(f"smoothed with the training labels: {said}")
    else:
        probabilities = _shown(fitted.probabilities, chosen)
    write_predictions(output, graph_, chosen, probabilities, opened.split, kind, opened.seen, abstain or 0.0)
    say(f"wrote {output}: {len(chosen):,} nodes{opened.unseen_note(chosen)}, seed {fitted.task.seed}")
    if abstain is not None:
        left_out = int((probabilities.max(axis=1) < abstain).sum())
        say(f"{left_out:,} of {len(chosen):,} nodes have no class{_bought(fitted, abstain) if not smooth else ''}")


def _bought(fitted: Fitted, threshold: float) -> str:
    """What leaving out unsure nodes buys, on labelled nodes that what predicts them has not learned from."""
    from chronospike.training.bagging import BagFitted
    from chronospike.training.calibration import abstention

    first, nodes, kind = fitted.held_out(), fitted.split.validation, "validation nodes"
    if isinstance(fitted, BagFitted):
        nodes, kind = fitted.folds.nodes, "labelled nodes, out of fold,"
    if first is None or not len(nodes):
        return ""
    found, labels = first.probabilities(nodes), fitted.task.labels(nodes)
    all_, kept = (abstention(found, labels, (limit,))[0] for limit in (0.0, threshold))
    if kept["micro_f1"] is None:
        return f". Of {len(nodes):,} {kind} none would have one"
    return (
        f". On {len(nodes):,} {kind} that keeps {100 * kept['kept']:.1f} % of them and takes Micro-F1 "
        f"from {100 * all_['micro_f1']:.1f} to {100 * kept['micro_f1']:.1f}"
    )


def embed(
    context: typer.Context,
    run: Run,
    output: Annotated[
        Path, typer.Option("-o", "--output", help="A .npy, .parquet, .csv or .jsonl file, or - for stdout.")
    ],
    format: Format = None,
    nodes: Nodes = None,
    as_of: AsOf = None,
    graph: Graph = None,
    carry: Carry = False,
    force: Force = False,
    device: Device = "auto",
) -> None:
    """Write the embeddings of nodes as .npy or as a table.

    Rows of .npy are in the order of --nodes, or of all nodes; tables (.parquet, .csv, .jsonl) have a column with your
    node ids.
    """
    import pyarrow as pa

    from chronospike.table_files import ARRAYS, output_format, write_array, write_table

    output = output_place(context, output)
    kind = output_format(output, format, ARRAYS)
    opened = _open(run, graph, device, as_of, carry, force)
    fitted = opened.fitted
    chosen = _nodes(fitted.task.graph, nodes)
    vectors = _shown(fitted.embeddings, chosen)
    if kind == "npy":
        write_array(output, vectors)
    else:
        columns: dict[str, Any] = {"node": fitted.task.graph.ids.take(chosen)}
        if opened.seen is not None:
            columns["seen"] = opened.seen[chosen]
        columns |= {f"z{i}": vectors[:, i] for i in range(vectors.shape[1])}
        write_table(output, pa.table(columns), kind)
    note = opened.unseen_note(chosen)
    say(f"wrote {output}: {list(vectors.shape)}{note}, seed {fitted.task.seed}")


def report(run: Run) -> None:
    """Rewrite the run's report.html."""
    from chronospike.analysis.report import write_report
    from chronospike.locks import claim

    with claim(run, make=False, tell=tell):
        written = write_report(run)
    say(f"wrote {written}")


@dataclass(frozen=True)
class Opened:
    """A run ready for use on a graph.

    Attributes:
        split: of the run's labels, whatever the date.
        name: of the graph.
        is_other: whether the graph is not, or no longer, the one the run was trained on.
        seen: `[N]` which nodes had an edge by the date that was asked for; None without a date.
    """

    fitted: Fitted
    split: Split
    name: str
    learner: Learner[Any]
    is_other: bool
    seen: NDArray[np.bool_] | None = None

    def unseen_note(self, chosen: NDArray[np.int64]) -> str:
        count = 0 if self.seen is None else int((~self.seen[chosen]).sum())
        return f", {count:,} of them without an edge by then" if count else ""


def _open(
    run: Path,
    graph: Path | None,
    device: str,
    as_of: str | None = None,
    carry: bool = False,
    force: bool = False,
    quiet: bool = False,
) -> Opened:
    from chronospike.cli.features import maker
    from chronospike.cli.train import prepare_features
    from chronospike.data.as_of import depends_on_future, step_as_of
    from chronospike.data.steps import without_origin
    from chronospike.data.storage import data_key, graph_key, open_graph
    from chronospike.data.time_text import format_time
    from chronospike.device import choose_device, keep_freed_memory
    from chronospike.features.make import carry_features
    from chronospike.features.recipes import check_date, check_source, check_transfer
    from chronospike.methods.registry import learner_of
    from chronospike.optional import start_gpu
    from chronospike.training.run_folder import RunFolder
    from chronospike.training.runs import load_run

    folder = RunFolder(run)
    learner, facts = learner_of(folder), folder.facts("folder", "features")
    place = choose_device(device)
    start_gpu(place)
    keep_freed_memory()
    where = graph or Path(facts["folder"])
    # An invalid date is reported before features are computed.
    step = None if as_of is None else step_as_of(open_graph(where, features="none", verify=False), as_of)
    if step is not None:
        check_date(facts["feature_methods"])
    is_other = facts.get("data") != data_key(where)

    def note(text: str) -> None:
        say(f"note: {text}", unless=quiet)

    if is_other:
        note(f"{where} is not the graph that {run} was trained on; the labels and the split are those of the run")
        bare = open_graph(where, features="none", verify=False)
        rules = [without_origin(rule) for rule in (bare.facts.get("step_rule"), facts.get("step_rule")) if rule]
        if len(set(rules)) > 1:
            note(f"its steps are of another kind ('{rules[0]}', in training '{rules[1]}'), so predictions may be off")
        split = folder.known_labels(bare)[1]
        shared, of = len(split.train), split.facts.get("train", len(split.train))
        if shared < of:
            note(f"{of - shared:,} of the {of:,} training nodes are not in {where}, so their labels say nothing there")
        if not carry and not force:
            check_transfer(facts["feature_methods"], facts.get("edges"), graph_key(where), shared)
    parts = facts["features"].split("+")
    if carry and facts.get("edges") != graph_key(where):
        check_source(Path(facts["folder"]), facts.get("edges"))
        parts = carry_features(where, Path(facts["folder"]), parts, str(place), make=maker(quiet))
    features = prepare_features(where, learner.settings, str(place), quiet, parts)
    data = open_graph(where, features=features)
    fitted = load_run(learner, data, folder, place)
    # On the run's own graph they would tell what its training knew.
    for text in fitted.task.features.notes if is_other and fitted.task.features is not None else ():
        note(text)
    if step is None:
        return Opened(fitted, fitted.split, where.name, learner, is_other)
    say(f"as of step {step}, which ended {format_time(data.step_end[step])}", unless=quiet)
    if depends_on_future(data):
        note("later events decide where these steps end. Import with --every for steps that do not depend on them")
    return Opened(fitted.until(step), fitted.split, where.name, learner, is_other, data.seen_by(step))


def _nodes(graph: DynamicGraph, file: Path | None) -> NDArray[np.int64]:
    """Node indices of the ids in `file`, or of all nodes."""
    import numpy as np

    from chronospike.data.reading.node_lists import read_nodes

    return np.arange(graph.num_nodes) if file is None else read_nodes(file, graph.ids)


def _shown(answer: Callable[..., NDArray[Any]], nodes: NDArray[np.int64]) -> NDArray[Any]:
    """What a fitted method says of `nodes`, with a bar over them."""
    with progress("nodes") as show:
        return answer(nodes, lambda done, total: show("reading", done, total))
