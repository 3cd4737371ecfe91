from __future__ import annotations

from typing import Any

from chronospike.analysis import parts
from chronospike.analysis.parts import about_scores, best_first, part_rows, simple_rows, without_network
from chronospike.analysis.run_files import Metrics
from chronospike.training import final_stage
from tests.analysis.conftest import example_metrics


def _metrics(**changes: Any) -> Metrics:
    return Metrics.model_validate({**example_metrics(), "smoothed": None, **changes})


def test_a_run_without_parts_is_one_part_with_its_validation_scores() -> None:
    (row,) = part_rows(_metrics())
    assert (row.title, row.chosen, row.on) == ("ChronoSpike", True, "validation")
    assert row.held_out is not None
    assert row.held_out.micro_f1 == 0.75


def test_without_validation_nodes_nothing_is_held_out() -> None:
    (row,) = part_rows(_metrics(validation={"macro_f1": 0.0, "micro_f1": 0.0, "nodes": 0}))
    assert (row.held_out, row.on) == (None, None)


def test_smoothing_is_a_row_where_it_is_no_part() -> None:
    scores = {"macro_f1": 0.88, "micro_f1": 0.9}
    assert [row.title for row in part_rows(_metrics(smoothed=scores))] == ["ChronoSpike", "ChronoSpike, smoothed"]
    parts = [{"name": "network"}, {"name": "smoothed", "test": scores}]
    assert [row.title for row in part_rows(_metrics(smoothed=scores, parts=parts))] == ["network", "smoothed"]


def test_the_best_held_out_score_comes_first_and_test_scores_sort_nothing(built: dict[str, Any]) -> None:
    built["parts"][1]["held_out"] = None
    built["parts"][3]["held_out"] = None
    names = [row.name for row in best_first(part_rows(_metrics(**built)))]
    assert names == ["stack: logistic", "network", "bag", "labels alone"]


def test_simple_methods_are_held_out_as_the_parts_are(built: dict[str, Any]) -> None:
    majority, propagation = simple_rows(_metrics(**built))
    assert (majority.on, propagation.on) == ("out-of-fold", None)
    assert majority.is_simple


def test_where_the_held_out_scores_come_from_is_said(built: dict[str, Any]) -> None:
    assert about_scores(part_rows(_metrics(**built))).startswith("Held-out scores are out-of-fold: ")
    assert about_scores(part_rows(_metrics())).startswith("Held-out scores are those of the validation nodes.")
    assert about_scores([]) == "No held-out scores were kept. Test scores are not used for any choice."


def test_scores_held_out_in_two_ways_are_told_apart(built: dict[str, Any]) -> None:
    built["parts"][0]["on"] = "validation"
    text = about_scores([*part_rows(_metrics(**built)), *simple_rows(_metrics(**built))])
    assert "Held-out scores of one network (mean of 5) are those of the validation nodes." in text
    assert "Held-out scores of 5 networks together, second stage: logistic regression and" in text


def test_the_part_that_reads_no_network_is_found_by_its_name() -> None:
    """The page does without the package that gives parts their names, and so has this one again."""
    assert parts.LABELS_ALONE == final_stage.LABELS_ALONE


def test_a_network_that_adds_nothing_is_said_to(built: dict[str, Any]) -> None:
    chosen = next(part for part in built["parts"] if part.get("chosen"))
    alone = {**chosen, "name": "labels alone: trees", "chosen": False}
    worse = {**alone, "held_out": {**alone["held_out"], "micro_f1": alone["held_out"]["micro_f1"] - 0.01}}
    others = [part for part in built["parts"] if part["name"] != "labels alone"]
    assert "The network adds nothing" in without_network(_metrics(**{**built, "parts": [*others, worse, alone]}))
    assert without_network(_metrics(**{**built, "parts": [*others, worse]})) == ""


def test_a_network_that_is_not_used_is_said_to_be(built: dict[str, Any]) -> None:
    parts = [{**part, "chosen": part["name"] == "labels alone"} for part in built["parts"]]
    assert "the predictions do not use it" in without_network(_metrics(**{**built, "parts": parts}))
