"""The model with scikit-learn's interface: parameters by name, `fit`, `predict`, `score`, `clone` and `GridSearchCV`.

The samples are nodes, given as node indices, and the graph they live in is a parameter of its own. Two forms of
every call are equivalent:

    ChronoSpikeClassifier(graph=graph).fit(nodes, y).predict(others)      what scikit-learn's tools call
    ChronoSpikeClassifier().fit(graph, nodes, y).predict(graph, others)   the graph given with each call
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Any, Self, cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted
from torch import nn

from chronospike.config import make_settings, read_preset, read_settings, write_settings
from chronospike.data.as_of import step_as_of
from chronospike.data.attributes import AttributeEncoder
from chronospike.data.graph import DynamicGraph
from chronospike.data.storage import structure_key
from chronospike.device import choose_device, keep_freed_memory, own_torch
from chronospike.errors import InputError, StorageError, nearest
from chronospike.features.make import with_features_for
from chronospike.features.recipes import check_date, check_sets, check_transfer, methods_for
from chronospike.files import atomic_folder, read_json, write_json
from chronospike.methods.chronospike.learner import ChronoSpikeLearner
from chronospike.methods.chronospike.network import ChronoSpikeNetwork, architecture, describe, rebuild
from chronospike.methods.chronospike.root_table import root_widths
from chronospike.methods.chronospike.settings import ChronoSpikeSettings
from chronospike.nn.model import Architecture, ChronoSpike
from chronospike.training.bagging import FOLDS, BagFitted, loaded_bag, out_of_fold_table, read_out_of_fold
from chronospike.training.final_stage import FinalStage
from chronospike.training.gradient import GradientFitted
from chronospike.training.known_labels import KnownLabels, check_classes, check_nodes, known_labels
from chronospike.training.learner import Cost, FitContext
from chronospike.training.loop import EpochReport, Watcher
from chronospike.training.task import Task, make_task
from chronospike.training.weights import class_names, load_weights, save_weights

_SETTINGS, _WEIGHTS, _LABELS = "config.yaml", "model.safetensors", "labels.parquet"
_FIRST, _INPUTS = "first.safetensors", "inputs.json"
_FINAL, _OUT_OF_FOLD = "final_stage.safetensors", "out_of_fold.parquet"
AnyFitted = GradientFitted | BagFitted
_OWN = ("graph", "preset", "device", "verbose")


class ChronoSpikeClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Classifies and embeds the nodes of a dynamic graph.

    Unless the setting `selection` is `last`, as in the default preset, a share `validation` of the nodes given to `fit`
    is used to select the best epoch. The settings `ratio` and `split_order` apply to the command line only. If the
    graph has no features, they are computed from its edges according to the settings `features` and `feature_…`.

    Args:
        graph: may be left out and given to each call instead.
        preset: name of a preset, or a YAML file such as a run's `config.yaml`; None for the paper's settings.
        device: `auto`, `cpu`, `cuda` or `cuda:N`.
        verbose: a line per epoch on standard error.
        settings: any of `ChronoSpikeSettings` by name; they override those of the preset.

    Attributes:
        classes_: `[C]` the classes, in the order of the columns of `predict_proba`.
        settings_: all settings of the fit.
        model_: the network with the weights of the selected epoch; with `folds` a list of networks.
        final_: what follows the network: the temperature of `calibrate` and the `second_stage`.
        out_of_fold_: with `folds` an Arrow table with the out-of-fold predictions of the labelled nodes.
        known_: the labels it was fitted with, by node id.
        encoder_: the encoding of the nodes' attributes, by column name; None if there are none.
        edges_: a fingerprint of the edges that `fit` made features from; None if it made none.
        recipes_: how the computed features were made, as far as the graph knows.
        history_: one report per epoch.
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

    @own_torch()
    def fit(self, X: Any = None, nodes: Any = None, y: Any = None) -> Self:
        """Train on `fit(graph, nodes, y)` or `fit(nodes, y)`.

        Like the command line, this changes two things for the whole process: the C library keeps large freed blocks
        (`keep_freed_memory`; predictions do the same), and idle OpenMP threads sleep, which importing this class from
        `chronospike` sets unless torch was imported before or the environment sets it. Torch's random generators and
        defaults do not change, and do not affect the result. Fits and predictions in several threads take turns.
        A process forked after either computes on one thread, because the others do not survive a fork.

        Args:
            X: a graph, or the nodes.
            nodes: `[K]` node indices; by default every labelled node of the graph.
            y: `[K]` their classes, text or numbers; by default the graph's labels. No other labels are read.
        """
        graph, chosen, labels = _arguments(X, nodes, y, self.graph)
        settings = self._settings()
        device = choose_device(self.device)
        keep_freed_memory()
        known, classes = known_labels(graph, chosen, labels, settings.validation, settings.split_seed)
        featured = with_features_for(graph, settings, str(device))
        task = _task(featured, known, classes, settings, device)
        self.history_: list[EpochReport] = []

        def on_epoch(report: EpochReport) -> None:
            self.history_.append(report)
            if self.verbose:
                _say(report)

        fitted = ChronoSpikeLearner(settings).fit(task, FitContext(watcher=Watcher(on_epoch=on_epoch)))
        self.model_, self.first_model_, self.out_of_fold_ = _modules(fitted)
        self.final_ = fitted.final
        network = fitted.networks[0] if isinstance(fitted, BagFitted) else fitted.network
        # It may do without labels as inputs where most nodes would meet none.
        self.settings_ = cast(ChronoSpikeNetwork, network).settings
        self.classes_, self.known_ = classes, known
        self.encoder_ = None if task.features is None else task.features.encoder
        self.edges_ = structure_key(graph) if featured is not graph and featured.made_features else None
        self.recipes_ = featured.recipes
        self.graph_: DynamicGraph | None = graph
        self._fitted_on = (graph, fitted)
        return self

    def predict(
        self, X: Any = None, nodes: Any = None, *, ids: Any = None, as_of: Any = None, smooth: bool = False
    ) -> NDArray[Any]:
        """`[K]` the likeliest class of each node; the arguments are those of `predict_proba`."""
        likeliest = self.predict_proba(X, nodes, ids=ids, as_of=as_of, smooth=smooth).argmax(axis=1)
        classes: NDArray[Any] = self.classes_[likeliest]
        return classes

    @own_torch()
    def predict_proba(
        self, X: Any = None, nodes: Any = None, *, ids: Any = None, as_of: Any = None, smooth: bool = False
    ) -> NDArray[np.floating[Any]]:
        """`[K, C]` class probabilities.

        Args:
            X: a graph, or the nodes.
            nodes: `[K]` node indices; by default all nodes.
            ids: `[K]` nodes by your own ids, instead of `nodes`.
            as_of: use nothing later than a step (an integer below the number of steps) or a time in the graph's own
                unit, which selects the last step that had ended by then. Nodes without an edge by then
                are those where `graph.seen_by(step_as_of(graph, as_of))` is False.
            smooth: smooth with the labels of the fit over the edges (Correct and Smooth).
        """
        fitted, chosen = self._ready(X, nodes, ids, as_of)
        if not smooth:
            return fitted.probabilities(chosen)
        everyone = fitted.probabilities(np.arange(fitted.task.graph.num_nodes)).astype(np.float64)
        smoothed, self.smoothing_ = fitted.smoothed(everyone)
        return smoothed[chosen]

    @own_torch()
    def embed(self, X: Any = None, nodes: Any = None, *, ids: Any = None, as_of: Any = None) -> NDArray[np.float32]:
        """`[K, D]` embeddings z of each node, with `folds` those of all networks side by side.

        D is `hidden[-1]` for each network; the arguments are those of `predict_proba`.
        """
        fitted, chosen = self._ready(X, nodes, ids, as_of)
        return fitted.embeddings(chosen)

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

        Without `nodes`, it scores the labelled nodes not given to `fit`; without `y`, it uses the graph's labels.
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
        if (truth.dtype.kind == "U") != (self.classes_.dtype.kind == "U"):
            first = self.classes_[0].item()
            raise InputError(
                f"y holds {truth.dtype}, and the classes of the fit are such as {first!r}; write both alike"
            )
        if sample_weight is not None and np.shape(sample_weight) != truth.shape:
            shape = list(np.shape(sample_weight))
            raise InputError(f"sample_weight has shape {shape}, and there are {len(truth)} nodes; give one for each")
        right = self.predict(graph, chosen, as_of=as_of, smooth=smooth) == truth
        return float(np.average(right, weights=sample_weight))

    def save(self, path: str | Path, *, overwrite: bool = False) -> Path:
        """Write a folder of settings, weights and the labels of the fit (by node id); the graph is not in it."""
        check_is_fitted(self, "model_")
        with atomic_folder(Path(path), overwrite=overwrite, marker=_SETTINGS) as folder:
            (folder / _SETTINGS).write_text(write_settings(self.settings_), encoding="utf-8")
            described = describe(_architecture(self.model_))
            if isinstance(self.model_, nn.ModuleList):
                # What tells a weights file of several networks from one of a single one.
                described[FOLDS] = len(self.model_)
            for model, name in ((self.model_, _WEIGHTS), (self.first_model_, _FIRST)):
                if model is not None:
                    save_weights(model, folder / name, described, self.classes_.tolist())
            self.final_.save(folder / _FINAL)
            if self.out_of_fold_ is not None:
                pq.write_table(self.out_of_fold_, folder / _OUT_OF_FOLD)
            self.known_.save(folder / _LABELS)
            encoder = None if self.encoder_ is None else self.encoder_.to_json()
            write_json(folder / _INPUTS, {"attributes": encoder, "edges": self.edges_, "recipes": self.recipes_})
        return Path(path)

    @classmethod
    @own_torch()
    def load(cls, path: str | Path, graph: DynamicGraph | None = None, *, device: str = "auto") -> Self:
        """A fitted classifier from a folder that `save` wrote, for the same graph, a later one or another.

        Features that `fit` computed because the graph had none are computed again, as they are after unpickling. With
        several threads, DeepWalk features and therefore predictions then differ slightly; to avoid this, store the
        features in the graph folder (`make_features`).
        """
        folder = Path(path)
        values = read_settings(folder / _SETTINGS)
        if "method" in values:
            raise StorageError(
                f"{folder} is a run, not a model that save wrote. Use it with: chronospike predict {folder}"
            )
        settings = make_settings(ChronoSpikeSettings, values)
        tensors, metadata = load_weights(folder / _WEIGHTS)
        model = rebuild(tensors, metadata, folder / _WEIGHTS)
        classes, a = np.array(class_names(metadata)), _architecture(model)
        inputs = a.inputs - (a.classes if settings.label_inputs else 0)
        possible = (describe(architecture(settings, inputs, a.classes, directed)) for directed in (False, True))
        if describe(a) not in possible or len(classes) != a.classes:
            raise StorageError(f"{folder}: {_SETTINGS} and {_WEIGHTS} do not belong together. Save the model again")
        described = read_json(folder / _INPUTS)
        found = cls(graph, device=device, **settings.model_dump())
        # Folders of earlier versions have no recipes.
        found.encoder_, found.edges_, found.recipes_ = None, described.get("edges"), tuple(described.get("recipes", ()))
        if described.get("attributes") is not None:
            found.encoder_ = AttributeEncoder.from_json(described["attributes"], str(folder / _INPUTS))
        found.model_ = model.to(choose_device(device))
        found.first_model_ = None
        if settings.refit and (folder / _FIRST).is_file():
            first = rebuild(*load_weights(folder / _FIRST), folder / _FIRST)
            found.first_model_ = cast(ChronoSpike, first.to(choose_device(device)))
        # Folders of earlier versions have none.
        found.final_ = FinalStage.load(folder / _FINAL) if (folder / _FINAL).is_file() else FinalStage()
        is_several = isinstance(model, nn.ModuleList)
        found.out_of_fold_ = read_out_of_fold(folder / _OUT_OF_FOLD) if is_several else None
        found.classes_, found.settings_ = classes, settings
        found.known_ = KnownLabels.read(folder / _LABELS, len(classes))
        found.graph_, found.history_ = graph, []
        return found

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Every parameter by name; a setting that was not given has the preset's value."""
        base = make_settings(ChronoSpikeSettings, self._preset_values()).model_dump()
        return {**{name: getattr(self, name) for name in _OWN}, **base, **self._given()}

    def set_params(self, **params: Any) -> Self:
        """Change parameters by name; all names are checked before any is changed, values when `fit` is called."""
        names = (*_OWN, *ChronoSpikeSettings.model_fields)
        for name in params:
            if name not in names:
                hint = " It is called 'seed' here." if name == "random_state" else nearest(name, names)
                raise InputError(f"there is no setting '{name}'.{hint}")
        for name, value in params.items():
            setattr(self, name, value)
        return self

    def _given(self) -> dict[str, Any]:
        """The settings that were given by name."""
        return {name: vars(self)[name] for name in ChronoSpikeSettings.model_fields if name in vars(self)}

    def _preset_values(self) -> dict[str, Any]:
        values = {} if self.preset is None else read_preset(self.preset)
        # The settings of a run say whose they are.
        method = values.pop("method", ChronoSpikeLearner.name)
        if method != ChronoSpikeLearner.name:
            raise InputError(f"{self.preset} holds settings of {method}, and this is {ChronoSpikeLearner.name}")
        return values

    def _settings(self) -> ChronoSpikeSettings:
        given = {name: _plain(value) for name, value in self._given().items()}
        return make_settings(ChronoSpikeSettings, {**self._preset_values(), **given})

    def _ready(self, X: Any, nodes: Any, ids: Any, as_of: Any) -> tuple[AnyFitted, NDArray[np.int64]]:
        """What inference needs: the model with its problem, cut off after `as_of`, and the checked nodes."""
        check_is_fitted(self, "model_")
        graph, chosen, extra = _arguments(X, nodes, None, self.graph_)
        if extra is not None:
            raise InputError("nodes are given twice; call with (nodes) or with (graph, nodes)")
        if ids is not None:
            if chosen is not None:
                raise InputError("give nodes by index or by your own ids, not both")
            chosen = _by_id(graph, ids)
        chosen = check_nodes(graph, chosen)
        last = None if as_of is None else step_as_of(graph, as_of)
        if last is not None:
            check_date([str(made.get("method")) for made in graph.recipes])
        kept, fitted = getattr(self, "_fitted_on", (None, None))
        if fitted is None or kept is not graph:
            fitted = self._on(graph)
            self._fitted_on = (graph, fitted)
        return fitted if last is None else fitted.until(last), chosen

    def _on(self, graph: DynamicGraph) -> AnyFitted:
        """The model on a graph that it was not fitted to."""
        settings, a = self.settings_, _architecture(self.model_)
        device = next(self.model_.parameters()).device
        keep_freed_memory()
        shared = int((graph.ids.lookup(self.known_.ids) >= 0).sum())
        if self.edges_ is not None and not graph.made_features:
            check_transfer(methods_for(settings, graph.features is not None), self.edges_, structure_key(graph), shared)
        featured = with_features_for(graph, settings, str(device)) if self.edges_ is not None else graph
        check_sets(self.recipes_, featured.recipes, shared)
        task = _task(featured, self.known_, self.classes_, settings, device, self.encoder_)
        assert task.features is not None
        wanted = a.inputs - (a.classes if settings.label_inputs else 0)
        if task.features.width != wanted:
            raise InputError(
                f"the graph gives {task.features.width} inputs per node, and the model was fitted on {wanted}. "
                "Make the features the same way"
            )
        if root_widths(settings, a.classes, graph.directed) != (a.met, a.numbers):
            kind = "undirected" if graph.directed else "directed"
            raise InputError(
                f"the model was fitted on a graph with {kind} edges. Import this one with directed={not graph.directed}"
            )
        for note in task.features.notes:
            warnings.warn(note, stacklevel=4)
        network, first = ChronoSpikeNetwork(task, settings, training=False), None
        if isinstance(self.model_, nn.ModuleList):
            assert self.out_of_fold_ is not None
            return loaded_bag(task, network, list(self.model_), self.final_, self.out_of_fold_, Path(_OUT_OF_FOLD))
        if self.first_model_ is not None:
            # After a refit the model knows all labels of the fit.
            network.module = self.first_model_
            first, network = network, network.for_task(task.with_all_labels())
        network.module = self.model_
        return GradientFitted(network, task.split, Cost(), first, self.final_)

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
        return {name: value for name, value in super().__getstate__().items() if name != "_fitted_on"}

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        shown = {name: getattr(self, name) for name in _OWN[1:]} | self._given()
        defaults = {"preset": "default", "device": "auto", "verbose": False}
        parts = [
            f"{name}={value!r}" for name, value in shown.items() if name not in defaults or value != defaults[name]
        ]
        if isinstance(self.graph, DynamicGraph):
            parts.insert(0, f"graph=<{self.graph.num_nodes:,} nodes, {self.graph.num_steps} steps>")
        elif self.graph is not None:
            parts.insert(0, f"graph={self.graph!r}")
        return f"{type(self).__name__}({', '.join(parts)})"[:N_CHAR_MAX]


def _modules(fitted: AnyFitted) -> tuple[ChronoSpike | nn.ModuleList, ChronoSpike | None, pa.Table | None]:
    """The network, or all of them; the one before a refit; the table of out-of-fold probabilities."""
    if isinstance(fitted, BagFitted):
        return nn.ModuleList(network.module for network in fitted.networks), None, out_of_fold_table(fitted)
    first = None if fitted.first is None else cast(ChronoSpike, fitted.first.module)
    return cast(ChronoSpike, fitted.network.module), first, None


def _architecture(model: ChronoSpike | nn.ModuleList) -> Architecture:
    return cast(ChronoSpike, model[0] if isinstance(model, nn.ModuleList) else model).architecture


def _arguments(X: Any, nodes: Any, y: Any, graph: DynamicGraph | None) -> tuple[DynamicGraph, Any, Any]:
    """(graph, nodes, y) from a call with (graph, nodes, y), or with (nodes, y) and the `graph` known already."""
    if isinstance(X, DynamicGraph):
        return X, nodes, y
    if graph is None:
        raise InputError("there is no graph: give a DynamicGraph first, or as ChronoSpikeClassifier(graph=...)")
    if not isinstance(graph, DynamicGraph):
        raise InputError(f"graph is a {type(graph).__name__}; give a DynamicGraph, such as open_graph(folder) returns")
    if X is None:
        return graph, nodes, y
    if nodes is not None and y is not None:
        raise InputError(f"the first of three arguments is the graph, not a {type(X).__name__}")
    return graph, X, nodes if y is None else y


def _by_id(graph: DynamicGraph, ids: Any) -> NDArray[np.int64]:
    """Node indices of the user's own ids."""
    # Numbers of numpy and torch as Python's own.
    given = ids.tolist() if hasattr(ids, "tolist") else ids
    given = [given] if np.isscalar(given) else list(given)
    places = graph.ids.lookup(given)
    unknown = [given[i] for i in np.flatnonzero(places < 0)]
    if unknown:
        first = ", ".join(repr(name) for name in unknown[:3])
        raise InputError(f"{len(unknown)} id(s) are not in the graph, the first: {first}")
    return places


def _task(
    graph: DynamicGraph,
    known: KnownLabels,
    classes: NDArray[Any],
    settings: ChronoSpikeSettings,
    device: torch.device,
    encoder: AttributeEncoder | None = None,
) -> Task:
    """The task of a graph whose only labels are the known ones."""
    labelled, split = known.placed_in(graph, tuple(str(name) for name in classes.tolist()))
    return make_task(labelled, settings, device, split, encoder)


def _plain(value: Any) -> Any:
    """Numbers of numpy, which search grids are often made of, as Python's own."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    return type(value)(_plain(item) for item in value) if isinstance(value, list | tuple) else value


def _say(report: EpochReport) -> None:
    score = f"validation Macro-F1 {report.validation_macro_f1:.4f}{' *' if report.best else ''}"
    print(f"epoch {report.epoch + 1}: loss {report.loss:.4f}, {score}, {report.seconds:.1f} s", file=sys.stderr)
