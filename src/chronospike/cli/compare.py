"""`chronospike compare`: compare methods on one graph under the same conditions."""

from __future__ import annotations

import shlex
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from chronospike.cli.common import kept_work, print_json, print_table, resumable, say, tell
from chronospike.cli.options import AsJson, Assignments, Device, Preset, seconds_of
from chronospike.errors import InputError

if TYPE_CHECKING:
    from chronospike.experiments.cells import Cell, Fit, Variant

COMPARISON = "comparison.json"


def compare(
    graph: Annotated[str | None, typer.Argument(help="A graph folder or a dataset's name.")] = None,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="The folder for results and tables.")] = None,
    methods: Annotated[
        str | None,
        typer.Option(
            metavar="all|A,B,…",
            help="Methods to compare; see --list. Default: the simple methods and chronospike, or those of --grid.",
        ),
    ] = None,
    ratios: Annotated[
        str, typer.Option(metavar="R,R,…", help="Shares of labelled nodes for training and validation.")
    ] = ("0.4,0.6,0.8"),
    runs: Annotated[int, typer.Option(min=1, help="Number of seeds for each method and ratio.")] = 5,
    grid: Annotated[
        Path | None,
        typer.Option(metavar="FILE.yaml", help="Variants by name, each with a 'method' and optional 'settings'."),
    ] = None,
    preset: Preset = None,
    assignments: Assignments = None,
    budget: Annotated[str | None, typer.Option(metavar="TIME", help="Time limit for each cell: 90s, 15m, 2h.")] = None,
    jobs: Annotated[
        int | None,
        typer.Option(min=1, help="Cells to run in parallel. Default: several for simple methods, one for all others."),
    ] = None,
    device: Device = "auto",
    seed: Annotated[int, typer.Option(min=0, help="The first seed.")] = 0,
    root: Annotated[Path | None, typer.Option(help="Folder with downloaded dataset files.")] = None,
    list_: Annotated[bool, typer.Option("--list", help="List the methods and exit.")] = False,
    as_json: AsJson = False,
) -> None:
    """Compare methods on a graph; write tables and a page.

    Each combination of method, ratio and seed is a cell. Run the same command again to resume; finished cells are not
    fitted again.
    """
    if list_:
        from chronospike.methods.registry import METHODS, learner_type

        summaries = {name: learner_type(name).summary for name in METHODS}
        print_json(summaries) if as_json else print_table(list(summaries.items()))
        return
    if graph is None or output is None:
        raise InputError(
            "which graph, and which output folder? For example: chronospike compare pubmed -o comparisons/pubmed"
        )
    limit = seconds_of(budget)
    fits, facts = _planned(graph, methods, grid, ratios, runs, seed, preset, assignments)
    from chronospike.files import check_target, write_json

    # Refuse a folder that holds something else than a comparison: before any work, and again once it is ours.
    check_output = partial(check_target, output, overwrite=True, marker=COMPARISON, in_place=True)
    check_output()
    from chronospike.cli.comparing import Comparing
    from chronospike.cli.graphs import graph_folder
    from chronospike.locks import claim

    folder = graph_folder(graph, root, quiet=as_json)
    advice = "Finished cells are kept. Run the same command again to resume"
    with claim(output, tell=tell), resumable(advice):
        check_output()
        cells, found = _prepared(fits, folder, device, as_json)
        facts |= {"budget": limit, **found}
        write_json(output / COMPARISON, facts)
        if methods is None and grid is None and not as_json:
            say("simple methods and chronospike only; --methods all adds the paper's other methods, which are slower")
        comparing = Comparing(output, cells, facts, limit, as_json)
        with kept_work(advice):
            comparison = comparing.run(jobs)
        comparing.finish(comparison)


def _planned(
    graph: str,
    methods: str | None,
    grid: Path | None,
    ratios: str,
    runs: int,
    seed: int,
    preset: str | None,
    assignments: list[str] | None,
) -> tuple[list[Fit], dict[str, Any]]:
    """What to fit, and what the tables and the page say of it, checked as far as that can be without the graph."""
    from chronospike.config import parse_assignments, preset_names
    from chronospike.errors import nearest
    from chronospike.experiments.cells import AXES, Variant, make_grid, read_variants
    from chronospike.methods.registry import COMPARED, METHODS, owned_preset

    named = {None: COMPARED if grid is None else (), "all": tuple(METHODS)}
    names = list(named[methods]) if methods in named else _listed(methods or "", "--methods")
    variants = [Variant(name, name) for name in names] + (read_variants(grid) if grid is not None else [])
    for one in variants:
        if one.method not in METHODS:
            raise InputError(f"there is no method '{one.method}'.{nearest(one.method, METHODS)} See --list")
    twice = {one.name for one in variants if [other.name for other in variants].count(one.name) > 1}
    if twice or not variants:
        raise InputError(f"'{min(twice)}' is given twice: give each row a name" if twice else "--methods is empty")
    shares = [_ratio(text) for text in _listed(ratios, "--ratios")]
    if not shares:
        raise InputError("--ratios is empty")
    given = parse_assignments(assignments or [])
    for name in AXES:
        if name in given:
            raise InputError(
                f"--set {name}=… would be the same for all cells. Use --{'ratios' if name == 'ratio' else 'seed'}"
            )
    chosen = preset or (graph if graph in preset_names() else "default")
    fits = make_grid(variants, list(dict.fromkeys(shares)), range(seed, seed + runs), owned_preset(chosen), given)
    rows = [_described(variant, fits) for variant in variants]
    return fits, {"graph": graph, "preset": chosen, "set": given, "variants": rows}


def _listed(text: str, option: str) -> list[str]:
    parts = [part.strip() for part in text.split(",")] if text else []
    if "" in parts:
        raise InputError(f"{option} {text}: a name is missing between two commas")
    return list(dict.fromkeys(parts))


def _ratio(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1:
        raise InputError(f"--ratios: '{text}' is not a number between 0 and 1, such as 0.8")
    return value


def _prepared(fits: list[Fit], folder: Path, device: str, quiet: bool) -> tuple[list[Cell], dict[str, Any]]:
    """The cells, with features made for those that need some, and what the tables and the page say of the data."""
    from chronospike.cli.train import prepare_features
    from chronospike.data.feature_store import list_features
    from chronospike.data.storage import data_key, open_graph
    from chronospike.device import choose_device
    from chronospike.experiments.cells import Cell
    from chronospike.methods.registry import learner_type
    from chronospike.training.hardware import machine, versions
    from chronospike.training.task import split_for

    place = choose_device(device)
    graph = open_graph(folder, features="none").require(steps=1, classes=2)
    for settings in {one.ratio: one for _, one in fits}.values():
        split_for(graph, settings)
    key = data_key(folder)
    made: dict[str, str] = {}
    cells = []
    for variant, settings in fits:
        cell = Cell(variant.name, variant.method, settings, folder, key, str(place))
        if not learner_type(variant.method).needs_features:
            cells.append(cell)
            continue
        wanted = str({name: value for name, value in settings if name.startswith("feature")})
        if wanted not in made:
            made[wanted] = prepare_features(folder, settings, str(place), quiet)
            # Here the sums of the features are checked, once for all cells.
            open_graph(folder, features=made[wanted]).require(features=True)
        parts = made[wanted].split("+")
        recipes = tuple(one.recipe for one in list_features(folder) if one.name in parts)
        cells.append(replace(cell, features=made[wanted], recipes=recipes))
    return cells, {
        "name": folder.name,
        "folder": str(folder.absolute()),
        "data": key,
        "summary": graph.summary(),
        "features": sorted(set(made.values())),
        "command": shlex.join(["chronospike", *sys.argv[1:]]),
        "device": str(place),
        "machine": machine(place),
        "versions": versions(),
    }


def _described(variant: Variant, fits: list[Fit]) -> dict[str, Any]:
    """A row of the tables: its name for readers, its settings, and which of them are not the defaults."""
    from chronospike.experiments.cells import AXES
    from chronospike.methods.registry import learner_type

    kind = learner_type(variant.method)
    first = next(settings for one, settings in fits if one.name == variant.name)
    defaults = kind.settings_type().model_dump(mode="json")
    resolved = {name: value for name, value in first.model_dump(mode="json").items() if name not in AXES}
    return {
        "name": variant.name,
        "method": variant.method,
        "title": kind.title if variant.name == variant.method else variant.name,
        "settings": dict(variant.settings),
        "resolved": resolved,
        "changed": [name for name, value in resolved.items() if value != defaults[name]],
    }
