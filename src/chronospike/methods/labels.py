"""Three classifiers on the known labels around a node and on its activity: the strongest simple method we know."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from chronospike.config import AtLeastZero, Count, Positive, Settings
from chronospike.data.activity import activity
from chronospike.data.graph import DynamicGraph
from chronospike.data.label_features import DIFFUSIONS, RECENCIES, label_features, stratified_folds
from chronospike.memory import require_bytes
from chronospike.methods.simple import Answer, SimpleLearner, quick_fit, thinned
from chronospike.threads import default_threads, run_chunks
from chronospike.training.bagging import BOOSTED_CLASSES
from chronospike.training.task import Nodes, Task

if TYPE_CHECKING:
    import torch

Rows = NDArray[np.float32]

# Rows of one call for predictions.
_CHUNK = 16_384


class LabelsSettings(Settings):
    """What is read of the labels around a node, and the three classifiers."""

    folds: Annotated[int, Field(ge=2, le=1000)] = Field(
        10, description="a labelled node reads the labels of the other folds only"
    )
    recencies: tuple[AtLeastZero, ...] = Field(
        RECENCIES, description="an edge at step t weighs exp(-recency (1 - t / (T - 1))); labels are read for each"
    )
    diffusions: tuple[tuple[Annotated[float, Field(ge=0, lt=1)], Count], ...] = Field(
        DIFFUSIONS, description="[alpha, rounds] of each diffusion of the labels, beside one and two hops"
    )
    strength: Positive = Field(1.0, description="logistic regression: inverse penalty")
    trees: Count = Field(200, description="extra trees: how many")
    leaf_nodes: Count = Field(3, description="extra trees: fewest training nodes in a leaf")
    boosting_rounds: Count = Field(60, description="gradient boosting: rounds, a tree per class each")
    boosting_leaves: Annotated[int, Field(ge=2, lt=2**31)] = Field(
        15, description="gradient boosting: leaves of a tree"
    )
    learning_rate: Positive = Field(0.1, description="gradient boosting: share of each tree")
    max_nodes: Count = Field(50_000, description="at most so many training nodes, the classes in proportion")


class Labels(SimpleLearner[LabelsSettings]):
    name = "labels"
    title = "label features"
    summary = "logistic regression, extra trees and gradient boosting on the labels around a node and its degrees"
    settings_type = LabelsSettings
    needs_features = False
    is_quick = False

    def answer(self, task: Task, known: Nodes) -> Answer:
        rows = self._inputs(task, known)
        some = thinned(task, known, self.settings.max_nodes)
        labels = task.labels(some)
        # A split by time may leave classes without training nodes.
        present = np.unique(labels)
        probabilities = np.zeros((len(rows), task.graph.num_classes))
        models = self._models(task.seed, len(present)) if len(present) > 1 else []
        for model in models:
            with quick_fit():
                model.fit(rows[some], labels)
            probabilities[:, present] += _predict(model, rows) / len(models)
        if not models:
            probabilities[:, present] = 1.0
        return Answer(probabilities, rows, sum(map(_size, models)), {"training_nodes": len(some)})

    @property
    def memory_advice(self) -> str:
        return "Lower the number of recencies or diffusions, or import the graph with fewer steps"

    def require_memory(self, graph: DynamicGraph, to_make: int, train: int, device: torch.device) -> None:
        s = self.settings
        columns = len(s.recencies) * (2 + len(s.diffusions)) * graph.num_classes + graph.num_steps + 3
        # The inputs stand twice while they are put together.
        require_bytes(8.0 * graph.num_nodes * columns, "the method 'labels' on this graph", self.memory_advice)

    def _inputs(self, task: Task, known: Nodes) -> Rows:
        """`[N, d]` label features, out of fold for the known nodes, then activity."""
        s, labels = self.settings, task.labels(known)
        around = label_features(
            task.graph,
            known,
            labels,
            stratified_folds(labels, s.folds, task.seed),
            recencies=s.recencies,
            diffusions=s.diffusions,
            last_step=task.last_step,
        )
        return np.concatenate([around, activity(task.graph, task.last_step)], axis=1)

    def _models(self, seed: int, classes: int) -> list[Any]:
        """The three; without boosting where it takes too long (see `BOOSTED_CLASSES`)."""
        from sklearn.ensemble import ExtraTreesClassifier, HistGradientBoostingClassifier
        from sklearn.linear_model import LogisticRegression
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler

        s, seed = self.settings, seed % 2**32
        models = [
            make_pipeline(StandardScaler(), LogisticRegression(C=s.strength, max_iter=200, tol=1e-3)),
            ExtraTreesClassifier(s.trees, min_samples_leaf=s.leaf_nodes, random_state=seed, n_jobs=default_threads()),
            HistGradientBoostingClassifier(
                max_iter=s.boosting_rounds,
                max_leaf_nodes=s.boosting_leaves,
                learning_rate=s.learning_rate,
                early_stopping=False,
                random_state=seed,
            ),
        ]
        return models if classes <= BOOSTED_CLASSES else models[:-1]


def _predict(model: Any, rows: Rows) -> NDArray[np.float64]:
    """`[N, classes]` class probabilities of rows `[N, d]`, a chunk of them at a time."""
    result = np.empty((len(rows), len(model.classes_)))
    chunks = range(0, len(rows), _CHUNK)

    def work(first: int, last: int) -> None:
        for start in chunks[first:last]:
            result[start : start + _CHUNK] = model.predict_proba(rows[start : start + _CHUNK])

    if hasattr(model, "n_jobs"):
        # Threads of the trees' own add up in the order in which they finish, which changes the last digits.
        model.n_jobs = 1
        run_chunks(work, len(chunks))
    else:
        work(0, len(chunks))
    return result


def _size(model: Any) -> int:
    """Weights, or values in leaves."""
    if hasattr(model, "estimators_"):
        return int(sum(tree.get_n_leaves() for tree in model.estimators_)) * len(model.classes_)
    if hasattr(model, "n_iter_"):
        return int(sum(tree.get_n_leaf_nodes() for stage in model._predictors for tree in stage))
    return int(model[-1].coef_.size + model[-1].intercept_.size)
