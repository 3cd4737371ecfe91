"""A small classifier on top of what is already computed of labelled nodes, and the choice of one by cross-validation.

A logistic regression, extra trees and gradient boosting, or the mean of the three. Scikit-learn fits the first two;
what they have learned is kept as arrays, so that a stored one predicts without it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from chronospike.errors import InputError
from chronospike.threads import default_threads, run_chunks
from chronospike.training.forest import Forest, from_extra_trees, read_array, require, softmax
from chronospike.training.known_labels import hold_out
from chronospike.training.metrics import score_predictions
from chronospike.training.quick_fit import quick_fit

Rows = NDArray[np.float32]
Codes = NDArray[np.int64]
Probabilities = NDArray[np.float64]
# Of out-of-fold probabilities `[K, C]` and labels `[K]`; higher is better.
Score = Callable[[Probabilities, Codes], float]

BASES = ("logistic", "trees", "boosting")
KINDS = (*BASES, "mean")

# Boosting takes a tree per class each round, over columns of which there are more the more classes there are: its time
# grows with the square of their number. Beyond so many the mean does without it.
BOOSTED_CLASSES = 40

# Rows of one pass of the logistic regression: its inputs and outputs fit into the cache of a core.
_CHUNK = 1024


@dataclass(frozen=True)
class StageSettings:
    """Sizes of the classifiers.

    Attributes:
        strength: logistic regression: inverse penalty.
        trees, leaf_nodes: extra trees: how many, and the fewest training nodes in a leaf. Small leaves learn by heart
            who belongs together: with three nodes a leaf, random labels of DBLP were foretold a point better than by
            chance out of fold.
        rounds, leaves, learning_rate: gradient boosting: a tree per class each round, leaves and share of each tree.
        max_nodes: at most so many training nodes of one fit, the classes in proportion.
    """

    strength: float = 1.0
    trees: int = 200
    leaf_nodes: int = 10
    rounds: int = 60
    leaves: int = 15
    learning_rate: float = 0.1
    max_nodes: int = 50_000


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


@dataclass(frozen=True, eq=False)
class Chosen:
    """The best kind of second stage.

    Attributes:
        stage: fitted to all rows.
        kind: of `stage`.
        out_of_fold: `[K, C]` probabilities from fits to the other folds, for each kind that there was time for.
        scores: of `out_of_fold`.
    """

    stage: SecondStage
    kind: str
    out_of_fold: dict[str, Probabilities]
    scores: dict[str, float]


def fit_second_stage(
    rows: Rows, labels: Codes, classes: int, kind: str, seed: int, settings: StageSettings | None = None
) -> SecondStage:
    """Fit one of `KINDS` to rows `[K, d]` and their labels `[K]` among 0..`classes` - 1.

    The same seed gives the same fit on any number of threads.
    """
    _check(rows, labels, classes)
    with quick_fit():
        return _fit(rows, labels, np.arange(len(rows)), classes, kind, seed, settings or StageSettings())


def other_stages(
    chosen: Chosen, rows: Rows, labels: Codes, seed: int, settings: StageSettings | None = None
) -> list[SecondStage]:
    """The chosen stage and those of the other kinds that were cross-validated, fitted to the same rows."""
    stage = chosen.stage
    if not stage.parts:
        return [stage]
    parts = dict(stage.parts)
    needed = {kind: _bases(kind, len(stage.present)) for kind in chosen.out_of_fold}
    for base in (base for bases in needed.values() for base in bases if base not in parts):
        parts[base] = fit_second_stage(rows, labels, stage.classes, base, seed, settings).parts[base]
    return [replace(stage, kind=kind, parts={base: parts[base] for base in needed[kind]}) for kind in needed]


def mean_f1(probabilities: Probabilities, labels: Codes) -> float:
    """The mean of Micro- and Macro-F1 of the likeliest classes."""
    predicted = torch.from_numpy(probabilities.argmax(axis=1))
    found = score_predictions(torch.from_numpy(labels.astype(np.int64)), predicted, probabilities.shape[1])
    return (found.micro_f1 + found.macro_f1) / 2


def choose_second_stage(
    rows: Rows,
    labels: Codes,
    classes: int,
    folds: Codes,
    seed: int,
    kinds: Sequence[str] = KINDS,
    score: Score = mean_f1,
    settings: StageSettings | None = None,
    watch: Callable[[int, int], None] | None = None,
    is_late: Callable[[], bool] | None = None,
) -> Chosen | None:
    """The kind with the best score out of fold, the first of equals, fitted to all rows.

    Args:
        rows, labels, folds: `[K, d]`, `[K]` and `[K]`; at least two folds, and their numbers are names only.
        kinds: to choose among, cross-validated in this order; "mean" costs no fits of its own.
        watch: told how many steps are done, of how many: a step for each fit to folds, and one for the last fit.
        is_late: asked before each fit to folds. If so, the kinds that were cross-validated till then are all there is
            to choose among; None is returned if there are none.
    """
    _check(rows, labels, classes)
    names = np.unique(folds)
    if folds.shape != labels.shape or len(names) < 2:
        raise InputError(f"{len(names)} fold(s) for {len(labels)} labelled nodes; at least 2 are needed, one per node")
    s = settings or StageSettings()
    needed = {kind: _bases(kind, len(np.unique(labels))) for kind in kinds}
    bases = list(dict.fromkeys(base for kind in kinds for base in needed[kind]))
    steps = itertools.count(1)
    total = len(bases) * len(names) + 1

    def tell() -> None:
        if watch is not None:
            watch(next(steps), total)

    found: dict[str, Probabilities] = {}
    for base in bases:
        with quick_fit():
            held = _cross_validated(rows, labels, classes, folds, base, seed, s, tell, is_late)
        if held is None:
            break
        found[base] = held
    ready = [kind for kind in kinds if found.keys() >= set(needed[kind])]
    if not ready:
        return None
    out_of_fold = {kind: _mean([found[base] for base in needed[kind]]) for kind in ready}
    scores = {kind: score(out_of_fold[kind], labels) for kind in ready}
    best = max(ready, key=lambda kind: scores[kind])
    stage = fit_second_stage(rows, labels, classes, best, seed, s)
    if watch is not None:
        watch(total, total)
    return Chosen(stage, best, out_of_fold, scores)


def _cross_validated(
    rows: Rows,
    labels: Codes,
    classes: int,
    folds: Codes,
    base: str,
    seed: int,
    s: StageSettings,
    tell: Callable[[], None],
    is_late: Callable[[], bool] | None,
) -> Probabilities | None:
    """`[K, C]` out of fold, or None if it got late before the last fold."""
    names = np.unique(folds)
    result = np.zeros((len(rows), classes))
    # Trees are shared out among threads by their own fit, and two fits of them would need twice the memory.
    workers = 1 if base == "trees" else min(default_threads(), len(names))

    def fit(fold: int) -> None:
        here = folds == fold
        stage = _fit(rows, labels, np.flatnonzero(~here), classes, base, seed, s)
        result[here] = stage.probabilities(rows[here])

    left, running, was_late = list(names), set[Future[None]](), False
    with ThreadPoolExecutor(workers) as pool:
        while running or (left and not was_late):
            while left and len(running) < workers and not was_late:
                was_late = is_late is not None and is_late()
                if not was_late:
                    running.add(pool.submit(fit, left.pop(0)))
            done, running = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                future.result()
                tell()
    return None if left else result


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

        return fit_boosting(rows, codes, s.rounds, s.leaves, s.learning_rate)
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
