"""The interface of a method: a learner is fitted to a task, and the result predicts any nodes.

A learner is one file of `methods/` and one line in its registry. Runs, commands, comparisons and reports use only the
two classes here.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from threading import Event
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from chronospike.config import Settings
from chronospike.data.graph import DynamicGraph
from chronospike.data.splits import Split
from chronospike.errors import InputError
from chronospike.training.smoothing import choose_and_smooth
from chronospike.training.task import Nodes, Task, seen_part

if TYPE_CHECKING:
    import torch

    from chronospike.training.final_stage import FinalStage
    from chronospike.training.loop import Watcher
    from chronospike.training.run_folder import RunFolder

Kind = TypeVar("Kind", bound=Settings)
Progress = Callable[[int, int], None]  # nodes done, nodes in all
Values = NDArray[np.float64]


@dataclass(frozen=True)
class Cost:
    """What a fit took.

    Attributes:
        parameters: trainable ones.
        seconds_per_epoch: the median; None for a method without epochs.
        epochs, best_epoch: how many, and which one was kept.
        peak_memory: bytes, of the GPU if it was fitted there, else of the process.
        complete: whether all was done that the settings ask for; not if time was up.
    """

    parameters: int = 0
    seconds_per_epoch: float | None = None
    epochs: int | None = None
    best_epoch: int | None = None
    peak_memory: int | None = None
    complete: bool = True


@dataclass(frozen=True)
class FitContext:
    """The surroundings of a fit, which do not change what is learned.

    Attributes:
        run: the folder that checkpoints and the log of epochs go to, if any.
        resume: begin with the checkpoints that are there.
        watcher: called for every batch and epoch.
        on_note: called with a line about anything unexpected.
        on_stage: called with the number of finished fits of a second stage, and of all.
        deadline: on the clock of `time.monotonic`; what is not done by then is left out.
        stop: if it is set, the same happens at once.
    """

    run: RunFolder | None = None
    resume: bool = False
    watcher: Watcher | None = None
    on_note: Callable[[str], None] | None = None
    on_stage: Progress | None = None
    deadline: float | None = None
    stop: Event | None = None

    def is_late(self) -> bool:
        """Whether time is up."""
        is_stopped = self.stop is not None and self.stop.is_set()
        return is_stopped or (self.deadline is not None and time.monotonic() > self.deadline)

    def note(self, text: str) -> None:
        if self.on_note is not None:
            self.on_note(text)


class Fitted(ABC):
    """A fitted method, and how it is to be used.

    Attributes:
        task: what it answers with; after a refit the validation nodes are training nodes there.
        split: the split of the labels before any refit.
    """

    task: Task
    split: Split
    cost: Cost

    @property
    def calibration(self) -> FinalStage | None:
        """The temperature of its probabilities and its origin; None if they are not calibrated."""
        return None

    @abstractmethod
    def probabilities(self, nodes: Nodes, on_nodes: Progress | None = None) -> NDArray[np.floating[Any]]:
        """`[K, C]` class probabilities of `nodes [K]`."""

    @abstractmethod
    def embeddings(self, nodes: Nodes, on_nodes: Progress | None = None) -> NDArray[np.float32]:
        """`[K, d]` embeddings of `nodes [K]`; `InputError` for a method that has none."""

    def step_embeddings(self) -> NDArray[np.float32] | None:
        """`[T, N, d]` embeddings of all nodes at each step; None for a method that has one for all steps."""
        return None

    @abstractmethod
    def until(self, last_step: int) -> Fitted:
        """The same, to be used as of a step: see `Task.until`."""

    def held_out(self) -> Fitted | None:
        """The fit that has not seen the validation labels: this one, or after a refit the first if it is available."""
        return self

    @property
    def was_refitted(self) -> bool:
        """Whether it has learned from the validation nodes, too."""
        return len(self.split.validation) > 0 and len(self.task.split.validation) == 0

    def save(self, run: RunFolder) -> None:
        """Write what `Learner.load` needs beside the settings and labels of the run; nothing by default."""
        return

    def details(self) -> dict[str, Any]:
        """What a reader of the run may want to know of this method, ready for JSON."""
        return {}

    def smoothed(self, probabilities: Values) -> tuple[Values, dict[str, float]]:
        """Correct and Smooth of the probabilities `[N, C]` of all nodes, and the strengths that it chose."""
        first = self.held_out()
        if first is None:
            raise InputError(
                "smoothing a run with refit needs the checkpoint of its first fit, and checkpoint/ is missing"
            )
        everyone = np.arange(self.task.graph.num_nodes)
        tried = None if first is self else first.probabilities(everyone).astype(np.float64)
        split, last = seen_part(self.split, self.task.graph, self.task.last_step), self.task.last_step
        return choose_and_smooth(self.task.graph, probabilities, split.train, split.validation, tried, last)


class Learner(ABC, Generic[Kind]):
    """A method with its settings.

    Attributes:
        name: as users write it.
        title: as tables show it.
        summary: a line on what it does.
        settings_type: the settings it has.
        needs_features: whether it reads features of nodes.
        is_quick: whether a fit takes so little that one for each fold does not matter.
        keeps_checkpoints: whether a fit that was interrupted resumes.
        learns_from_labels: whether its embeddings depend on labels.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    summary: ClassVar[str]
    settings_type: ClassVar[type[Settings]] = Settings
    needs_features: ClassVar[bool] = True
    is_quick: ClassVar[bool] = False
    keeps_checkpoints: ClassVar[bool] = False
    learns_from_labels: ClassVar[bool] = True

    def __init__(self, settings: Kind) -> None:
        self.settings = settings

    @abstractmethod
    def fit(self, task: Task, context: FitContext | None = None) -> Fitted:
        """Learn from the training nodes of the task; its validation nodes may choose, its test nodes never do."""

    @abstractmethod
    def load(self, task: Task, run: RunFolder) -> Fitted:
        """What `fit` returned for the labels of the task and `Fitted.save` wrote, perhaps on a graph that has grown."""

    def check(self, graph: DynamicGraph) -> None:
        """Raise where the method cannot learn from this graph."""
        graph.require(classes=2)

    @property
    def memory_advice(self) -> str:
        """What to change when memory runs out."""
        return "Use a smaller graph"

    def require_memory(self, graph: DynamicGraph, to_make: int, train: int, device: torch.device) -> None:
        """Raise where a fit to `train` nodes needs more memory than there is, once `to_make` feature sets are made."""
        return

    def estimate(self, graph: DynamicGraph, width: int) -> dict[str, Any]:
        """What a fit would take with `width` inputs a node, as `--dry-run` says it; nothing where nobody counted it."""
        return {}

    def is_finished(self, run: RunFolder) -> bool:
        """Whether a run with these settings, perhaps longer than before, has nothing left to train."""
        return True
