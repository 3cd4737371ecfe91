"""Logistic regression on the features of the last step: what they say of a node without its neighbours or its past."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression

from chronospike.data.splits import Split
from chronospike.sampling.tree import NeighbourTree
from chronospike.training.known_labels import hold_out
from chronospike.training.metrics import score_predictions
from chronospike.training.problem import Problem

Nodes = NDArray[np.integer[Any]]
Rows = NDArray[np.float32]

MOST_NODES = 20_000
# Nodes times features times classes of one pass over the training nodes: a fit stays within seconds.
_WORK = 25_000_000
_FEWEST_NODES = 1_000
_ITERATIONS, _TOLERANCE = 200, 1e-3
# The first of equals is taken.
_STRENGTHS = (1.0, 0.1, 0.01)
# Rows gathered at once for predictions.
_CHUNK = 4096


def logistic_regression(problem: Problem, split: Split, nodes: Nodes) -> tuple[NDArray[np.int64], dict[str, Any]]:
    """Predicted classes `[K]` of `nodes`, and what was fitted: `training_nodes` and the inverse penalty `C`.

    It learns from the training nodes of `problem`. The validation nodes of `split`, if there are any, choose `C`
    with a fit on the training nodes of `split`, as they choose the network's epoch.
    """
    train = _some(problem, problem.split.train)
    strength, fitted = _STRENGTHS[0], None
    if len(split.validation):
        refitted = not np.array_equal(problem.split.train, split.train)
        first = _some(problem, split.train) if refitted else train
        strength, fitted = _choose(problem, first, split.validation)
        fitted = None if refitted else fitted
    fitted = fitted or _Classifier(last_step_rows(problem, train), _labels(problem, train), strength)
    return _predict(problem, fitted, nodes), {"training_nodes": len(train), "C": strength}


def last_step_rows(problem: Problem, nodes: Nodes) -> Rows:
    """`[K, D]` features of `nodes` at the last step, as the network gets them."""
    roots = torch.from_numpy(np.array(nodes, dtype=np.int32)).to(problem.device)
    tree = NeighbourTree(roots[None], fanouts=(), steps=problem.steps[-1:])
    rows: Rows = problem.inputs.rows(tree).dense()[0].float().cpu().numpy()
    return rows


class _Classifier:
    """A fit that also takes training nodes of a single class, as a split by time may leave."""

    def __init__(self, rows: Rows, labels: Nodes, strength: float) -> None:
        self._only = int(labels[0])
        self._model = None
        if (labels != self._only).any():
            self._model = LogisticRegression(C=strength, max_iter=_ITERATIONS, tol=_TOLERANCE)
            with warnings.catch_warnings():
                # After so many iterations it is good enough to be compared with.
                warnings.simplefilter("ignore", ConvergenceWarning)
                self._model.fit(rows, labels)

    def predict(self, rows: Rows) -> NDArray[np.int64]:
        """Classes `[K]` of rows `[K, D]`."""
        if self._model is None:
            return np.full(len(rows), self._only)
        return np.asarray(self._model.predict(rows), dtype=np.int64)


def _choose(problem: Problem, train: Nodes, validation: Nodes) -> tuple[float, _Classifier]:
    """The strength with the best Macro-F1 on `validation`, and its fit."""
    rows, labels = last_step_rows(problem, train), _labels(problem, train)
    validation = _some(problem, validation)
    truth = torch.from_numpy(_labels(problem, validation))
    fits = [(strength, _Classifier(rows, labels, strength)) for strength in _STRENGTHS]

    def score(fit: tuple[float, _Classifier]) -> float:
        predicted = torch.from_numpy(_predict(problem, fit[1], validation))
        return score_predictions(truth, predicted, problem.graph.num_classes).macro_f1

    return max(fits, key=score)


def _predict(problem: Problem, fitted: _Classifier, nodes: Nodes) -> NDArray[np.int64]:
    chunks = [nodes[start : start + _CHUNK] for start in range(0, len(nodes), _CHUNK)]
    found = [fitted.predict(last_step_rows(problem, chunk)) for chunk in chunks]
    return np.concatenate(found) if found else np.zeros(0, dtype=np.int64)


def _some(problem: Problem, nodes: Nodes) -> Nodes:
    """`nodes`, or as many of them as a quick fit can take, with the classes in proportion."""
    room = _WORK // (problem.inputs.width * problem.graph.num_classes)
    most = max(_FEWEST_NODES, min(MOST_NODES, room))
    if len(nodes) <= most:
        return nodes
    return nodes[~hold_out(_labels(problem, nodes), 1 - most / len(nodes), problem.settings.seed)]


def _labels(problem: Problem, nodes: Nodes) -> NDArray[np.int64]:
    return problem.targets(nodes).cpu().numpy().astype(np.int64)
