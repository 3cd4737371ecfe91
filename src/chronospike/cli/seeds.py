"""Which run folders a `train` command writes or resumes: one, or one per seed."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chronospike.cli.common import print_table, say
from chronospike.errors import InputError
from chronospike.files import check_target, write_json
from chronospike.training.run_folder import CONFIG, METRICS, RUN, RunFolder
from chronospike.training.seeds import SEEDS, folder_of, seeds_of, summary

if TYPE_CHECKING:
    from chronospike.data.graph import DynamicGraph
    from chronospike.data.splits import Split
    from chronospike.training.learner import Learner


@dataclass(frozen=True)
class Plan:
    """The runs of a command, with the method and settings each is to have, and what is worth keeping about them."""

    output: Path
    runs: list[tuple[RunFolder, Learner[Any]]]
    facts: dict[str, Any]
    resume: bool = False

    @property
    def is_several(self) -> bool:
        return self.runs[0][0].path != self.output

    def change(self, **values: Any) -> None:
        """Give all runs other values of some settings."""
        self.runs[:] = [(run, type(one)(one.settings.change(**values))) for run, one in self.runs]


def new_plan(output: Path, learner: Learner[Any], seeds: int, facts: dict[str, Any]) -> Plan:
    """A run in `output`, or as many below it as there are seeds, counted up from that of the settings."""
    if seeds == 1:
        return Plan(output, [(RunFolder(output), learner)], facts)
    first = learner.settings.seed
    each = [type(learner)(learner.settings.change(seed=first + i)) for i in range(seeds)]
    return Plan(output, [(RunFolder(folder_of(output, one.settings.seed)), one) for one in each], facts)


def earlier_runs(output: Path, seeds: int | None) -> list[RunFolder]:
    """The runs that `output` holds; another number of them than is asked for is an error."""
    found = [] if (output / CONFIG).is_file() else seeds_of(output)
    if seeds is not None and seeds != max(1, len(found)):
        raise InputError(
            f"{output} was started with {max(1, len(found))} seed(s), not {seeds}. Resume it without --seeds, "
            "or start a new run"
        )
    return [RunFolder(folder_of(output, seed)) for seed in found] or [RunFolder(output)]


def check_output(plan: Plan, overwrite: bool) -> None:
    """Refuse an output folder that would lose what is there, unless it is a run, or several, and may be replaced."""
    begun = [plan.output, *(folder_of(plan.output, seed) for seed in seeds_of(plan.output))]
    if not overwrite and any((run / RUN).is_file() and not (run / METRICS).is_file() for run in begun):
        again = shlex.join(["chronospike", "train", "--resume", "-o", str(plan.output)])
        raise InputError(
            f"{plan.output} exists and has not finished. Resume it with: {again}. "
            "Or choose another name, or pass --overwrite"
        )
    check_target(plan.output, overwrite=overwrite, marker=_marker(plan.output), in_place=True)
    for run, _ in plan.runs:
        if run.path != plan.output:
            check_target(run.path, overwrite=overwrite, marker=CONFIG, in_place=True)


def begin(plan: Plan, graph: DynamicGraph, split: Split, overwrite: bool) -> None:
    """Start all the runs, so that each can be resumed; what they replace goes."""
    marker, earlier = _marker(plan.output), seeds_of(plan.output)
    if plan.is_several:
        RunFolder(plan.output).remove()
        write_seeds(plan, {})
    for run, learner in plan.runs:
        told_by = CONFIG if plan.is_several else marker
        run.begin(learner.name, learner.settings, plan.facts, graph, split, overwrite, told_by)
    begun = {run.path for run, _ in plan.runs}
    for seed in earlier:
        if folder_of(plan.output, seed) not in begun:
            RunFolder(folder_of(plan.output, seed)).remove()
    if not plan.is_several:
        (plan.output / SEEDS).unlink(missing_ok=True)


def write_seeds(plan: Plan, metrics: Mapping[int, dict[str, Any]]) -> dict[str, Any]:
    """Write `seeds.json` with the scores of the seeds that have finished, and return its contents."""
    content = summary({one.settings.seed: metrics.get(one.settings.seed) for _, one in plan.runs})
    write_json(plan.output / SEEDS, content)
    return content


def print_seeds(content: dict[str, Any], title: str) -> None:
    """The test scores of each seed of the method called `title`, then mean ± standard deviation."""
    rows = [("", "Macro-F1       Micro-F1")]
    for run in content["runs"]:
        rows.append(
            (f"seed {run['seed']}", f"{100 * run['test']['macro_f1']:<15.2f}{100 * run['test']['micro_f1']:.2f}")
        )
    names = {"test": title, "smoothed": "with --smooth"}
    for part, found in (content["summary"] or {}).items():
        row = "".join(
            f"{100 * found[score]['mean']:.2f} ± {100 * found[score]['std']:.2f}".ljust(15)
            for score in ("macro_f1", "micro_f1")
        )
        note = "(training labels used at test time)" if part == "smoothed" else ""
        rows.append((names.get(part, part), f"{row}{note}".rstrip()))
    print_table(rows)
    say(f"mean ± standard deviation (n - 1) of {len(content['runs'])} seeds, test nodes, percent")


def _marker(output: Path) -> str:
    """The file that tells a folder of ours: that of several runs, or of one."""
    return SEEDS if (output / SEEDS).is_file() else CONFIG
