"""A small graph folder and cells on it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from chronospike.data.storage import data_key, save_graph
from chronospike.data.synthetic import synthetic_graph
from chronospike.experiments.cells import Cell
from chronospike.methods.registry import settings_for


def graph_folder(folder: Path, **options: Any) -> Path:
    values = {"nodes": 120, "steps": 5, "classes": 2, "structure": 0.9, "timing": 0.0, "feature_dim": 8, **options}
    return save_graph(synthetic_graph(**values), folder)


def cell(graph: Path, method: str, seed: int = 0, variant: str = "", **values: Any) -> Cell:
    settings = settings_for(method, {}, {"ratio": 0.8, "seed": seed, **values})
    return Cell(variant or method, method, settings, graph, data_key(graph), "cpu")


def done(
    variant: str, ratio: float, seed: int, macro: float, micro: float | None = None, **more: Any
) -> dict[str, Any]:
    """The result of a cell that is done."""
    facts = {"id": "", "variant": variant, "method": variant, "ratio": ratio, "seed": seed, "status": "done"}
    return {**facts, "macro_f1": macro, "micro_f1": macro if micro is None else micro, "device": "cpu", **more}
