"""A cell is one fit: a method, its settings, a share of the labels and a seed. A grid is a list of cells.

A comparison is a grid over methods; an ablation or a sweep is one over settings. Each cell has a folder of its own,
whose name tells what the result depends on: a cell whose inputs change is another cell.

cell.json      what to fit
log.txt        what the process printed
run/           checkpoints of a method that keeps some, until it is done
result.json    how it ended: "done", "time" or "failed", with scores or the reason

Embeddings that are learned without labels are the same for every share of the labels: the cells of one seed learn them
once, in a folder of `embeddings/` beside `cells/`, which is there until the last of these cells is done.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from chronospike.config import Settings, read_settings
from chronospike.errors import InputError, StorageError, nearest
from chronospike.files import read_json
from chronospike.methods.registry import METHODS, learner_type, settings_for

CELLS, SPEC, LOG, RUN, RESULT = "cells", "cell.json", "log.txt", "run", "result.json"
EMBEDDINGS = "embeddings"
# What only says which labels are known.
_OF_LABELS = ("ratio", "validation", "split_seed", "split_order")
# What varies from cell to cell of a variant.
AXES = ("ratio", "seed")


@dataclass(frozen=True)
class Variant:
    """A method, perhaps with settings of its own: a row of the tables."""

    name: str
    method: str
    settings: Mapping[str, Any] = field(default_factory=dict)


Fit = tuple[Variant, Settings]


@dataclass(frozen=True)
class Cell:
    """One fit.

    Attributes:
        variant: the name of the row it belongs to.
        settings: all of them, ratio and seed included.
        graph: its folder.
        data: fingerprint of the graph's data.
        device: `cpu`, `cuda` or `cuda:N`.
        features: those to open, as `open_graph` takes them; None for a method that reads none.
        recipes: how these were made.
    """

    variant: str
    method: str
    settings: Settings
    graph: Path
    data: str
    device: str
    features: str | None = None
    recipes: tuple[Mapping[str, Any], ...] = ()

    @cached_property
    def id(self) -> str:
        """A name for its folder: the same for the same inputs, whatever the variant is called."""
        return f"{self.method}-{self.settings.ratio:g}-{self.settings.seed}-{self._key()}"

    @cached_property
    def embeddings(self) -> str | None:
        """A name for the embeddings that it shares with other cells; None for a method that learns from labels."""
        if learner_type(self.method).learns_from_labels:
            return None
        return f"{self.method}-{self.settings.seed}-{self._key(_OF_LABELS)}"

    def _key(self, without: Sequence[str] = ()) -> str:
        """The same for the same inputs, the settings `without` left out."""
        values = self.settings.model_dump(mode="json")
        # Said by `features` and `recipes`, and of no concern to a method without features.
        left_out = {name for name in values if name == "features" or name.startswith("feature_")}
        left_out |= {"standardise_over"} if self.features is None else set()
        left_out.update(without)
        inputs = {
            "method": self.method,
            "settings": {name: value for name, value in values.items() if name not in left_out},
            "data": self.data,
            "features": self.features,
            "recipes": list(self.recipes),
            "device": self.device.partition(":")[0],
        }
        return hashlib.sha256(json.dumps(inputs, sort_keys=True, default=str).encode()).hexdigest()[:12]

    def spec(self) -> dict[str, Any]:
        """What the cell's process has to know, ready for JSON."""
        return {
            "variant": self.variant,
            "method": self.method,
            "learner": METHODS[self.method],
            "settings": self.settings.model_dump(mode="json"),
            "graph": str(self.graph.absolute()),
            "features": self.features,
            "device": self.device,
            "embeddings": self.embeddings,
        }

    def facts(self) -> dict[str, Any]:
        """What a line of results says of it before anything about the fit."""
        return {
            "id": self.id,
            "variant": self.variant,
            "method": self.method,
            "ratio": self.settings.ratio,
            "seed": self.settings.seed,
        }


def make_grid(
    variants: Sequence[Variant],
    ratios: Sequence[float],
    seeds: Sequence[int],
    preset: Mapping[str, Any],
    given: Mapping[str, Any],
) -> list[Fit]:
    """The settings of every fit, checked; seed by seed, so that an unfinished grid has all methods.

    Args:
        preset: settings for those methods that have them.
        given: the same, but one that no method has is an error.
    """
    fields = {one.name: learner_type(one.method).settings_type.model_fields for one in variants}
    for name in given:
        if not any(name in known for known in fields.values()):
            raise InputError(f"there is no setting '{name}'.{nearest(name, set().union(*fields.values()))}")
    grid = []
    for seed in seeds:
        for ratio in ratios:
            for one in variants:
                own = {name: value for name, value in given.items() if name in fields[one.name]}
                values = {**own, **one.settings, "ratio": ratio, "seed": seed}
                try:
                    grid.append((one, settings_for(one.method, preset, values)))
                except InputError as error:
                    raise InputError(f"'{one.name}': {error}" if one.settings else str(error)) from None
    return grid


def read_variants(path: Path) -> list[Variant]:
    """The variants of a YAML file: a name each, with a `method` and perhaps `settings`."""
    variants = []
    for name, content in read_settings(path).items():
        if not isinstance(content, dict) or not isinstance(content.get("method"), str):
            raise InputError(f"{path}: '{name}' needs a method, as in: {name}: {{method: chronospike, settings: {{}}}}")
        settings = content.get("settings") or {}
        unknown = [key for key in content if key not in ("method", "settings")]
        if unknown or not isinstance(settings, dict):
            raise InputError(f"{path}: '{name}' may have 'method' and 'settings' (names and values), nothing else")
        if settings and name in METHODS:
            raise InputError(f"{path}: '{name}' is the name of a method. Give this variant another name")
        axes = [key for key in AXES if key in settings]
        if axes:
            raise InputError(
                f"{path}: '{name}' sets {axes[0]}, which varies over the grid: give it on the command line"
            )
        variants.append(Variant(name, content["method"], {str(key): value for key, value in settings.items()}))
    if not variants:
        raise InputError(f"{path} contains no variants")
    return variants


def folder_of(output: Path, cell: Cell) -> Path:
    return output / CELLS / cell.id


def read_result(output: Path, cell: Cell) -> dict[str, Any] | None:
    """How the cell ended, with the names of this grid; None if it has not."""
    path = folder_of(output, cell) / RESULT
    if not path.is_file():
        return None
    try:
        return {**read_json(path), **cell.facts()}
    except StorageError:
        # Not written by us, since that is all or nothing; the cell is fitted again.
        return None


def is_settled(result: Mapping[str, Any] | None, budget: float | None) -> bool:
    """Whether there is no need to fit the cell again: it is done, or ran out of a budget that was no smaller."""
    if result is None:
        return False
    if result.get("status") == "time":
        return budget is not None and budget <= result.get("budget", 0)
    return result.get("status") == "done"
