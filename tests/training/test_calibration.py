from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chronospike.training.calibration import (
    abstention,
    calibration_facts,
    expected_calibration_error,
    fit_temperature,
    reliability,
    with_temperature,
)

# Four nodes said to be class 0 (three are) and four said to be class 1 (three are), all with 0.9.
SURE = np.array([[0.9, 0.1]] * 4 + [[0.1, 0.9]] * 4)
TRUTH = np.array([0, 0, 0, 1, 1, 1, 1, 0])


def _loss(probabilities: np.ndarray, labels: np.ndarray) -> float:
    return float(-np.log(probabilities[np.arange(len(labels)), labels]).mean())


def test_a_temperature_brings_the_odds_to_the_share_that_is_right() -> None:
    """Odds of 9 where three of four are right, odds of 3: 9 ** (1 / 2) = 3."""
    assert fit_temperature(SURE, TRUTH) == pytest.approx(2.0)
    assert with_temperature(SURE, 2.0)[0] == pytest.approx([0.75, 0.25])


def test_timid_probabilities_get_a_temperature_below_one() -> None:
    """Odds of 3 where nine of ten are right, odds of 9: 3 ** (1 / 0.5) = 9."""
    timid = np.array([[0.75, 0.25]] * 10 + [[0.25, 0.75]] * 10)
    truth = np.array([0] * 9 + [1] + [1] * 9 + [0])
    assert fit_temperature(timid, truth) == pytest.approx(0.5)


def test_no_other_temperature_has_a_smaller_loss() -> None:
    rng = np.random.default_rng(0)
    probabilities = rng.dirichlet(np.full(4, 0.3), size=300)
    labels = np.where(rng.random(300) < 0.5, probabilities.argmax(axis=1), rng.integers(0, 4, 300))
    found = fit_temperature(probabilities, labels)
    best = _loss(with_temperature(probabilities, found), labels)
    for other in np.geomspace(0.05, 20, 400):
        assert best <= _loss(with_temperature(probabilities, float(other)), labels) + 1e-12
    assert fit_temperature(probabilities, labels) == found


@pytest.mark.parametrize(("labels", "end"), [([0, 0, 1, 1], 1 / 20), ([1, 1, 0, 0], 20.0)])
def test_all_right_or_all_wrong_ends_at_a_bound(labels: list[int], end: float) -> None:
    probabilities = np.array([[0.9, 0.1]] * 2 + [[0.1, 0.9]] * 2)
    assert fit_temperature(probabilities, np.array(labels)) == pytest.approx(end, rel=1e-6)


@pytest.mark.parametrize(
    ("probabilities", "labels"),
    [
        (np.zeros((0, 2)), []),
        ([[0.9, 0.1]], [0]),
        ([[0.9, 0.1], [0.8, 0.2]], [0, 0]),
        ([[0.5, 0.5], [0.5, 0.5]], [0, 1]),
        ([[0.0, 0.0], [0.0, 0.0]], [0, 1]),
    ],
)
def test_without_anything_to_learn_from_the_temperature_is_one(probabilities: list, labels: list[int]) -> None:
    assert fit_temperature(np.array(probabilities), np.array(labels, dtype=np.int64)) == 1.0


def test_a_probability_of_zero_for_the_true_class_is_no_infinite_loss() -> None:
    probabilities = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [0.0, 1.0]])
    # Odds of 1e12 where three of four are right: 12 ln 10 / ln 3 = 25.15, past the bound.
    assert fit_temperature(probabilities, np.array([0, 1, 1, 1])) == pytest.approx(20.0, rel=1e-6)
    assert np.isfinite(with_temperature(probabilities, 20.0)).all()


def test_a_temperature_of_one_returns_the_same_values() -> None:
    given = np.array([[0.0, 1.0], [0.3, 0.7]], dtype=np.float32)
    assert with_temperature(given, 1.0).dtype == np.float64
    assert (with_temperature(given, 1.0) == given).all()


@pytest.mark.parametrize("temperature", [0.0, -1.0, float("nan")])
def test_a_temperature_that_is_not_positive_is_refused(temperature: float) -> None:
    with pytest.raises(ValueError, match="temperature must be above 0"):
        with_temperature(SURE, temperature)


@given(st.lists(st.integers(1, 1000), min_size=2, max_size=6, unique=True), st.floats(0.05, 20))
def test_rows_add_up_to_one_and_keep_the_order_of_classes(weights: list[int], temperature: float) -> None:
    row = np.array([weights], dtype=np.float64) / sum(weights)
    found = with_temperature(row, temperature)
    assert found.sum() == pytest.approx(1.0)
    assert (np.argsort(found) == np.argsort(row)).all()


def test_calibration_error_by_hand() -> None:
    """0.9 is said and 0.75 are right, of all nodes: 0.15."""
    assert expected_calibration_error(SURE, TRUTH) == pytest.approx(0.15)
    assert expected_calibration_error(with_temperature(SURE, 2.0), TRUTH) == pytest.approx(0.0)


def test_the_error_weighs_bins_by_their_nodes() -> None:
    """Bins of a tenth: two nodes with 0.55 and one right (0.05 apart), one node with 0.95 and wrong (0.95 apart)."""
    probabilities = np.array([[0.55, 0.45], [0.45, 0.55], [0.95, 0.05]])
    labels = np.array([0, 0, 1])
    assert expected_calibration_error(probabilities, labels, bins=10) == pytest.approx((2 * 0.05 + 0.95) / 3)
    first, last = reliability(probabilities, labels, bins=10)
    assert first == pytest.approx({"low": 0.5, "high": 0.6, "confidence": 0.55, "accuracy": 0.5, "nodes": 2})
    assert last == pytest.approx({"low": 0.9, "high": 1.0, "confidence": 0.95, "accuracy": 0.0, "nodes": 1})


def test_a_rounding_above_one_stays_in_the_last_bin() -> None:
    (row,) = reliability(np.array([[1.0000001, 0.0]], dtype=np.float32), np.array([0]))
    assert (row["low"], row["high"], row["confidence"]) == (14 / 15, 1.0, 1.0)


def test_no_nodes_are_no_bins_and_no_error() -> None:
    nobody, nothing = np.zeros((0, 3)), np.zeros(0, dtype=np.int64)
    assert reliability(nobody, nothing) == []
    assert expected_calibration_error(nobody, nothing) == 0.0
    assert abstention(nobody, nothing, [0.5]) == [{"threshold": 0.5, "kept": 0.0, "micro_f1": None, "nodes": 0}]


def test_leaving_out_unsure_nodes_by_hand() -> None:
    probabilities = np.array([[0.5, 0.5], [0.3, 0.7], [0.9, 0.1], [0.2, 0.8]])
    rows = abstention(probabilities, np.array([1, 1, 0, 0]), thresholds=(0.5, 0.7, 0.9, 0.95))
    assert rows == [
        {"threshold": 0.5, "kept": 1.0, "micro_f1": 0.5, "nodes": 4},
        {"threshold": 0.7, "kept": 0.75, "micro_f1": pytest.approx(2 / 3), "nodes": 3},
        {"threshold": 0.9, "kept": 0.25, "micro_f1": 1.0, "nodes": 1},
        {"threshold": 0.95, "kept": 0.0, "micro_f1": None, "nodes": 0},
    ]


def test_the_facts_are_json_and_hold_both_sides_of_the_calibration() -> None:
    facts = calibration_facts(SURE, with_temperature(SURE, 2.0), TRUTH, 2.0, "out-of-fold", 40)
    read = json.loads(json.dumps(facts))
    assert read == facts
    assert (read["temperature"], read["chosen_on"], read["chosen_nodes"]) == (2.0, "out-of-fold", 40)
    assert (read["ece_before"], read["ece_after"]) == pytest.approx((0.15, 0.0))
    assert [row["confidence"] for row in read["reliability_before"]] == pytest.approx([0.9])
    assert [row["confidence"] for row in read["reliability"]] == pytest.approx([0.75])
    assert [row["kept"] for row in read["abstention"]] == [1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0]
