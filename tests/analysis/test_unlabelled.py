from __future__ import annotations

import pytest

from chronospike.analysis.run_files import Metrics
from chronospike.analysis.unlabelled import class_shares, odd_shares


def _metrics(predicted: dict[str, int], training: dict[str, int]) -> Metrics:
    part = {"macro_f1": 0.5, "micro_f1": 0.5}
    unlabelled = {"predicted": predicted, "training": training}
    return Metrics.model_validate({"test": part, "validation": part, "unlabelled": unlabelled})


def test_shares_stand_side_by_side_most_predicted_first() -> None:
    rows = class_shares(_metrics({"a": 1, "b": 3}, {"a": 6, "b": 2}))
    assert [(row.name, row.nodes, row.predicted, row.training) for row in rows] == [
        ("b", 3, 0.75, 0.25),
        ("a", 1, 0.25, 0.75),
    ]


def test_a_class_known_to_one_side_only_counts_as_none_on_the_other() -> None:
    rows = class_shares(_metrics({"a": 4}, {"b": 2}))
    assert [(row.name, row.predicted, row.training) for row in rows] == [("a", 1.0, 0.0), ("b", 0.0, 1.0)]


def test_the_least_predicted_of_many_classes_are_added_up() -> None:
    counts = {str(i): 10 - i for i in range(5)}
    rows = class_shares(_metrics(counts, dict.fromkeys(counts, 1)), limit=3)
    assert [(row.name, row.nodes) for row in rows] == [("0", 10), ("1", 9), ("3 others", 21)]
    assert sum(row.training for row in rows) == pytest.approx(1.0)


@pytest.mark.parametrize(("predicted", "training"), [({}, {}), ({"a": 0}, {"a": 1}), ({"a": 1}, {})])
def test_without_nodes_or_labels_there_is_nothing_to_show(predicted: dict[str, int], training: dict[str, int]) -> None:
    metrics = _metrics(predicted, training)
    assert class_shares(metrics) == []
    assert odd_shares(metrics) == []


def test_a_class_that_takes_nearly_all_is_told() -> None:
    (text,) = odd_shares(_metrics({"a": 96, "b": 4}, {"a": 78, "b": 22}))
    assert "are predicted as ‘a’" in text


def test_a_class_that_has_most_labels_may_take_nearly_all() -> None:
    assert odd_shares(_metrics({"a": 96, "b": 4}, {"a": 85, "b": 15})) == []


def test_shares_far_apart_are_told() -> None:
    (text,) = odd_shares(_metrics({"a": 900, "b": 100}, {"a": 50, "b": 50}))
    assert "40.0\N{NO-BREAK SPACE}% of these nodes would have to change class" in text
    assert odd_shares(_metrics({"a": 750, "b": 250}, {"a": 50, "b": 50})) == []


def test_few_nodes_may_differ_by_chance() -> None:
    assert odd_shares(_metrics({"a": 3}, {"a": 50, "b": 50})) == []
    assert odd_shares(_metrics({"a": 8, "b": 1}, {"a": 50, "b": 50})) == []
