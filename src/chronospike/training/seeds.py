"""One run repeated with several seeds: a folder with a run folder per seed, and `seeds.json`, a summary."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from chronospike.errors import StorageError

SEEDS = "seeds.json"

# What is summed up of a run's metrics: the name in `seeds.json`, and where it stands in `metrics.json`.
_PARTS = {"test": ("test",), "smoothed": ("smoothed",), "label propagation": ("baselines", "label propagation")}
_SCORES = ("macro_f1", "micro_f1")


def folder_of(path: Path, seed: int) -> Path:
    """Where below `path` the run of a seed is."""
    return path / f"seed-{seed}"


def seeds_of(path: Path) -> list[int]:
    """The seeds whose runs `path` holds; none if it is not a folder of several."""
    file = path / SEEDS
    if not file.is_file():
        return []
    try:
        seeds = [run["seed"] for run in json.loads(file.read_text(encoding="utf-8"))["runs"]]
    except (ValueError, KeyError, TypeError) as error:
        raise StorageError(f"{file} is damaged: it does not list the seeds") from error
    # They become folder names, so nothing but a number will do.
    if not seeds or any(type(seed) is not int or seed < 0 for seed in seeds):
        raise StorageError(f"{file} is damaged: it does not list the seeds")
    return seeds


def refuse_several(path: Path) -> None:
    """Say which runs there are where one is needed and `path` holds several."""
    names = [folder_of(path, seed).name for seed in seeds_of(path)]
    if names:
        shown = ", ".join(names) if len(names) <= 6 else f"{', '.join(names[:3])}, …, {names[-1]}"
        raise StorageError(f"{path} holds {len(names)} runs: {shown}. Give one of them, for example {path / names[0]}")


def summary(metrics: Mapping[int, Mapping[str, Any] | None]) -> dict[str, Any]:
    """The contents of `seeds.json`, from the metrics of each seed, None where its run has not finished.

    `summary` gives mean and standard deviation (n - 1) over the seeds of whatever all of them have; it is None until
    all have finished.
    """
    runs: list[dict[str, Any]] = [
        {"seed": seed, "folder": folder_of(Path(), seed).name, **(_scores(found) if found is not None else {})}
        for seed, found in metrics.items()
    ]
    parts = [part for part in _PARTS if all(part in run for run in runs)]
    spread = {
        part: {score: _mean_and_deviation([run[part][score] for run in runs]) for score in _SCORES} for part in parts
    }
    return {"runs": runs, "summary": spread or None}


def _scores(metrics: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {}
    for part, keys in _PARTS.items():
        value: Any = metrics
        for key in keys:
            value = (value or {}).get(key)
        if value:
            found[part] = {score: value[score] for score in _SCORES}
    return found


def _mean_and_deviation(values: Sequence[float]) -> dict[str, float]:
    return {"mean": statistics.fmean(values), "std": statistics.stdev(values) if len(values) > 1 else 0.0}
