"""What the known labels and the edges say of every node of a task, made when it is first asked for.

The known labels are those of training and validation nodes. A validation node chooses by its own label, which it never
reads itself; its neighbours may.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from chronospike.data.activity import PROFILE_WIDTH, activity_profile
from chronospike.data.label_features import DIFFUSIONS, RECENCIES, label_features, stratified_folds
from chronospike.data.label_sequences import label_counts

if TYPE_CHECKING:
    from chronospike.training.task import Task

# A labelled node reads the diffused labels of the other folds only.
_FOLDS = 10


def features_width(classes: int) -> int:
    """Columns of `LabelTables.features`."""
    return len(RECENCIES) * (2 + len(DIFFUSIONS)) * classes


def numbers_width(classes: int) -> int:
    """Columns of `LabelTables.features` and `LabelTables.activity` together."""
    return features_width(classes) + PROFILE_WIDTH


class LabelTables:
    """Of the known labels of a task, as of its last step.

    Attributes:
        known: `[K]` the nodes whose labels are known, ascending.
        labels: `[K]` theirs.
    """

    def __init__(self, task: Task) -> None:
        self._graph, self._seed, self.last_step = task.graph, task.seed, task.last_step
        self.known = task.known
        self.labels = task.labels(self.known)

    @cached_property
    def counts(self) -> NDArray[np.int16]:
        """`[N, T, C + 1]`: see `label_counts`."""
        return label_counts(self._graph, self.known, self.labels, self.last_step)

    @cached_property
    def features(self) -> NDArray[np.float32]:
        """`[N, F]`: see `label_features`."""
        folds = stratified_folds(self.labels, _FOLDS, self._seed)
        return label_features(self._graph, self.known, self.labels, folds, last_step=self.last_step)

    @cached_property
    def activity(self) -> NDArray[np.float32]:
        """`[N, PROFILE_WIDTH]`: see `activity_profile`."""
        return activity_profile(self._graph, self.last_step)
