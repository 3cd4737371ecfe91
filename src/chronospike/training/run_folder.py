"""The folder of a run: settings, log and results.

config.yaml          the method and every setting
run.json             the graph with fingerprints of its data and of its edges, the feature set, the preset, the command,
                     the classes and how the split was made
labels.parquet       the labels and the split it was trained with, by node id
attributes.json      how the nodes' own attributes become inputs, by column name
metrics.jsonl        a line per epoch
checkpoint/          what an interrupted run resumes from
model.safetensors    the weights of the best epoch, of a method that has any; of all networks, where there are several
final_stage.safetensors  the temperature and the second stage that follow the network, where there are any
label_features.safetensors  what known labels say of every node, to be read again where graph and labels are the same
out_of_fold.parquet  with folds: the out-of-fold predictions of the labelled nodes
soft_targets.parquet  of a distilled run: the probabilities that it learns
metrics.json         scores, beside those of simple methods
predictions.csv      node, class, probability of each class
"""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chronospike.config import Kind, Settings, make_settings, read_settings, write_settings
from chronospike.errors import InputError, StorageError
from chronospike.files import atomic_file, check_target, read_json, space_errors, write_json
from chronospike.training.seeds import refuse_several

if TYPE_CHECKING:
    # Only for types: the command line reads a run's settings before anything heavy is imported.
    from chronospike.data.attributes import AttributeEncoder
    from chronospike.data.graph import DynamicGraph
    from chronospike.data.splits import Split
    from chronospike.training.loop import EpochReport

CONFIG, RUN, EPOCHS, METRICS = "config.yaml", "run.json", "metrics.jsonl", "metrics.json"
PREDICTIONS, LABELS, ATTRIBUTES = "predictions.csv", "labels.parquet", "attributes.json"
# What may change when a run is resumed: how long it trains, and nothing that decides what is learned.
MAY_CHANGE = ("epochs", "patience")
_FACTS = ("graph", "folder", "name", "features", "preset", "command", "data", "edges", "step_rule", "teacher")


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

    def fold_checkpoint(self, fold: int) -> Path:
        """Of one network of several: see `chronospike.training.bagging`."""
        return self.path / "checkpoint" / f"fold-{fold}.safetensors"

    @property
    def weights(self) -> Path:
        return self.path / "model.safetensors"

    @property
    def final_stage(self) -> Path:
        """What follows the network: a temperature, perhaps a second stage."""
        return self.path / "final_stage.safetensors"

    @property
    def label_features(self) -> Path:
        """What known labels say of every node of the run's own graph."""
        return self.path / "label_features.safetensors"

    @property
    def out_of_fold(self) -> Path:
        """Of the labelled nodes, where there are folds: what networks say of them that have not learned from them."""
        return self.path / "out_of_fold.parquet"

    @property
    def soft_targets(self) -> Path:
        """Of a distilled run: what it learns instead of labels."""
        return self.path / "soft_targets.parquet"

    @property
    def teacher(self) -> str | None:
        """The run that this one was distilled from, if any."""
        found: str | None = self.facts().get("teacher")
        return found

    @property
    def method(self) -> str:
        """The name of the method."""
        return str(self._config().get("method", "chronospike"))

    def settings(self, kind: type[Kind]) -> Kind:
        """What the run was asked to do, as settings of its method."""
        return make_settings(kind, {name: value for name, value in self._config().items() if name != "method"})

    def _config(self) -> dict[str, Any]:
        if not (self.path / CONFIG).is_file():
            refuse_several(self.path)
            what = "is not a run (it has no config.yaml)" if self.path.is_dir() else "does not exist"
            raise StorageError(f"{self.path} {what}. Make one with: chronospike train GRAPH -o {self.path}")
        found = read_settings(self.path / CONFIG)
        if not found:
            # Else it would go on with the defaults.
            raise StorageError(f"{self.path / CONFIG} is empty. Use another copy, or train the run again")
        return found

    def facts(self, *needed: str) -> dict[str, Any]:
        """The graph, feature set, preset and command, all of them text; those `needed` are there."""
        facts = read_json(self.path / RUN)
        for name in _FACTS:
            value = facts.get(name)
            if not isinstance(value, str) and (value is not None or name in needed):
                raise StorageError(f"{self.path / RUN} does not say '{name}'. Train the run again")
        methods = facts.setdefault("feature_methods", [])
        if not isinstance(methods, list) or not isinstance(facts.setdefault("split", {}), dict):
            raise StorageError(f"{self.path / RUN} is damaged. Train the run again")
        return facts

    def metrics(self) -> dict[str, Any]:
        """The scores of a finished run."""
        if not (self.path / METRICS).is_file():
            raise StorageError(
                f"{self.path} is not finished. Unless it still runs, resume with: "
                f"chronospike train --resume -o {self.path}"
            )
        return read_json(self.path / METRICS)

    def known_labels(self, graph: DynamicGraph) -> tuple[DynamicGraph, Split]:
        """`graph` with the labels and the split that the run was started with; new labelled nodes are test nodes."""
        from chronospike.training.known_labels import KnownLabels

        facts = self.facts()
        classes = facts.get("classes")
        if not isinstance(classes, list) or not all(isinstance(name, str) for name in classes):
            raise StorageError(f"{self.path / RUN} does not name the classes of the run. Train it again")
        known = KnownLabels.read(self.path / LABELS, len(classes))
        placed, split = known.placed_in(graph, tuple(classes), new_nodes=True)
        return placed, replace(split, facts=facts["split"])

    def encoder(self) -> AttributeEncoder | None:
        """Of the nodes' own attributes, if the run reads any."""
        from chronospike.data.attributes import AttributeEncoder

        path = self.path / ATTRIBUTES
        return AttributeEncoder.from_json(read_json(path), str(path)) if path.is_file() else None

    def save_encoder(self, encoder: AttributeEncoder | None) -> None:
        if encoder is not None:
            write_json(self.path / ATTRIBUTES, encoder.to_json())

    def begin(
        self,
        method: str,
        settings: Settings,
        facts: dict[str, Any],
        graph: DynamicGraph,
        split: Split,
        overwrite: bool,
        marker: str = CONFIG,
    ) -> None:
        """Start a new run on the labels of `graph`.

        One that is there, or whatever `marker` tells, is refused unless `overwrite`.
        """
        from chronospike.training.known_labels import KnownLabels

        check_target(self.path, overwrite=overwrite, marker=marker, in_place=True)
        self._remove_results()
        self._write_settings(method, settings)
        KnownLabels.of(graph, split).save(self.path / LABELS)
        write_json(self.path / RUN, {**facts, "classes": list(graph.class_names), "split": split.facts})

    def extend(self, settings: Settings) -> None:
        """Keep the settings that a resumed run trains on with, and how it came to them."""
        changed = [f"{name}={now}" for name, (_, now) in self._changes(settings).items()]
        again = ["chronospike", "train", "--resume", "-o", str(self.path)]
        again += [part for assignment in changed for part in ("--set", assignment)]
        facts = self.facts()
        self._write_settings(self.method, settings)
        write_json(self.path / RUN, {**facts, "command": f"{facts.get('command', '')} && {shlex.join(again)}"})

    def lengthened(self, settings: Kind) -> Kind:
        """The run's own settings, for as long as `settings` say: a method may have changed others of them by itself."""
        return self.settings(type(settings)).change(**{name: getattr(settings, name) for name in MAY_CHANGE})

    def remove(self) -> None:
        """Take the run away, but nothing that somebody else put into its folder."""
        self._remove_results()
        (self.path / CONFIG).unlink(missing_ok=True)
        for folder in (self.checkpoint.parent, self.path):
            if folder.is_dir() and not any(folder.iterdir()):
                folder.rmdir()

    def require_same(self, wanted: Settings) -> None:
        """Refuse to resume with other settings, or fewer epochs; name what differs and touch nothing."""
        found = self._changes(wanted)
        changed = [f"{name} was {was!r}, now {now!r}" for name, (was, now) in found.items() if name not in MAY_CHANGE]
        if changed:
            raise InputError(
                f"{self.path} was started with other settings: {'; '.join(changed)}. "
                f"Resume without changing them (only {' and '.join(MAY_CHANGE)} may change), or start a new run"
            )
        was, now = found.get("epochs", (0, 0))
        if now < was:
            raise InputError(
                f"{self.path} is a run of {was} epochs, which can become more but not {now}. Start a new run"
            )

    def _changes(self, wanted: Settings) -> dict[str, tuple[Any, Any]]:
        """What differs from the run's settings: name, value there, value wanted."""
        found, asked = self.settings(type(wanted)).model_dump(), wanted.model_dump()
        return {name: (found[name], asked[name]) for name in found if found[name] != asked[name]}

    def _write_settings(self, method: str, settings: Settings) -> None:
        with atomic_file(self.path / CONFIG) as partial:
            partial.write_text(f"method: {method}\n{write_settings(settings)}", encoding="utf-8")

    def _remove_results(self) -> None:
        # First what tells that a run was begun: one stopped while it begins must not go on with the facts of another.
        names = (RUN, EPOCHS, METRICS, PREDICTIONS, LABELS, ATTRIBUTES, "report.html")
        learned = (self.weights, self.final_stage, self.label_features, self.out_of_fold, self.soft_targets)
        checkpoints = (self.checkpoint, self.refit_checkpoint, *self.checkpoint.parent.glob("fold-*.safetensors"))
        for path in (*(self.path / name for name in names), *learned, *checkpoints):
            path.unlink(missing_ok=True)

    def write_epochs(self, reports: Iterable[EpochReport]) -> None:
        """Write `metrics.jsonl` from the start, all or nothing."""
        with atomic_file(self.path / EPOCHS) as partial:
            partial.write_text("".join(_line(report) for report in reports), encoding="utf-8")

    def append_epoch(self, report: EpochReport) -> None:
        path = self.path / EPOCHS
        with space_errors(path), path.open("a", encoding="utf-8") as file:
            file.write(_line(report))


def _line(report: EpochReport) -> str:
    """As JSON, which has no NaN: a score that was not computed is null."""
    values = {name: value if math.isfinite(value) else None for name, value in report.as_dict().items()}
    return json.dumps(values) + "\n"
