"""`chronospike train --dry-run`: what a run would do and need."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from chronospike.cli.common import human_bytes, print_json, print_table, say
from chronospike.errors import InputError

if TYPE_CHECKING:
    import torch

    from chronospike.config import Settings
    from chronospike.data.graph import DynamicGraph
    from chronospike.training.learner import Learner

# What the driver holds on a GPU before torch allocates anything.
_DRIVER_BYTES = 500_000_000


def report_estimate(graph: str, root: Path | None, learner: Learner[Any], device: str, as_json: bool) -> None:
    """Print parameters, batches, steps and the estimated peak memory; nothing is trained or written."""
    from chronospike.device import choose_device
    from chronospike.training.node_features import input_width
    from chronospike.training.task import split_for

    place, settings = choose_device(device), learner.settings
    data, to_make = _open(graph, root, settings, str(place))
    learner.check(data)
    split = split_for(data, settings)
    learner.require_memory(data, to_make, len(split.train), place)
    counts = {"train": len(split.train), "validation": len(split.validation), "test": len(split.test)}
    found = {**counts, **learner.estimate(data, input_width(data) + to_make * settings.feature_dimension)}
    if "parameters" not in found:
        needed = [("memory", f"at least {human_bytes(found['memory_bytes'])}")] if "memory_bytes" in found else []
        print_json({**found, "device": str(place)}) if as_json else print_table([_split_row(found), *needed])
        return
    warning = _shortage(found, learner.memory_advice, place)
    if as_json:
        print_json({**found, "device": str(place), "warning": warning})
        return
    print_table(
        [
            ("parameters", f"{found['parameters']:,}"),
            ("training", f"{_networks(settings.folds)} of up to {settings.epochs} epochs"),
            ("batches", f"{found['batches']} an epoch, of up to {settings.batch_nodes(found['train'])} nodes"),
            ("steps", f"{found['steps']}, {found['tree_nodes']:,} sampled nodes a batch and step"),
            _split_row(found),
            ("memory, CPU", _cpu_memory(found)),
            ("memory, GPU", f"about {human_bytes(found['peak_gpu_bytes'])} at the peak"),
        ]
    )
    if warning:
        say(warning)


def _networks(folds: int) -> str:
    return f"{folds} networks" if folds else "one network"


def _split_row(found: dict[str, Any]) -> tuple[str, str]:
    return "split", f"train {found['train']:,}, validation {found['validation']:,}, test {found['test']:,}"


def _open(graph: str, root: Path | None, settings: Settings, device: str) -> tuple[DynamicGraph, int]:
    """What `open_as_planned` says of a graph folder, or of a dataset that is not imported yet."""
    from chronospike.cli.graphs import dataset_folder, graph_folder
    from chronospike.data.datasets import DATASETS, load_dataset
    from chronospike.features.recipes import METHODS, named_parts, recipe

    is_dataset = graph in DATASETS and not Path(graph).is_dir()
    if not is_dataset or (dataset_folder(graph, root) / "meta.json").is_file():
        return open_as_planned(graph_folder(graph, root, quiet=True), settings, device)
    # A run would import the dataset into the cache first; this leaves no trace.
    data = load_dataset(graph, root=root)
    parts = named_parts(settings, data.features is not None, [])
    made = [part for part in parts if part in (recipe(settings, method)[0] for method in METHODS)]
    if len(made) + ("own" in parts and data.features is not None) < len(parts):
        raise InputError(f"{graph} has no features '{settings.features}': it has not been imported yet")
    return data if "own" in parts else data.with_features(None), len(made)


def open_as_planned(
    folder: Path, settings: Settings, device: str, parts: list[str] | None = None
) -> tuple[DynamicGraph, int]:
    """The graph with those features of a run that are there, and how many sets the run would make first.

    `parts` are the features of a run that was started earlier.
    """
    from chronospike.data.storage import open_graph
    from chronospike.features.recipes import plan_features

    planned = plan_features(folder, settings, device, parts)
    there = [part.name for part in planned if part.options is None]
    return open_graph(folder, features="+".join(there) or "none", verify=False), len(planned) - len(there)


def _cpu_memory(found: dict[str, Any]) -> str:
    text = f"about {human_bytes(found['peak_cpu_bytes'])} at the peak"
    # Below a tenth it is not worth mentioning.
    if 10 * found["mapped_bytes"] < found["peak_cpu_bytes"]:
        return text
    return f"{text}, {human_bytes(found['mapped_bytes'])} of it memory-mapped files"


def _shortage(found: dict[str, Any], lower: str, place: torch.device) -> str | None:
    """One line if the run does not fit where it is going to be, with what to change."""
    import torch

    from chronospike.memory import machine_bytes

    if place.type == "cuda":
        needed = found["peak_gpu_bytes"] + _DRIVER_BYTES
        there = torch.cuda.get_device_properties(place).total_memory
        where, lower = "the GPU", f"{lower}, or run with --device cpu"
    else:
        needed, there = found["peak_cpu_bytes"] - found["mapped_bytes"], machine_bytes()
        where = "this machine"
    if needed <= there:
        return None
    return f"this run needs about {human_bytes(needed)}, and {where} has {human_bytes(there)}. {lower}"
