"""`chronospike train`: settings in, a run folder out."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from chronospike.cli.common import print_json, print_table, progress, say, tell
from chronospike.errors import InputError

if TYPE_CHECKING:
    from chronospike.config import Settings
    from chronospike.training.loop import EpochReport, Watcher
    from chronospike.training.run import RunFolder
    from chronospike.training.tensorboard import TensorBoard

Run = Annotated[Path | None, typer.Option("-o", "--output", help="The run folder; not needed with --dry-run.")]
Assignments = Annotated[list[str] | None, typer.Option("--set", help="key=value, as often as needed.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")]


def train(
    graph: Annotated[str | None, typer.Argument(help="A graph folder or a dataset's name.")] = None,
    output: Run = None,
    preset: Annotated[str | None, typer.Option(help="A preset by name or a YAML file. Default: the dataset's.")] = None,
    assignments: Assignments = None,
    ratio: Annotated[float | None, typer.Option(help="Share of labelled nodes that is not test.")] = None,
    seed: Annotated[int | None, typer.Option(help="Of everything random.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
    root: Annotated[Path | None, typer.Option(help="Folder with the benchmark's files.")] = None,
    smooth: Annotated[
        bool, typer.Option("--smooth", help="Also spread the training labels (said in the output).")
    ] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with an interrupted run.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a run that is there.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done and what it needs.")] = False,
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="Also write curves for TensorBoard.")] = False,
    as_json: AsJson = False,
) -> None:
    """Train ChronoSpike on a graph and write scores, predictions and a report into a run folder."""
    from chronospike.files import check_target
    from chronospike.locks import claim
    from chronospike.training.run import CONFIG, RunFolder

    run = None if output is None else RunFolder(output)
    if run is None and (resume or not dry_run):
        raise InputError("which run folder? Give it with -o, for example: chronospike train pubmed -o runs/first")
    if resume and overwrite:
        raise InputError("--resume goes on with a run and --overwrite replaces it: choose one")
    if run is None or dry_run:
        from chronospike.cli.estimate import report_estimate

        settings, facts = _settings(run if resume else None, graph, preset, assignments, ratio, seed)
        report_estimate(facts["graph"], root, settings, device, as_json)
        return
    with claim(run.path, make=not resume, tell=tell):
        if not resume:
            check_target(run.path, overwrite=overwrite, marker=CONFIG)
        settings, facts = _settings(run if resume else None, graph, preset, assignments, ratio, seed)
        _carry_out(run, settings, facts, device, root, smooth, resume, overwrite, tensorboard, as_json)


def _carry_out(
    run: RunFolder,
    settings: Settings,
    facts: dict[str, Any],
    device: str,
    root: Path | None,
    smooth: bool,
    resume: bool,
    overwrite: bool,
    tensorboard: bool,
    as_json: bool,
) -> None:
    """Train in a run folder that is ours alone."""
    from chronospike.cli.graphs import graph_folder
    from chronospike.data.storage import data_key, graph_key, open_graph
    from chronospike.training.device import choose_device, keep_freed_memory
    from chronospike.training.execute import execute
    from chronospike.training.problem import split_for
    from chronospike.training.tensorboard import TensorBoard, require_tensorboard

    if tensorboard:
        require_tensorboard()
    place = choose_device(device)
    keep_freed_memory()
    folder = Path(facts["folder"]) if resume else graph_folder(facts["graph"], root, quiet=as_json)
    if resume and facts.get("data") not in (None, data_key(folder)):
        raise InputError(f"{folder} is not the graph it was when {run.path} was started. Start a new run")
    # What cannot be trained on is said before features are made and before a folder is there.
    split_for(open_graph(folder, features="none").require(steps=1 if settings.static else 2, classes=2), settings)
    features = facts["features"] if resume else prepare_features(folder, settings, str(place), quiet=as_json)
    data = open_graph(folder, features=features).require(features=True)
    if not resume:
        facts |= {"folder": str(folder.absolute()), "name": folder.name, "features": features}
        facts |= {"data": data_key(folder), "edges": graph_key(folder)}
        run.begin(settings, facts, overwrite)
    board = TensorBoard(run.path / "tensorboard") if tensorboard else None
    if not as_json:
        say(f"seed {settings.seed}, {data.num_nodes:,} nodes, {data.num_steps} steps, {features} features, {place}")
    try:
        with progress("batches") as show:
            metrics = execute(
                data,
                run,
                place,
                resume=resume,
                smooth=smooth,
                watcher=_watcher(settings, show, board, quiet=as_json),
                on_nodes=lambda done, total: show("scoring", done, total, "nodes"),
                on_note=None if as_json else say,
            )
    except KeyboardInterrupt:
        typer.echo(f"stopped. Go on with: chronospike train --resume -o {run.path}", err=True)
        raise
    from chronospike.analysis.report import write_report

    report = write_report(run.path)
    if as_json:
        print_json(metrics)
        return
    print_scores(metrics)
    say(f"wrote {run.path}: metrics.json, predictions.csv, {report.name}")


def _settings(
    earlier: RunFolder | None,
    graph: str | None,
    preset: str | None,
    assignments: list[str] | None,
    ratio: float | None,
    seed: int | None,
) -> tuple[Settings, dict[str, Any]]:
    """The settings of the run, those of an `earlier` one if it goes on, and what else is worth keeping about it."""
    from chronospike.config import make_settings, parse_assignments, preset_names, read_preset

    given: dict[str, Any] = parse_assignments(assignments or [])
    given |= {name: value for name, value in (("ratio", ratio), ("seed", seed)) if value is not None}
    if earlier is not None:
        settings, facts = earlier.settings(), earlier.facts()
        wanted = settings.change(**{**(read_preset(preset) if preset else {}), **given})
        earlier.require_same(wanted)
        if graph is not None and graph != facts["graph"] and Path(graph).absolute() != Path(facts["folder"]):
            raise InputError(f"{earlier.path} was started on '{facts['graph']}', not on '{graph}'")
        return settings, facts
    if graph is None:
        raise InputError("which graph? Give a folder or a dataset's name, for example: chronospike train pubmed -o RUN")
    name = preset or (graph if graph in preset_names() else "default")
    settings = make_settings({**read_preset(name), **given})
    return settings, {"graph": graph, "preset": name, "command": shlex.join(["chronospike", *sys.argv[1:]])}


def prepare_features(folder: Path, settings: Settings, device: str, quiet: bool = False) -> str:
    """The feature set of the run, made now if it is not there yet."""
    from chronospike.cli.features import make_features
    from chronospike.features.recipes import ensure_features

    def make(place: Path, name: str, options: Any) -> None:
        if not quiet:
            say(f"making features {name}")
        make_features(place, name, options, "single", device)

    return ensure_features(folder, settings, make)


def _watcher(settings: Settings, show: Any, board: TensorBoard | None, quiet: bool) -> Watcher:
    from chronospike.training.loop import Watcher

    best = [0.0]

    def on_batch(epoch: int, batch: int, batches: int, loss: float) -> None:
        done, total = epoch * batches + batch, settings.epochs * batches
        show(f"epoch {epoch + 1}/{settings.epochs}  loss {loss:.3f}  best {best[0]:.3f}", done, total)

    def on_epoch(report: EpochReport) -> None:
        best[0] = max(best[0], report.validation_macro_f1)
        if board is not None:
            board.on_epoch(report)
        if not quiet and not sys.stderr.isatty() and (report.best or report.epoch % 10 == 0):
            say(
                f"epoch {report.epoch:3d}  loss {report.loss:.4f}  validation Macro-F1 "
                f"{100 * report.validation_macro_f1:.2f}  Micro-F1 {100 * report.validation_micro_f1:.2f}  "
                f"{report.seconds:.1f} s"
            )

    return Watcher(on_batch, on_epoch)


def print_scores(metrics: dict[str, Any]) -> None:
    """The model beside what needs no model."""
    rows = [("", "Macro-F1  Micro-F1")]
    rows += [(name, _scores(found)) for name, found in metrics["baselines"].items()]
    rows.append(("ChronoSpike", _scores(metrics["test"])))
    if metrics.get("smoothed"):
        rows.append(("with --smooth", _scores(metrics["smoothed"]) + "  (training labels used at test time)"))
    note = "  (before training again on these nodes too)" if metrics.get("refit") else ""
    rows.append(("validation", _scores(metrics["validation"]) + note))
    print_table(rows)


def _scores(found: dict[str, Any]) -> str:
    return f"{100 * found['macro_f1']:8.2f}  {100 * found['micro_f1']:8.2f}"
