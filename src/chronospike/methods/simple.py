"""The base of methods that store no weights: they predict all nodes at once, and are fitted again when loaded.

Learning again gives the same answer for the same labels and seed, so a run of such a method keeps nothing but them.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from chronospike.device import peak_memory
from chronospike.errors import InputError
from chronospike.training.known_labels import hold_out
from chronospike.training.learner import Cost, FitContext, Fitted, Kind, Learner, Progress
from chronospike.training.run_folder import RunFolder
from chronospike.training.task import Nodes, Task

# Nodes predicted at once: a progress bar moves after each such part.
_CHUNK = 16_384


@dataclass(frozen=True)
class Answer:
    """What a simple method says of all nodes.

    Attributes:
        probabilities: `[N, C]`; or, where predicting takes long, what gives those `[K, C]` of nodes `[K]`.
        inputs: `[N, d]` what it has computed them from, which serve as embeddings; None if it reads none.
        parameters: numbers it has learned.
        facts: what a reader of the run may want to know, ready for JSON.
    """

    probabilities: NDArray[np.floating[Any]] | Callable[[Nodes], NDArray[np.floating[Any]]]
    inputs: NDArray[np.float32] | None = None
    parameters: int = 0
    facts: dict[str, Any] = field(default_factory=dict)


class SimpleLearner(Learner[Kind]):
    """A method that needs nothing but `answer`."""

    is_quick = True

    @abstractmethod
    def answer(self, task: Task, known: Nodes) -> Answer:
        """Of all nodes, from the labels of the `known` ones; the validation nodes of the task may choose.

        `known` are the training nodes, or these and the validation nodes. In the latter case whatever is chosen is
        chosen by a fit to the training nodes alone.
        """

    def fit(self, task: Task, context: FitContext | None = None) -> SimpleFitted:
        return SimpleFitted(self, task)

    def load(self, task: Task, run: RunFolder) -> SimpleFitted:
        if not len(task.split.train):
            raise InputError(f"{self.name} learns from the labels of the graph, and none of its training nodes is here")
        return self.fit(task)


class SimpleFitted(Fitted):
    """The answer of a simple method to a task.

    Args:
        task: with the split as it was made.
        all_labels: learn from the validation nodes, too, as every simple method does in the end.
    """

    def __init__(self, learner: SimpleLearner[Any], task: Task, all_labels: bool = True) -> None:
        self._learner, self._given = learner, task
        self.task, self.split = task.with_all_labels() if all_labels else task, task.split
        self._answer = learner.answer(task, self.task.split.train)
        self.cost = Cost(self._answer.parameters, peak_memory=peak_memory(task.device))

    def probabilities(self, nodes: Nodes, on_nodes: Progress | None = None) -> NDArray[np.floating[Any]]:
        found = self._answer.probabilities
        if not callable(found):
            return found[nodes]
        parts = []
        # Once, too, where there are none, which tells the number of classes.
        for start in range(0, max(1, len(nodes)), _CHUNK):
            parts.append(found(nodes[start : start + _CHUNK]))
            if on_nodes is not None:
                on_nodes(min(start + _CHUNK, len(nodes)), len(nodes))
        return np.concatenate(parts)

    def embeddings(self, nodes: Nodes, on_nodes: Progress | None = None) -> NDArray[np.float32]:
        if self._answer.inputs is None:
            raise InputError(f"{self._learner.name} has no embeddings. Use a method that has, such as chronospike")
        return self._answer.inputs[nodes]

    def until(self, last_step: int) -> SimpleFitted:
        return SimpleFitted(self._learner, self._given.until(last_step, to_fit=True))

    def held_out(self) -> SimpleFitted:
        return SimpleFitted(self._learner, self._given, all_labels=False) if self.was_refitted else self

    def details(self) -> dict[str, Any]:
        return self._answer.facts


def thinned(task: Task, nodes: Nodes, most: int) -> Nodes:
    """`nodes`, or `most` of them with the classes in proportion, at least one node of each."""
    if len(nodes) <= most:
        return nodes
    return nodes[~hold_out(task.labels(nodes), 1 - most / len(nodes), task.seed)]
