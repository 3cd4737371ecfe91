from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from chronospike.config import Settings
from chronospike.data.graph import DynamicGraph
from chronospike.data.splits import Split, make_split
from chronospike.data.storage import open_graph, save_graph
from chronospike.errors import GraphError, InputError
from chronospike.training.task import make_task, seen_part, split_for
from tests.six_nodes import six_nodes
from tests.small_runs import CPU, small_graph


def _six() -> DynamicGraph:
    """First edges: nodes 0 and 1 at step 0, 2 at step 1, 3 at step 2, 4 at step 3, 5 never."""
    return six_nodes().with_labels(np.array([0, 0, 1, 1, 0, 1]), ("a", "b"))


SPLIT = Split(np.array([0, 2, 5]), np.array([1, 3]), np.array([4]))


def test_the_split_is_the_one_that_the_settings_ask_for() -> None:
    graph = small_graph()
    settings = Settings(ratio=0.6, validation=0.1, split_seed=7, split_order="time")
    expected = make_split(graph, 0.6, 0.1, 7, "time")
    found = make_task(graph, settings, CPU).split
    for part in ("train", "validation", "test"):
        assert np.array_equal(getattr(found, part), getattr(expected, part))


def test_a_split_that_is_given_is_used() -> None:
    assert make_task(_six(), Settings(), CPU, SPLIT, needs_features=False).split is SPLIT


def test_a_task_reads_all_steps_and_has_the_seed_of_the_settings() -> None:
    task = make_task(_six(), Settings(seed=5), CPU, SPLIT, needs_features=False)
    assert task.last_step == 3
    assert task.seed == 5


def test_labels_are_the_classes_of_the_nodes() -> None:
    task = make_task(_six(), Settings(), CPU, SPLIT, needs_features=False)
    assert task.labels(np.array([5, 0, 2])).tolist() == [1, 0, 1]


def test_features_are_read_only_if_needed() -> None:
    assert make_task(small_graph(), Settings(), CPU, needs_features=False).features is None
    features = make_task(small_graph(), Settings(), CPU).features
    assert features is not None
    assert features.width == 8


@pytest.mark.parametrize("over", ["seen", "all"])
def test_features_are_standardised_over_the_nodes_that_the_settings_say(over: str) -> None:
    made = np.zeros((4, 6, 1), dtype=np.float32)
    # At step 0 nodes 0 and 1 have been seen: mean 1, deviation 1. Over all: mean 5, variance 70/6.
    made[0, :, 0] = [0, 2, 4, 6, 8, 10]
    settings = Settings.model_validate({"standardise_over": over})
    features = make_task(_six().with_made_features(made), settings, CPU, SPLIT).features
    assert features is not None
    expected = [-1.0, 1.0] if over == "seen" else [-5 / np.sqrt(35 / 3), -3 / np.sqrt(35 / 3)]
    assert features.at(0)[:2, 0].tolist() == pytest.approx(expected)


def test_an_encoder_of_an_earlier_fit_is_used() -> None:
    first = make_task(small_graph(), Settings(), CPU).features
    assert first is not None
    other = make_task(small_graph(seed=1), Settings(), CPU, encoder=first.encoder).features
    assert other is not None
    assert other.encoder is first.encoder


def test_with_all_labels_the_validation_nodes_train() -> None:
    task = make_task(_six(), Settings(), CPU, SPLIT, needs_features=False).with_all_labels()
    assert task.split.train.tolist() == [0, 1, 2, 3, 5]
    assert task.split.validation.tolist() == []
    assert task.split.test.tolist() == [4]


def test_as_of_a_step_only_labels_of_nodes_seen_by_then_are_known() -> None:
    task = make_task(_six(), Settings(), CPU, SPLIT, needs_features=False).until(1)
    assert task.last_step == 1
    assert task.split.train.tolist() == [0, 2]
    assert task.split.validation.tolist() == [1]


def test_the_seen_part_of_a_split_keeps_all_test_nodes() -> None:
    part = seen_part(SPLIT, _six(), 2)
    assert part.train.tolist() == [0, 2]
    assert part.validation.tolist() == [1, 3]
    assert part.test.tolist() == [4]


def test_a_graph_mapped_from_disk_gives_no_warnings(tmp_path: Path) -> None:
    graph = open_graph(save_graph(small_graph(), tmp_path / "graph"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        task = make_task(graph, Settings(), CPU)
        assert task.features is not None
        task.features.at(0, task.split.train)
        task.labels(task.split.train)


def test_what_is_missing_is_said() -> None:
    graph = small_graph()
    for changes, message in (
        ({"features": None}, "no features"),
        ({"labels": None, "class_names": ()}, "no labels"),
        ({"labels": np.zeros(120, dtype=np.int64), "class_names": ("a",)}, "1 class, and 2 are needed"),
    ):
        with pytest.raises(GraphError, match=message):
            make_task(replace(graph, **changes), Settings(), CPU)


def test_a_ratio_that_leaves_nothing_to_train_on_is_refused() -> None:
    graph = small_graph()
    assert graph.labels is not None
    few = np.where(np.arange(120) < 4, graph.labels, -1)
    with pytest.raises(InputError, match="4 labelled nodes at ratio 0.2 leave 0 to train on"):
        split_for(graph.with_labels(few, graph.class_names), Settings(ratio=0.2))


def test_known_nodes_are_those_that_train_and_those_that_validate() -> None:
    task = make_task(_six(), Settings(), CPU, SPLIT, needs_features=False)
    assert task.known.tolist() == [0, 1, 2, 3, 5]
    assert task.until(1).known.tolist() == [0, 1, 2]


def test_a_task_divided_otherwise_keeps_its_test_nodes_and_its_seed() -> None:
    task = make_task(_six(), Settings(seed=5), CPU, SPLIT, needs_features=False)
    other = task.divided(np.array([0, 1]), np.array([3]))
    assert [part.tolist() for part in (other.split.train, other.split.validation, other.split.test)] == [
        [0, 1],
        [3],
        [4],
    ]
    assert (other.seed, task.divided(np.array([0]), np.array([3]), seed=8).seed) == (5, 8)


def test_tables_of_another_task_are_taken_over_if_they_are_the_same() -> None:
    graph = small_graph()
    first, same, other = (make_task(graph, Settings(seed=seed), CPU) for seed in (1, 1, 2))
    for task in (same, other):
        task.take_over(first.tables)
    assert same.tables is first.tables
    assert other.tables is not first.tables
    fewer = make_task(graph, Settings(seed=1), CPU)
    fewer = fewer.divided(fewer.split.train[1:], fewer.split.validation, forget=True)
    fewer.take_over(first.tables)
    assert fewer.tables is not first.tables
