"""Logistic regression on the features of the last step, without neighbours or history."""

from __future__ import annotations

from typing import Annotated

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from chronospike.config import Count, Positive, Settings
from chronospike.methods.lbfgs import minimise
from chronospike.methods.simple import Answer, SimpleLearner, thinned
from chronospike.nn.dispatch import product_precision
from chronospike.training.metrics import score_predictions
from chronospike.training.task import Nodes, Task

Rows = NDArray[np.float32]

_FEWEST_NODES = 1_000
_ITERATIONS, _TOLERANCE = 200, 1e-3
# Rows encoded at once for predictions.
_CHUNK = 65_536


class LogisticSettings(Settings):
    """Logistic regression with an L2 penalty."""

    strengths: Annotated[tuple[Positive, ...], Field(min_length=1)] = Field(
        (1.0, 0.1, 0.01), description="inverse penalties to try; chosen by validation Macro-F1, the first on ties"
    )
    max_nodes: Count = Field(20_000, description="maximum number of training nodes; more are subsampled by class")
    max_work: Count = Field(25_000_000, description="maximum of nodes × features × classes per pass")


class Logistic(SimpleLearner[LogisticSettings]):
    name = "logistic"
    title = "logistic regression"
    summary = "logistic regression on the features of the last step"
    settings_type = LogisticSettings

    def answer(self, task: Task, known: Nodes) -> Answer:
        strength, fitted = self.settings.strengths[0], None
        if len(task.split.validation):
            strength, fitted = self._choose(task)
        some = self._some(task, known)
        if fitted is None or len(known) > len(task.split.train):
            fitted = Classifier(last_step_rows(task, some), task.labels(some), strength, task.device, fitted)
        rows = last_step_rows(task, np.arange(task.graph.num_nodes))
        answer = np.zeros((len(rows), task.graph.num_classes))
        for start in range(0, len(rows), _CHUNK):
            answer[start : start + _CHUNK, fitted.classes] = fitted.probabilities(rows[start : start + _CHUNK])
        return Answer(answer, rows, fitted.weights.numel(), {"training_nodes": len(some), "C": strength})

    def _choose(self, task: Task) -> tuple[float, Classifier]:
        """The strength with the best validation Macro-F1 after a fit to the training nodes, and that fit."""
        train, validation = self._some(task, task.split.train), self._some(task, task.split.validation)
        rows, labels = last_step_rows(task, train), task.labels(train)
        others, truth = last_step_rows(task, validation), torch.from_numpy(task.labels(validation))
        fits: list[tuple[float, Classifier]] = []
        for strength in self.settings.strengths:
            start = fits[-1][1] if fits else None
            fits.append((strength, Classifier(rows, labels, strength, task.device, start)))

        def score(fit: tuple[float, Classifier]) -> float:
            predicted = torch.from_numpy(fit[1].classes[fit[1].probabilities(others).argmax(axis=1)])
            return score_predictions(truth, predicted, task.graph.num_classes).macro_f1

        return max(fits, key=score)

    def _some(self, task: Task, nodes: Nodes) -> Nodes:
        """`nodes`, or as many of them as a quick fit can take, with the classes in proportion."""
        assert task.features is not None
        room = self.settings.max_work // (task.features.width * task.graph.num_classes)
        return thinned(task, nodes, max(_FEWEST_NODES, min(self.settings.max_nodes, room)))


def last_step_rows(task: Task, nodes: Nodes) -> Rows:
    """`[K, D]` features of `nodes` at the last step that is read."""
    assert task.features is not None
    return task.features.at(task.last_step, nodes)


class Classifier:
    """Softmax regression with an L2 penalty: the mean loss, plus the squares of the weights over 2 n `strength`.

    It also takes nodes of a single class, as a split by time may leave.

    Args:
        start: a fit to the same classes to begin with.
        iterations, tolerance: see `minimise`.

    Attributes:
        classes: `[C]` those that occur.
        weights: `[C, D + 1]`, the intercepts last; these are not penalised.
    """

    def __init__(
        self,
        rows: Rows,
        labels: NDArray[np.int64],
        strength: float,
        device: torch.device,
        start: Classifier | None = None,
        iterations: int | None = None,
        tolerance: float | None = None,
    ) -> None:
        self.classes, codes = np.unique(labels, return_inverse=True)
        x = torch.nn.functional.pad(torch.from_numpy(rows).to(device), (0, 1), value=1.0)
        wanted = torch.nn.functional.one_hot(torch.from_numpy(codes).to(device), len(self.classes)).to(x.dtype)
        penalty = torch.full((x.shape[1],), 1 / (len(x) * strength), device=device)
        penalty[-1] = 0

        def loss(weights: Tensor) -> tuple[Tensor, Tensor]:
            found = (x @ weights.t()).log_softmax(dim=1)
            value = (penalty * weights.square()).sum() / 2 - (found * wanted).sum() / len(x)
            return value, (found.exp() - wanted).t() @ x / len(x) + penalty * weights

        begin = torch.zeros(len(self.classes), x.shape[1], device=device)
        if start is not None and np.array_equal(start.classes, self.classes):
            begin = start.weights
        with product_precision(device, half=False):
            self.weights: Tensor = minimise(loss, begin, iterations or _ITERATIONS, tolerance or _TOLERANCE)

    @classmethod
    def of(cls, classes: NDArray[np.int64], weights: Tensor) -> Classifier:
        """One that was fitted before."""
        found = cls.__new__(cls)
        found.classes, found.weights = classes, weights
        return found

    def probabilities(self, rows: Rows) -> NDArray[np.float64]:
        """`[K, classes]` of rows `[K, D]`."""
        weights = self.weights.double().cpu()
        logits = torch.addmm(weights[:, -1], torch.from_numpy(rows).double(), weights[:, :-1].t())
        found: NDArray[np.float64] = logits.softmax(dim=1).numpy()
        return found
