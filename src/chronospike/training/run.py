"""A run is a folder: what was asked, how it went, and what came out.

config.yaml          every setting
run.json             the graph with fingerprints of its data and of its edges, the feature set, the preset, the command
metrics.jsonl        a line per epoch
checkpoint/          what an interrupted run goes on from
model.safetensors    the weights of the best epoch
metrics.json         scores, beside the majority class and label propagation
predictions.csv      node, class, probability of each class
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
from numpy.typing import NDArray

from chronospike.config import Settings, make_settings, read_settings, write_settings
from chronospike.data.graph import DynamicGraph
from chronospike.data.splits import Split
from chronospike.errors import InputError, StorageError
from chronospike.files import atomic_file, check_target, space_errors, write_json
from chronospike.training.loop import EpochReport

CONFIG, RUN, EPOCHS, METRICS = "config.yaml", "run.json", "metrics.jsonl", "metrics.json"
_FACTS = ("graph", "folder", "name", "features", "preset", "command", "data", "edges")
WEIGHTS, PREDICTIONS = "model.safetensors", "predictions.csv"


@dataclass(frozen=True)
class RunFolder:
    """Paths of a run and the small files in it."""

    path: Path

    @property
    def checkpoint(self) -> Path:
        return self.path / "checkpoint" / "state.safetensors"

    @property
    def refit_checkpoint(self) -> Path:
        """Of the second fit, where `refit` is set."""
        return self.path / "checkpoint" / "refit.safetensors"

    @property
    def weights(self) -> Path:
        return self.path / WEIGHTS

    def settings(self) -> Settings:
        """What the run was asked to do."""
        if not (self.path / CONFIG).is_file():
            what = "is not a run (it has no config.yaml)" if self.path.is_dir() else "does not exist"
            raise StorageError(f"{self.path} {what}. Make one with: chronospike train GRAPH -o {self.path}")
        return make_settings(read_settings(self.path / CONFIG))

    def facts(self, *needed: str) -> dict[str, Any]:
        """The graph, feature set, preset and command, all of them text; those `needed` are there."""
        facts = _read_json(self.path / RUN)
        for name in _FACTS:
            value = facts.get(name)
            if not isinstance(value, str) and (value is not None or name in needed):
                raise StorageError(f"{self.path / RUN} does not say '{name}'. Train the run again")
        return facts

    def metrics(self) -> dict[str, Any]:
        """The scores of a finished run."""
        if not (self.path / METRICS).is_file():
            raise StorageError(f"{self.path} is not finished. Go on with: chronospike train --resume -o {self.path}")
        return _read_json(self.path / METRICS)

    def begin(self, settings: Settings, facts: dict[str, Any], overwrite: bool) -> None:
        """Start a new run; one that is there is refused unless `overwrite`."""
        check_target(self.path, overwrite=overwrite, marker=CONFIG)
        for name in (EPOCHS, METRICS, PREDICTIONS, WEIGHTS, "report.html"):
            (self.path / name).unlink(missing_ok=True)
        self.checkpoint.unlink(missing_ok=True)
        self.refit_checkpoint.unlink(missing_ok=True)
        with atomic_file(self.path / CONFIG) as partial:
            partial.write_text(write_settings(settings), encoding="utf-8")
        write_json(self.path / RUN, facts)

    def require_same(self, wanted: Settings) -> None:
        """Refuse to go on with other settings; name what differs and touch nothing."""
        found, asked = self.settings().model_dump(), wanted.model_dump()
        changed = [f"{name} was {found[name]!r}, now {asked[name]!r}" for name in found if found[name] != asked[name]]
        if changed:
            raise InputError(
                f"{self.path} was started with other settings: {'; '.join(changed)}. "
                "Resume without changing them, or start a new run"
            )

    def write_epochs(self, reports: Iterable[EpochReport]) -> None:
        """Write `metrics.jsonl` anew, all or nothing."""
        with atomic_file(self.path / EPOCHS) as partial:
            partial.write_text("".join(json.dumps(asdict(report)) + "\n" for report in reports), encoding="utf-8")

    def append_epoch(self, report: EpochReport) -> None:
        path = self.path / EPOCHS
        with space_errors(path), path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(report)) + "\n")


def write_predictions(
    path: Path, graph: DynamicGraph, nodes: NDArray[np.integer[Any]], probabilities: NDArray[Any], split: Split | None
) -> None:
    """A CSV with the user's node ids, the predicted class, its probabilities and, if any are known, class and split."""
    names = np.array(graph.class_names, dtype=object)
    columns: dict[str, Any] = {"node": graph.ids.take(nodes)}
    columns["class"] = pa.array(names[probabilities.argmax(axis=1)], type=pa.string())
    for index, name in enumerate(graph.class_names):
        columns[f"probability {name}"] = np.round(probabilities[:, index].astype(np.float64), 6)
    if graph.labels is not None and len(graph.labelled):
        codes = np.asarray(graph.labels)[nodes]
        columns["label"] = pa.array(np.where(codes >= 0, names[codes], None), type=pa.string())
    if split is not None and len(graph.labelled):
        part = np.full(graph.num_nodes, "", dtype=object)
        for name, members in (("train", split.train), ("validation", split.validation), ("test", split.test)):
            part[members] = name
        columns["split"] = pa.array(part[nodes], type=pa.string())
    with atomic_file(path) as partial:
        pyarrow.csv.write_csv(pa.table(columns), partial)


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise StorageError(f"{path} is missing. Train the run again") from error
    except OSError as error:
        raise StorageError(f"{path} cannot be read ({error.strerror})") from error
    except (ValueError, RecursionError) as error:
        raise StorageError(f"{path} cannot be read as JSON ({error})") from error
    if not isinstance(content, dict):
        raise StorageError(f"{path} does not hold an object")
    return content
