"""Reading a run folder: the results, one line per epoch, and the settings.

Only the test and validation scores must be there; whatever else is missing is left out of what is read.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, ValidationError, model_validator

from chronospike.config import Share, read_settings
from chronospike.errors import InputError, StorageError
from chronospike.training.seeds import refuse_several

# Which predictions were held out: those of folds that a model was not fitted to, or those of the validation nodes.
HeldOut = Literal["out-of-fold", "validation"]
# More rows than these no page shows.
MOST_PARTS, MOST_BINS = 100, 1000


class _Lenient(BaseModel):
    """Keys nobody asked for are ignored, and a null counts as missing."""

    model_config = ConfigDict(frozen=True, coerce_numbers_to_str=True)

    @model_validator(mode="before")
    @classmethod
    def _null_is_missing(cls, values: Any) -> Any:
        return (
            {name: value for name, value in values.items() if value is not None} if isinstance(values, dict) else values
        )


class MethodScores(_Lenient):
    """F1 scores of one method, between 0 and 1."""

    macro_f1: Share
    micro_f1: Share


class HeldOutScores(MethodScores):
    """Scores of predictions that the labels of their nodes had no part in."""

    nodes: NonNegativeInt | None = None


class SimpleScores(MethodScores):
    """Test scores of a simple method, and those that were held out."""

    held_out: HeldOutScores | None = None


class TeacherScores(_Lenient):
    """The run that this one was distilled from, by the title of its method, and its test scores."""

    title: str
    test: MethodScores


class BuiltPart(_Lenient):
    """One stage of what a run is built from; predictions come from the `chosen` one."""

    name: str
    title: str = ""
    chosen: bool = False
    held_out: HeldOutScores | None = None
    test: MethodScores | None = None
    on: HeldOut | None = None


class Estimate(MethodScores):
    """The scores that cross-validation over the labelled nodes expects; deviations are over the folds.

    Micro-F1 of the test nodes is to lie between low and high 95 times in a hundred.
    """

    on: HeldOut | None = None
    nodes: NonNegativeInt | None = None
    folds: NonNegativeInt | None = None
    macro_f1_std: Share | None = None
    micro_f1_std: Share | None = None
    micro_f1_low: Share | None = None
    micro_f1_high: Share | None = None


class ReliabilityBin(_Lenient):
    """Test nodes whose highest probability is from `low` to `high`: its mean, and the share that is right."""

    low: Share
    high: Share
    confidence: Share
    accuracy: Share
    nodes: NonNegativeInt


class Kept(_Lenient):
    """What stays if the nodes below `threshold` are left out: a share of all, and how much of it is right."""

    threshold: Share
    kept: Share
    micro_f1: Share | None = None
    nodes: NonNegativeInt | None = None


class Calibration(_Lenient):
    """How far the probabilities of the test nodes can be taken at their word.

    Attributes:
        ece_before: expected calibration error of the uncalibrated probabilities.
        ece_after: with the temperature.
    """

    temperature: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    chosen_on: HeldOut | None = None
    chosen_nodes: NonNegativeInt | None = None
    ece_before: Share | None = None
    ece_after: Share | None = None
    reliability: Annotated[list[ReliabilityBin], Field(max_length=MOST_BINS)] = []
    reliability_before: Annotated[list[ReliabilityBin], Field(max_length=MOST_BINS)] = []
    abstention: Annotated[list[Kept], Field(max_length=MOST_PARTS)] = []


class PartScores(MethodScores):
    """Scores of the model on one part of the split; `confusion` is true class by predicted class."""

    per_class_f1: dict[str, float] = {}
    confusion: list[list[int]] = []
    nodes: int | None = None


class SplitFacts(_Lenient):
    """How many nodes each part of the split has, and how it was made."""

    train: int | None = None
    validation: int | None = None
    test: int | None = None
    dropped_isolated: int | None = None
    notes: list[str] = []
    order: str | None = None


class WrongNode(_Lenient):
    """A test node of class `true` that was taken for another, and with what probability."""

    node: str
    true: str = Field(alias="class")
    predicted: str
    probability: Share


class Unlabelled(_Lenient):
    """How many nodes without a label are predicted as each class, and how many training labels each has."""

    predicted: dict[str, NonNegativeInt] = {}
    training: dict[str, NonNegativeInt] = {}


class Metrics(_Lenient):
    """The contents of `metrics.json`.

    Attributes:
        title: of the method.
        firing_rate: per spiking layer; empty for a network without spikes.
        firing_rate_per_step: the same for each step, `[layers, T]`.
        parts: what the run is built from, in the order of building; empty for a method of one part.
        estimate: what cross-validation expects of the test scores.
        smoothed: test scores after Correct and Smooth.
        refit: the nodes of the second fit, if there was one.
        confidently_wrong: test nodes, the highest probability first.
        notes: what a reader of the other files might not expect, a sentence each.
    """

    test: PartScores
    validation: PartScores
    title: str = "ChronoSpike"
    classes: list[str] = []
    parameters: int | None = None
    seconds_per_epoch: float | None = None
    epochs: int | None = None
    best_epoch: int | None = None
    seed: int | None = None
    firing_rate: list[float] = []
    firing_rate_per_step: list[list[float]] = []
    baselines: dict[str, SimpleScores] = {}
    teacher: TeacherScores | None = None
    parts: Annotated[list[BuiltPart], Field(max_length=MOST_PARTS)] = []
    estimate: Estimate | None = None
    calibration: Calibration | None = None
    smoothed: MethodScores | None = None
    refit: dict[str, Any] | None = None
    confidently_wrong: list[WrongNode] = []
    unlabelled: Unlabelled = Unlabelled()
    notes: list[str] = []
    graph: dict[str, Any] = {}
    split: SplitFacts = SplitFacts()
    device: str | None = None
    versions: dict[str, str] = {}
    command: str | None = None

    @model_validator(mode="after")
    def _confusion_is_square(self) -> Metrics:
        for name, part in (("test", self.test), ("validation", self.validation)):
            size = len(part.confusion)
            if any(len(row) != size for row in part.confusion) or (size and self.classes and size != len(self.classes)):
                raise ValueError(f"{name}.confusion has {size} rows for {len(self.classes)} classes, or is not square")
        return self

    @property
    def class_names(self) -> list[str]:
        """Names in the order of the confusion matrix."""
        return self.classes or list(self.test.per_class_f1) or [f"class {i}" for i in range(len(self.test.confusion))]

    @property
    def chosen_part(self) -> BuiltPart | None:
        """The part that predictions come from."""
        return next((part for part in self.parts if part.chosen), None)

    @property
    def test_nodes(self) -> int | None:
        counted = sum(map(sum, self.test.confusion))
        return self.test.nodes or counted or self.split.test


class Epoch(_Lenient):
    """One line of `metrics.jsonl`."""

    epoch: int
    loss: float | None = None
    classification_loss: float | None = None
    validation_macro_f1: float | None = None
    validation_micro_f1: float | None = None


@dataclass(frozen=True)
class RunFiles:
    """A run as its folder tells it; `name` is that of the graph where it is known, else of the folder."""

    name: str
    metrics: Metrics
    epochs: list[Epoch]
    settings: dict[str, Any]


def read_run(run: Path) -> RunFiles:
    """Read a run folder.

    Raises:
        InputError: it is not one, or the run has not finished.
        StorageError: a file in it is damaged.
    """
    metrics = _read_metrics(run)
    config = run / "config.yaml"
    return RunFiles(
        name=_graph_name(metrics.graph) or run.absolute().name,
        metrics=metrics,
        epochs=_read_epochs(run / "metrics.jsonl"),
        settings=read_settings(config) if config.is_file() else {},
    )


def _read_metrics(run: Path) -> Metrics:
    path = run / "metrics.json"
    if not run.exists():
        raise InputError(f"{run} does not exist. Give the folder of a run, as in: chronospike train -o {run}")
    if not path.is_file():
        if (run / "metrics.jsonl").is_file():
            raise InputError(
                f"{run} has no metrics.json: its run has not finished. Unless it still runs, resume with: "
                f"chronospike train --resume -o {run}"
            )
        refuse_several(run)
        raise InputError(
            f"{run} is not a run folder: it has no metrics.json. Make one with: chronospike train -o {run}"
        )
    try:
        return Metrics.model_validate(json.loads(path.read_bytes()))
    except ValidationError as error:
        raise StorageError(f"{path} is damaged: {_first_problem(error)}") from error
    except ValueError as error:
        raise StorageError(f"{path} is damaged: it is not valid JSON ({error})") from error


def _read_epochs(path: Path) -> list[Epoch]:
    """Epochs in order; of an epoch that a resumed run repeated, the last line counts."""
    if not path.is_file():
        return []
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    epochs: dict[int, Epoch] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            epoch = Epoch.model_validate(json.loads(line))
        except ValueError as error:
            # A killed run leaves half a last line, and that is no reason to withhold the rest.
            if number == len(lines):
                break
            what = _first_problem(error) if isinstance(error, ValidationError) else f"it is not valid JSON ({error})"
            raise StorageError(f"{path} row {number} is damaged: {what}") from error
        epochs[epoch.epoch] = epoch
    return [epochs[number] for number in sorted(epochs)]


def _first_problem(error: ValidationError) -> str:
    first = error.errors()[0]
    where = ".".join(map(str, first["loc"]))
    return f"{where}: {first['msg']}" if where else first["msg"]


def _graph_name(graph: dict[str, Any]) -> str:
    provenance = graph.get("provenance")
    inner = provenance if isinstance(provenance, dict) else {}
    return str(graph.get("name") or graph.get("dataset") or inner.get("dataset") or "")
