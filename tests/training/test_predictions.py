from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from chronospike.data.ids import NodeIds
from chronospike.data.splits import Split
from chronospike.training.predictions import write_predictions
from tests.six_nodes import six_nodes


def test_predictions_are_written_by_the_users_own_ids(tmp_path: Path) -> None:
    graph = six_nodes().with_labels(np.array([0, 1, 1, -1, -1, 0]), ("Zürich", "a,b"))
    graph = replace(graph, ids=NodeIds.of(["007", "7", 'say "hi"', "x,y", "naïve", "-"]))
    split = Split(np.array([0]), np.array([1]), np.array([2]))
    chances = np.array([[0.25, 0.75], [1 / 3, 2 / 3], [0.9, 0.1], [0.5, 0.5]])
    write_predictions(tmp_path / "out.csv", graph, np.array([3, 0, 2, 1]), chances, split)
    with (tmp_path / "out.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file))
    assert rows == [
        ["node", "class", "probability Zürich", "probability a,b", "label", "split"],
        ["x,y", "a,b", "0.25", "0.75", "", ""],
        ["007", "a,b", "0.333333", "0.666667", "Zürich", "train"],
        ['say "hi"', "Zürich", "0.9", "0.1", "a,b", "test"],
        ["7", "Zürich", "0.5", "0.5", "a,b", "validation"],
    ]


def test_predictions_without_labels_or_split_have_no_such_columns(tmp_path: Path) -> None:
    graph = replace(six_nodes(), class_names=("a", "b"))
    write_predictions(tmp_path / "out.csv", graph, np.array([0]), np.array([[0.25, 0.75]]), None)
    assert (tmp_path / "out.csv").read_text().splitlines()[0] == '"node","class","probability a","probability b"'


def test_predictions_are_written_in_other_formats_too(tmp_path: Path) -> None:
    graph = replace(six_nodes(), class_names=("a", "b"))
    write_predictions(tmp_path / "out.parquet", graph, np.array([2]), np.array([[0.25, 0.75]]), None, "parquet")
    expected = [{"node": graph.ids[2], "class": "b", "probability a": 0.25, "probability b": 0.75}]
    assert pq.read_table(tmp_path / "out.parquet").to_pylist() == expected
