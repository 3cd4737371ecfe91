from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from chronospike.config import Settings
from chronospike.data.activity import activity_profile
from chronospike.data.graph import DynamicGraph
from chronospike.data.ids import NodeIds
from chronospike.data.label_features import label_features, stratified_folds
from chronospike.data.label_sequences import label_counts
from chronospike.data.splits import Split
from chronospike.data.synthetic import synthetic_graph
from chronospike.training import label_tables
from chronospike.training.label_tables import LabelTables, features_width, folds_by_id, numbers_width
from chronospike.training.second_stage import cross_validate
from chronospike.training.task import Task, make_task
from tests.six_nodes import six_nodes
from tests.small_runs import CPU, small_graph, small_network, small_settings


def _task(graph: DynamicGraph | None = None) -> Task:
    return small_network(graph).task


def _relabelled(task: Task, node: int) -> Task:
    """The same task, but that a node has the other class."""
    labels = np.array(task.graph.labels)
    labels[node] = 1 - labels[node]
    return replace(task, graph=task.graph.with_labels(labels, task.graph.class_names))


def test_training_and_validation_labels_are_known_and_no_others() -> None:
    task = _task()
    known = np.sort(np.concatenate([task.split.train, task.split.validation]))
    assert task.tables.known.tolist() == known.tolist()
    assert task.tables.labels.tolist() == task.labels(known).tolist()


def test_the_tables_are_those_of_the_known_labels_as_of_the_last_step() -> None:
    task = _task().until(2)
    tables, known = task.tables, task.known
    folds = folds_by_id(task.graph, known, 10, task.seed)
    assert np.array_equal(tables.counts, label_counts(task.graph, known, task.labels(known), 2))
    assert np.array_equal(tables.features, label_features(task.graph, known, task.labels(known), folds, last_step=2))
    assert np.array_equal(tables.activity, activity_profile(task.graph, 2))


def test_widths_are_those_of_the_tables() -> None:
    tables = _task().tables
    assert features_width(2) == tables.features.shape[1] == 26
    assert numbers_width(2) == tables.features.shape[1] + tables.activity.shape[1] == 26 + 85


def test_of_a_directed_graph_both_ways_are_read_apart() -> None:
    tables = _task(synthetic_graph(nodes=120, steps=3, classes=2, timing=0.0, directed=True)).tables
    assert features_width(2, directed=True) == tables.features.shape[1] == 38
    assert numbers_width(2, directed=True) == tables.features.shape[1] + tables.activity.shape[1] == 38 + 170


def test_test_labels_change_no_table() -> None:
    task = _task()
    labels = np.array(task.graph.labels)
    labels[task.split.test] = 1 - labels[task.split.test]
    one, other = task.tables, LabelTables(replace(task, graph=task.graph.with_labels(labels, task.graph.class_names)))
    assert np.array_equal(one.counts, other.counts)
    assert np.array_equal(one.features, other.features)


def test_no_known_nodes_own_label_changes_a_digit_of_its_own_rows() -> None:
    task = _task()
    for node in task.known[::9]:
        other = _relabelled(task, node).tables
        assert other.counts[node].tobytes() == task.tables.counts[node].tobytes()
        assert other.features[node].tobytes() == task.tables.features[node].tobytes()
        assert not np.array_equal(other.features, task.tables.features)


def test_labels_drawn_at_random_are_not_foretold_by_a_second_stage_on_the_tables() -> None:
    """Six times 240 labels: three standard deviations of a share of a half are four points."""
    right = []
    for seed in range(6):
        graph = synthetic_graph(nodes=300, steps=4, classes=2, degree=3.0, feature_dim=0, timing=0.0, structure=0.0)
        drawn = graph.with_labels(np.random.default_rng(seed).integers(0, 2, 300), graph.class_names)
        task = make_task(drawn, Settings(), CPU, needs_features=False)
        labels = task.labels(task.known)
        folds = stratified_folds(labels, 5, seed)
        rows = {"it": task.tables.features[task.known]}
        found = cross_validate(lambda _, rows=rows: rows, {"it": "logistic"}, labels, 2, folds, seed)  # type: ignore[misc]
        assert found is not None
        right.append(np.mean(found["it"].argmax(axis=1) == labels))
    assert np.mean(right) < 0.5 + 3 * np.sqrt(0.25 / (6 * 240))


def test_folds_hold_equally_many_nodes() -> None:
    folds = folds_by_id(small_graph(), np.arange(7, 100), 10, seed=0)
    assert sorted(np.bincount(folds, minlength=10).tolist()) == [9] * 7 + [10] * 3


def test_folds_are_those_of_the_ids_in_any_order() -> None:
    graph = replace(small_graph(), ids=NodeIds.of([f"u{v}" for v in range(120)]))
    backwards = replace(graph, ids=NodeIds.of([f"u{v}" for v in reversed(range(120))]))
    one, other = (folds_by_id(g, np.arange(120), 10, seed=3) for g in (graph, backwards))
    assert one.tolist() == other[::-1].tolist()


def test_the_seed_decides_the_folds() -> None:
    first, again, other = (folds_by_id(small_graph(), np.arange(90), 10, seed).tolist() for seed in (0, 0, 1))
    assert first == again != other


def test_a_task_divided_otherwise_reads_the_same_tables() -> None:
    task = _task()
    some = task.divided(task.known[:20], task.known[30:40], seed=9)
    assert some.tables is task.tables
    assert (some.split.train.tolist(), some.seed) == (task.known[:20].tolist(), 9)
    assert task.with_all_labels().tables is task.tables


def test_as_of_a_step_the_tables_are_others() -> None:
    task = _task()
    assert task.until(2).tables is not task.tables
    assert task.until(2).tables.counts.shape[1] == 3


def test_labels_of_nodes_not_seen_by_a_step_are_not_read_as_of_it() -> None:
    """Node 3 has its first edge at step 2, with node 0."""
    split = Split(np.array([0, 2, 3]), np.array([1]), np.array([4]))
    tasks = [
        make_task(six_nodes().with_labels(np.array(labels), ("a", "b")), Settings(), CPU, split, needs_features=False)
        for labels in ([0, 0, 1, 1, 0, 1], [0, 0, 1, 0, 0, 1])
    ]
    assert tasks[0].until(1).tables.known.tolist() == [0, 1, 2]
    for last, is_same in ((1, True), (2, False)):
        one, other = (task.until(last).tables.features for task in tasks)
        assert np.array_equal(one, other) == is_same


def test_with_no_known_label_there_is_nothing_to_read() -> None:
    task = _task()
    tables = task.divided(task.known[:0], task.known[:0])
    alone = LabelTables(replace(tables, split=tables.split))
    assert not alone.features.any()
    assert not alone.counts[:, :, :2].any()


def kept(tmp_path: Path, seed: int = 0) -> tuple[Task, Path]:
    settings = small_settings(seed=seed)
    task, path = make_task(small_graph(), settings, CPU), tmp_path / "label_features.safetensors"
    assert task.tables.features.any()
    task.tables.save(path)
    return task, path


def test_kept_label_features_are_read_instead_of_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task, path = kept(tmp_path)
    monkeypatch.setattr(label_tables, "label_features", None)
    again = make_task(small_graph(), small_settings(), CPU)
    again.tables.take(path)
    assert np.array_equal(again.tables.features, task.tables.features)


@pytest.mark.parametrize("change", ["seed", "graph", "ids", "labels", "step", "shortened", "a byte", "missing"])
def test_label_features_of_anything_else_are_made(tmp_path: Path, change: str) -> None:
    _, path = kept(tmp_path)
    task = make_task(small_graph(seed=int(change == "graph")), small_settings(seed=int(change == "seed")), CPU)
    if change == "labels":
        task = replace(task, split=replace(task.split, train=task.split.train[1:]))
    if change == "step":
        task = task.until(2)
    if change == "ids":
        # The folds are those of the ids.
        task = make_task(replace(small_graph(), ids=NodeIds.of([f"u{v}" for v in range(120)])), small_settings(), CPU)
    if change == "shortened":
        path.write_bytes(path.read_bytes()[:-100])
    if change == "a byte":
        content = path.read_bytes()
        path.write_bytes(content[:-2] + bytes([content[-2] ^ 1]) + content[-1:])
    if change == "missing":
        path.unlink()
    task.tables.take(path)
    assert "features" not in vars(task.tables)
