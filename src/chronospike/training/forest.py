"""Ensembles of trees as plain arrays, to store them without pickle and to predict without scikit-learn.

Each row adds up its trees in their order, so the sums have the same bits on any machine and any number of threads.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from chronospike.errors import InputError, StorageError
from chronospike.threads import run_chunks

Rows = NDArray[np.float32]

# Stored as positions in this tuple.
KINDS = ("mean", "softmax", "sigmoid")

_DTYPES: dict[str, type[np.generic]] = {
    "feature": np.int32, "threshold": np.float32, "left": np.int32, "right": np.int32, "value": np.float64,
    "roots": np.int64, "column": np.int32, "baseline": np.float64, "kind": np.int64, "width": np.int64,
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Forest:
    """Trees over M nodes in all. A row goes left where its feature is at most the threshold.

    Attributes:
        kind: what turns sums `[n, S]` of leaves into probabilities: "mean" divides by the number of trees, "softmax"
            has a column per class, and "sigmoid" a single one for the second of two classes.
        width: columns of the rows.
        feature: `[M]` column that a node looks at, -1 for a leaf.
        threshold: `[M]`.
        left: `[M]` node to go to; of a leaf, its row in `value`.
        right: `[M]` node to go to; of a leaf, 0.
        value: `[V, W]` what a leaf adds to W columns of the sums. Leaves with the same values share a row.
        roots: `[R]` first node of each tree.
        column: `[R]` first of the columns that a tree adds to.
        baseline: `[S]` what the sums begin with.
    """

    kind: str
    width: int
    feature: NDArray[np.int32]
    threshold: NDArray[np.float32]
    left: NDArray[np.int32]
    right: NDArray[np.int32]
    value: NDArray[np.float64]
    roots: NDArray[np.int64]
    column: NDArray[np.int32]
    baseline: NDArray[np.float64]

    @property
    def classes(self) -> int:
        return 2 if self.kind == "sigmoid" else len(self.baseline)

    def probabilities(self, rows: Rows) -> NDArray[np.float64]:
        """`[n, classes]` of rows `[n, width]` without missing values."""
        if rows.ndim != 2 or rows.shape[1] != self.width:
            raise InputError(f"the inputs have shape {list(rows.shape)}, and the trees read {self.width} columns")
        # Here, so that what has no trees does not wait for numba.
        from chronospike.training.forest_kernel import add_trees

        rows = np.ascontiguousarray(rows, dtype=np.float32)
        sums = np.repeat(self.baseline[None], len(rows), axis=0)
        tree = (self.feature, self.threshold, self.left, self.right, self.value, self.roots, self.column)
        run_chunks(lambda low, high: add_trees(rows[low:high], *tree, sums[low:high]), len(rows))
        if self.kind == "mean":
            return sums / len(self.roots)
        if self.kind == "softmax":
            return softmax(sums)
        second = 1 / (1 + np.exp(-np.clip(sums, -700, 700)))
        return np.concatenate([1 - second, second], axis=1)

    def tensors(self) -> dict[str, NDArray[Any]]:
        """All of it as arrays, for `from_tensors`."""
        arrays = {name: getattr(self, name) for name in _DTYPES if name not in ("kind", "width")}
        return {**arrays, "kind": np.array([KINDS.index(self.kind)]), "width": np.array([self.width])}

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Any]) -> Forest:
        """The inverse of `tensors`. What comes from a file is checked: no prediction can loop or read elsewhere."""
        found = {name: read_array(tensors, name, dtype) for name, dtype in _DTYPES.items()}
        kind, width = found.pop("kind"), found.pop("width")
        require(kind.shape == (1,) and 0 <= kind[0] < len(KINDS), "the kind of its trees is unknown")
        require(width.shape == (1,) and width[0] >= 0, "the width of its rows is not a number")
        forest = cls(KINDS[int(kind[0])], int(width[0]), **found)
        forest._check()
        return forest

    def _check(self) -> None:
        nodes, trees, sums = len(self.feature), len(self.roots), len(self.baseline)
        for name in ("feature", "threshold", "left", "right"):
            require(getattr(self, name).shape == (nodes,), f"'{name}' is not one number per node")
        require(self.roots.shape == self.column.shape == (trees,) and trees > 0, "there is not one column per tree")
        require(self.value.ndim == 2 and self.baseline.ndim == 1, "'value' or 'baseline' has a wrong shape")
        require(sums == 1 if self.kind == "sigmoid" else sums > 0, "'baseline' has a wrong length")
        for name in ("threshold", "value", "baseline"):
            require(bool(np.isfinite(getattr(self, name)).all()), f"'{name}' holds a number that is not finite")
        leaf = self.feature < 0
        inner = np.flatnonzero(~leaf)
        require(bool((self.feature[inner] < self.width).all()), f"a tree reads a column beyond {self.width}")
        for name in ("left", "right"):
            child = getattr(self, name)[inner]
            # A path that only ever goes forward ends.
            require(bool(((child > inner) & (child < nodes)).all()), f"a '{name}' child is out of range")
        require(_within(self.left[leaf], len(self.value)), "a leaf without a value")
        require(_within(self.roots, nodes), "a root is out of range")
        require(_within(self.column, sums - self.value.shape[1] + 1), "a tree adds to a column that is out of range")
        if self.kind == "mean":
            are_shares = bool((self.value >= 0).all() and (np.abs(self.value.sum(axis=1) - 1) < 1e-6).all())
            require(are_shares and not self.baseline.any(), "a leaf holds no shares of classes")


def from_extra_trees(model: Any) -> Forest:
    """A fitted `ExtraTreesClassifier` (or `RandomForestClassifier`) with one output."""
    trees = [estimator.tree_ for estimator in model.estimators_]
    names = ("feature", "threshold", "children_left", "children_right", "value")
    feature, threshold, *children, value = (np.concatenate([getattr(one, name) for one in trees]) for name in names)
    sizes = np.array([tree.node_count for tree in trees])
    roots = np.cumsum(sizes) - sizes
    leaf = children[0] < 0
    left, right = (np.where(leaf, 0, child + np.repeat(roots, sizes)).astype(np.int32) for child in children)
    rows, left[leaf] = _distinct(value[leaf, 0])
    return Forest(
        kind="mean",
        width=model.n_features_in_,
        feature=np.where(leaf, -1, feature).astype(np.int32),
        threshold=_round_down(np.where(leaf, 0.0, threshold)),
        left=left,
        right=right,
        value=rows,
        roots=roots.astype(np.int64),
        column=np.zeros(len(trees), dtype=np.int32),
        baseline=np.zeros(rows.shape[1]),
    )


def softmax(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    """Over the columns of `[n, C]`, in place."""
    logits -= logits.max(axis=1, keepdims=True)
    np.exp(logits, out=logits)
    logits /= logits.sum(axis=1, keepdims=True)
    return logits


def read_array(tensors: Mapping[str, Any], name: str, dtype: type[np.generic]) -> NDArray[Any]:
    """An array of exactly that type, from one of numpy's or of torch's."""
    require(name in tensors, f"the array '{name}' is missing")
    try:
        array = np.asarray(tensors[name])
    except TypeError as error:
        raise StorageError(f"a stored model cannot be used: '{name}' has a type that numpy lacks") from error
    require(array.dtype == dtype, f"'{name}' is {array.dtype} instead of {np.dtype(dtype)}")
    return np.ascontiguousarray(array)


def require(is_so: bool, problem: str) -> None:
    """Raise for a stored model that is not as it was written."""
    if not is_so:
        raise StorageError(f"a stored model cannot be used: {problem}. Use another copy")


def _within(places: NDArray[Any], end: int) -> bool:
    return len(places) == 0 or bool(places.min() >= 0 and places.max() < end)


def _round_down(values: NDArray[np.float64]) -> NDArray[np.float32]:
    """The largest float32 that is not above each value: a float32 is at most the one where it is at most the other."""
    limit = np.finfo(np.float32).max
    near = np.clip(values, -limit, limit).astype(np.float32)
    return np.where(near > values, np.nextafter(near, np.float32(-limit)), near)


def _distinct(rows: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.int32]]:
    """The rows `[V, K]` that occur among `[L, K]`, in the order they first do, and the place `[L]` of each there.

    A small leaf holds few nodes, so nearly a million leaves come to ten thousand rows.
    """
    rows = np.ascontiguousarray(rows)
    kind = pa.binary(rows.shape[1] * rows.itemsize)
    found = pa.Array.from_buffers(kind, len(rows), [None, pa.py_buffer(rows)]).dictionary_encode()
    values = np.frombuffer(found.dictionary.buffers()[1], dtype=np.float64, count=len(found.dictionary) * rows.shape[1])
    return values.reshape(-1, rows.shape[1]).copy(), found.indices.to_numpy().astype(np.int32)
