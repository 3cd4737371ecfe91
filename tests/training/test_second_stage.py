from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_info, threadpool_limits

from chronospike.data.label_features import stratified_folds
from chronospike.errors import InputError, StorageError
from chronospike.training import second_stage
from chronospike.training.second_stage import (
    BASES,
    KINDS,
    SecondStage,
    StageSettings,
    are_better,
    cross_validate,
    ensemble_weights,
    fit_second_stage,
)

QUICK = StageSettings(trees=10, rounds=4)
Rows = NDArray[np.float32]
Codes = NDArray[np.int64]


def blobs(classes: int, each: int = 60, distance: float = 3.0, seed: int = 0) -> tuple[Rows, Codes]:
    """Clouds around a point per class; at distance zero the labels are noise."""
    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.repeat(np.arange(classes), each))
    # The first columns tell the classes apart, the last says nothing and never changes.
    rows = np.concatenate([rng.normal(size=(len(labels), 6)), np.full((len(labels), 1), 4.0)], axis=1)
    rows[:, :6] += distance * np.random.default_rng(99).normal(size=(classes, 6))[labels]
    return rows.astype(np.float32), labels


def fit(rows: Rows, labels: Codes, classes: int, kind: str = "mean", seed: int = 0) -> SecondStage:
    return fit_second_stage(rows, labels, classes, kind, seed, QUICK)


def validate(rows: Rows, labels: Codes, classes: int, kind: str = "mean", **values: Any) -> NDArray[np.float64] | None:
    usual: dict[str, Any] = {"folds": stratified_folds(labels, 3, 0), "seed": 0, "settings": {"it": QUICK}}
    found = cross_validate(lambda left_out: {"it": rows}, {"it": kind}, labels, classes, **{**usual, **values})
    return None if found is None else found["it"]


def accuracy(probabilities: NDArray[np.float64], labels: Codes) -> float:
    return float((probabilities.argmax(axis=1) == labels).mean())


def bits(stage: SecondStage) -> dict[str, bytes]:
    return {name: array.tobytes() for name, array in stage.tensors().items()}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("classes", [2, 4])
def test_a_separable_problem_is_learned_and_rows_sum_to_one(kind: str, classes: int) -> None:
    stage = fit(*blobs(classes), classes, kind)
    rows, labels = blobs(classes, seed=1)
    found = stage.probabilities(rows)
    assert accuracy(found, labels) > 0.9
    assert found.shape == (len(rows), classes)
    np.testing.assert_allclose(found.sum(axis=1), 1, atol=1e-12)


@pytest.mark.parametrize("classes", [2, 4])
def test_the_logistic_regression_is_that_of_scikit_learn(classes: int) -> None:
    rows, labels = blobs(classes, distance=0.5)
    plain = make_pipeline(StandardScaler(), LogisticRegression(max_iter=200, tol=1e-3)).fit(rows, labels)
    found = fit(rows, labels, classes, "logistic").probabilities(rows)
    np.testing.assert_allclose(found, plain.predict_proba(rows), atol=1e-5)


def test_the_mean_is_that_of_the_other_kinds() -> None:
    rows, labels = blobs(3)
    each = [fit(rows, labels, 3, base).probabilities(rows) for base in BASES]
    np.testing.assert_allclose(fit(rows, labels, 3).probabilities(rows), np.mean(each, axis=0), atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_classes_without_labels_have_probability_zero(kind: str) -> None:
    rows, labels = blobs(3)
    codes = np.array([1, 3, 4])[labels]
    found = fit(rows, codes, 6, kind).probabilities(rows)
    assert found[:, [0, 2, 5]].max() == 0
    assert accuracy(found, codes) > 0.9


@pytest.mark.parametrize("kind", KINDS)
def test_a_single_class_is_certain(kind: str) -> None:
    rows, _ = blobs(2)
    found = fit(rows, np.full(len(rows), 2), 3, kind).probabilities(rows)
    assert found.tolist() == [[0, 0, 1]] * len(rows)
    out_of_fold = validate(rows, np.full(len(rows), 2), 3, kind)
    assert out_of_fold is not None
    assert out_of_fold.tolist() == found.tolist()


def test_two_nodes_per_class_are_enough() -> None:
    rows, labels = blobs(4, each=2)
    found = validate(rows, labels, 4, folds=stratified_folds(labels, 2, 0))
    assert found is not None
    np.testing.assert_allclose(found.sum(axis=1), 1, atol=1e-12)


def test_a_class_whose_only_node_is_left_out_is_not_foretold() -> None:
    rows, labels = blobs(5, each=1)
    found = validate(rows, labels, 5, folds=np.arange(5))
    assert found is not None
    assert found[np.arange(5), labels].tolist() == [0] * 5


def test_thirty_classes_are_told_apart() -> None:
    rows, labels = blobs(30, each=20, distance=8.0)
    found = validate(rows, labels, 30)
    assert found is not None
    assert accuracy(found, labels) > 0.8


@pytest.mark.parametrize("kind", KINDS)
def test_noise_is_guessed_by_chance_out_of_fold(kind: str) -> None:
    rows, labels = blobs(4, each=200, distance=0.0)
    found = validate(rows, labels, 4, kind)
    assert found is not None
    # Five standard deviations of a share of a quarter.
    assert abs(accuracy(found, labels) - 0.25) < 5 * np.sqrt(3 / 16 / len(labels))


@pytest.mark.parametrize("kind", KINDS)
def test_no_kind_sees_the_label_that_it_predicts_out_of_fold(kind: str) -> None:
    rows, labels = blobs(3)
    folds = stratified_folds(labels, 3, 0)
    changed = np.where(folds == 0, 2 - labels, labels)
    one, other = (validate(rows, given, 3, kind, folds=folds) for given in (labels, changed))
    assert one is not None
    assert other is not None
    assert np.array_equal(one[folds == 0], other[folds == 0])
    assert not np.array_equal(one[folds == 1], other[folds == 1])


@pytest.mark.parametrize("kind", KINDS)
def test_out_of_fold_is_what_a_fit_to_the_other_folds_says(kind: str) -> None:
    rows, labels = blobs(3)
    folds = stratified_folds(labels, 3, 0)
    found = validate(rows, labels, 3, kind, folds=folds)
    assert found is not None
    for fold in range(3):
        here = folds == fold
        expected = fit(rows[~here], labels[~here], 3, kind).probabilities(rows[here])
        assert np.array_equal(found[here], expected)


def test_every_fit_to_folds_is_told() -> None:
    told: list[int] = []
    validate(*blobs(2), 2, tell=lambda: told.append(0))
    assert len(told) == 3


@pytest.mark.parametrize("fits", [0, 1, 2, 3])
def test_when_late_before_the_last_fold_there_is_nothing(fits: int) -> None:
    asked = iter(range(100))
    found = validate(*blobs(2), 2, is_late=lambda: next(asked) >= fits)
    assert (found is None) == (fits < 3)


def test_each_reads_rows_made_without_the_nodes_that_are_left_out() -> None:
    rows, labels = blobs(2)
    folds = stratified_folds(labels, 3, 0)
    asked: list[Codes] = []

    def rows_without(left_out: NDArray[np.bool_]) -> dict[str, Rows]:
        asked.append(np.unique(folds[left_out]))
        assert np.array_equal(left_out, folds == asked[-1])
        return {"all": rows, "first": rows[:, :1]}

    kinds = {"all": "logistic", "first": "logistic"}
    found = cross_validate(rows_without, kinds, labels, 2, folds, 0, dict.fromkeys(kinds, QUICK))
    assert [fold.tolist() for fold in asked] == [[0], [1], [2]]
    assert found is not None
    assert list(found) == ["all", "first"]
    for name, columns in (("all", rows), ("first", rows[:, :1])):
        alone = validate(columns, labels, 2, "logistic", folds=folds)
        assert alone is not None
        assert np.array_equal(found[name], alone)


def certain(labels: Codes, right: Codes, sure: float = 0.9) -> NDArray[np.float64]:
    """Probabilities of two classes, `sure` of the right one at the nodes of `right`, of the wrong one elsewhere."""
    own = np.where(np.isin(np.arange(len(labels)), right), sure, 1 - sure)
    return np.where(labels[:, None] == [0, 1], own[:, None], 1 - own[:, None])


HALVES = np.arange(10) % 2


def test_the_one_that_is_always_right_has_all_the_weight() -> None:
    members = {"wrong": certain(HALVES, np.arange(0)), "right": certain(HALVES, np.arange(10))}
    assert ensemble_weights(members, HALVES) == {"right": 1.0}


def test_of_equals_the_first_has_all_the_weight() -> None:
    same = certain(HALVES, np.arange(8))
    assert ensemble_weights({"first": same, "second": same.copy()}, HALVES) == {"first": 1.0}


def test_members_that_err_about_different_nodes_share_the_weight() -> None:
    """With share w of the first, half of the nodes have 0.9 w + 0.1 (1 - w), the others the opposite: w = 1/2 is best,
    and 13 of 25 as near to it as 12."""
    members = {"one": certain(HALVES, np.arange(5)), "other": certain(HALVES, np.arange(5, 10))}
    assert ensemble_weights(members, HALVES) == {"one": 13 / 25, "other": 12 / 25}


def test_one_that_is_too_sure_is_held_back_by_one_that_knows_nothing() -> None:
    """With share w of one that is certain, and right about nine of ten, the right class has (1 + w) / 2 at nine nodes
    and (1 - w) / 2 at the tenth: 9 ((1 - w) / 2)² + ((1 + w) / 2)² is least at w = 0.8."""
    members = {"blind": np.full((10, 2), 0.5), "sure": certain(HALVES, np.arange(9), 1.0)}
    assert ensemble_weights(members, HALVES) == {"blind": 0.2, "sure": 0.8}


@pytest.mark.parametrize(("nodes", "is_so"), [(100, False), (2500, True)])
def test_one_that_is_right_about_five_more_of_a_hundred_is_better_if_there_are_enough(nodes: int, is_so: bool) -> None:
    labels = np.arange(nodes) % 2
    values, others = (certain(labels, np.arange(nodes * share // 100)) for share in (65, 60))
    assert are_better(values, others, labels) is is_so
    assert not are_better(others, values, labels)


def test_how_sure_it_is_makes_none_better() -> None:
    labels = np.arange(400) % 2
    right = np.arange(300)
    modest, sure = certain(labels, right, 0.6), certain(labels, right, 0.75)
    assert not are_better(sure, modest, labels)
    assert not are_better(sure, sure, labels)


@given(seed=st.integers(0, 2**32 - 1))
def test_no_other_shares_of_two_members_are_nearer_to_the_labels(seed: int) -> None:
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 3, 40)
    members = {name: rng.dirichlet(np.ones(3) + 4 * np.eye(3)[labels][0], 40) for name in "ab"}

    def score(share: float) -> float:
        mean = share * members["a"] + (1 - share) * members["b"]
        return float(np.square(mean - np.eye(3)[labels]).sum())

    found = ensemble_weights(members, labels)
    assert sum(found.values()) == pytest.approx(1)
    assert score(found.get("a", 0)) <= min(score(k / 25) for k in range(26)) + 1e-9


def test_cross_validation_has_the_same_bits_on_any_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, labels = blobs(4, distance=1.0)
    first = [validate(rows, labels, 4, kind) for kind in BASES]
    monkeypatch.setattr(second_stage, "default_threads", lambda: 1)
    for kind, values in zip(BASES, first, strict=True):
        again = validate(rows, labels, 4, kind)
        assert values is not None
        assert again is not None
        assert np.array_equal(values, again)


def test_the_limits_of_threads_are_put_back() -> None:
    before = [(pool["filepath"], pool["num_threads"]) for pool in threadpool_info()]
    validate(*blobs(2), 2)
    after = {pool["filepath"]: pool["num_threads"] for pool in threadpool_info()}
    assert all(after[path] == threads for path, threads in before)


@pytest.mark.parametrize("kind", KINDS)
def test_a_seed_gives_the_same_bits_on_any_number_of_threads(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rows, labels = blobs(4, each=100, distance=1.0)
    first = fit(rows, labels, 4, kind)
    monkeypatch.setattr(second_stage, "default_threads", lambda: 1)
    monkeypatch.setattr("chronospike.threads.default_threads", lambda: 1)
    with threadpool_limits(1):
        second = fit(rows, labels, 4, kind)
        again = second.probabilities(rows)
    assert bits(first) == bits(second)
    monkeypatch.undo()
    assert np.array_equal(first.probabilities(rows), again)


def test_another_seed_gives_another_fit() -> None:
    assert bits(fit(*blobs(3), 3, "trees")) != bits(fit(*blobs(3), 3, "trees", seed=1))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("classes", [1, 2, 4])
def test_a_stored_stage_predicts_the_same_bits(kind: str, classes: int, tmp_path: Path) -> None:
    rows, labels = blobs(classes)
    stage = fit(rows, labels, 5, kind)
    save_file(stage.tensors(), tmp_path / "stage.safetensors")
    found = SecondStage.from_tensors(load_file(tmp_path / "stage.safetensors"))
    assert (found.kind, found.classes, found.parameters) == (kind, 5, stage.parameters)
    assert found.probabilities(rows).tobytes() == stage.probabilities(rows).tobytes()


def test_a_stored_stage_predicts_without_scikit_learn(tmp_path: Path) -> None:
    save_file(fit(*blobs(3), 3).tensors(), tmp_path / "stage.safetensors")
    program = (
        "import sys; import numpy as np; from safetensors.numpy import load_file;"
        "from chronospike.training.second_stage import SecondStage;"
        "SecondStage.from_tensors(load_file(sys.argv[1])).probabilities(np.zeros((2, 7), dtype=np.float32));"
        "print('sklearn' in sys.modules, 'scipy.sparse' in sys.modules)"
    )
    arguments = [sys.executable, "-c", program, str(tmp_path / "stage.safetensors")]
    assert subprocess.run(arguments, capture_output=True, text=True, check=True).stdout.split() == ["False", "False"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_has_the_same_bits_in_any_company(kind: str) -> None:
    rows, labels = blobs(9, each=130)
    stage = fit(rows, labels, 9, kind)
    whole = stage.probabilities(rows)
    assert np.array_equal(np.concatenate([stage.probabilities(part) for part in np.split(rows, [1, 8, 700])]), whole)


def test_thinning_keeps_every_class(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    plain = second_stage._fit_part

    def counted(base: str, rows: Rows, codes: Codes, *rest: Any) -> Any:
        sizes.append(len(rows))
        return plain(base, rows, codes, *rest)

    monkeypatch.setattr(second_stage, "_fit_part", counted)
    rows, labels = blobs(3, each=100)
    labels[labels == 2] = 1
    labels[0] = 2
    few = StageSettings(max_nodes=50)
    assert fit_second_stage(rows, labels, 3, "logistic", 0, few).present.tolist() == [0, 1, 2]
    assert sizes == [50]


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("stage", np.array([4, 3, 7]), "kind"),
        ("stage", np.array([3, 2, 7]), "classes are out of range"),
        ("stage", np.array([3, 3, 8]), "columns instead of 8"),
        ("present", np.array([0, 1]), "classes instead of 2"),
        ("present", np.array([0, 2, 1]), "out of range"),
        ("present", np.array([-1, 0, 1]), "out of range"),
        ("logistic.scale", np.zeros(7), "not finite"),
        ("logistic.weights", np.zeros((3, 7)), "wrong shape"),
        ("logistic.weights", np.full((3, 8), np.inf), "not finite"),
        ("logistic.mean", np.zeros(6), "belong together"),
        ("trees.roots", np.array([10**9]), "column per tree"),
        ("boosting.left", None, "'left' is missing"),
    ],
)
def test_a_damaged_stage_is_refused(name: str, value: NDArray[Any] | None, problem: str) -> None:
    arrays = fit(*blobs(3, each=20), 3).tensors()
    if value is None:
        del arrays[name]
    else:
        arrays[name] = value
    with pytest.raises(StorageError, match=problem):
        SecondStage.from_tensors(arrays)


def test_inputs_that_do_not_fit_are_refused() -> None:
    rows, labels = blobs(2)
    with pytest.raises(InputError, match="no kind of second stage"):
        fit(rows, labels, 2, "forest")
    with pytest.raises(InputError, match="there are 1 classes"):
        fit(rows, labels, 1)
    with pytest.raises(InputError, match="one row per labelled node"):
        fit(rows, labels[1:], 2)
    with pytest.raises(InputError, match="not finite"):
        fit(np.full_like(rows, np.nan), labels, 2)
    with pytest.raises(InputError, match="at least 2"):
        validate(rows, labels, 2, folds=np.zeros_like(labels))
    with pytest.raises(InputError, match="reads 7 columns"):
        fit(rows, labels, 2).probabilities(rows[:, 1:])
