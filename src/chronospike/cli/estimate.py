"""`chronospike train --dry-run`: what a run would do and need."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from chronospike.cli.common import human_bytes, print_json, print_table
from chronospike.config import Settings


def report_estimate(graph: str, root: Path | None, settings: Settings, device: str, as_json: bool) -> None:
    """Print parameters, batches, steps and the estimated peak memory; nothing is trained or written."""
    from chronospike.cli.graphs import graph_folder
    from chronospike.data.storage import open_graph
    from chronospike.training.device import choose_device
    from chronospike.training.estimate import estimate

    data = open_graph(graph_folder(graph, root, quiet=as_json), features="none")
    own = open_graph(graph_folder(graph, root, quiet=as_json)).num_features if settings.features != "auto" else 0
    found: dict[str, Any] = estimate(data, settings, own or settings.feature_dimension)
    found["device"] = str(choose_device(device))
    if as_json:
        print_json(found)
        return
    print_table(
        [
            ("parameters", f"{found['parameters']:,}"),
            ("batches", f"{found['batches']} of {settings.batch_size} nodes an epoch, up to {settings.epochs} epochs"),
            ("steps", f"{found['steps']}, {found['tree_nodes']:,} sampled nodes a batch and step"),
            ("split", f"train {found['train']:,}, validation {found['validation']:,}, test {found['test']:,}"),
            ("memory, CPU", f"about {human_bytes(found['peak_cpu_bytes'])} at the peak"),
            ("memory, GPU", f"about {human_bytes(found['peak_gpu_bytes'])} at the peak"),
        ]
    )
