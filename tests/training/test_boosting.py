from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingClassifier

from chronospike.training import boosting
from chronospike.training.boosting import fit_boosting
from chronospike.training.forest import Forest


def data(classes: int, rows: int = 2000, values: int = 60) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Six columns of so many distinct values, and labels that they tell something of, two of them together."""
    rng = np.random.default_rng(classes)
    inputs = rng.integers(0, values, (rows, 6)).astype(np.float32)
    centred = 2 * inputs / values - 1
    scores = 2 * centred @ rng.normal(size=(6, classes)) + 2 * np.arange(classes) * centred[:, :1] * centred[:, 1:2]
    return inputs, (scores + rng.gumbel(size=(rows, classes))).argmax(axis=1)


@pytest.mark.parametrize("classes", [2, 3, 7])
@pytest.mark.parametrize("leaves", [2, 15])
@pytest.mark.parametrize("penalty", [0.0, 5.0])
def test_with_a_bin_for_every_value_it_is_scikit_learns(classes: int, leaves: int, penalty: float) -> None:
    rows, labels = data(classes)
    model = HistGradientBoostingClassifier(
        max_iter=20, max_leaf_nodes=leaves, learning_rate=0.2, early_stopping=False, l2_regularization=penalty
    )
    model.fit(rows[:1500], labels[:1500])
    found = fit_boosting(rows[:1500], labels[:1500], 20, leaves, 0.2, penalty=penalty).probabilities(rows[1500:])
    np.testing.assert_allclose(found, model.predict_proba(rows[1500:]), atol=1e-6)


def test_with_more_values_than_bins_it_is_as_good_as_scikit_learns() -> None:
    rows, labels = data(4, 8000, 10**6)
    model = HistGradientBoostingClassifier(max_iter=30, max_leaf_nodes=15, early_stopping=False)
    theirs = model.fit(rows[:4000], labels[:4000]).predict(rows[4000:])
    ours = fit_boosting(rows[:4000], labels[:4000], 30, 15, 0.1).probabilities(rows[4000:]).argmax(axis=1)
    right, others = ((found == labels[4000:]).mean() for found in (ours, theirs))
    # Twice the deviation of the difference of two shares of 4,000 rows that mostly agree.
    assert abs(right - others) < 0.012
    assert right > 0.5


def test_the_number_of_threads_changes_no_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, labels = data(5)
    found = []
    for threads in (1, 3):
        monkeypatch.setattr("chronospike.threads.default_threads", lambda threads=threads: threads)
        found.append(fit_boosting(rows, labels, 4, 6, 0.1).probabilities(rows).tobytes())
    assert found[0] == found[1]


def test_a_leaf_by_hand() -> None:
    """Twenty rows a leaf, each with gradient ½ and curvature ¼: 0.1 · 10 / (5 + 5)."""
    rows = np.repeat([[0.0], [1.0]], 20, axis=0).astype(np.float32)
    forest = fit_boosting(rows, np.repeat([0, 1], 20), 1, 2, 0.1, penalty=5.0)
    np.testing.assert_allclose(sorted(forest.value[:, 0]), [-0.1, 0.1])


def test_a_tree_splits_by_its_share_of_the_columns_and_each_by_others() -> None:
    rows, labels = data(3)
    forest = fit_boosting(rows, labels, 20, 15, 0.1, columns_share=1 / 3)
    ends = [*forest.roots[1:], len(forest.feature)]
    used = [set(forest.feature[root:end]) - {-1} for root, end in zip(forest.roots, ends, strict=True)]
    assert max(map(len, used)) == 2
    assert set.union(*used) == set(range(6))
    # What is not drawn is not known: the trees of all columns are others.
    assert fit_boosting(rows, labels, 20, 15, 0.1).tensors()["feature"].tolist() != forest.feature.tolist()


def test_columns_are_drawn_by_the_seed() -> None:
    rows, labels = data(3)
    one, again, other = (
        fit_boosting(rows, labels, 3, 6, 0.1, columns_share=0.5, seed=seed).probabilities(rows) for seed in (0, 0, 1)
    )
    assert np.array_equal(one, again)
    assert not np.array_equal(one, other)


def test_too_few_rows_for_a_leaf_are_told_apart_by_their_shares_alone() -> None:
    rows, labels = np.arange(6, dtype=np.float32)[:, None], np.array([0, 1, 1, 0, 1, 1])
    forest = fit_boosting(rows, labels, 3, 15, 0.1)
    np.testing.assert_allclose(forest.probabilities(rows), np.tile([1 / 3, 2 / 3], (6, 1)))
    assert (forest.feature < 0).all()


def test_columns_that_do_not_vary_are_left_alone() -> None:
    rows, labels = data(2)
    rows[:, 3] = 7
    forest = fit_boosting(rows, labels, 5, 15, 0.1)
    assert 3 not in forest.feature
    assert not np.isnan(forest.probabilities(rows)).any()


def test_largest_values_do_not_overflow() -> None:
    largest = np.finfo(np.float32).max
    rows = np.array([[-largest], [largest]] * 40, dtype=np.float32)
    forest = fit_boosting(rows, np.array([0, 1] * 40), 20, 4, 0.5)
    assert forest.probabilities(rows[:2]).argmax(axis=1).tolist() == [0, 1]


def test_what_it_makes_can_be_stored_and_followed() -> None:
    rows, labels = data(3)
    forest = fit_boosting(rows, labels, 5, 15, 0.1)
    again = Forest.from_tensors(forest.tensors())
    assert again.probabilities(rows).tobytes() == forest.probabilities(rows).tobytes()


def test_a_value_lies_in_the_first_bin_whose_edge_is_not_below_it() -> None:
    edges, binned = boosting._bin(np.array([[1.0], [2.0], [2.0], [4.0]], dtype=np.float32))
    assert edges[0].tolist() == [1.5, 3.0]
    assert binned.tolist() == [[0, 1, 1, 2]]


def test_a_constant_column_changes_no_tree() -> None:
    rows, labels = data(3)
    wider = np.insert(rows, 1, 7, axis=1)
    forest, other = (fit_boosting(some, labels, 5, 15, 0.1).tensors() for some in (rows, wider))
    other["feature"] = np.where(other["feature"] > 1, other["feature"] - 1, other["feature"])
    other["width"] = other["width"] - 1
    assert {name: array.tobytes() for name, array in other.items()} == {
        name: array.astype(other[name].dtype).tobytes() for name, array in forest.items()
    }


def test_the_sums_of_a_bin_are_those_of_its_rows() -> None:
    rng = np.random.default_rng(0)
    binned = rng.integers(0, 5, (9, 300)).astype(np.uint8)
    slope, curvature = rng.normal(size=(2, 300)).astype(np.float32)
    drawn, some = np.array([0, 2, 3, 8]), np.flatnonzero(rng.random(300) < 0.5)
    sums, counts = np.empty((20, 2)), np.empty(20, np.int32)
    boosting._add_up(binned, drawn, np.arange(0, 25, 5), some, slope, curvature, sums, counts)
    for place, column in enumerate(drawn):
        own = slice(5 * place, 5 * place + 5)
        assert counts[own].tolist() == np.bincount(binned[column, some], minlength=5).tolist()
        for found, values in zip(sums[own].T, (slope, curvature), strict=True):
            np.testing.assert_array_equal(found, np.bincount(binned[column, some], values[some], minlength=5))
