"""From the networks' outputs to predictions: an ensemble with a second stage, if there is one, and a temperature.

All of it is learned from probabilities of nodes whose labels the network in question has not learned from.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.torch import save

from chronospike.errors import StorageError, one_line
from chronospike.files import atomic_file, require_readable
from chronospike.training.calibration import fit_temperature, with_temperature
from chronospike.training.second_stage import SecondStage
from chronospike.training.task import Nodes, Task

Values = NDArray[np.float64]

FORMAT, _EARLIER = "chronospike-ensemble", "chronospike-final-stage"
_ENTRY = "chronospike"
# Below this a probability says no more than that the class is out of the question.
_FLOOR = 1e-6
# Of the members of an ensemble: the networks, how names of classifiers begin that read labels and activity but no
# networks, or features of the last step and nothing else, and the name of several members together.
NETWORK, LABELS_ALONE, FEATURES_ALONE, ENSEMBLE = "network", "labels alone", "features alone", "ensemble"


@dataclass(frozen=True)
class FinalStage:
    """What follows the networks.

    Attributes:
        stages: by name; see `rows_read` for what they read.
        weights: of the networks and of stages in what is predicted. They add up to 1.
        temperature: 1 leaves probabilities as they are.
        chosen_on: what nodes weights and temperature were fitted to: `out-of-fold` or `validation`.
        chosen_nodes: how many.
        held_out: Macro- and Micro-F1 of each member, and of the ensemble, on nodes that it has not learned from.
    """

    stages: Mapping[str, SecondStage] = field(default_factory=dict, repr=False)
    weights: Mapping[str, float] = field(default_factory=lambda: {NETWORK: 1.0})
    temperature: float = 1.0
    chosen_on: str = "validation"
    chosen_nodes: int = 0
    held_out: Mapping[str, dict[str, float]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """What predicts: one of the members, those that read labels and no networks, or several."""
        if len(self.weights) == 1:
            return next(iter(self.weights))
        return LABELS_ALONE if all(name.startswith(LABELS_ALONE) for name in self.weights) else ENSEMBLE

    def probabilities(self, logs: Values, task: Task, nodes: Nodes) -> Values:
        """`[K, C]` of `nodes`, from the mean log-probabilities `[K, C]` of the networks."""
        return with_temperature(self.uncalibrated(logs, task, nodes), self.temperature)

    def uncalibrated(self, logs: Values, task: Task, nodes: Nodes) -> Values:
        """The same before the temperature."""
        return weighted_mean(self.members(logs, task, nodes, list(self.weights)), self.weights)

    def members(self, logs: Values, task: Task, nodes: Nodes, names: Sequence[str]) -> dict[str, Values]:
        """`[K, C]` what each of these members says of `nodes`."""
        found = {NETWORK: softmax(logs)} if NETWORK in names else {}
        stages = {name: stage for name, stage in self.stages.items() if name in names}
        reads = rows_read(stages, logs, task, nodes)
        return found | {name: stage.probabilities(reads[name]) for name, stage in stages.items()}

    def calibrated(self, probabilities: Values, labels: NDArray[np.int64], chosen_on: str) -> FinalStage:
        """The same with the temperature that suits `probabilities [K, C]` of held-out nodes best."""
        # As in Platt scaling: of n nodes that are all right, n + 1 of n + 2 are taken to be.
        found = fit_temperature(probabilities, labels, doubt=1 / (len(labels) + 2))
        return replace(self, temperature=found, chosen_on=chosen_on, chosen_nodes=len(labels))

    def save(self, path: Path, weights: str = "") -> None:
        """Write what predicts as safetensors, all or nothing; the same always gives the same bytes (see `weights`).

        Args:
            weights: the checksum of the networks that it follows, which `load` then asks for.
        """
        tensors = {
            f"{name}/{part}": np.ascontiguousarray(value)
            for name, stage in self.stages.items()
            if name in self.weights
            for part, value in stage.tensors().items()
        }
        facts = {"temperature": self.temperature, "chosen_on": self.chosen_on, "chosen_nodes": self.chosen_nodes}
        entry = {"format": FORMAT, **facts, "weights": dict(self.weights), "held_out": dict(self.held_out)}
        entry |= {"follows": weights} if weights else {}
        entry["sha256"] = _digest(tensors, entry)
        content = save({name: torch.from_numpy(value) for name, value in tensors.items()}, {_ENTRY: json.dumps(entry)})
        with atomic_file(path) as partial:
            partial.write_bytes(content)

    @classmethod
    def load(cls, path: Path, weights: str = "") -> FinalStage:
        """The inverse of `save`; what comes from a file is checked."""
        require_readable(path)
        try:
            with safe_open(path, framework="np") as file:
                entry = json.loads((file.metadata() or {})[_ENTRY])
                tensors: dict[str, Any] = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            if entry["format"] == _EARLIER:
                raise ValueError("it was written by an earlier version")
            if entry["format"] != FORMAT or entry.pop("sha256") != _digest(tensors, entry):
                raise ValueError("its checksum is wrong")
            held_out = {
                str(part): {name: float(scores[name]) for name in ("macro_f1", "micro_f1")}
                for part, scores in dict(entry["held_out"]).items()
            }
            temperature, nodes = float(entry["temperature"]), int(entry["chosen_nodes"])
            shares = {str(name): float(weight) for name, weight in dict(entry["weights"]).items()}
            if not 0 < temperature < np.inf:
                raise ValueError(f"its temperature is {temperature}")
            if not (all(weight > 0 for weight in shares.values()) and np.isclose(sum(shares.values()), 1)):
                raise ValueError("its weights are no shares")
            stages = {
                name: SecondStage.from_tensors(
                    {key.removeprefix(f"{name}/"): tensors[key] for key in tensors if key.startswith(f"{name}/")}
                )
                for name in shares
                if name != NETWORK
            }
            found = cls(stages, shares, temperature, str(entry["chosen_on"]), nodes, held_out)
        except (SafetensorError, OSError, AttributeError, KeyError, TypeError, ValueError, StorageError) as error:
            raise StorageError(
                f"{path} is damaged or of another version ({one_line(error)}). Train the run again"
            ) from error
        if entry.get("follows", weights) != weights:
            raise StorageError(f"{path} belongs to other weights: training was stopped as it wrote them. Use --resume")
        return found


def _digest(tensors: Mapping[str, NDArray[Any]], entry: Mapping[str, Any]) -> str:
    """SHA-256 over the facts and every array's name, type, shape and bytes."""
    digest = hashlib.sha256(json.dumps(dict(entry), sort_keys=True).encode())
    for name in sorted(tensors):
        digest.update(f"\n{name} {tensors[name].dtype} {list(tensors[name].shape)}\n".encode())
        digest.update(np.ascontiguousarray(tensors[name]).tobytes())
    return digest.hexdigest()


def weighted_mean(members: Mapping[str, Values], weights: Mapping[str, float]) -> Values:
    """`[K, C]` the same bits from all rows at once and from some of them."""
    result = np.zeros_like(next(iter(members.values())))
    for name, weight in weights.items():
        result += weight * members[name]
    return result


def mean_alone(members: Mapping[str, Values]) -> dict[str, Values]:
    """The mean of those that read labels and no networks, under their name together; empty if there are none."""
    names = [name for name in members if name.startswith(LABELS_ALONE)]
    return {LABELS_ALONE: weighted_mean(members, dict.fromkeys(names, 1 / len(names)))} if names else {}


def stage_rows(
    logs: Values, task: Task, nodes: Nodes, label_features: NDArray[np.float32] | None = None
) -> NDArray[np.float32]:
    """`[K, d]` of `nodes`: log-probabilities, label features, activity, own attributes and the neighbours' mean ones.

    Args:
        label_features: `[N, F]` other ones than those of the task.
    """
    around = task.tables.features if label_features is None else label_features
    parts = [logs.astype(np.float32), around[nodes], task.tables.activity[nodes]]
    if task.features is not None:
        read = task.features.own, task.features.own_of_neighbours
        parts += [own for find in read if (own := find(task.last_step, nodes)) is not None]
    return np.concatenate(parts, axis=1)


def rows_read(
    names: Iterable[str], logs: Values, task: Task, nodes: Nodes, label_features: NDArray[np.float32] | None = None
) -> dict[str, NDArray[np.float32]]:
    """What each stage reads, by name: `stage_rows`, without the log-probabilities if the name begins so, or features.

    Args:
        label_features: see `stage_rows`.
    """
    result, rows = {}, None
    for name in names:
        if name.startswith(FEATURES_ALONE):
            assert task.features is not None
            result[name] = task.features.at(task.last_step, nodes)
            continue
        rows = stage_rows(logs, task, nodes, label_features) if rows is None else rows
        result[name] = rows[:, logs.shape[1] :] if name.startswith(LABELS_ALONE) else rows
    return result


def log_probabilities(probabilities: NDArray[Any]) -> Values:
    """Of probabilities `[K, C]`, none of them below a floor."""
    return np.log(np.maximum(np.asarray(probabilities, dtype=np.float64), _FLOOR))


def softmax(logs: Values) -> Values:
    """`[K, C]` probabilities in proportion to e^`logs`."""
    powers = np.exp(logs - logs.max(axis=1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=1, keepdims=True))
