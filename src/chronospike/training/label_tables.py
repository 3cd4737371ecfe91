"""Features of every node of a task from known labels and edges, computed when first needed.

The known labels are those of training and validation nodes. A validation node chooses by its own label, which it never
reads itself; its neighbours may.
"""

from __future__ import annotations

from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.torch import save

from chronospike.data.activity import activity_profile, profile_width
from chronospike.data.graph import DynamicGraph
from chronospike.data.label_features import DIFFUSIONS, RECENCIES, columns_per_class, label_features
from chronospike.data.label_sequences import label_counts
from chronospike.data.storage import structure_key
from chronospike.files import atomic_file
from chronospike.rng import derive_torch, signed, stream

if TYPE_CHECKING:
    from chronospike.training.task import Task

# A labelled node reads the diffused labels of the other folds only.
LABEL_FOLDS = 10
# Label features up to this size are kept with a run: whoever uses it then need not make them again, which takes a
# minute with 200,000 nodes and 20 classes (300 MB).
_KEPT_BYTES = 2**30
_KEY, _SUM = "key", "checksum"


def features_width(classes: int, directed: bool = False) -> int:
    """Columns of `LabelTables.features`."""
    return columns_per_class(len(RECENCIES), len(DIFFUSIONS), directed) * classes


def numbers_width(classes: int, directed: bool = False) -> int:
    """Columns of `LabelTables.features` and `LabelTables.activity` together."""
    return features_width(classes, directed) + profile_width(directed)


def folds_by_id(graph: DynamicGraph, nodes: NDArray[np.integer[Any]], folds: int, seed: int) -> NDArray[np.int64]:
    """`[K]` a fold for each of `nodes`, equally many in each up to one, from the seed and the nodes' ids alone.

    Were the classes shared out evenly, the fold of a node, and so what it reads, would depend on its own label.
    """
    key = torch.tensor(signed(stream(seed, "label folds")))
    drawn = derive_torch(key, torch.from_numpy(graph.ids.keys()[nodes])).numpy()
    result = np.empty(len(nodes), dtype=np.int64)
    result[np.argsort(drawn, kind="stable")] = np.arange(len(nodes)) % folds
    return result


class LabelTables:
    """Of the known labels of a task, as of its last step.

    Attributes:
        known: `[K]` the nodes whose labels are known, ascending.
        labels: `[K]` theirs.
    """

    def __init__(self, task: Task) -> None:
        self._graph, self._seed, self.last_step = task.graph, task.seed, task.last_step
        self._device = task.device
        self.known = task.known
        self.labels = task.labels(self.known)

    def is_same(self, other: LabelTables) -> bool:
        """Whether both are made of the same arrays, labels, step and seed."""
        one, two = self._graph, other._graph
        return (
            one.history is two.history
            and one.snapshot is two.snapshot
            and one.events is two.events
            and (one.num_classes, self._seed, self.last_step) == (two.num_classes, other._seed, other.last_step)
            and np.array_equal(self.known, other.known)
            and np.array_equal(self.labels, other.labels)
        )

    def features_of(
        self, known: NDArray[np.integer[Any]], folds: int, recencies: Any, diffusions: Any
    ) -> NDArray[np.float32] | None:
        """The label features, if they have been made and are those of these settings; None where they are not."""
        is_same = (folds, tuple(recencies), tuple(diffusions)) == (LABEL_FOLDS, RECENCIES, DIFFUSIONS)
        return self.__dict__.get("features") if is_same and np.array_equal(known, self.known) else None

    @cached_property
    def counts(self) -> NDArray[np.int16]:
        """`[N, T, C + 1]`: see `label_counts`."""
        return label_counts(self._graph, self.known, self.labels, self.last_step)

    @cached_property
    def features(self) -> NDArray[np.float32]:
        """`[N, F]`: see `label_features`."""
        folds = folds_by_id(self._graph, self.known, LABEL_FOLDS, self._seed)
        return label_features(
            self._graph, self.known, self.labels, folds, last_step=self.last_step, device=self._device
        )

    @cached_property
    def activity(self) -> NDArray[np.float32]:
        """`[N, A]`: see `activity_profile`."""
        return activity_profile(self._graph, self.last_step)

    def save(self, path: Path) -> None:
        """Keep the label features, if they have been made and are not too large, for `take`."""
        features = self.__dict__.get("features")
        if features is not None and features.nbytes <= _KEPT_BYTES:
            facts = {_KEY: self._key(), _SUM: _checksum(features)}
            content = save({"features": torch.from_numpy(features)}, facts)
            with atomic_file(path) as partial:
                partial.write_bytes(content)

    def take(self, path: Path) -> None:
        """Take over the label features of `save` where they are those of the same edges, labels, step and seed."""
        try:
            with safe_open(path, framework="np") as file:
                shape = (self._graph.num_nodes, features_width(self._graph.num_classes, self._graph.directed))
                facts = file.metadata() or {}
                if facts.get(_KEY) != self._key():
                    return
                found = file.get_tensor("features")
                if found.shape == shape and found.dtype == np.float32 and _checksum(found) == facts.get(_SUM):
                    self.__dict__["features"] = found
        except (SafetensorError, OSError):
            # Not kept, or damaged: they are made when they are needed.
            return

    def _key(self) -> str:
        digest = blake2b(structure_key(self._graph).encode(), digest_size=16)
        for array in (self.known, self.labels, np.array([self._seed, self.last_step, LABEL_FOLDS], dtype=np.uint64)):
            digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()


def _checksum(features: NDArray[np.float32]) -> str:
    return blake2b(np.ascontiguousarray(features).data, digest_size=16).hexdigest()
