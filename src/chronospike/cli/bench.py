"""`chronospike bench`: speed of training and inference on this machine, and its distance from the hardware limit."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from chronospike.cli.common import human_bytes, human_count, print_json, print_plan, print_table, say
from chronospike.cli.options import PRESET_METAVAR, PRESETS, AsJson, Assignments, Device
from chronospike.errors import InputError, nearest

if TYPE_CHECKING:
    from chronospike.data.graph import DynamicGraph

# How many of a benchmark's times make a step.
_MERGE = {"dblp": 1, "tmall": 10, "patent": 2}


def bench(
    like: Annotated[
        str,
        typer.Option(
            metavar="|".join([*_MERGE, "FOLDER"]), help="Use a synthetic graph of this size, or a graph folder."
        ),
    ] = "dblp",
    preset: Annotated[str, typer.Option(metavar=PRESET_METAVAR, help=f"{PRESETS} or a file.")] = "paper",
    assignments: Assignments = None,
    device: Device = "auto",
    epochs: Annotated[int, typer.Option(min=1, help="Epochs to time; the median is reported.")] = 5,
    seed: Annotated[int, typer.Option(min=0, help="Random seed of the graph, the features and the training.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Measure training and inference on this machine.

    Seconds per epoch and per inference pass, memory, and every stage next to its lower bound on this machine.
    """
    from chronospike.config import make_settings, parse_assignments, read_preset
    from chronospike.methods.chronospike.settings import ChronoSpikeSettings

    values = {**read_preset(preset), "seed": seed, **parse_assignments(assignments or [])}
    settings = make_settings(ChronoSpikeSettings, values)
    if like not in _MERGE and not Path(like).is_dir():
        raise InputError(
            f"--like {like}: not a graph folder and not one of {', '.join(_MERGE)}.{nearest(like, _MERGE)}"
        )
    from chronospike.bench.measure import bench as measure
    from chronospike.device import choose_device, keep_freed_memory

    place = choose_device(device)
    keep_freed_memory()
    say(f"seed {settings.seed}, {like}, preset {preset}, {place}", unless=as_json)
    found = measure(_graph(like, seed), settings, place, epochs, lambda text: say(f"  {text} …", unless=as_json))
    found = {"like": like, "preset": preset, "seed": settings.seed, **found}
    if as_json:
        print_json(found)
        return
    _report(found)


def _graph(like: str, seed: int) -> DynamicGraph:
    if like in _MERGE:
        from chronospike.data.lookalike import like as lookalike

        return lookalike(like, seed=seed, merge=_MERGE[like])
    from chronospike.data.storage import open_graph

    return open_graph(Path(like), features="none")


def _report(found: dict[str, Any]) -> None:
    training, inference, machine = found["training"], found["inference"], found["machine"]
    timed = "" if training["batches_timed"] == training["batches"] else f" (from {training['batches_timed']} batches)"
    graph = found["graph"]
    print_table(
        [
            ("graph", f"{graph['nodes']:,} nodes, {graph['steps']} steps, {graph['train']:,} training nodes"),
            ("device", f"{found['device']}, {found['precision']} precision, {found['settings']['kernels']} kernels"),
            ("machine", f"{human_bytes(machine['bytes_per_second'])}/s copied, "
                        f"{human_count(machine['operations_per_second'])}flop/s multiplied"),
            ("training", f"{training['seconds_per_epoch']:.4g} s an epoch of {training['batches']:,} batches{timed}, "
                         f"{human_count(training['nodes_per_second'])} nodes/s"),
            ("inference", f"{inference['seconds']:.4g} s for all nodes, "
                          f"{human_count(inference['nodes_per_second'])} nodes/s"),
            ("peak memory", human_bytes(found["peak_memory_bytes"])),
            ("floor", f"{found['floor']['seconds_per_epoch']:.4g} s an epoch; "
                      f"training takes {found['floor']['ratio']:.1f} times that"),
        ]
    )  # fmt: skip
    say("kernels")
    print_plan(found["kernels"])
    say("one batch, stage by stage")
    say(f"  {'stage':10}{'time':>12}{'bytes':>12}{'operations':>13}{'floor':>12}{'ratio':>8}")
    for row in found["stages"]:
        ratio = "" if row["ratio"] is None else f"{row['ratio']:.1f}"
        say(
            f"  {row['stage']:10}{1e3 * row['seconds']:>9.3f} ms{human_bytes(row['bytes']):>12}"
            f"{human_count(row['operations']):>13}{1e3 * row['floor_seconds']:>9.3f} ms{ratio:>8}"
        )
