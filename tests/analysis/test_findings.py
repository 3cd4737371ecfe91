from __future__ import annotations

from typing import Any

import pytest

from chronospike.analysis.confusion import ClassScores
from chronospike.analysis.findings import Finding, findings, headline, margin
from chronospike.analysis.run_files import Metrics

GAP = "\N{NO-BREAK SPACE}"


def _found(metrics: dict[str, Any], settings: dict[str, Any] | None = None, *classes: ClassScores) -> list[Finding]:
    found = findings(Metrics.model_validate(metrics), classes, settings or {})
    return [Finding(finding.level, finding.text.replace(GAP, " ")) for finding in found]


def _levels(found: list[Finding], words: str) -> list[str]:
    return [finding.level for finding in found if words in finding.text]


def _scores(test: float, validation: float, nodes: int | None = None, **more: Any) -> dict[str, Any]:
    return {
        "test": {"macro_f1": test, "micro_f1": test, "nodes": nodes},
        "validation": {"macro_f1": validation, "micro_f1": validation, "nodes": nodes},
        **more,
    }


def test_the_headline_names_both_simple_methods(metrics: dict[str, Any]) -> None:
    assert headline(Metrics.model_validate(metrics)).replace(GAP, " ") == (
        "80.0 % of the 10 held-out nodes are classified correctly; "
        "always guessing the largest class gets 60.0 %, label propagation 50.0 %."
    )


def test_the_headline_does_without_baselines_and_counts() -> None:
    text = headline(Metrics.model_validate(_scores(0.5, 0.5))).replace(GAP, " ")
    assert text == "50.0 % of the held-out nodes are classified correctly."


def test_the_margin_of_a_half_over_a_hundred_nodes_is_ten_points() -> None:
    assert margin(0.5, 100) == pytest.approx(0.098)


@pytest.mark.parametrize(
    ("propagation", "level"), [(0.81, "warning"), (0.8, "warning"), (0.795, "note"), (0.7, "good")]
)
def test_a_lead_over_label_propagation_must_be_there_and_be_more_than_chance(propagation: float, level: str) -> None:
    baselines = {"label propagation": {"macro_f1": 0.5, "micro_f1": propagation}}
    assert _levels(_found(_scores(0.8, 0.8, 1000, baselines=baselines)), "label propagation") == [level]


@pytest.mark.parametrize(("validation", "level"), [(0.81, "good"), (0.9, "warning"), (0.7, "note")])
def test_validation_far_above_test_is_a_warning(validation: float, level: str) -> None:
    assert _levels(_found(_scores(0.8, validation, 1000)), "on validation and") == [level]


def test_a_large_gap_between_small_parts_can_be_chance() -> None:
    assert _levels(_found(_scores(0.8, 0.9, 20)), "on validation and") == ["good"]


def test_weak_classes_are_named_weakest_first() -> None:
    classes = [ClassScores("fine", 0.9, 50), ClassScores("poor", 0.4, 9), ClassScores("worse", 0.1, 1)]
    (finding,) = [f for f in _found(_scores(0.8, 0.8), {}, *classes) if "F1 under" in f.text]
    assert finding.level == "warning"
    assert "2 of 3 classes have an F1 under 0.5: ‘worse’ (0.10, 1 node) and ‘poor’ (0.40, 9 nodes)" in finding.text


def test_a_class_that_is_not_tested_is_not_called_weak() -> None:
    found = _found(_scores(0.8, 0.8), {}, ClassScores("fine", 0.9, 50), ClassScores("rare", 0.0, 0))
    assert _levels(found, "F1 under") == []
    assert _levels(found, "No test node belongs to ‘rare’") == ["note"]


def test_dropped_nodes_and_notes_of_the_split_are_told(metrics: dict[str, Any]) -> None:
    found = _found(metrics)
    assert _levels(found, "2 nodes without any edge were left out") == ["note"]
    assert _levels(found, "About the split: dogs are few.") == ["note"]
    assert _levels(found, "20 nodes trained the model, 4 nodes chose the best epoch and 10 nodes were held out") == [
        "good"
    ]


@pytest.mark.parametrize(("order", "level"), [("random", "note"), ("time", "good")])
def test_a_random_split_is_said_not_to_test_the_future(order: str, level: str) -> None:
    found = _found(_scores(0.8, 0.8), {"split_order": order})
    assert _levels(found, "The split is random" if order == "random" else "seen first") == [level]


@pytest.mark.parametrize(("best", "told"), [(99, ["note"]), (98, [])])
def test_a_best_epoch_at_the_very_end_asks_for_more(best: int, told: list[str]) -> None:
    found = _found(_scores(0.8, 0.8, epochs=100, best_epoch=best), {"epochs": 100})
    assert _levels(found, "more epochs") == told


@pytest.mark.parametrize(("rate", "words"), [(0.001, "Layer 2 is nearly silent"), (0.97, "Layer 2 fires")])
def test_a_silent_or_saturated_layer_is_a_warning(rate: float, words: str) -> None:
    assert _levels(_found(_scores(0.8, 0.8, firing_rate=[0.1, rate])), words) == ["warning"]


def test_a_layer_that_fires_now_and_then_is_not_worth_a_word() -> None:
    assert _levels(_found(_scores(0.8, 0.8, firing_rate=[0.1, 0.3])), "Layer") == []


def test_warnings_come_first(metrics: dict[str, Any]) -> None:
    levels = [finding.level for finding in _found({**metrics, "firing_rate": [0.0]})]
    assert levels == sorted(levels, key=["warning", "note", "good"].index)
    assert set(levels) == {"warning", "note", "good"}


def test_a_second_fit_is_told() -> None:
    words = "trained again on the training and validation nodes"
    assert _levels(_found(_scores(0.5, 0.5, refit={"nodes": 12})), words) == ["note"]
    assert not _levels(_found(_scores(0.5, 0.5)), words)


def test_what_a_run_noted_is_a_note() -> None:
    found = _found(_scores(0.5, 0.5, notes=["predictions.csv holds the 30 test nodes."]))
    assert _levels(found, "holds the 30 test nodes") == ["note"]
