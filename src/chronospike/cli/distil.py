"""`chronospike distil`: train a smaller run on the predictions of another."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from chronospike.cli.common import progress, say, tell
from chronospike.cli.options import AsJson, Assignments, Device
from chronospike.cli.train import given_settings, prepare_features, train
from chronospike.errors import InputError

if TYPE_CHECKING:
    from chronospike.cli.seeds import Plan
    from chronospike.training.run_folder import RunFolder


def distil(
    run: Annotated[Path | None, typer.Argument(help="A finished run of any method: the teacher.")] = None,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="The new run folder.")] = None,
    assignments: Assignments = None,
    epochs: Annotated[int | None, typer.Option(help="Short for --set epochs=N.")] = None,
    seed: Annotated[int | None, typer.Option(help="Random seed.")] = None,
    label_share: Annotated[
        float, typer.Option(min=0, max=1, help="Weight of a training node's own label in its target.")
    ] = 0.5,
    device: Device = "auto",
    resume: Annotated[bool, typer.Option("--resume", hidden=True)] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing run.")] = False,
    as_json: AsJson = False,
) -> None:
    """Train one small network on the predictions of a finished run.

    It has the paper's size and reads no labels, for use where labels are not available. The result is a run folder like
    that of 'train', with the scores of the teacher next to its own.
    """
    if resume:
        again = shlex.join(["chronospike", "train", "--resume", "-o", str(output or "RUN")])
        raise InputError(f"a distilled run resumes without its teacher. Use: {again}")
    if run is None:
        raise InputError("which run? Give its folder, for example: chronospike distil runs/first -o runs/small")
    if output is None:
        raise InputError(f"which run folder? Give it with -o, for example: chronospike distil {run} -o runs/small")
    if output.resolve() == run.resolve():
        raise InputError(f"{run} cannot be distilled into its own folder. Choose another one with -o")
    from chronospike.locks import claim
    from chronospike.training.run_folder import RunFolder

    teacher = RunFolder(run)
    plan = _planned(teacher, output, given_settings(assignments, epochs=epochs, seed=seed), label_share)
    with claim(output, tell=tell):
        _begin(plan, teacher, label_share, device, overwrite, as_json)
    # All that the teacher knows of it is in the folder now, and the rest is what any run does.
    train(output=output, resume=True, device=device, as_json=as_json)


def _planned(teacher: RunFolder, output: Path, given: dict[str, Any], label_share: float) -> Plan:
    """The new run with its settings, and what is worth keeping about it and its teacher."""
    from chronospike.cli.seeds import new_plan
    from chronospike.config import preset_names, read_preset
    from chronospike.data.storage import data_key
    from chronospike.methods.chronospike.distil import student_settings
    from chronospike.methods.chronospike.learner import ChronoSpikeLearner
    from chronospike.methods.registry import settings_type

    known = teacher.settings(settings_type(teacher.method))
    found, facts = teacher.metrics(), teacher.facts("folder", "features")
    preset = facts.get("preset") if facts.get("preset") in preset_names() else "default"
    settings = student_settings(known, read_preset(str(preset)), given)
    if facts.get("data") not in (None, data_key(facts["folder"])):
        raise InputError(f"{facts['folder']} has changed since {teacher.path} was trained on it. Train the run again")
    if facts["features"] == "none" or any(name.startswith("feature") for name in given):
        facts["features"] = None
    scores = {name: found["test"][name] for name in ("macro_f1", "micro_f1", "nodes")}
    facts |= {"preset": preset, "command": shlex.join(["chronospike", *sys.argv[1:]])}
    facts |= {"teacher": str(teacher.path.absolute()), "label_share": label_share}
    facts |= {"teacher_scores": {"method": found["method"], "title": found["title"], "test": scores}}
    return new_plan(output, ChronoSpikeLearner(settings), 1, facts)


def _begin(plan: Plan, teacher: RunFolder, label_share: float, device: str, overwrite: bool, quiet: bool) -> None:
    """Ask the teacher, and start the run with what it says."""
    from chronospike.cli.seeds import begin, check_output
    from chronospike.data.storage import open_graph
    from chronospike.device import choose_device, keep_freed_memory
    from chronospike.features.recipes import feature_methods
    from chronospike.methods.chronospike.distil import check_student, soft_targets
    from chronospike.methods.registry import learner_of
    from chronospike.optional import start_gpu
    from chronospike.training.runs import load_run

    check_output(plan, overwrite)
    (run, student), facts, asked = plan.runs[0], plan.facts, learner_of(teacher)
    place, folder = choose_device(device), Path(facts["folder"])
    start_gpu(place)
    keep_freed_memory()
    parts = teacher.facts()["features"].split("+")
    read = prepare_features(folder, asked.settings, str(place), quiet, parts)
    fitted = load_run(asked, open_graph(folder, features=read), teacher, place)
    graph, split = fitted.task.graph, fitted.split
    student.check(graph)
    check_student(student.settings, graph, split)
    parts = None if facts["features"] is None else parts
    facts["features"] = prepare_features(folder, student.settings, str(place), quiet, parts)
    facts["feature_methods"] = feature_methods(folder, facts["features"])
    say(f"asking {teacher.path} ({asked.title}) about {int((~graph.isolated).sum()):,} nodes", unless=quiet)
    with progress("nodes") as show:
        targets = soft_targets(fitted, label_share, lambda done, total: show("asking", done, total))
    begin(plan, graph, split, overwrite)
    targets.save(run.soft_targets, graph)
