"""The model in scikit-learn's manners: parameters by name, `fit`, `predict`, `score`, `clone` and `GridSearchCV`.

The samples are nodes, given as node indices, and the graph they live in is a parameter of its own. Two forms of
every call do the same:

    ChronoSpikeClassifier(graph=graph).fit(nodes, y).predict(others)      what scikit-learn's tools call
    ChronoSpikeClassifier().fit(graph, nodes, y).predict(graph, others)   the graph given with each call
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from chronospike.config import Settings, make_settings, read_preset, read_settings, write_settings
from chronospike.data.csr import history_and_snapshot
from chronospike.data.graph import DynamicGraph
from chronospike.errors import InputError, StorageError, nearest
from chronospike.files import atomic_folder
from chronospike.nn.model import ChronoSpike
from chronospike.training.device import choose_device
from chronospike.training.inference import infer
from chronospike.training.known_labels import KnownLabels, check_classes, check_nodes, known_labels
from chronospike.training.loop import EpochReport, Trainer, Watcher
from chronospike.training.problem import Problem, architecture, make_problem, new_model
from chronospike.training.refit import Fitted, is_refitted, second_trainer
from chronospike.training.smoothing import choose_and_smooth
from chronospike.training.weights import class_names, load_weights, rebuild, save_weights

_SETTINGS, _WEIGHTS, _LABELS = "config.yaml", "model.safetensors", "labels.parquet"
_FIRST = "first.safetensors"
_OWN = ("graph", "preset", "device", "verbose")


class ChronoSpikeClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Classifies and embeds the nodes of a dynamic graph.

    A share `validation` of the nodes given to `fit` chooses the best epoch; the settings `ratio`, `split_order` and
    `features` belong to the command line and do nothing here.

    Args:
        graph: with features; may be left out and given to each call instead.
        preset: a preset by name, or a YAML file; None for the paper's settings.
        device: `auto`, `cpu`, `cuda` or `cuda:N`.
        verbose: a line per epoch on standard error.
        settings: any of `chronospike.config.Settings` by name; they go before the preset's.

    Attributes:
        classes_: `[C]` the classes, in the order of the columns of `predict_proba`.
        settings_: all settings of the fit.
        model_: the network with the weights of the best epoch.
        known_: the labels it was fitted with, by node id.
        history_: a report per epoch.
        first_model_: with `refit=True` the model before the second fit, which has not seen the validation labels.
        graph_: the graph that calls without one use.
        smoothing_: the strengths of the last call with `smooth=True`.
    """

    def __init__(
        self,
        graph: DynamicGraph | None = None,
        *,
        preset: str | None = "default",
        device: str = "auto",
        verbose: bool = False,
        **settings: Any,
    ) -> None:
        self.graph = graph
        self.preset = preset
        self.device = device
        self.verbose = verbose
        self.set_params(**settings)

    def fit(self, X: Any = None, nodes: Any = None, y: Any = None) -> Self:
        """Train on `fit(graph, nodes, y)` or `fit(nodes, y)`.

        Args:
            X: a graph, or the nodes.
            nodes: `[K]` node indices; by default every labelled node of the graph.
            y: `[K]` their classes, text or numbers; by default the graph's labels. No other labels are read.
        """
        graph, chosen, labels = _arguments(X, nodes, y, self.graph)
        settings = self._settings()
        device = choose_device(self.device)
        graph.require(features=True)
        known, classes = known_labels(graph, chosen, labels, settings.validation, settings.split_seed)
        problem = _problem(graph, known, classes, settings, device)
        model = new_model(settings, graph.num_features, len(classes))
        # Training seeds torch's own generators for each batch; the caller's are given back as they were.
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            trainer = Trainer(model, problem)
            trainer.run(Watcher(on_epoch=_say if self.verbose else None))
            self.history_ = list(trainer.state.history)
            self.first_model_: ChronoSpike | None = None
            if is_refitted(settings.refit, problem.split):
                self.first_model_ = trainer.model
                trainer = second_trainer(trainer)
                trainer.run()
        self.classes_, self.settings_, self.model_ = classes, settings, trainer.model
        self.known_ = known
        self.graph_: DynamicGraph | None = graph
        self._problem_of_graph = (graph, problem)
        return self

    def predict(self, X: Any = None, nodes: Any = None, *, as_of: Any = None, smooth: bool = False) -> NDArray[Any]:
        """`[K]` the likeliest class of each node; the arguments are those of `predict_proba`."""
        likeliest = self.predict_proba(X, nodes, as_of=as_of, smooth=smooth).argmax(axis=1)
        classes: NDArray[Any] = self.classes_[likeliest]
        return classes

    def predict_proba(
        self, X: Any = None, nodes: Any = None, *, as_of: Any = None, smooth: bool = False
    ) -> NDArray[np.floating[Any]]:
        """`[K, C]` class probabilities.

        Args:
            X: a graph, or the nodes.
            nodes: `[K]` node indices; by default all nodes.
            as_of: use the graph up to this step only. A whole number below the number of steps is a step, anything
                else a time in the graph's own unit: `as_of="2010"` is a time where `as_of=10` is a step.
            smooth: spread the labels of the fit over the edges (Correct and Smooth).
        """
        problem, chosen = self._ready(X, nodes, as_of)
        if not smooth:
            return infer(self.model_, self._final(problem), chosen)[0].numpy()
        train, validation = problem.split.train, problem.split.validation
        if not len(train) or not len(validation):
            raise InputError("smooth needs the labels of the fit, and too few of their nodes are in this graph")
        first = None if self.first_model_ is None else (self.first_model_, problem)
        fitted = Fitted(self.model_, self._final(problem), problem.split, first)
        edges = _until(problem.graph, problem.steps[-1])
        smoothed, self.smoothing_ = choose_and_smooth(
            edges, fitted.probabilities(), train, validation, fitted.first_probabilities()
        )
        return smoothed[chosen]

    def embed(self, X: Any = None, nodes: Any = None, *, as_of: Any = None) -> NDArray[np.float32]:
        """`[K, hidden[-1]]` embeddings z of each node; the arguments are those of `predict_proba`."""
        problem, chosen = self._ready(X, nodes, as_of)
        embeddings: NDArray[np.float32] = infer(self.model_, self._final(problem), chosen)[1].numpy()
        return embeddings

    def score(
        self,
        X: Any = None,
        nodes: Any = None,
        y: Any = None,
        *,
        as_of: Any = None,
        smooth: bool = False,
        sample_weight: Any = None,
    ) -> float:
        """Accuracy, which is the Micro-F1 of single labels, on `score(graph, nodes, y)` or `score(nodes, y)`.

        Without nodes: on the labelled nodes that `fit` was not given. Without `y`: against the graph's labels.
        """
        check_is_fitted(self, "model_")
        graph, chosen, labels = _arguments(X, nodes, y, self.graph_)
        if chosen is None and labels is None:
            chosen = np.setdiff1d(graph.labelled, graph.ids.lookup(self.known_.ids))
        chosen = check_nodes(graph, chosen)
        if not len(chosen):
            raise InputError(
                "there are no nodes to score: fit was given every labelled one. Pass nodes, or fit on some"
            )
        truth = self._own_classes(graph, chosen) if labels is None else check_classes(graph, chosen, labels)
        right = self.predict(graph, chosen, as_of=as_of, smooth=smooth) == truth
        return float(np.average(right, weights=sample_weight))

    def save(self, path: str | Path, *, overwrite: bool = False) -> Path:
        """Write a folder of settings, weights and the labels of the fit (by node id); the graph is not in it."""
        check_is_fitted(self, "model_")
        with atomic_folder(Path(path), overwrite=overwrite, marker=_SETTINGS) as folder:
            (folder / _SETTINGS).write_text(write_settings(self.settings_), encoding="utf-8")
            save_weights(self.model_, folder / _WEIGHTS, class_names=self.classes_.tolist())
            if self.first_model_ is not None:
                save_weights(self.first_model_, folder / _FIRST, class_names=self.classes_.tolist())
            self.known_.save(folder / _LABELS)
        return Path(path)

    @classmethod
    def load(cls, path: str | Path, graph: DynamicGraph | None = None, *, device: str = "auto") -> Self:
        """A fitted classifier from a folder that `save` wrote, for the same graph, a later one or another."""
        folder = Path(path)
        settings = make_settings(read_settings(folder / _SETTINGS))
        tensors, metadata = load_weights(folder / _WEIGHTS)
        model = rebuild(tensors, metadata, folder / _WEIGHTS)
        classes, a = np.array(class_names(metadata)), model.architecture
        inputs = a.inputs - (a.classes if settings.label_inputs else 0)
        if architecture(settings, inputs, a.classes) != a or len(classes) != a.classes:
            raise StorageError(f"{folder}: {_SETTINGS} and {_WEIGHTS} do not belong together. Save the model again")
        found = cls(graph, device=device, **settings.model_dump())
        found.model_ = model.to(choose_device(device))
        model.kernels = settings.kernels
        found.first_model_ = None
        if settings.refit and (folder / _FIRST).is_file():
            first = rebuild(*load_weights(folder / _FIRST), folder / _FIRST)
            found.first_model_ = first.to(choose_device(device))
            first.kernels = settings.kernels
        found.classes_, found.settings_ = classes, settings
        found.known_ = KnownLabels.read(folder / _LABELS, len(classes))
        found.graph_, found.history_ = graph, []
        return found

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Every parameter by name; a setting that was not given has the preset's value."""
        base = make_settings(self._preset_values()).model_dump()
        return {**{name: getattr(self, name) for name in _OWN}, **base, **self._given()}

    def set_params(self, **params: Any) -> Self:
        """Change parameters by name; all names are checked before any is changed, values when `fit` is called."""
        names = (*_OWN, *Settings.model_fields)
        for name in params:
            if name not in names:
                raise InputError(f"there is no setting '{name}'.{nearest(name, names)}")
        for name, value in params.items():
            setattr(self, name, value)
        return self

    def _given(self) -> dict[str, Any]:
        """The settings that were given by name."""
        return {name: vars(self)[name] for name in Settings.model_fields if name in vars(self)}

    def _preset_values(self) -> dict[str, Any]:
        return {} if self.preset is None else read_preset(self.preset)

    def _settings(self) -> Settings:
        given = {name: _plain(value) for name, value in self._given().items()}
        return make_settings({**self._preset_values(), **given})

    def _ready(self, X: Any, nodes: Any, as_of: Any) -> tuple[Problem, NDArray[np.int64]]:
        """What inference needs: the problem, cut off after `as_of`, and the checked nodes."""
        check_is_fitted(self, "model_")
        graph, chosen, extra = _arguments(X, nodes, None, self.graph_)
        if extra is not None:
            raise InputError("nodes are given twice; call with (nodes) or with (graph, nodes)")
        chosen = check_nodes(graph, chosen)
        kept, problem = getattr(self, "_problem_of_graph", (None, None))
        if problem is None or kept is not graph:
            self._check_width(graph)
            device = next(self.model_.parameters()).device
            problem = _problem(graph, self.known_, self.classes_, self.settings_, device)
            self._problem_of_graph = (graph, problem)
        if as_of is not None:
            last = step_as_of(graph, as_of)
            problem = replace(problem, steps=(last,) if self.settings_.static else tuple(range(last + 1)))
        return problem, chosen

    def _final(self, problem: Problem) -> Problem:
        """What the model itself infers with: after a refit it knows all labels of the fit."""
        return problem if self.first_model_ is None else problem.with_all_labels()

    def _check_width(self, graph: DynamicGraph) -> None:
        a = self.model_.architecture
        wanted = a.inputs - (a.classes if self.settings_.label_inputs else 0)
        if graph.require(features=True).num_features != wanted:
            raise InputError(
                f"the graph has {graph.num_features} features per node, and the model was fitted on {wanted}. "
                "Make the features the same way"
            )

    def _own_classes(self, graph: DynamicGraph, nodes: NDArray[np.int64]) -> NDArray[Any]:
        """The graph's own labels of `nodes`, written as in `classes_`."""
        if not set(graph.class_names) & set(self.classes_.tolist()):
            raise InputError("score needs y: the classes of the fit are not the graph's own")
        graph.require(classes=1)
        codes = np.asarray(graph.labels)[nodes]
        if (codes < 0).any():
            raise InputError(f"node {nodes[codes < 0][0]} has no label to score against. Leave it out, or give y")
        own: NDArray[Any] = np.array(graph.class_names)[codes]
        return own

    def __sklearn_clone__(self) -> Self:
        # The graph is shared, never copied: it cannot change. Settings left to the preset stay left to it.
        return type(self)(**{name: getattr(self, name) for name in _OWN}, **self._given())

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.one_d_array, tags.input_tags.two_d_array = True, False
        return tags

    def __getstate__(self) -> dict[str, Any]:
        # What is put together from the graph on demand need not travel to another process.
        return {name: value for name, value in super().__getstate__().items() if name != "_problem_of_graph"}

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        shown = {name: getattr(self, name) for name in _OWN[1:]} | self._given()
        defaults = {"preset": "default", "device": "auto", "verbose": False}
        parts = [
            f"{name}={value!r}" for name, value in shown.items() if name not in defaults or value != defaults[name]
        ]
        if self.graph is not None:
            parts.insert(0, f"graph=<{self.graph.num_nodes:,} nodes, {self.graph.num_steps} steps>")
        return f"{type(self).__name__}({', '.join(parts)})"[:N_CHAR_MAX]


def step_as_of(graph: DynamicGraph, as_of: Any) -> int:
    """The step that `as_of` names: a whole number below the number of steps is a step, anything else a time."""
    whole = isinstance(as_of, int | np.integer) and not isinstance(as_of, bool)
    if whole and 0 <= as_of < graph.num_steps:
        return int(as_of)
    first, last = graph.step_start[0], graph.step_end[-1]
    # A number is no date, and one past the end is more likely a miscounted step than a time to come.
    if whole and (last.dtype.kind == "M" or as_of > last):
        raise InputError(
            f"as_of {as_of} is neither a step (0..{graph.num_steps - 1}) nor a time from {first} to {last}; "
            "write a date as text"
        )
    try:
        return graph.step_of(as_of)
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError(f"as_of {as_of!r} is neither a step nor a time such as {first}") from error


def _arguments(X: Any, nodes: Any, y: Any, graph: DynamicGraph | None) -> tuple[DynamicGraph, Any, Any]:
    """(graph, nodes, y) from a call with (graph, nodes, y), or with (nodes, y) and the `graph` known already."""
    if isinstance(X, DynamicGraph):
        return X, nodes, y
    if graph is None:
        raise InputError("there is no graph: give it first, or as ChronoSpikeClassifier(graph=...)")
    if X is None:
        return graph, nodes, y
    if nodes is not None and y is not None:
        raise InputError(f"the first of three arguments is the graph, not a {type(X).__name__}")
    return graph, X, nodes if y is None else y


def _problem(
    graph: DynamicGraph, known: KnownLabels, classes: NDArray[Any], settings: Settings, device: torch.device
) -> Problem:
    """The problem of a graph whose only labels are the known ones."""
    labelled, split = known.placed_in(graph, tuple(str(name) for name in classes.tolist()))
    return make_problem(labelled, settings, device, split)


def _until(graph: DynamicGraph, last: int) -> DynamicGraph:
    """The edges of steps 0..`last` and the labels, without the features."""
    if last == graph.num_steps - 1:
        return graph
    rows, steps, neighbours = graph.snapshot.entries()
    keep = steps <= last
    history, snapshot = history_and_snapshot(rows[keep], neighbours[keep], steps[keep], graph.num_nodes, last + 1)
    start, end = graph.step_start[: last + 1], graph.step_end[: last + 1]
    return replace(graph, history=history, snapshot=snapshot, step_start=start, step_end=end, features=None)


def _plain(value: Any) -> Any:
    """Numbers of numpy, which search grids are often made of, as Python's own."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    return type(value)(_plain(item) for item in value) if isinstance(value, list | tuple) else value


def _say(report: EpochReport) -> None:
    score = f"validation Macro-F1 {report.validation_macro_f1:.4f}{' *' if report.best else ''}"
    print(f"epoch {report.epoch + 1}: loss {report.loss:.4f}, {score}, {report.seconds:.1f} s", file=sys.stderr)
