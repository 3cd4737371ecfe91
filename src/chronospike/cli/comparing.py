"""The output of a running comparison: its progress, the tables so far, and the results."""

from __future__ import annotations

import os
import sys
import time as clock
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from chronospike.cli.common import human_seconds, print_json, progress, say
from chronospike.errors import ChronoSpikeError

if TYPE_CHECKING:
    from chronospike.experiments.cells import Cell
    from chronospike.experiments.comparison import Comparison, Entry

_WIDTH = 21


@dataclass
class Comparing:
    """Runs the cells, says how far it is, and keeps the tables up to date."""

    output: Path
    cells: list[Cell]
    facts: dict[str, Any]
    budget: float | None
    quiet: bool
    results: dict[str, dict[str, Any]] = field(default_factory=dict)
    took: dict[str, list[float]] = field(default_factory=dict)

    def run(self, jobs: int | None) -> Comparison:
        from chronospike.experiments.cells import is_settled, read_result
        from chronospike.experiments.engine import run_cells, share_cpus

        output, budget = self.output, self.budget
        for cell in self.cells:
            if (found := read_result(output, cell)) is not None and is_settled(found, budget):
                self.results[cell.id] = found
        if not self.quiet:
            self._say_what_is_new()
        slots = share_cpus(sorted(os.sched_getaffinity(0)), {cell.method for cell in self.cells}, jobs)
        began = clock.monotonic()
        total = len({cell.id for cell in self.cells})
        with progress("cells", timed=False) as show:

            def on_start(running: Sequence[Cell]) -> None:
                names = ", ".join(_place(cell) for cell in running)
                show(f"{names}{self._left(began)}", len(self.results), total)

            def on_end(cell: Cell, result: Mapping[str, Any], seconds: float) -> None:
                self.results[cell.id] = dict(result)
                self.took.setdefault(cell.method, []).append(seconds)
                self.write()
                if not self.quiet and not sys.stderr.isatty():
                    done = f"{len(self.results)}/{total} {_place(cell)}: {_outcome(result)}, {human_seconds(seconds)}"
                    say(f"{done}{self._left(began)}")

            run_cells(self.cells, output, slots, budget, on_start, on_end)
        return self.write()

    def write(self) -> Comparison:
        """Write the tables and the page of what is done so far."""
        from chronospike.analysis.comparison_page import write_page
        from chronospike.experiments.comparison import summarise
        from chronospike.experiments.tables import write_tables

        rows = [{**self.results.get(cell.id, {}), **cell.facts()} for cell in self.cells]
        provenance = self.facts["summary"].get("provenance") or {}
        comparison = summarise(rows, provenance.get("dataset"))
        write_tables(self.output, rows, comparison, self._titles())
        write_page(self.output, self.facts, rows, comparison)
        return comparison

    def _titles(self) -> dict[str, str]:
        return {one["name"]: one["title"] for one in self.facts["variants"]}

    def _left(self, began: float) -> str:
        from chronospike.experiments.engine import seconds_left

        waiting = {cell.id: cell for cell in self.cells if cell.id not in self.results}
        seconds = seconds_left(list(waiting.values()), self.took, clock.monotonic() - began)
        # A method that is trained takes longer than the simple ones, which come first.
        known = all(cell.method in self.took for cell in waiting.values())
        return f" · {'about' if known else 'more than'} {human_seconds(seconds)} left" if seconds else ""

    def _say_what_is_new(self) -> None:
        ids = {cell.id for cell in self.cells}
        folder = self.output / "cells"
        others = {path.parent.name for path in folder.glob("*/result.json")} - ids
        reused, new = f"{len(self.results)} are already done", f"{len(ids) - len(self.results)} to fit"
        say(f"{len(ids)} cells: {f'{reused}, ' if self.results else ''}{new}")
        if others:
            say(f"{len(others)} earlier results are of other inputs and are kept")

    def finish(self, comparison: Comparison) -> None:
        """Say what came out; it is an error if nothing did."""
        ended = list(self.results.values())
        bad = [one for one in ended if one["status"] != "done"]
        if self.quiet:
            print_json(_as_dict(comparison, ended))
        else:
            _print_comparison(comparison, self._titles())
            for one in bad:
                place = f"{one['variant']}, {100 * one['ratio']:g} %, seed {one['seed']}"
                say(f"{one['status']}: {place}: {one.get('reason')}")
            say(f"wrote {self.output}: index.html, table.md, table.tex, table.csv, results.jsonl")
        if len(bad) == len(ended):
            raise ChronoSpikeError(f"no cell has finished. The first: {bad[0].get('reason')}")


def _place(cell: Cell) -> str:
    return f"{cell.variant} {100 * cell.settings.ratio:g} % seed {cell.settings.seed}"


def _outcome(result: Mapping[str, Any]) -> str:
    if result["status"] != "done":
        return f"{result['status']} ({result.get('reason')})"
    return f"Macro-F1 {100 * result['macro_f1']:.2f}, Micro-F1 {100 * result['micro_f1']:.2f}"


def _print_comparison(comparison: Comparison, titles: Mapping[str, str]) -> None:
    """A table for each metric; the best bold and the second underlined where the terminal can."""
    from chronospike.experiments.comparison import METRICS, in_words, order_in_words
    from chronospike.experiments.tables import place

    width = max(len("  place (paper)"), *(len(titles[name]) for name in comparison.variants))
    for metric, title in METRICS.items():
        heads = (f"{100 * ratio:g} %".rjust(_WIDTH) for ratio in comparison.ratios)
        say(f"{title:<{width}}  {'  '.join(heads)}")
        for name in comparison.variants:
            entries = [comparison.entries[name, ratio, metric] for ratio in comparison.ratios]
            say(f"{titles[name]:<{width}}  {'  '.join(_styled(one) for one in entries)}")
            if any(one.paper is not None for one in entries):
                say(f"{'  the paper':<{width}}  {'  '.join(_beside_the_paper(one) for one in entries)}")
            places = [place(comparison, name, metric, ratio) for ratio in comparison.ratios]
            if any(places):
                say(f"{'  place (paper)':<{width}}  {'  '.join(one.rjust(_WIDTH) for one in places)}")
    say("test nodes, percent, mean ± standard deviation (n - 1) over seeds")
    for sentence in [*order_in_words(comparison.orders), *in_words(comparison.tests, titles)]:
        say(sentence)


def _styled(entry: Entry) -> str:
    from chronospike.experiments.tables import missing, shown

    text, rest = shown(entry), missing(entry)
    return (
        " " * (_WIDTH - len(text + rest))
        + typer.style(text, bold=entry.rank == "best", underline=entry.rank == "second")
        + rest
    )


def _beside_the_paper(entry: Entry) -> str:
    gap = "–" if entry.difference is None else f"{100 * entry.difference:+.2f}"
    return f"{gap} to {'–' if entry.paper is None else f'{100 * entry.paper:.2f}'}".rjust(_WIDTH)


def _as_dict(comparison: Comparison, ended: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    entries = [
        {"variant": variant, "ratio": ratio, "metric": metric, "mean": entry.mean, "std": entry.deviation,
         "runs": len(entry.scores), "rank": entry.rank, "paper": entry.paper}
        for (variant, ratio, metric), entry in comparison.entries.items()
    ]  # fmt: skip
    tests = [
        {"metric": one.metric, "ratio": one.ratio, "best": one.best, "second": one.second, "n": one.n, "p": one.p}
        for one in comparison.tests
    ]
    statuses = [one["status"] for one in ended]
    counts = {status: statuses.count(status) for status in ("done", "time", "failed")}
    return {
        "cells": counts,
        "entries": entries,
        "tests": tests,
        "costs": [asdict(one) for one in comparison.costs],
        "orders": [asdict(one) for one in comparison.orders],
    }
