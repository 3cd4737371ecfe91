"""`chronospike leaderboard`: the scores of each part of a run and of the simple methods."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from chronospike.cli.common import print_json, say
from chronospike.cli.options import AsJson

if TYPE_CHECKING:
    from chronospike.analysis.parts import Row
    from chronospike.analysis.run_files import MethodScores

_WIDTH = 20


def leaderboard(run: Annotated[Path, typer.Argument(help="A run folder.")], as_json: AsJson = False) -> None:
    """Show the scores of each part of a run.

    Parts are listed first, then simple methods, both sorted by held-out Micro-F1. Predictions are made by the part with
    a *.
    """
    from chronospike.analysis.findings import expectation, unpredictable
    from chronospike.analysis.parts import about_scores, best_first, part_rows, simple_rows
    from chronospike.analysis.run_files import read_run
    from chronospike.analysis.wording import GAP, visible

    found = read_run(run)
    parts, simple = best_first(part_rows(found.metrics)), best_first(simple_rows(found.metrics))
    if as_json:
        print_json([_as_dict(row) for row in (*parts, *simple)])
        return
    seed = "" if found.metrics.seed is None else f", seed {found.metrics.seed}"
    nodes = "" if found.metrics.test_nodes is None else f", {found.metrics.test_nodes:,} test nodes"
    say(f"{visible(found.name)}{seed}{nodes}")
    measures = f"{'Macro-F1':>9} {'Micro-F1':>9}"
    rows = [
        ("", f"{'held-out':^{_WIDTH}} {'test':^{_WIDTH}}"),
        ("", f"{measures}  {measures}"),
        *((_named(row), f"{_pair(row.held_out)}  {_pair(row.test)}") for row in parts),
        *([("simple methods", "")] if simple else []),
        *((_named(row), f"{_pair(row.held_out)}  {_pair(row.test)}") for row in simple),
    ]
    width = max(len(name) for name, _ in rows)
    for name, scores in rows:
        say(f"{name:<{width}}  {scores}".rstrip())
    for text in (about_scores([*parts, *simple]), expectation(found.metrics), unpredictable(found.metrics)):
        if text:
            say(text.replace(GAP, " "))


def _named(row: Row) -> str:
    from chronospike.analysis.parts import shown

    return f"{'*' if row.chosen else ' '} {shown(row)}"


def _pair(scores: MethodScores | None) -> str:
    """Macro-F1 and Micro-F1 in percent, as wide as the heading above them."""
    if scores is None:
        return f"{'-':>9} {'-':>9}"
    return f"{100 * scores.macro_f1:9.2f} {100 * scores.micro_f1:9.2f}"


def _as_dict(row: Row) -> dict[str, Any]:
    def both(scores: MethodScores | None) -> dict[str, float] | None:
        return None if scores is None else {"macro_f1": scores.macro_f1, "micro_f1": scores.micro_f1}

    return {
        "name": row.name,
        "title": row.title,
        "kind": "simple method" if row.is_simple else "part",
        "chosen": row.chosen,
        "on": row.on,
        "held_out": both(row.held_out),
        "test": both(row.test),
    }
