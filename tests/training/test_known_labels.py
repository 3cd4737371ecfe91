from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from chronospike.data.graph import DynamicGraph
from chronospike.data.ids import NodeIds
from chronospike.data.splits import Split
from chronospike.errors import InputError, StorageError
from chronospike.training.known_labels import KnownLabels, check_nodes, hold_out, known_labels
from tests.path_of_four import path_of_four


def path(labels: list[int] | None = None) -> DynamicGraph:
    return path_of_four().with_labels(np.array(labels or [0, 0, 1, -1]), ("a", "b"))


def test_classes_are_held_out_in_proportion() -> None:
    codes = np.repeat([0, 1, 2], [60, 30, 10])
    held = hold_out(codes, 0.1, seed=0)
    assert np.bincount(codes[held]).tolist() == [6, 3, 1]


def test_every_class_keeps_a_training_node() -> None:
    codes = np.array([0, 0, 1, 2, 2, 2])
    held = hold_out(codes, 0.49, seed=1)
    assert set(codes[~held]) == {0, 1, 2}
    assert held.sum() == 2


def test_at_least_one_node_is_held_out() -> None:
    assert hold_out(np.array([0, 0, 1, 1]), 0.01, seed=0).sum() == 1


def test_another_seed_holds_out_other_nodes() -> None:
    codes = np.arange(200) % 2
    assert hold_out(codes, 0.1, 0).tolist() != hold_out(codes, 0.1, 1).tolist()


def test_where_every_class_has_one_node_nothing_is_held_out() -> None:
    known, classes = known_labels(path(), [0, 2], None, 0.05, seed=0)
    _, split = known.placed_in(path(), tuple(classes.tolist()))
    assert (split.train.tolist(), split.validation.tolist()) == ([0, 2], [])


def test_labels_that_no_part_of_the_split_uses_are_known_too() -> None:
    graph = path([0, 1, 1, 0])
    known = KnownLabels.of(graph, Split(np.array([0]), np.array([2]), np.array([], dtype=np.int64)))
    placed, split = known.placed_in(graph, ("a", "b"), new_nodes=True)
    assert [part.tolist() for part in (split.train, split.validation, split.test)] == [[0], [2], []]
    assert placed.labels is not None
    assert placed.labels.tolist() == [0, 1, 1, 0]


def test_new_labelled_nodes_are_test_nodes_unless_their_class_is_new() -> None:
    known = KnownLabels(NodeIds.of([0, 9]).values, np.array([1, 0]), np.array([0, 0], dtype=np.int8))
    graph = path_of_four().with_labels(np.array([0, 0, 1, 2]), ("b", "a", "c"))
    placed, split = known.placed_in(graph, ("a", "b"), new_nodes=True)
    assert placed.labels is not None
    assert placed.labels.tolist() == [1, 1, 0, -1]
    assert (split.train.tolist(), split.test.tolist()) == ([0], [1, 2])


def test_without_nodes_and_y_the_labelled_nodes_are_known() -> None:
    known, classes = known_labels(path(), None, None, 0.05, seed=0)
    assert (known.ids.to_pylist(), known.codes.tolist(), classes.tolist()) == ([0, 1, 2], [0, 0, 1], ["a", "b"])


def test_given_labels_replace_all_of_the_graphs() -> None:
    known, classes = known_labels(path(), [3, 1], ["z", "y"], 0.05, seed=0)
    graph, _ = known.placed_in(path(), ("y", "z"))
    assert graph.labels is not None
    assert graph.labels.tolist() == [-1, 0, -1, 1]
    assert classes.tolist() == ["y", "z"]


def test_labels_are_found_by_id_in_another_graph() -> None:
    known = KnownLabels(NodeIds.of([3, 7]).values, np.array([1, 0]), np.array([1, 0], dtype=np.int8))
    graph, split = known.placed_in(path(), ("a", "b"))
    assert graph.labels is not None
    assert graph.labels.tolist() == [-1, -1, -1, 1]
    assert (split.train.tolist(), split.validation.tolist()) == ([], [3])


def test_a_node_given_twice_counts_once() -> None:
    known, _ = known_labels(path(), [2, 0, 2], ["y", "x", "y"], 0.05, seed=0)
    assert (known.ids.to_pylist(), known.codes.tolist()) == ([0, 2], [0, 1])


@pytest.mark.parametrize(
    ("nodes", "y", "message"),
    [
        ([0, 4], ["x", "y"], r"node 4 \(position 1\) is not in the graph, which has nodes 0..3"),
        ([-1, 0], ["x", "y"], "node -1"),
        ([0, 3], None, "node 3 .* has no label"),
        ([0, 1], None, r"2 labelled nodes hold 1 class\(es\)"),
        ([0, 2], ["x"], "y has shape"),
        ([0, 2], ["x", None], r"y\[1\] of node 2 is missing"),
        ([0, 2], [1.0, float("nan")], r"y\[1\] of node 2 is missing"),
        ([0, 2], [0.5, 1.5], "classes are text or whole numbers"),
        ([0, 2], np.array(["x", 1], dtype=object), "mixes text and numbers"),
        ([0, 2, 0], ["x", "y", "y"], "node 0 is given as 'x' and as 'y'"),
        (None, [0, 0, 1, -1], r"y\[3\] is -1"),
        ([True, False, True, True], None, r"np.flatnonzero\(mask\)"),
        (["u1", "u2"], ["x", "y"], r"graph.ids.lookup\(ids\)"),
        ([[0, 1], [2, 3]], None, "give one list"),
    ],
)
def test_what_cannot_be_used_is_named(nodes: Any, y: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        known_labels(path(), nodes, y, 0.05, seed=0)


def test_minus_one_is_a_class_where_the_graph_does_not_say_otherwise() -> None:
    _, classes = known_labels(path(), [0, 1, 2], [-1, 1, 1], 0.05, seed=0)
    assert classes.tolist() == [-1, 1]


def test_a_column_of_nodes_will_do() -> None:
    assert check_nodes(path(), np.array([[2], [0]])).tolist() == [2, 0]


def test_saved_labels_come_back(tmp_path: Path) -> None:
    known = KnownLabels(NodeIds.of(["007", "b"]).values, np.array([1, 0]), np.array([1, 0], dtype=np.int8))
    known.save(tmp_path / "labels.parquet")
    found = KnownLabels.read(tmp_path / "labels.parquet", classes=2)
    assert found.ids.to_pylist() == ["007", "b"]
    assert (found.codes.tolist(), found.part.tolist()) == ([1, 0], [1, 0])


def test_damaged_and_foreign_labels_are_refused(tmp_path: Path) -> None:
    target = tmp_path / "labels.parquet"
    KnownLabels(NodeIds.range(2).values, np.array([1, 5]), np.array([1, 0], dtype=np.int8)).save(target)
    with pytest.raises(StorageError, match="names class 5"):
        KnownLabels.read(target, classes=2)
    target.write_bytes(target.read_bytes()[:-20])
    with pytest.raises(StorageError, match="is damaged"):
        KnownLabels.read(target, classes=2)
    with pytest.raises(StorageError, match="is missing"):
        KnownLabels.read(tmp_path / "none.parquet", classes=2)


def test_a_changed_bit_of_the_labels_is_noticed(tmp_path: Path) -> None:
    target = tmp_path / "labels.parquet"
    KnownLabels(NodeIds.of(["first", "second"]).values, np.array([1, 0]), np.zeros(2, dtype=np.int8)).save(target)
    content = bytearray(target.read_bytes())
    content[content.index(b"second")] ^= 1
    target.write_bytes(content)
    with pytest.raises(StorageError, match="is damaged"):
        KnownLabels.read(target, classes=2)


@pytest.mark.parametrize("absent", [None, float("nan"), pd.NA, pd.NaT])
def test_every_kind_of_missing_class_is_named(absent: Any) -> None:
    with pytest.raises(InputError, match=r"y\[1\] of node 1 is missing"):
        known_labels(path(), [0, 1, 2], pd.Series(["a", absent, "b"], dtype=object), 0.05, 0)


def test_tensors_are_taken_from_wherever_they_are() -> None:
    y = torch.tensor([0.0, 1.0, 1.0], requires_grad=True)
    assert known_labels(path(), torch.tensor([0, 1, 2]), y, 0.05, 0)[1].tolist() == [0, 1]


def test_several_classes_a_node_are_one_line() -> None:
    with pytest.raises(InputError, match="y must be one list of numbers or text"):
        known_labels(path(), [0, 1], [["a"], ["a", "b"]], 0.05, 0)
    with pytest.raises(InputError, match="nodes must be one list"):
        check_nodes(path(), [[0], [1, 2]])
