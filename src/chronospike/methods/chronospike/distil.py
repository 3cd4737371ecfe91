"""Distillation: one network of the paper's size learns the predictions of a finished run, and reads no labels itself.

Its targets are the run's probabilities of every node with an edge, unlabelled and test nodes among them. Of a known
node the run says what it does without that node's label, where it can (see `Fitted.held_out`); a training node mixes
in its own label. No label of a test node is read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from numpy.typing import NDArray
from torch import Tensor

from chronospike.config import Settings, make_settings
from chronospike.data.graph import DynamicGraph
from chronospike.data.splits import Split
from chronospike.errors import InputError, StorageError, one_line
from chronospike.files import atomic_file, require_readable
from chronospike.methods.chronospike.memory import lower_what
from chronospike.methods.chronospike.network import ChronoSpikeNetwork
from chronospike.methods.chronospike.settings import ChronoSpikeSettings
from chronospike.training.gradient import GradientFitted, GradientLearner
from chronospike.training.learner import FitContext, Fitted, Progress
from chronospike.training.settings import TrainingSettings
from chronospike.training.task import Task

# Not compared one by one.
DEFAULTS: dict[str, Any] = {
    "fanouts": (10, 5), "p": 0.2, "dropout": 0.5, "schedule": "cosine", "epochs": 40, "patience": 40, "samples": 5,
    "label_smoothing": 0.0, "weight_average": 0.98, "calibrate": True, "selection": "macro_f1",
}  # fmt: skip
# What reads labels, or would learn from them instead of the targets.
OFF: dict[str, Any] = {
    "label_inputs": False, "label_sequences": False, "label_features": False, "activity": False, "folds": 0,
    "second_stage": "none", "refit": False, "class_weights": "none",
}  # fmt: skip
_SPLIT = ("ratio", "validation", "split_seed", "split_order")
# The fewest nodes that a network can be distilled on.
_FEWEST = 4


@dataclass(frozen=True)
class SoftTargets:
    """Nodes `[K]` and the class probabilities `[K, C]` to be learned of them."""

    nodes: NDArray[np.int64]
    probabilities: NDArray[np.float32]

    def table(self, nodes: int, device: torch.device) -> Tensor:
        """`[N, C]` on the device; rows of other nodes are zero."""
        table = torch.zeros((nodes, self.probabilities.shape[1]))
        table[torch.from_numpy(self.nodes)] = torch.from_numpy(self.probabilities)
        return table.to(device)

    def save(self, path: Path, graph: DynamicGraph) -> None:
        """Write as a Parquet table with checksums, by the ids of the nodes, all or nothing."""
        columns = {"node": graph.ids.take(self.nodes)}
        columns |= {name: self.probabilities[:, i] for i, name in enumerate(_columns(graph))}
        with atomic_file(path) as partial:
            pq.write_table(pa.table(columns), partial, write_page_checksum=True)


def read_targets(path: Path, graph: DynamicGraph) -> SoftTargets:
    """The inverse of `SoftTargets.save`."""
    require_readable(path)
    try:
        table = pq.read_table(path, page_checksum_verification=True).combine_chunks()
        nodes = graph.ids.lookup(pa.concat_arrays(table["node"].chunks))
        values = np.column_stack([table[name].to_numpy() for name in _columns(graph)]).astype(np.float32)
        if not len(nodes) or nodes.min() < 0 or not np.isfinite(values).all():
            raise ValueError("nodes or probabilities are out of range")
    except FileNotFoundError as error:
        raise StorageError(f"{path} is missing. Distil the run again") from error
    except (pa.ArrowException, OSError, KeyError, ValueError, TypeError) as error:
        raise StorageError(f"{path} is damaged ({one_line(error)}). Distil the run again") from error
    return SoftTargets(nodes, values)


def _columns(graph: DynamicGraph) -> list[str]:
    return [f"probability {name}" for name in graph.class_names]


def soft_targets(teacher: Fitted, label_share: float, on_nodes: Progress | None = None) -> SoftTargets:
    """What a student of `teacher` learns.

    Args:
        label_share: of a training node's own label in its target.
    """
    graph, split = teacher.task.graph, teacher.split
    nodes = np.flatnonzero(~graph.isolated)
    known = np.intersect1d(nodes, np.union1d(split.train, split.validation))
    values = np.zeros((graph.num_nodes, graph.num_classes), dtype=np.float32)
    for fitted, asked in ((teacher, np.setdiff1d(nodes, known)), (teacher.held_out() or teacher, known)):
        if len(asked):
            values[asked] = fitted.probabilities(asked, on_nodes)
    values[split.train] *= 1 - label_share
    values[split.train, teacher.task.labels(split.train)] += label_share
    return SoftTargets(nodes, values[nodes])


def student_settings(teacher: Settings, preset: Mapping[str, Any], given: Mapping[str, Any]) -> ChronoSpikeSettings:
    """The paper's network with data and split of the teacher, trained as the preset says; then those given."""
    for name, value in given.items():
        if name in OFF and value != OFF[name]:
            raise InputError(f"{name}={value} cannot be used for a distilled run, which reads no labels. Leave it out")
        if name in _SPLIT:
            raise InputError(f"{name} cannot be set: a distilled run keeps the split of its teacher. Leave it out")
    # Not their fan-outs: whoever reads the labels around a node can do with fewer neighbours.
    theirs = teacher.model_dump(include={*Settings.model_fields, "p"} - {"seed"})
    training = {name: value for name, value in preset.items() if name in TrainingSettings.model_fields}
    return make_settings(ChronoSpikeSettings, {**training, **DEFAULTS, **theirs, **OFF, **given})


def check_student(settings: ChronoSpikeSettings, graph: DynamicGraph, split: Split) -> None:
    """Raise where a graph with this split cannot be distilled on."""
    found = int((~graph.isolated).sum())
    if found < _FEWEST:
        raise InputError(f"{found} node(s) with an edge are too few to distil on: at least {_FEWEST} are needed")
    if not len(split.validation) and settings.selection != "last":
        raise InputError("the run has no validation nodes to choose the best epoch by. Add --set selection=last")


class Student(GradientLearner[ChronoSpikeSettings]):
    """ChronoSpike on soft targets. What comes out is an ordinary fit with the split of its task."""

    def __init__(self, settings: ChronoSpikeSettings, targets: SoftTargets) -> None:
        super().__init__(settings)
        self.targets = targets

    @property
    def memory_advice(self) -> str:
        return lower_what(self.settings)

    def network(self, task: Task, training: bool = True) -> ChronoSpikeNetwork:
        table = self.targets.table(task.graph.num_nodes, task.device)
        return ChronoSpikeNetwork(task, self.settings, training=training, soft=table)

    def fit(self, task: Task, context: FitContext | None = None) -> GradientFitted:
        fitted = super().fit(task.divided(self.targets.nodes, task.split.validation), context)
        assert isinstance(fitted, GradientFitted)
        return GradientFitted(fitted.network.for_task(task), task.split, fitted.cost, None, fitted.final)
