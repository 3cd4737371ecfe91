from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from chronospike.data.attributes import Column
from chronospike.data.events import Steps
from chronospike.data.import_warnings import (
    warnings_about_attributes,
    warnings_about_leaks,
    warnings_about_steps,
    warnings_about_times,
    written_in_two_ways,
)
from chronospike.data.ingest import import_graph

NAN = float("nan")


@pytest.mark.parametrize(
    ("one", "other"), [("a", "a "), ("Ann@x.org", "ann@x.org"), ("007", "7"), ("12", "12.0"), ("\u00a0a", "a")]
)
def test_texts_that_are_probably_the_same_are_found(one: str, other: str) -> None:
    assert written_in_two_ways(pa.array(["b", one, other], pa.large_string())) == (1, one, other)


@pytest.mark.parametrize("values", [["a", "b"], ["0", "00x"], ["1.0", "1.1"], ["10", "1"], []])
def test_other_texts_are_not(values: list[str]) -> None:
    assert written_in_two_ways(pa.array(values, pa.large_string())) is None


def test_whole_numbers_are_written_in_one_way() -> None:
    assert written_in_two_ways(pa.array([1, 2])) is None


def test_ids_and_classes_written_in_two_ways_are_kept_apart_and_named() -> None:
    edges = {"source": ["u1", "u2", "u1 "], "target": ["u2", "u3", "u3"], "time": [1, 2, 3]}
    graph = import_graph(edges, labels={"u1": "yes", "u2": "no", "u3": "Yes"})
    assert graph.num_nodes == 4
    assert graph.num_classes == 3
    assert graph.facts["warnings"] == [
        "1 id seems to be written in two ways, such as 'u1' and 'u1 ': these are two nodes",
        "classes 'Yes' and 'yes' are different: they are kept as written",
    ]


def test_words_for_no_value_among_text_are_named() -> None:
    edges = {"source": ["u1", "u2", "NULL"], "target": ["u2", "u3", "u3"], "time": [1, 2, 3]}
    graph = import_graph(edges, labels={"u1": "bad", "u2": "good", "u3": "Unknown"})
    assert (graph.num_nodes, graph.class_names) == (4, ("Unknown", "bad", "good"))
    assert graph.facts["warnings"] == [
        "'NULL' is a node like any other. If it stands for no id, leave it empty",
        "'Unknown' is a class like any other. If it stands for no label, leave it empty",
    ]


def test_classes_that_are_values_are_named() -> None:
    edges = {"source": list(range(9)), "target": list(range(1, 10)), "time": [1] * 9}
    (warning,) = import_graph(edges, labels={node: node / 10 + 0.05 for node in range(9)}).facts["warnings"]
    assert warning == "9 of 9 classes have only one node, such as '0.05'"


def test_ids_that_a_spreadsheet_has_rounded_are_named() -> None:
    edges = {"source": ["1.23E+12", "4.5E+11", "1.23E+12"], "target": ["7e10", "x", "y"], "time": [1, 2, 3]}
    (warning,) = import_graph(edges).facts["warnings"]
    assert warning.startswith("'1.23E+12' looks like a number that a spreadsheet has rounded")


def test_users_and_items_with_the_same_ids_are_named() -> None:
    edges = {"user_id": [1, 2, 3], "item_id": [2, 1, 9], "time": [1, 2, 3]}
    (warning,) = import_graph(edges).facts["warnings"]
    assert warning.startswith("2 ids occur both in 'user_id' and in 'item_id', and each is one node.")
    apart = {**edges, "item_id": ["i2", "i1", "i9"]}
    assert "warnings" not in import_graph(apart).facts


def test_chosen_columns_of_two_kinds_are_named_too() -> None:
    edges = {"CustomerId": [1, 2], "merchant": [2, 3], "time": [1, 2]}
    assert "'merchant'" in import_graph(edges, source="CustomerId", target="merchant").facts["warnings"][0]


def test_ids_of_one_kind_may_be_in_both_columns() -> None:
    graph = import_graph({"payer": [1, 2, 3], "payee": [2, 1, 9], "time": [1, 2, 3]})
    assert graph.facts["in_both_columns"] == 2
    assert "warnings" not in graph.facts


def test_dates_without_separators_are_named() -> None:
    (warning,) = warnings_about_times(np.array([20230131, 20230201]))
    assert warning.endswith("If they are dates, write them as 2023-01-31")
    for others in ([20230131, 20231301], [1, 2], [20230131.0]):
        assert warnings_about_times(np.array(others)) == []


def test_unix_times_are_named() -> None:
    for scale, unit in ((1, "s"), (1000, "ms")):
        (warning,) = warnings_about_times(np.array([1672531200, 1672531300.5]) * scale)
        assert f"set the time unit to '{unit}'" in warning
    assert warnings_about_times(np.array(["2023-01-01"], dtype="datetime64[us]")) == []
    assert warnings_about_times(np.array([0, 1672531200])) == []


def test_steps_that_are_mostly_empty_are_named() -> None:
    edges = {"source": ["a", "b", "c"], "target": ["b", "c", "d"], "time": ["1970-01-01", "2023-02-01", "2023-03-01"]}
    (warning,) = import_graph(edges, every="1y").facts["warnings"]
    assert warning == "52 of 54 steps have no event, most of them in a row from 1971-01-01 to 2023-01-01"
    assert "warnings" not in import_graph({**edges, "time": [1, 3, 5]}, every=1).facts
    # As a graph of so many steps may be given in Python, with events at one of them.
    one = Steps(np.zeros(2, dtype=np.int32), np.arange(9), np.arange(9))
    assert warnings_about_steps(one) == []


def test_attributes_of_mostly_rare_values_are_named() -> None:
    often, rare = np.array([0, 0, 0, 1, NAN, NAN]), np.array([0, 1, 2, 3, 4, 5])
    columns = [Column("often", "category", ("x", "y")), Column("text", "category", tuple("abcdef"))]
    (warning,) = warnings_about_attributes(np.stack([often, rare], axis=1).astype(np.float32), columns)
    assert warning.endswith("read as 'other': text (6 values, such as 'a')")
    assert warnings_about_attributes(rare[:, None].astype(np.float32), [Column("number")]) == []


def test_attributes_that_follow_from_the_class_are_named() -> None:
    rng = np.random.default_rng(0)
    labels = np.append(rng.integers(0, 2, 1000), -1)
    mostly = np.where(rng.random(1001) < 0.9, labels, 1 - labels)
    closed_at = np.where(labels == 1, rng.normal(size=1001), NAN)
    values = np.stack([labels == 1, closed_at, mostly, rng.normal(size=1001), rng.integers(0, 9, 1001)], axis=1)
    columns = [Column(name) for name in ("flag", "closed_at", "mostly", "noise", "group")]
    (warning,) = warnings_about_leaks(values.astype(np.float32), columns, labels)
    assert warning.startswith("'flag', 'closed_at' tell the class alone.")
    over_time = np.stack([values, values]).astype(np.float32)
    assert warnings_about_leaks(over_time, columns, labels) == [warning]


def test_no_attribute_follows_from_a_class_that_nearly_all_nodes_have() -> None:
    labels = np.array([0] * 500 + [1] * 3)
    assert warnings_about_leaks(labels[:, None].astype(np.float32), [Column("x")], labels) == []
    assert warnings_about_leaks(labels[:, None].astype(np.float32), [Column("x")], None) == []
