from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file
from sklearn.ensemble import ExtraTreesClassifier

from chronospike.errors import InputError, StorageError
from chronospike.training.boosting import fit_boosting
from chronospike.training.forest import Forest, from_extra_trees

WIDTH = 7


def data(classes: int, rows: int = 500) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Inputs with ties among them, and labels that they tell something of."""
    rng = np.random.default_rng(classes)
    labels = rng.integers(0, classes, rows)
    inputs = rng.normal(size=(rows, WIDTH)) + rng.normal(size=(classes, WIDTH))[labels]
    inputs[:, 0] = inputs[:, 0].round()
    return inputs.astype(np.float32), labels


def extra_trees(classes: int) -> tuple[Any, Forest]:
    model = ExtraTreesClassifier(20, min_samples_leaf=3, random_state=0).fit(*data(classes))
    return model, from_extra_trees(model)


def boosting(classes: int) -> tuple[Any, Forest]:
    return None, fit_boosting(*data(classes), 12, 6, 0.1)


def stump(**changes: Any) -> dict[str, NDArray[Any]]:
    """The arrays of one tree: column 1 at most 0.5 is class 0, else class 1."""
    forest = Forest(
        kind="mean",
        width=2,
        feature=np.array([1, -1, -1], dtype=np.int32),
        threshold=np.array([0.5, 0, 0], dtype=np.float32),
        left=np.array([1, 0, 1], dtype=np.int32),
        right=np.array([2, 0, 0], dtype=np.int32),
        value=np.eye(2),
        roots=np.array([0]),
        column=np.array([0], dtype=np.int32),
        baseline=np.zeros(2),
    )
    arrays = forest.tensors()
    return {**arrays, **{name: np.array(value, dtype=arrays[name].dtype) for name, value in changes.items()}}


def test_a_row_at_the_threshold_goes_left() -> None:
    rows = np.array([[9, 0.5], [0, 0.500001], [0, -3]], dtype=np.float32)
    assert Forest.from_tensors(stump()).probabilities(rows).tolist() == [[1, 0], [0, 1], [1, 0]]


@pytest.mark.parametrize("classes", [2, 5])
def test_probabilities_are_those_of_scikit_learn(classes: int) -> None:
    model, forest = extra_trees(classes)
    rows, _ = data(classes)
    others = (3 * np.random.default_rng(9).normal(size=(700, WIDTH))).astype(np.float32)
    for inputs in (rows, others):
        np.testing.assert_allclose(forest.probabilities(inputs), model.predict_proba(inputs), atol=1e-12)


def test_a_row_at_a_threshold_of_scikit_learn_goes_the_same_way() -> None:
    model, forest = extra_trees(5)
    inner = forest.feature >= 0
    rows = np.zeros((int(inner.sum()), WIDTH), dtype=np.float32)
    rows[np.arange(len(rows)), forest.feature[inner]] = forest.threshold[inner]
    for inputs in (rows, np.nextafter(rows, np.float32(np.inf)), np.nextafter(rows, np.float32(-np.inf))):
        np.testing.assert_allclose(forest.probabilities(inputs), model.predict_proba(inputs), atol=1e-12)


@pytest.mark.parametrize("make", [extra_trees, boosting])
@pytest.mark.parametrize("classes", [2, 5])
def test_a_stored_forest_predicts_the_same_bits(make: Any, classes: int, tmp_path: Path) -> None:
    forest = make(classes)[1]
    save_file(forest.tensors(), tmp_path / "forest.safetensors")
    stored = load_file(tmp_path / "forest.safetensors")
    rows, _ = data(classes)
    expected = forest.probabilities(rows).tobytes()
    assert Forest.from_tensors(stored).probabilities(rows).tobytes() == expected
    tensors = {name: torch.from_numpy(array) for name, array in stored.items()}
    assert Forest.from_tensors(tensors).probabilities(rows).tobytes() == expected


@pytest.mark.parametrize("make", [extra_trees, boosting])
def test_a_row_has_the_same_bits_in_any_company(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    forest, (rows, _) = make(5)[1], data(5)
    whole = forest.probabilities(rows)
    assert np.array_equal(forest.probabilities(np.tile(rows, (20, 1)))[-len(rows) :], whole)
    assert np.array_equal(np.concatenate([forest.probabilities(rows[k : k + 1]) for k in range(len(rows))]), whole)
    monkeypatch.setattr("chronospike.threads.default_threads", lambda: 5)
    assert np.array_equal(forest.probabilities(rows), whole)


def test_no_rows_have_no_probabilities() -> None:
    assert extra_trees(2)[1].probabilities(np.zeros((0, WIDTH), dtype=np.float32)).shape == (0, 2)


def test_leaves_with_the_same_shares_are_stored_once() -> None:
    forest = extra_trees(2)[1]
    assert len(np.unique(forest.value, axis=0)) == len(forest.value) < (forest.feature < 0).sum() / 10


def test_rows_of_another_width_are_refused() -> None:
    with pytest.raises(InputError, match="read 2 columns"):
        Forest.from_tensors(stump()).probabilities(np.zeros((4, 3), dtype=np.float32))


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"left": [0, 0, 1]}, "'left' child"),
        ({"right": [-1, 0, 0]}, "'right' child"),
        ({"right": [3, 0, 0]}, "'right' child"),
        ({"feature": [2, -1, -1]}, "beyond 2"),
        ({"left": [1, 0, 2]}, "without a value"),
        ({"left": [1, -1, 1]}, "without a value"),
        ({"roots": [3]}, "root"),
        ({"roots": [-1]}, "root"),
        ({"roots": [], "column": []}, "one column per tree"),
        ({"column": [1]}, "out of range"),
        ({"column": [-1]}, "out of range"),
        ({"value": [[1.0, 0.0], [np.nan, 0.0]]}, "not finite"),
        ({"value": [1.0, 0.0]}, "wrong shape"),
        ({"value": [[1.0, 0.0], [1.0, 1.0]]}, "shares"),
        ({"baseline": [0.0, 1.0]}, "shares"),
        ({"threshold": [np.inf, 0, 0]}, "not finite"),
        ({"threshold": [0.5]}, "'threshold' is not one number per node"),
        ({"baseline": [0.0]}, "out of range"),
        ({"kind": [3]}, "kind"),
        ({"kind": [2]}, "'baseline'"),
        ({"width": [[2]]}, "width"),
    ],
)
def test_arrays_that_could_not_be_followed_are_refused(changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(StorageError, match=problem):
        Forest.from_tensors(stump(**changes))


def test_a_missing_array_and_one_of_another_type_are_refused() -> None:
    arrays = stump()
    with pytest.raises(StorageError, match="'left' is int64"):
        Forest.from_tensors({**arrays, "left": arrays["left"].astype(np.int64)})
    with pytest.raises(StorageError, match="type that numpy lacks"):
        Forest.from_tensors({**arrays, "value": torch.eye(2, dtype=torch.bfloat16)})
    del arrays["roots"]
    with pytest.raises(StorageError, match="'roots' is missing"):
        Forest.from_tensors(arrays)
