from __future__ import annotations

from typing import Any

import pytest

from chronospike.analysis.confusion import ClassScores
from chronospike.analysis.findings import Finding, expectation, findings, headline, unpredictable
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


def _beside(model: tuple[float, float], **simple: tuple[float, float]) -> list[Finding]:
    """What is found for the model and simple methods, each (Micro-F1, Macro-F1), on 1,000 test nodes."""
    baselines = {name.replace("_", " "): {"micro_f1": one, "macro_f1": other} for name, (one, other) in simple.items()}
    test = {"micro_f1": model[0], "macro_f1": model[1], "nodes": 1000}
    return _found({"test": test, "validation": {**test}, "baselines": baselines})


def test_the_headline_names_the_best_simple_method(metrics: dict[str, Any]) -> None:
    metrics["baselines"]["label propagation"] = {"macro_f1": 0.7, "micro_f1": 0.7}
    metrics["baselines"]["logistic regression"] = {"macro_f1": 0.79, "micro_f1": 0.75}
    assert headline(Metrics.model_validate(metrics)).replace(GAP, " ") == (
        "80.0 % of the 10 held-out nodes are classified correctly; "
        "the best simple method, logistic regression, gets 75.0 %, always guessing the largest class 60.0 %."
    )


def test_the_headline_does_not_call_a_method_best_that_is_no_better_than_guessing(metrics: dict[str, Any]) -> None:
    assert headline(Metrics.model_validate(metrics)).replace(GAP, " ") == (
        "80.0 % of the 10 held-out nodes are classified correctly; always guessing the largest class gets 60.0 %."
    )


def test_the_headline_does_without_baselines_and_counts() -> None:
    text = headline(Metrics.model_validate(_scores(0.5, 0.5))).replace(GAP, " ")
    assert text == "50.0 % of the held-out nodes are classified correctly."


def test_the_headline_tells_test_nodes_from_held_out_ones(metrics: dict[str, Any], built: dict[str, Any]) -> None:
    assert "of the 10 test nodes" in headline(Metrics.model_validate({**metrics, **built})).replace(GAP, " ")


def test_a_method_that_only_guesses_is_never_advised() -> None:
    found = _beside((0.58, 0.3), majority_class=(0.6, 0.25), label_propagation=(0.61, 0.26))
    assert not _levels(found, "label propagation")
    assert not _levels(found, "Label propagation")


def test_a_model_that_only_guesses_is_a_warning() -> None:
    found = _beside((0.6, 0.26), majority_class=(0.6, 0.25), label_propagation=(0.6, 0.25))
    pair = "Micro-F1 60.0 % against 60.0 %, Macro-F1 26.0 % against 25.0 %"
    words = f"no better than always guessing the largest class ({pair})"
    assert _levels(found, words) == ["warning"]
    assert _levels(found, "No simple method does better") == ["warning"]
    assert not _levels(found, "label propagation")


@pytest.mark.parametrize(
    ("micro", "macro", "level"),
    [(0.8, 0.6, "note"), (0.81, 0.61, "note"), (0.81, 0.9, "warning"), (0.9, 0.6, "warning")],
)
def test_a_simple_method_as_good_in_both_measures_is_advised(micro: float, macro: float, level: str) -> None:
    others = {"majority_class": (0.5, 0.1), "label_propagation": (micro, macro), "logistic_regression": (0.7, 0.7)}
    found = _beside((0.8, 0.6), **others)
    assert _levels(found, "does not beat label propagation, a simple method") == [level]
    assert _levels(found, "Use label propagation") == [level]
    assert bool(_levels(found, "The difference may be chance")) == (level == "note")


def test_the_best_of_several_that_are_not_beaten_is_advised() -> None:
    found = _beside((0.7, 0.5), majority_class=(0.5, 0.1), label_propagation=(0.8, 0.6), logistic_regression=(0.9, 0.6))
    assert _levels(found, "Use logistic regression") == ["warning"]
    assert not _levels(found, "Use label propagation")


@pytest.mark.parametrize(("micro", "level"), [(0.9, "warning"), (0.81, "note")])
def test_more_nodes_right_but_worse_at_rare_classes_is_told_in_both_measures(micro: float, level: str) -> None:
    found = _beside((0.8, 0.7), majority_class=(0.5, 0.1), label_propagation=(micro, 0.6))
    assert _levels(found, "Label propagation classifies more nodes correctly than the model, but") == [level]
    assert _levels(found, "Macro-F1 70.0 % against 60.0 %). Prefer the model if every class matters") == [level]
    assert not _levels(found, "Use label propagation")


@pytest.mark.parametrize(("macro", "level"), [(0.9, "warning"), (0.71, "note")])
def test_a_model_weaker_at_rare_classes_is_told_in_both_measures(macro: float, level: str) -> None:
    found = _beside((0.8, 0.7), majority_class=(0.5, 0.1), logistic_regression=(0.75, macro))
    assert _levels(
        found, "Logistic regression classifies fewer nodes correctly than the model, but has the better"
    ) == [level]
    assert _levels(found, "Prefer logistic regression if every class matters") == [level]


def test_guessing_gets_more_nodes_right_than_a_model_of_the_rare_classes() -> None:
    found = _beside((0.85, 0.7), majority_class=(0.95, 0.49))
    assert _levels(found, "Always guessing the largest class classifies more nodes correctly than the model, but") == [
        "warning"
    ]
    assert not _levels(found, "Prefer majority class")


@pytest.mark.parametrize(
    ("propagation", "level"), [((0.8, 0.5), "note"), ((0.79, 0.5), "note"), ((0.7, 0.59), "note"), ((0.7, 0.5), "good")]
)
def test_a_lead_must_be_more_than_chance_in_both_measures(propagation: tuple[float, float], level: str) -> None:
    found = _beside((0.8, 0.6), majority_class=(0.5, 0.1), label_propagation=propagation)
    assert _levels(found, "The model leads every simple method") == [level]
    assert _levels(found, "small enough to be chance") == [level] * (level == "note")


def test_a_lead_that_rounds_to_nothing_is_none() -> None:
    found = _beside((0.8003, 0.6), majority_class=(0.5, 0.1), label_propagation=(0.8, 0.5999))
    assert _levels(found, "The model is level with label propagation (Micro-F1 80.0 % against 80.0 %") == ["note"]
    assert not _levels(found, "leads every simple method")


def test_the_lead_names_the_best_in_each_measure() -> None:
    found = _beside((0.9, 0.9), majority_class=(0.5, 0.1), label_propagation=(0.8, 0.6), logistic_regression=(0.7, 0.7))
    words = "by 10.0 points of Micro-F1 over label propagation and 20.0 points of Macro-F1 over logistic regression."
    assert _levels(found, words) == ["good"]


def test_one_best_method_is_named_once() -> None:
    found = _beside((0.9, 0.9), label_propagation=(0.8, 0.6))
    assert _levels(found, "by 10.0 points of Micro-F1 and 30.0 points of Macro-F1 over label propagation.") == ["good"]


def test_without_simple_methods_nothing_is_compared() -> None:
    assert not _levels(_found(_scores(0.8, 0.8, 1000)), "simple method")


def test_a_very_long_class_name_does_not_fill_the_page() -> None:
    found = _found(_scores(0.8, 0.8), {}, ClassScores("x" * 5000, 0.1, 3))
    assert max(len(finding.text) for finding in found) < 500


def test_odd_predictions_for_unlabelled_nodes_are_a_note() -> None:
    unlabelled = {"predicted": {"a": 990, "b": 10}, "training": {"a": 50, "b": 50}}
    assert _levels(_found(_scores(0.8, 0.8, unlabelled=unlabelled)), "99.0 % are predicted as ‘a’") == ["note"]


@pytest.mark.parametrize(("validation", "level"), [(0.81, "good"), (0.9, "warning"), (0.7, "note")])
def test_validation_far_above_test_is_a_warning(validation: float, level: str) -> None:
    assert _levels(_found(_scores(0.8, validation, 1000)), "on validation and") == [level]


def test_nothing_is_said_of_validation_nodes_where_none_was_scored() -> None:
    metrics = _scores(0.8, 0.0, 1000, split={"validation": 6})
    metrics["validation"]["nodes"] = 0
    assert _levels(_found(metrics), "on validation and") == []


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
    assert _levels(
        found, "The model was trained on 20 nodes, the best epoch was chosen on 4 nodes and 10 nodes were held out"
    ) == ["good"]


def test_one_test_node_is_told_in_the_singular(metrics: dict[str, Any]) -> None:
    metrics["split"]["test"] = 1
    assert _levels(_found(metrics), "1 node was held out") == ["good"]


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


def _chosen(micro: float, macro: float, nodes: int | None = None) -> list[dict[str, Any]]:
    held_out = {"micro_f1": micro, "macro_f1": macro, "nodes": nodes}
    return [{"name": "bag", "chosen": True, "on": "out-of-fold", "held_out": held_out}]


def _guessing(micro: float, macro: float, held_out: tuple[float, float] | None = None) -> dict[str, Any]:
    held = None if held_out is None else {"micro_f1": held_out[0], "macro_f1": held_out[1]}
    return {"majority class": {"micro_f1": micro, "macro_f1": macro, "held_out": held}}


FIVE = ["a", "b", "c", "d", "e"]


def test_random_guesses_are_not_better_than_guessing_for_their_macro_f1() -> None:
    """Guesses at random over five classes get a Macro-F1 of 20 %, always the largest one of five 7 %."""
    found = _found(_scores(0.2, 0.2, 1000, classes=FIVE, baselines=_guessing(0.22, 0.07)))
    assert _levels(found, "no better than always guessing the largest") == ["warning"]
    assert _levels(found, "Guessing at random gets a Macro-F1 of up to 20.0 %.") == ["warning"]


def test_labels_that_cannot_be_predicted_are_said_plainly_and_once() -> None:
    metrics = _scores(0.2, 0.2, 1000, classes=FIVE, baselines=_guessing(0.2, 0.07, (0.21, 0.07)))
    metrics["parts"] = _chosen(0.22, 0.2, 1000)
    found = _found(metrics)
    words = (
        "The labels could not be predicted from this graph: on held-out nodes the model is no better than guessing "
        "the largest class (Micro-F1 22.0 % against 21.0 %), as on the test nodes."
    )
    assert _levels(found, words) == ["warning"]
    assert not _levels(found, "always guessing the largest")


@pytest.mark.parametrize(("nodes", "told"), [(1000, False), (20, True)])
def test_held_out_scores_must_be_better_than_chance_on_their_nodes(nodes: int, told: bool) -> None:
    """By ten points over the majority class: chance moves a Micro-F1 of 30 % by 3 on 1,000 nodes and by 20 on 20."""
    metrics = _scores(0.6, 0.6, 1000, classes=FIVE, baselines=_guessing(0.2, 0.07), parts=_chosen(0.3, 0.2, nodes))
    assert bool(unpredictable(Metrics.model_validate(metrics))) == told
    assert _levels(_found(metrics), "but on the test nodes it is.") == ["warning"] * told


def test_a_model_of_the_rare_classes_predicts_the_labels() -> None:
    metrics = _scores(0.85, 0.85, 1000, classes=["a", "b"], baselines=_guessing(0.95, 0.49))
    metrics["parts"] = _chosen(0.85, 0.7, 1000)
    assert unpredictable(Metrics.model_validate(metrics)) == ""


def test_without_held_out_scores_or_guesses_nothing_is_said_of_them() -> None:
    metrics = _scores(0.2, 0.2, 1000, baselines=_guessing(0.2, 0.2), parts=[{"name": "bag", "chosen": True}])
    assert unpredictable(Metrics.model_validate(metrics)) == ""
    assert unpredictable(Metrics.model_validate(_scores(0.2, 0.2, parts=_chosen(0.2, 0.2)))) == ""


def test_nodes_of_the_estimate_and_of_validation_say_how_much_is_chance() -> None:
    metrics = _scores(0.3, 0.3, 20, classes=FIVE, baselines=_guessing(0.2, 0.07), parts=_chosen(0.3, 0.2))
    assert unpredictable(Metrics.model_validate(metrics)) == ""
    estimate = {"nodes": 20, "micro_f1": 0.3, "macro_f1": 0.2}
    assert unpredictable(Metrics.model_validate({**metrics, "estimate": estimate}))
    metrics["parts"][0]["on"] = "validation"
    assert unpredictable(Metrics.model_validate(metrics))


def test_what_cross_validation_expects_is_a_sentence(built: dict[str, Any]) -> None:
    text = expectation(Metrics.model_validate(_scores(0.8, 0.8, **built))).replace(GAP, " ")
    assert text == "Cross-validation over 22,468 labelled nodes in 5 folds expects a Micro-F1 of 78.0 % ± 0.3 points."
    # The interval is for as many nodes as the test part has; beside it, the deviation of the folds would be a riddle.
    wide = built["estimate"] | {"micro_f1_low": 0.77, "micro_f1_high": 0.79}
    text = expectation(Metrics.model_validate(_scores(0.8, 0.8, estimate=wide))).replace(GAP, " ")
    assert text.endswith("expects a Micro-F1 of 78.0 % (95 % interval: 77.0 % to 79.0 %).")
    # One fold says nothing of how scores differ.
    single = wide | {"folds": 1, "micro_f1_std": 0.0, "micro_f1_low": 0.0, "micro_f1_high": 1.0}
    text = expectation(Metrics.model_validate(_scores(0.8, 0.8, estimate=single))).replace(GAP, " ")
    assert text.endswith("in 1 fold expects a Micro-F1 of 78.0 %.")
    bare = _scores(0.8, 0.8, estimate={"macro_f1": 0.5, "micro_f1": 0.5})
    words = "Cross-validation over the labelled nodes expects a Micro-F1 of 50.0 %."
    assert expectation(Metrics.model_validate(bare)).replace(GAP, " ") == words
    assert expectation(Metrics.model_validate(_scores(0.8, 0.8))) == ""


@pytest.mark.parametrize(
    ("expected", "deviation", "nodes", "levels"),
    [
        (0.85, 0.003, 100_000, ["warning"]),
        (0.75, 0.003, 100_000, ["note"]),
        (0.815, 0.003, 100_000, []),
        (0.85, 0.02, 100_000, []),
        (0.85, None, 100_000, []),
        (0.85, 0.003, 100, []),
    ],
)
def test_a_test_score_far_from_the_estimate_is_told(
    expected: float, deviation: float | None, nodes: int, levels: list[str]
) -> None:
    """Far is more than 3 deviations, 2 points and what chance does to 80 % on the test nodes (8 points on 100)."""
    estimate = {"micro_f1": expected, "macro_f1": 0.8, "micro_f1_std": deviation, "macro_f1_std": 0.003}
    found = _found(_scores(0.8, 0.8, nodes, estimate=estimate))
    words = f"differ from what cross-validation expects: Micro-F1 is 80.0 %, not {100 * expected:.1f} %."
    assert _levels(found, words) == levels
    assert _levels(found, "cross-validation expects") == levels


@pytest.mark.parametrize(("error", "levels"), [(0.1, []), (0.123, ["warning"])])
def test_probabilities_far_off_are_a_warning(error: float, levels: list[str]) -> None:
    found = _found(_scores(0.8, 0.8, calibration={"ece_after": error}))
    assert _levels(found, "The probabilities are off by 12.3 points on average") == levels


def test_a_second_stage_that_does_without_the_network_is_a_note(built: dict[str, Any]) -> None:
    words = "The network adds nothing here"
    assert not _levels(_found(_scores(0.8, 0.8, **built)), words)
    built["parts"][3]["held_out"] = built["parts"][2]["held_out"]
    assert _levels(_found(_scores(0.8, 0.8, **built)), words) == ["note"]


def test_smoothing_that_is_a_part_is_not_told_twice(built: dict[str, Any]) -> None:
    smoothed = {"macro_f1": 0.9, "micro_f1": 0.9}
    assert _levels(_found(_scores(0.8, 0.8, smoothed=smoothed)), "Correct and Smooth") == ["note"]
    built["parts"].append({"name": "smoothed", "test": smoothed})
    assert not _levels(_found(_scores(0.8, 0.8, smoothed=smoothed, **built)), "Correct and Smooth")
