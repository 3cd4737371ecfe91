"""Commands that use a finished run: evaluate, predict, embed, report."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from chronospike.cli.common import print_json, progress, say, tell
from chronospike.errors import InputError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from chronospike.data.graph import DynamicGraph
    from chronospike.nn.model import ChronoSpike
    from chronospike.training.problem import Problem
    from chronospike.training.refit import Fitted

Run = Annotated[Path, typer.Argument(help="A run folder.")]
Graph = Annotated[Path | None, typer.Option(help="Another graph folder. Default: the run's own.")]
Nodes = Annotated[Path | None, typer.Option(help="A file with a node per line. Default: all nodes.")]
AsOf = Annotated[str | None, typer.Option(help="A step or a time: see only what was there by then.")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")]
Smooth = Annotated[bool, typer.Option("--smooth", help="Also spread the training labels over the edges.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")]


def evaluate(
    run: Run, graph: Graph = None, smooth: Smooth = False, device: Device = "auto", as_json: AsJson = False
) -> None:
    """Score a trained run again and write its metrics, predictions and report anew."""
    from chronospike.analysis.report import write_report
    from chronospike.cli.train import print_scores
    from chronospike.locks import claim
    from chronospike.training.execute import evaluate as score
    from chronospike.training.run import RunFolder

    with claim(run, make=False, tell=tell):
        fitted = _open(run, graph, device, quiet=as_json)
        with progress("nodes") as show:
            metrics = score(
                fitted, RunFolder(run), smooth=smooth, on_nodes=lambda done, total: show("scoring", done, total)
            )
        write_report(run)
    if as_json:
        print_json(metrics)
    else:
        say(f"seed {fitted.problem.settings.seed}")
        print_scores(metrics)


def predict(
    run: Run,
    output: Annotated[Path, typer.Option("-o", "--output", help="The CSV file to write.")],
    nodes: Nodes = None,
    as_of: AsOf = None,
    graph: Graph = None,
    smooth: Smooth = False,
    device: Device = "auto",
) -> None:
    """Write the class and the probability of each class for nodes of the graph, by your own node ids."""
    import numpy as np

    from chronospike.training.execute import smooth_all
    from chronospike.training.run import write_predictions

    if smooth and as_of is not None:
        raise InputError("--smooth spreads labels over all edges and cannot be combined with --as-of")
    fitted = _open(run, graph, device, as_of, needs_labels=smooth)
    model, problem = fitted.model, fitted.problem
    chosen = _nodes(problem.graph, nodes)
    if smooth:
        everyone = _infer(model, problem, np.arange(problem.graph.num_nodes))[0].astype(np.float64)
        mended, strengths = smooth_all(fitted, everyone)
        probabilities = mended[chosen]
        say(f"smoothed with the training labels: {strengths}")
    else:
        probabilities = _infer(model, problem, chosen)[0]
    write_predictions(output, problem.graph, chosen, probabilities, fitted.split)
    say(f"wrote {output}: {len(chosen):,} nodes, seed {problem.settings.seed}")


def embed(
    run: Run,
    output: Annotated[Path, typer.Option("-o", "--output", help="A .npy or .parquet file.")],
    nodes: Nodes = None,
    as_of: AsOf = None,
    graph: Graph = None,
    device: Device = "auto",
) -> None:
    """Write the embedding z of nodes, as .npy (rows in the order asked for) or .parquet (with node ids)."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    from chronospike.files import atomic_file

    if output.suffix not in (".npy", ".parquet"):
        raise InputError(f"{output}: embeddings are written as .npy or .parquet")
    fitted = _open(run, graph, device, as_of, needs_labels=False)
    model, problem = fitted.model, fitted.problem
    chosen = _nodes(problem.graph, nodes)
    vectors = _infer(model, problem, chosen)[1]
    with atomic_file(output) as partial:
        if output.suffix == ".npy":
            with partial.open("wb") as file:
                np.save(file, vectors)
        else:
            columns = {f"z{i}": vectors[:, i] for i in range(vectors.shape[1])}
            pq.write_table(pa.table({"node": problem.graph.ids.take(chosen), **columns}), partial)
    say(f"wrote {output}: {list(vectors.shape)}, seed {problem.settings.seed}")


def report(run: Run) -> None:
    """Write the run's report.html anew."""
    from chronospike.analysis.report import write_report
    from chronospike.locks import claim

    with claim(run, make=False, tell=tell):
        written = write_report(run)
    say(f"wrote {written}")


def _open(
    run: Path,
    graph: Path | None,
    device: str,
    as_of: str | None = None,
    quiet: bool = False,
    needs_labels: bool = True,
) -> Fitted:
    from dataclasses import replace

    from chronospike.cli.train import prepare_features
    from chronospike.data.storage import graph_key, open_graph
    from chronospike.estimator import step_as_of
    from chronospike.training.device import choose_device, keep_freed_memory
    from chronospike.training.execute import load_run
    from chronospike.training.run import RunFolder

    folder = RunFolder(run)
    settings, facts = folder.settings(), folder.facts()
    place = choose_device(device)
    keep_freed_memory()
    where = graph or Path(facts["folder"])
    features = facts["features"] if graph is None else prepare_features(where, settings, str(place), quiet)
    if features.startswith("deepwalk") and facts.get("edges") not in (None, graph_key(where)) and not quiet:
        say("note: DeepWalk features of another graph point in directions of their own, which the run has not learned")
    data = open_graph(where, features=features)
    fitted = load_run(data, folder, place, needs_labels)
    if as_of is not None:
        step = step_as_of(data, _step_or_time(as_of, data))
        steps = (step,) if settings.static else tuple(range(step + 1))
        fitted = replace(fitted, problem=replace(fitted.problem, steps=steps))
    return fitted


def _step_or_time(text: str, graph: DynamicGraph) -> int | float | str:
    """`5` is a step if there is one, `5.0` a time; where times are dates, a number past the last step is a year."""
    for read in (int, float):
        try:
            value = read(text)
        except ValueError:
            continue
        if not math.isfinite(value):
            raise InputError(f"--as-of {text} is neither a step nor a time")
        return text if graph.step_start.dtype.kind == "M" and value >= graph.num_steps else value
    return text


def _nodes(graph: DynamicGraph, file: Path | None) -> NDArray[np.int64]:
    """Node indices of the ids in `file`, a node per line, or of all nodes."""
    import numpy as np

    if file is None:
        return np.arange(graph.num_nodes)
    if not file.is_file():
        raise InputError(f"{file}: no such file")
    ids = [line for line in file.read_text(encoding="utf-8").splitlines() if line.strip()]
    if not ids:
        raise InputError(f"{file} holds no nodes")
    found = graph.ids.lookup(ids)
    unknown = [ids[i] for i in np.flatnonzero(found < 0)]
    if unknown:
        first = ", ".join(repr(name) for name in unknown[:3])
        raise InputError(f"{file}: {len(unknown)} node(s) are not in the graph, the first: {first}")
    return found


def _infer(model: ChronoSpike, problem: Problem, nodes: Any) -> tuple[Any, Any]:
    from chronospike.training.inference import infer

    with progress("nodes") as show:
        probabilities, vectors = infer(model, problem, nodes, lambda done, total: show("reading", done, total))
    return probabilities.numpy(), vectors.numpy()
