from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
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
    Chosen,
    SecondStage,
    StageSettings,
    choose_second_stage,
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


def choose(rows: Rows, labels: Codes, classes: int, **values: Any) -> Chosen | None:
    usual: dict[str, Any] = {"folds": stratified_folds(labels, 3, 0), "seed": 0, "settings": QUICK}
    return choose_second_stage(rows, labels, classes, **{**usual, **values})


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
    chosen = choose(rows, np.full(len(rows), 2), 3)
    assert chosen is not None
    assert chosen.stage.probabilities(rows).tolist() == found.tolist()


def test_two_nodes_per_class_are_enough() -> None:
    rows, labels = blobs(4, each=2)
    chosen = choose(rows, labels, 4, folds=stratified_folds(labels, 2, 0))
    assert chosen is not None
    np.testing.assert_allclose(chosen.stage.probabilities(rows).sum(axis=1), 1, atol=1e-12)


def test_one_node_per_class_can_be_chosen_for() -> None:
    rows, labels = blobs(5, each=1)
    assert choose(rows, labels, 5, folds=np.arange(5)) is not None


def test_thirty_classes_are_told_apart() -> None:
    rows, labels = blobs(30, each=20, distance=8.0)
    chosen = choose(rows, labels, 30)
    assert chosen is not None
    assert accuracy(chosen.out_of_fold[chosen.kind], labels) > 0.8


def test_noise_is_guessed_by_chance_out_of_fold() -> None:
    rows, labels = blobs(4, each=200, distance=0.0)
    chosen = choose(rows, labels, 4)
    assert chosen is not None
    for found in chosen.out_of_fold.values():
        # Five standard deviations of a share of a quarter.
        assert abs(accuracy(found, labels) - 0.25) < 5 * np.sqrt(3 / 16 / len(labels))


def test_the_best_kind_out_of_fold_is_fitted_to_all_rows() -> None:
    rows, labels = blobs(3)
    chosen = choose(rows, labels, 3, score=lambda found, _: float(found[0, 0]))
    assert chosen is not None
    assert chosen.kind == max(KINDS, key=lambda kind: chosen.out_of_fold[kind][0, 0]) == chosen.stage.kind
    assert bits(chosen.stage) == bits(fit(rows, labels, 3, chosen.kind))


def test_no_kind_sees_the_label_that_it_predicts_out_of_fold() -> None:
    rows, labels = blobs(3)
    folds = stratified_folds(labels, 3, 0)
    changed = np.where(folds == 0, 2 - labels, labels)
    one, other = choose(rows, labels, 3, folds=folds), choose(rows, changed, 3, folds=folds)
    assert one is not None
    assert other is not None
    for kind in KINDS:
        assert np.array_equal(one.out_of_fold[kind][folds == 0], other.out_of_fold[kind][folds == 0])
        assert not np.array_equal(one.out_of_fold[kind][folds == 1], other.out_of_fold[kind][folds == 1])


def test_the_first_of_equals_is_chosen_among_the_kinds_given() -> None:
    rows, labels = blobs(2)
    chosen = choose(rows, labels, 2, kinds=("trees", "logistic"), score=lambda found, truth: 0.5)
    assert chosen is not None
    assert chosen.kind == "trees"
    assert list(chosen.out_of_fold) == ["trees", "logistic"]


def test_the_mean_costs_no_fits_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    fitted: list[str] = []
    plain = second_stage._fit_part

    def counted(base: str, *rest: Any) -> Any:
        fitted.append(base)
        return plain(base, *rest)

    monkeypatch.setattr(second_stage, "_fit_part", counted)
    told: list[tuple[int, int]] = []
    choose(*blobs(2), 2, score=lambda found, truth: 0.0, watch=lambda done, total: told.append((done, total)))
    assert [fitted.count(base) for base in BASES] == [4, 3, 3]
    assert told == [(k, 10) for k in range(1, 11)]


@pytest.mark.parametrize(
    ("fits", "left"), [(0, None), (2, None), (3, ["logistic"]), (8, ["logistic", "trees"]), (9, list(KINDS))]
)
def test_when_late_the_kinds_so_far_are_chosen_among(fits: int, left: list[str] | None) -> None:
    asked = iter(range(100))
    chosen = choose(*blobs(2), 2, is_late=lambda: next(asked) >= fits)
    assert (None if chosen is None else list(chosen.out_of_fold)) == left


def test_a_choice_has_the_same_bits_on_any_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, labels = blobs(4, distance=1.0)
    first = choose(rows, labels, 4)
    monkeypatch.setattr(second_stage, "default_threads", lambda: 1)
    second = choose(rows, labels, 4)
    assert first is not None
    assert second is not None
    assert all(np.array_equal(first.out_of_fold[kind], second.out_of_fold[kind]) for kind in KINDS)
    assert bits(first.stage) == bits(second.stage)


def test_the_limits_of_threads_are_put_back() -> None:
    before = [(pool["filepath"], pool["num_threads"]) for pool in threadpool_info()]
    choose(*blobs(2), 2)
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
        choose(rows, labels, 2, folds=np.zeros_like(labels))
    with pytest.raises(InputError, match="reads 7 columns"):
        fit(rows, labels, 2).probabilities(rows[:, 1:])
