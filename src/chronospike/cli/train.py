"""`chronospike train`: settings in, a run folder out."""

from __future__ import annotations

import math
import shlex
import sys
import time
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from chronospike.cli.clock import Clock
from chronospike.cli.common import human_seconds, kept_work, print_json, print_table, progress, resumable, say, tell
from chronospike.cli.options import AsJson, Assignments, Device, Preset, seconds_of
from chronospike.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    from chronospike.cli.seeds import Plan
    from chronospike.config import Settings
    from chronospike.data.graph import DynamicGraph
    from chronospike.data.splits import Split
    from chronospike.training.label_tables import LabelTables
    from chronospike.training.learner import Learner
    from chronospike.training.loop import EpochReport, Watcher
    from chronospike.training.run_folder import RunFolder


def train(
    graph: Annotated[str | None, typer.Argument(help="A graph folder or a dataset's name.")] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="The run folder; not needed with --dry-run.")
    ] = None,
    method: Annotated[
        str | None, typer.Option(metavar="NAME", help="Method to train; see 'chronospike compare --list'.")
    ] = None,
    preset: Preset = None,
    assignments: Assignments = None,
    epochs: Annotated[int | None, typer.Option(help="Short for --set epochs=N.")] = None,
    features: Annotated[
        str | None, typer.Option(metavar="NAME", help="Short for --set features=NAME: own, deepwalk, own+fastrp, RUN …")
    ] = None,
    ratio: Annotated[float | None, typer.Option(help="Share of labelled nodes for training and validation.")] = None,
    seed: Annotated[int | None, typer.Option(help="Random seed.")] = None,
    seeds: Annotated[
        int | None, typer.Option(min=1, help="Train this many seeds, one run folder each; report mean and deviation.")
    ] = None,
    device: Device = "auto",
    root: Annotated[Path | None, typer.Option(help="Folder with downloaded dataset files.")] = None,
    split: Annotated[
        Path | None, typer.Option(help="Your own split: a file with a node and train, validation or test in each row.")
    ] = None,
    quality: Annotated[
        Literal["fast", "good", "best"] | None,
        typer.Option(help="fast: two quick networks; good: the preset's settings (default); best: ten networks"),
    ] = None,
    time_limit: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="Time limit for the run: 90s, 15m, 2h. Plans from --quality best by default."
        ),
    ] = None,
    smooth: Annotated[
        bool, typer.Option("--smooth", help="Also smooth with the training labels (Correct and Smooth).")
    ] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Resume an interrupted run, or train a finished one for more --epochs.")
    ] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing run.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what a run would do and need, then exit.")] = False,
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="Also log to TensorBoard.")] = False,
    as_json: AsJson = False,
) -> None:
    """Train on a graph; write scores, predictions and a report.

    Everything goes into a run folder, from which 'evaluate', 'predict', 'embed' and 'report' work.
    """
    if output is None and (resume or not dry_run):
        raise InputError("which run folder? Give it with -o, for example: chronospike train pubmed -o runs/first")
    if resume and split is not None:
        raise InputError("--resume keeps the split of the run. Leave out --split, or start a new run")
    if resume and overwrite:
        raise InputError("--resume continues a run and --overwrite replaces it: choose one")
    limit = seconds_of(time_limit)
    if resume and quality is not None:
        raise InputError("--resume keeps the settings of the run. Leave out --quality, or start a new run")
    if dry_run and limit is not None:
        raise InputError("--dry-run trains nothing, and --time-limit plans from timed batches: choose one")
    began = time.monotonic()
    given = given_settings(assignments, epochs=epochs, features=features, ratio=ratio, seed=seed)
    wanted = quality or ("best" if limit is not None else None)
    # A dry run needs no folder, and looks at none.
    target = output if output is not None else Path("run")

    def planned() -> Plan:
        if resume:
            return _resumed(target, graph, method, preset, given, seeds)
        return _new(target, graph, method, preset, given, seeds or 1, wanted)

    if dry_run:
        from chronospike.cli.estimate import report_estimate

        plan = planned()
        report_estimate(plan.facts["graph"], root, plan.runs[0][1], device, as_json)
        if plan.is_several and not as_json:
            say(f"the same for each of {len(plan.runs)} seeds, which run one after another")
        return
    # Errors in a new run are reported before its folder is created.
    new = None if resume else planned()
    from chronospike.locks import claim

    with claim(target, make=not resume, tell=tell):
        plan = new or planned()
        if not resume:
            from chronospike.cli.seeds import check_output

            check_output(plan, overwrite)
        advice = _advice(plan.output, given if resume else {}, device, smooth, tensorboard)
        with resumable(advice) if resume else nullcontext():
            clock = Clock(began, limit, is_asked=limit is not None or quality is not None)
            _carry_out(plan, advice, root, split, device, smooth, overwrite, tensorboard, as_json, clock)


def _carry_out(
    plan: Plan,
    advice: str,
    root: Path | None,
    split: Path | None,
    device: str,
    smooth: bool,
    overwrite: bool,
    tensorboard: bool,
    as_json: bool,
    clock: Clock,
) -> None:
    """Prepare what the runs share, train those that are not finished, and print the results."""
    from chronospike.cli.estimate import open_as_planned
    from chronospike.cli.features import features_of_runs
    from chronospike.cli.graphs import graph_folder
    from chronospike.cli.seeds import begin, print_seeds, write_seeds
    from chronospike.data.reading.splits import read_split
    from chronospike.data.storage import data_key, graph_key, open_graph
    from chronospike.device import choose_device, keep_freed_memory
    from chronospike.features.recipes import feature_methods
    from chronospike.optional import start_gpu
    from chronospike.training.memory import require_feature_memory
    from chronospike.training.runs import is_finished
    from chronospike.training.task import split_for
    from chronospike.training.tensorboard import require_tensorboard

    facts, resume = plan.facts, plan.resume
    if tensorboard:
        require_tensorboard()
    done = {one.path for one, wanted in plan.runs if resume and is_finished(one, wanted, smooth)}
    for path in done:
        _bring_report_up_to_date(path)
    if len(done) == len(plan.runs):
        _say_finished(plan, as_json)
        return
    place = choose_device(device)
    start_gpu(place)
    keep_freed_memory()
    folder = Path(facts["folder"]) if resume else graph_folder(facts["graph"], root, quiet=as_json)
    if resume and facts.get("data") not in (None, data_key(folder)):
        raise InputError(f"{folder} has changed since {plan.runs[0][0].path} was started. Start a new run")
    checks: list[Callable[[Split], None]] = []
    if not resume:
        named, checks = features_of_runs(plan.runs[0][1].settings.features, folder, place, as_json)
        plan.change(features=named)
    run, learner = plan.runs[0]
    settings = learner.settings
    # Data that cannot be trained on, or not here, is refused before features are computed and a folder is created.
    parts = facts["features"].split("+") if resume else None if learner.needs_features else ["none"]
    planned, to_make = open_as_planned(folder, settings, str(place), parts)
    learner.check(planned)
    divided = None if resume else read_split(split, planned) if split is not None else split_for(planned, settings)
    if divided is not None:
        for check in checks:
            check(divided)
    train = (divided or run.known_labels(planned)[1]).train
    if to_make:
        require_feature_memory(planned.num_nodes, settings, place)
    learner.require_memory(planned, to_make, len(train), place)
    features = prepare_features(folder, settings, str(place), as_json, parts)
    data = open_graph(folder, features=features).require(features=learner.needs_features)
    tables = None
    if divided is not None and clock.limit is not None:
        tables = _plan_time(plan, data, divided, place, clock, as_json)
    if divided is not None:
        facts |= {"folder": str(folder.absolute()), "name": folder.name, "features": features}
        facts |= {"feature_methods": feature_methods(folder, features)}
        facts |= {"data": data_key(folder), "edges": graph_key(folder), "step_rule": data.facts.get("step_rule")}
        begin(plan, data, divided, overwrite)
    with resumable(advice):
        metrics: dict[int, dict[str, Any]] = {}
        for number, (one, wanted) in enumerate(plan.runs):
            seed = wanted.settings.seed
            if one.path in done:
                metrics[seed] = one.metrics()
                continue
            with clock.share(len(plan.runs) - number), kept_work(advice):
                metrics[seed] = _train_one(
                    data, one, wanted, place, features, resume, smooth, tensorboard, as_json, clock, tables
                )
            if plan.is_several:
                write_seeds(plan, metrics)
                test = metrics[seed]["test"]
                found = f"Macro-F1 {100 * test['macro_f1']:.2f}, Micro-F1 {100 * test['micro_f1']:.2f}"
                say(f"seed {seed}: test {found}", unless=as_json)
        if plan.is_several:
            content = write_seeds(plan, metrics)
            print_json(content) if as_json else print_seeds(content, learner.title)
            written = f"seeds.json and {len(plan.runs)} run folders"
        else:
            print_json(metrics[settings.seed]) if as_json else print_scores(metrics[settings.seed], learner.title)
            written = "metrics.json, predictions.csv, report.html"
        say(f"wrote {plan.output}: {written}", unless=as_json)


def _train_one(
    data: DynamicGraph,
    run: RunFolder,
    learner: Learner[Any],
    place: torch.device,
    features: str,
    resume: bool,
    smooth: bool,
    tensorboard: bool,
    quiet: bool,
    clock: Clock,
    tables: LabelTables | None = None,
) -> dict[str, Any]:
    """Train or resume one run, write its report and return its metrics."""
    from chronospike.analysis.report import write_report
    from chronospike.methods.registry import references
    from chronospike.training.checkpoint import read_state
    from chronospike.training.gradient import GradientLearner
    from chronospike.training.learner import FitContext
    from chronospike.training.memory import memory_errors
    from chronospike.training.runs import execute
    from chronospike.training.tensorboard import epoch_curves

    settings = learner.settings
    size = f"{data.num_nodes:,} nodes, {data.num_steps} steps, features {features}"
    say(f"{learner.title}, seed {settings.seed}, {size}, {place}", unless=quiet)
    if getattr(settings, "schedule", None) == "cosine" and settings.epochs > run.settings(type(settings)).epochs:
        say(f"the learning rate follows the cosine schedule of {settings.epochs} epochs from here on", unless=quiet)
    has_score = resume and isinstance(learner, GradientLearner) and run.checkpoint.is_file()
    best = read_state(run.checkpoint).best_score if has_score else 0.0
    curves = epoch_curves(run.path / "tensorboard") if tensorboard else nullcontext()
    with curves as write_curves, progress("batches") as show, memory_errors(learner.memory_advice):
        context = FitContext(
            run,
            resume,
            watcher=_watcher(settings, show, write_curves, quiet, max(0.0, best)),
            on_note=None if quiet else say,
            on_stage=partial(show, "second stage", unit="fits"),
            deadline=clock.deadline,
            stop=clock.stop,
        )

        def on_nodes(done: int, total: int) -> None:
            show("scoring", done, total, unit="nodes")
            if done == total:
                # Which may take minutes, and nobody counts.
                show("fitting simple methods to compare with", 0, None, unit="fits")

        metrics = execute(
            learner, data, context, place, references(learner), smooth=smooth, on_nodes=on_nodes, tables=tables
        )
    if not metrics["complete"]:
        say(metrics["notes"][0], unless=quiet)
    write_report(run.path)
    return metrics


def _plan_time(
    plan: Plan, data: DynamicGraph, split: Split, place: torch.device, clock: Clock, quiet: bool
) -> LabelTables | None:
    """Change the settings of the runs to what fits the time that is left, and say so; the tables made on the way."""
    from chronospike.training.gradient import GradientLearner
    from chronospike.training.planning import plan as plan_settings
    from chronospike.training.task import make_task

    learner = plan.runs[0][1]
    if not isinstance(learner, GradientLearner):
        return None
    task = make_task(data, learner.settings, place, split)
    found, seconds = plan_settings(learner, task, clock.left() / len(plan.runs))
    names = ("epochs", "folds", "second_stage", "refit", "samples")
    changes = {name: getattr(found, name) for name in names if name in type(found).model_fields}
    plan.change(**changes)
    if quiet:
        return task.tables
    networks = f"{found.folds} networks" if found.folds else "one network"
    again = ", fitted again on the validation nodes" if found.refit and not found.folds else ""
    stage = f", second stage {found.second_stage}" if found.second_stage != "none" else ""
    say(f"plan: {networks} of {found.epochs} epochs{again}{stage}, about {human_seconds(seconds)} of {clock.text()}")
    return task.tables


def _bring_report_up_to_date(path: Path) -> None:
    """Write the report of a run that was stopped between its scores and its report."""
    from chronospike.analysis.report import write_report
    from chronospike.training.run_folder import METRICS

    report = path / "report.html"
    if not report.is_file() or report.stat().st_mtime_ns < (path / METRICS).stat().st_mtime_ns:
        write_report(path)


def _say_finished(plan: Plan, as_json: bool) -> None:
    """The scores of runs that have nothing left to do, and how to train them for longer."""
    from chronospike.cli.seeds import print_seeds, write_seeds

    metrics = {learner.settings.seed: run.metrics() for run, learner in plan.runs}
    learner = plan.runs[0][1]
    settings = learner.settings
    result = write_seeds(plan, metrics) if plan.is_several else metrics[settings.seed]
    if as_json:
        print_json(result)
        return
    print_seeds(result, learner.title) if plan.is_several else print_scores(result, learner.title)
    if "epochs" not in type(settings).model_fields:
        say(f"{plan.output} is finished")
        return
    more = shlex.join(
        ["chronospike", "train", "--resume", "-o", str(plan.output), "--epochs", str(2 * settings.epochs)]
    )
    say(f"{plan.output} is finished. To train for longer: {more}")


def _advice(output: Path, given: dict[str, Any], device: str, smooth: bool, tensorboard: bool) -> str:
    """How to resume a run that was interrupted: what its folder does not keep, or not yet, has to be said again."""
    from chronospike.training.run_folder import MAY_CHANGE

    again = ["chronospike", "train", "--resume", "-o", str(output)]
    again += [part for name in MAY_CHANGE if name in given for part in ("--set", f"{name}={given[name]}")]
    again += ["--device", device] if device != "auto" else []
    again += ["--smooth"] if smooth else []
    again += ["--tensorboard"] if tensorboard else []
    return f"Resume with: {shlex.join(again)}"


def given_settings(assignments: list[str] | None, **options: Any) -> dict[str, Any]:
    """Settings of the command line: `--set`, and the options that are short for it."""
    from chronospike.config import parse_assignments

    given = parse_assignments(assignments or [])
    for name, value in options.items():
        # The same object, too: nan equals nothing.
        if value is not None and (there := given.setdefault(name, value)) is not value and there != value:
            raise InputError(f"--{name} {value} and --set {name}={there} contradict each other: give one of them")
    return given


def _new(
    output: Path,
    graph: str | None,
    method: str | None,
    preset: str | None,
    given: dict[str, Any],
    seeds: int,
    quality: str | None,
) -> Plan:
    """New runs, with the settings of the preset, of the quality and those given."""
    from chronospike.cli.seeds import new_plan
    from chronospike.config import preset_names
    from chronospike.methods.registry import DEFAULT, learner_type, owned_preset, settings_for

    if graph is None:
        raise InputError("which graph? Give a folder or a dataset's name, for example: chronospike train pubmed -o RUN")
    name = preset or (graph if graph in preset_names() else "default")
    values = owned_preset(name)
    method = method or str(values.get("method", DEFAULT))
    if quality is not None:
        from chronospike.methods.chronospike.settings import QUALITIES

        if method != DEFAULT:
            raise InputError(f"--quality and --time-limit are only for {DEFAULT}, not for {method}")
        values |= QUALITIES[quality]
    settings = settings_for(method, values, given)
    facts = {"graph": graph, "preset": name, "command": shlex.join(["chronospike", *sys.argv[1:]])}
    return new_plan(output, learner_type(method)(settings), seeds, facts)


def _resumed(
    output: Path,
    graph: str | None,
    method: str | None,
    preset: str | None,
    given: dict[str, Any],
    seeds: int | None,
) -> Plan:
    """The runs that are there, with their own settings, except for what may change (see `RunFolder.require_same`)."""
    from chronospike.cli.seeds import Plan, earlier_runs
    from chronospike.config import read_preset
    from chronospike.methods.registry import learner_of

    changes = {**(read_preset(preset) if preset else {}), **given}
    changes.pop("method", None)
    runs = []
    for number, run in enumerate(earlier_runs(output, seeds)):
        if method not in (None, run.method):
            raise InputError(f"{run.path} is a run of {run.method}, not of {method}. Start a new run")
        first = changes.get("seed")
        seed = {"seed": first + number} if isinstance(first, int) else {}
        learner = learner_of(run, **{**changes, **seed})
        run.require_same(learner.settings)
        runs.append((run, learner))
    facts = runs[0][0].facts("graph", "folder", "features")
    if graph is not None and graph != facts["graph"] and Path(graph).absolute() != Path(facts["folder"]):
        raise InputError(f"{output} was started on '{facts['graph']}', not on '{graph}'")
    return Plan(output, runs, facts, resume=True)


def prepare_features(
    folder: Path, settings: Settings, device: str, quiet: bool = False, parts: list[str] | None = None
) -> str:
    """The features of the run, made now if they are not there yet; `parts` are those of an earlier run."""
    from chronospike.cli.features import maker
    from chronospike.features.make import ensure_features

    def note(text: str) -> None:
        say(f"note: {text}", unless=quiet)

    return ensure_features(folder, settings, device, parts, make=maker(quiet), on_note=note)


def _watcher(
    settings: Any, show: Any, write_curves: Callable[[EpochReport], None] | None, quiet: bool, best_score: float
) -> Watcher:
    from chronospike.training.loop import Watcher

    best = [best_score]
    measure = "micro_f1" if getattr(settings, "selection", "") == "micro_f1" else "macro_f1"

    def on_batch(epoch: int, batch: int, batches: int, loss: float) -> None:
        epochs = settings.epochs * max(1, getattr(settings, "folds", 0))
        name = "Macro-F1" if measure == "macro_f1" else "Micro-F1"
        found = f"  best validation {name} {100 * best[0]:.1f}" if best[0] else ""
        show(f"epoch {epoch + 1}/{epochs}  loss {loss:.3f}{found}", epoch * batches + batch, epochs * batches)

    def on_epoch(report: EpochReport) -> None:
        best[0] = max(best[0], getattr(report, f"validation_{measure}"))
        if write_curves is not None:
            write_curves(report)
        if not quiet and not sys.stderr.isatty() and (report.best or report.epoch % 10 == 0):
            scores = f"{100 * report.validation_macro_f1:.2f}  Micro-F1 {100 * report.validation_micro_f1:.2f}  "
            found = "" if math.isnan(report.validation_macro_f1) else f"validation Macro-F1 {scores}"
            say(f"epoch {report.epoch:3d}  loss {report.loss:.4f}  {found}{report.seconds:.1f} s")

    return Watcher(on_batch, on_epoch)


def print_scores(metrics: dict[str, Any], title: str) -> None:
    """The method called `title` beside the simple ones."""
    rows = [("", "Macro-F1  Micro-F1")]
    rows += [(name, _scores(found)) for name, found in metrics["baselines"].items()]
    if metrics.get("teacher"):
        rows.append((f"teacher: {metrics['teacher']['title']}", _scores(metrics["teacher"]["test"])))
    rows.append((title, _scores(metrics["test"])))
    if metrics.get("smoothed"):
        rows.append(("with --smooth", _scores(metrics["smoothed"]) + "  (training labels used at test time)"))
    if metrics.get("estimate"):
        found = metrics["estimate"]
        low, high, folds = 100 * found["micro_f1_low"], 100 * found["micro_f1_high"], found["folds"]
        interval = f"{folds} folds; 95 % interval of the Micro-F1 {low:.1f} to {high:.1f}" if folds > 1 else "one fold"
        rows.append(("out-of-fold", f"{_scores(found)}  ({interval})"))
    elif metrics["validation"].get("nodes") != 0:
        note = "  (before training again on these nodes too)" if metrics.get("refit") else ""
        rows.append(("validation", _scores(metrics["validation"]) + note))
    print_table(rows)


def _scores(found: dict[str, Any]) -> str:
    return f"{100 * found['macro_f1']:8.2f}  {100 * found['micro_f1']:8.2f}"
