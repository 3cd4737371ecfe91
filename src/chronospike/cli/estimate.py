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

# What the driver holds on a GPU before torch allocates anything.
_DRIVER_BYTES = 500_000_000


def report_estimate(graph: str, root: Path | None, settings: Settings, device: str, as_json: bool) -> None:
    """Print parameters, batches, steps and the estimated peak memory; nothing is trained or written."""
    from chronospike.training.device import choose_device
    from chronospike.training.estimate import estimate
    from chronospike.training.memory import require_memory
    from chronospike.training.problem import split_for

    place = choose_device(device)
    data = _open(graph, root, settings).require(steps=1 if settings.static else 2, classes=2)
    require_memory(data, settings, len(split_for(data, settings).train), place)
    found: dict[str, Any] = dict(estimate(data, settings, data.num_features or settings.feature_dimension))
    warning = _shortage(found, settings, place)
    if as_json:
        print_json({**found, "device": str(place), "warning": warning})
        return
    print_table(
        [
            ("parameters", f"{found['parameters']:,}"),
            (
                "batches",
                f"{found['batches']} an epoch, of up to {settings.batch_size} nodes, up to {settings.epochs} epochs",
            ),
            ("steps", f"{found['steps']}, {found['tree_nodes']:,} sampled nodes a batch and step"),
            ("split", f"train {found['train']:,}, validation {found['validation']:,}, test {found['test']:,}"),
            ("memory, CPU", _cpu_memory(found)),
            ("memory, GPU", f"about {human_bytes(found['peak_gpu_bytes'])} at the peak"),
        ]
    )
    if warning:
        say(warning)


def _open(graph: str, root: Path | None, settings: Settings) -> DynamicGraph:
    """The graph folder as planned, or a dataset that is not imported yet."""
    from chronospike.cli.graphs import dataset_folder, graph_folder
    from chronospike.data.datasets import DATASETS, load_dataset

    is_dataset = graph in DATASETS and not Path(graph).is_dir()
    if is_dataset and not (dataset_folder(graph, root) / "meta.json").is_file():
        # A run would import the dataset into the cache first; this leaves no trace.
        data = load_dataset(graph, root=root)
        if settings.features == "auto" or (settings.features == "own" and data.features is not None):
            return data
        raise InputError(f"{graph} has no features '{settings.features}': it has not been imported yet")
    return open_as_planned(graph_folder(graph, root, quiet=True), settings)


def open_as_planned(folder: Path, settings: Settings) -> DynamicGraph:
    """The graph with the features that a run would use, or without any if the run would make them first."""
    from chronospike.data.storage import feature_sets, open_graph, read_meta
    from chronospike.features.recipes import recipe

    name = settings.features
    if name == "auto":
        made = recipe(settings)[0]
        name = "own" if "features" in read_meta(folder)["arrays"] else made if made in feature_sets(folder) else "none"
    return open_graph(folder, features=name, verify=False)


def _cpu_memory(found: dict[str, Any]) -> str:
    text = f"about {human_bytes(found['peak_cpu_bytes'])} at the peak"
    # Below a tenth it is not worth a word.
    if 10 * found["mapped_bytes"] < found["peak_cpu_bytes"]:
        return text
    return f"{text}, {human_bytes(found['mapped_bytes'])} of it files that the system may drop"


def _shortage(found: dict[str, Any], settings: Settings, place: torch.device) -> str | None:
    """One line if the run does not fit where it is going to be, with what to change."""
    import torch

    from chronospike.training.estimate import machine_bytes

    lower = f"Lower batch_size (now {settings.batch_size}) or fanouts (now {list(settings.fanouts)})"
    if place.type == "cuda":
        needed = found["peak_gpu_bytes"] + _DRIVER_BYTES
        there = torch.cuda.get_device_properties(place).total_memory
        where, lower = "the GPU", f"{lower}, set precision=half, or run with --device cpu"
    else:
        needed, there = found["peak_cpu_bytes"] - found["mapped_bytes"], machine_bytes()
        where = "this machine"
    if needed <= there:
        return None
    return f"this run needs about {human_bytes(needed)}, and {where} has {human_bytes(there)}. {lower}"
