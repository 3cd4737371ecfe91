"""Small classifiers on top of features and predictions of labelled nodes, and their weights in an ensemble.

A logistic regression, extra trees and gradient boosting, or the mean of the three. Scikit-learn fits the first two;
what they have learned is kept as arrays, so that a stored one predicts without it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from chronospike.errors import InputError
from chronospike.threads import default_threads, run_chunks
from chronospike.training.calibration import fit_temperature, with_temperature
from chronospike.training.forest import Forest, from_extra_trees, read_array, require, softmax
from chronospike.training.known_labels import hold_out
from chronospike.training.quick_fit import quick_fit

Rows = NDArray[np.float32]
Codes = NDArray[np.int64]
Probabilities = NDArray[np.float64]

BASES = ("logistic", "trees", "boosting")
KINDS = (*BASES, "mean")

# Boosting takes a tree per class each round, over columns of which there are more the more classes there are: its time
# grows with the square of their number. Beyond so many the mean does without it.
BOOSTED_CLASSES = 40

# Steps of the greedy selection, so that weights are multiples of 4 %.
_PICKS = 25

# Rows of one pass of the logistic regression: its inputs and outputs fit into the cache of a core.
_CHUNK = 1024


@dataclass(frozen=True)
class StageSettings:
    """Sizes of the classifiers.

    Attributes:
        strength: logistic regression: inverse penalty.
        trees, leaf_nodes: extra trees: how many, and the fewest training nodes in a leaf. Small leaves memorise
            groups of nodes: with three nodes a leaf, and probabilities of networks among the columns, random labels of
            DBLP were predicted a point better than by chance out of fold.
        rounds, leaves, learning_rate: gradient boosting: a tree per class each round, leaves and share of each tree.
        max_nodes: maximum number of training nodes per fit; more are subsampled by class.
        penalty, columns_share: gradient boosting: on the squares of the leaves' values, and of the columns that a tree
            may split by. With 5 and 0.3 instead of 0 and 1 it is as good on held-out nodes of DBLP and PubMed, more
            confident where it is right, and three times as fast.
    """

    strength: float = 1.0
    trees: int = 200
    leaf_nodes: int = 10
    rounds: int = 60
    leaves: int = 15
    learning_rate: float = 0.1
    max_nodes: int = 50_000
    penalty: float = 5.0
    columns_share: float = 0.3


# Of classifiers that read no networks: a third of a point better on generated graphs than with ten nodes a leaf.
ALONE = StageSettings(leaf_nodes=3)
# Of one that reads features: on 87 labelled nodes a point better than with a strength of 1.
FEATURES = StageSettings(strength=0.1, max_nodes=10_000)


@dataclass(frozen=True, eq=False)
class SoftmaxRegression:
    """Softmax regression on standardised inputs.

    Attributes:
        mean, scale: `[d]` of each input.
        weights: `[C, d + 1]`, the intercepts last.
    """

    mean: NDArray[np.float64]
    scale: NDArray[np.float64]
    weights: NDArray[np.float64]

    @property
    def width(self) -> int:
        return len(self.mean)

    @property
    def classes(self) -> int:
        return len(self.weights)

    def probabilities(self, rows: Rows) -> Probabilities:
        """`[n, C]` of rows `[n, d]`."""
        if rows.ndim != 2 or rows.shape[1] != self.width:
            raise InputError(f"the inputs have shape {list(rows.shape)}, and the model reads {self.width} columns")
        logits = np.empty((len(rows), self.classes))
        # Column by column: the order in which a product of matrices adds up depends on the machine and on n.
        chunks = range(0, len(rows), _CHUNK)

        def work(first: int, last: int) -> None:
            for start in chunks[first:last]:
                inputs = ((rows[start : start + _CHUNK] - self.mean) / self.scale).T.copy()
                sums = np.repeat(self.weights[:, -1:], inputs.shape[1], axis=1)
                for values, weights in zip(inputs, self.weights[:, :-1].T, strict=True):
                    sums += weights[:, None] * values
                logits[start : start + _CHUNK] = sums.T

        run_chunks(work, len(chunks))
        return softmax(logits)

    def tensors(self) -> dict[str, NDArray[Any]]:
        return {"mean": self.mean, "scale": self.scale, "weights": self.weights}

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Any]) -> SoftmaxRegression:
        """The inverse of `tensors`, checked."""
        mean, scale, weights = (read_array(tensors, name, np.float64) for name in ("mean", "scale", "weights"))
        require(mean.ndim == 1 and mean.shape == scale.shape, "'mean' and 'scale' do not belong together")
        require(weights.ndim == 2 and weights.shape[1] == len(mean) + 1, "'weights' has a wrong shape")
        are_finite = all(np.isfinite(array).all() for array in (mean, scale, weights))
        require(are_finite and bool((scale > 0).all()), "a weight is not finite")
        return cls(mean, scale, weights)


Part = SoftmaxRegression | Forest
_PART_TYPES: dict[str, type[SoftmaxRegression] | type[Forest]] = {
    "logistic": SoftmaxRegression, "trees": Forest, "boosting": Forest,
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class SecondStage:
    """A fitted second stage.

    Attributes:
        kind: one of `KINDS`.
        classes: of the graph, C.
        width: columns of the inputs, d.
        present: `[C']` ascending codes of the classes that it was fitted to; the others have probability zero.
        parts: what `kind` needs, by name among `BASES`; none if there is a single class.
    """

    kind: str
    classes: int
    width: int
    present: Codes
    parts: Mapping[str, Part]

    @property
    def parameters(self) -> int:
        """Weights, or values in leaves."""
        return sum(_size(part) for part in self.parts.values())

    def probabilities(self, rows: Rows) -> Probabilities:
        """`[n, C]` of rows `[n, d]`."""
        if rows.ndim != 2 or rows.shape[1] != self.width:
            raise InputError(f"the inputs have shape {list(rows.shape)}, and the model reads {self.width} columns")
        result = np.zeros((len(rows), self.classes))
        found = [self.parts[base].probabilities(rows) for base in BASES if base in self.parts]
        result[:, self.present] = _mean(found) if found else 1.0
        return result

    def tensors(self) -> dict[str, NDArray[Any]]:
        """All of it as arrays, those of the parts under their names and a dot."""
        head = np.array([KINDS.index(self.kind), self.classes, self.width])
        parts = {f"{base}.{name}": array for base in self.parts for name, array in self.parts[base].tensors().items()}
        return {"stage": head, "present": self.present, **parts}

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Any]) -> SecondStage:
        """The inverse of `tensors`. What comes from a file is checked."""
        head, present = (read_array(tensors, name, np.int64) for name in ("stage", "present"))
        require(head.shape == (3,) and 0 <= head[0] < len(KINDS), "the kind of its second stage is unknown")
        kind, classes, width = KINDS[int(head[0])], int(head[1]), int(head[2])
        is_ascending = present.ndim == 1 and len(present) > 0 and bool((np.diff(present) > 0).all())
        require(is_ascending and present[0] >= 0 and present[-1] < classes, "its classes are out of range")
        parts: dict[str, Part] = {}
        for base in _bases(kind, len(present)) if len(present) > 1 else ():
            own = {name.removeprefix(f"{base}."): tensors[name] for name in tensors if name.startswith(f"{base}.")}
            part = parts[base] = _PART_TYPES[base].from_tensors(own)
            require(part.width == width, f"'{base}' reads {part.width} columns instead of {width}")
            require(part.classes == len(present), f"'{base}' tells {part.classes} classes instead of {len(present)}")
        return cls(kind, classes, width, present, parts)


def fit_second_stage(
    rows: Rows, labels: Codes, classes: int, kind: str, seed: int, settings: StageSettings | None = None
) -> SecondStage:
    """Fit one of `KINDS` to rows `[K, d]` and their labels `[K]` among 0..`classes` - 1.

    The same seed gives the same fit on any number of threads.
    """
    _check(rows, labels, classes)
    with quick_fit():
        return _fit(rows, labels, np.arange(len(rows)), classes, kind, seed, settings or StageSettings())


def cross_validate(
    rows_without: Callable[[NDArray[np.bool_]], Mapping[str, Rows]],
    kinds: Mapping[str, str],
    labels: Codes,
    classes: int,
    folds: Codes,
    seed: int,
    settings: Mapping[str, StageSettings] | None = None,
    tell: Callable[[], None] = lambda: None,
    is_late: Callable[[], bool] | None = None,
) -> dict[str, Probabilities] | None:
    """`[K, C]` out-of-fold probabilities by name; None if time was up before the last fold.

    Args:
        rows_without: called with a mask `[K]` of the nodes left out; returns by name the inputs `[K, d]` of all nodes,
            computed without the labels of these.
        kinds: what to fit, by name.
        labels, folds: `[K]`; at least two folds, with any numbers.
        settings: by name; the defaults for names that are not there.
        tell: called after each fit.
        is_late: called before each fold; true if time is up.
    """
    names, sizes = np.unique(folds), settings or {}
    if folds.shape != labels.shape or len(names) < 2:
        raise InputError(f"{len(names)} fold(s) for {len(labels)} labelled nodes; at least 2 are needed, one per node")
    result = {name: np.zeros((len(labels), classes)) for name in kinds}

    def fit(name: str, rows: Rows, here: NDArray[np.bool_]) -> None:
        _check(rows, labels, classes)
        s = sizes.get(name, StageSettings())
        stage = _fit(rows, labels, np.flatnonzero(~here), classes, kinds[name], seed, s)
        result[name][here] = stage.probabilities(rows[here])
        tell()

    # As many folds at once as there are threads for: meanwhile the rows of each are kept.
    at_once = max(1, default_threads() // len(kinds))
    running: deque[Future[None]] = deque()
    with quick_fit(), ThreadPoolExecutor(min(default_threads(), at_once * len(kinds))) as pool:
        try:
            for fold in names:
                while len(running) >= at_once * len(kinds):
                    running.popleft().result()
                if is_late is not None and is_late():
                    return None
                here = folds == fold
                rows = rows_without(here)
                running.extend(pool.submit(fit, name, rows[name], here) for name in kinds)
            for future in running:
                future.result()
        finally:
            pool.shutdown(cancel_futures=True)
    return result


def fit_each(
    rows: Mapping[str, Rows],
    kinds: Mapping[str, str],
    labels: Codes,
    classes: int,
    seed: int,
    settings: Mapping[str, StageSettings] | None = None,
    tell: Callable[[], None] = lambda: None,
) -> dict[str, SecondStage]:
    """By name, what `fit_second_stage` gives for each of `rows`, several at a time; see `cross_validate`."""

    def fit(name: str) -> SecondStage:
        _check(rows[name], labels, classes)
        s = (settings or {}).get(name, StageSettings())
        stage = _fit(rows[name], labels, np.arange(len(labels)), classes, kinds[name], seed, s)
        tell()
        return stage

    with quick_fit(), ThreadPoolExecutor(min(default_threads(), len(rows))) as pool:
        return dict(zip(rows, pool.map(fit, rows), strict=True))


def ensemble_weights(out_of_fold: Mapping[str, Probabilities], labels: Codes) -> dict[str, float]:
    """Shares, by name, of the weighted mean of these probabilities `[K, C]` that is nearest to the labels `[K]`.

    Greedy selection with replacement (Caruana and others, 2004) by the Brier score: the mean begins empty and takes in,
    again and again, whatever lowers Σ (p - y)² most, the first of equals. For weights w that is wᵀ G w - 2 wᵀ b up to a
    constant, where G are the products of the members with each other and b those with the labels.
    """
    values = list(out_of_fold.values())
    products = np.array([[float((one * other).sum()) for other in values] for one in values])
    hits = np.array([float(one[np.arange(len(labels)), labels].sum()) for one in values])
    counts = np.zeros(len(values))
    for size in range(1, _PICKS + 1):
        tried = (counts + np.eye(len(values))) / size
        scores = ((tried @ products) * tried).sum(axis=1) - 2 * tried @ hits
        # Rounded, or the last digits would choose among equals.
        counts[np.argmin((scores / len(labels)).round(12))] += 1
    return {name: float(count / _PICKS) for name, count in zip(out_of_fold, counts, strict=True) if count}


def are_better(values: Probabilities, others: Probabilities, labels: Codes) -> bool:
    """Whether `values [K, C]` are nearer to the labels `[K]` than `others`, by more than two standard errors.

    Compared is the Brier score, node by node, each at its best temperature: how sure one is makes none better.
    """
    doubt = 1 / (len(labels) + 2)
    near, far = (
        np.square(with_temperature(one, fit_temperature(one, labels, doubt)) - np.eye(one.shape[1])[labels]).sum(axis=1)
        for one in (values, others)
    )
    gains = far - near
    return bool(gains.mean() > 2 * gains.std(ddof=1) / np.sqrt(len(gains)))


def _fit(
    rows: Rows, labels: Codes, nodes: Codes, classes: int, kind: str, seed: int, s: StageSettings
) -> SecondStage:  # fmt: skip
    """A fit to those of the rows that `nodes` names, inside `quick_fit`, whose limits hold for all threads."""
    if len(nodes) > s.max_nodes:
        nodes = nodes[~hold_out(labels[nodes], 1 - s.max_nodes / len(nodes), seed)]
    present, codes = np.unique(labels[nodes], return_inverse=True)
    parts: dict[str, Part] = {}
    bases = _bases(kind, len(present))
    if len(present) > 1:
        inputs = np.ascontiguousarray(rows[nodes], dtype=np.float32)
        parts = {base: _fit_part(base, inputs, codes, seed % 2**32, s) for base in bases}
    return SecondStage(kind, classes, rows.shape[1], present.astype(np.int64), parts)


def _bases(kind: str, classes: int) -> tuple[str, ...]:
    """The classifiers that a kind consists of, where so many classes occur."""
    if kind not in KINDS:
        raise InputError(f"'{kind}' is no kind of second stage. Use one of {', '.join(KINDS)}")
    if kind != "mean":
        return (kind,)
    return BASES if classes <= BOOSTED_CLASSES else BASES[:-1]


def _mean(parts: Sequence[Probabilities]) -> Probabilities:
    """The same bits from all rows at once and from some of them."""
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total / len(parts)


def _check(rows: Rows, labels: Codes, classes: int) -> None:
    if rows.ndim != 2 or labels.shape != rows.shape[:1] or len(labels) == 0:
        raise InputError(f"inputs {list(rows.shape)} and labels {list(labels.shape)} are not one row per labelled node")
    if labels.min() < 0 or labels.max() >= classes:
        raise InputError(f"labels lie in {labels.min()}..{labels.max()}, and there are {classes} classes")
    if not np.isfinite(rows).all():
        raise InputError("the inputs of the second stage hold a number that is not finite")


def _fit_part(base: str, rows: Rows, codes: Codes, seed: int, s: StageSettings) -> Part:
    """One classifier for codes `[K]` that all occur, at least two."""
    if base == "logistic":
        return _fit_regression(rows, codes, s.strength)
    if base == "boosting":
        from chronospike.training.boosting import fit_boosting

        sizes = (s.rounds, s.leaves, s.learning_rate)
        return fit_boosting(rows, codes, *sizes, penalty=s.penalty, columns_share=s.columns_share, seed=seed)
    # Here, so that what only predicts does not wait for scikit-learn.
    from sklearn.ensemble import ExtraTreesClassifier

    trees = ExtraTreesClassifier(s.trees, min_samples_leaf=s.leaf_nodes, random_state=seed, n_jobs=default_threads())
    return from_extra_trees(trees.fit(rows, codes))


def _fit_regression(rows: Rows, codes: Codes, strength: float) -> SoftmaxRegression:
    from sklearn.linear_model import LogisticRegression
    from sklearn.preprocessing import StandardScaler

    scaler = StandardScaler()
    model = LogisticRegression(C=strength, max_iter=200, tol=1e-3).fit(scaler.fit_transform(rows), codes)
    # Row by row, since safetensors writes the bytes as they lie.
    weights = np.column_stack([model.coef_, model.intercept_]).astype(np.float64, order="C")
    if len(weights) == 1:
        # Of two classes there is one set of weights, the difference of the two.
        weights = np.concatenate([np.zeros_like(weights), weights])
    return SoftmaxRegression(scaler.mean_.astype(np.float64), scaler.scale_.astype(np.float64), weights)


def _size(part: Part) -> int:
    if isinstance(part, Forest):
        return int((part.feature < 0).sum() * part.value.shape[1])
    return int(part.weights.size)
