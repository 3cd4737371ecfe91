from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from chronospike.config import Settings
from chronospike.data.splits import Split
from chronospike.data.storage import open_graph, save_graph
from chronospike.errors import GraphError, InputError
from chronospike.training.problem import architecture, batch_size, make_problem, new_model, split_for
from tests.small_runs import CPU, same_weights, small_graph, small_problem, small_settings


@pytest.mark.parametrize(("classes", "parameters"), [(10, 105_738), (5, 105_413), (6, 105_478)])
def test_the_papers_parameter_counts(classes: int, parameters: int) -> None:
    assert new_model(Settings(), 128, classes).parameter_count() == parameters


def test_label_inputs_widen_the_first_layer_by_the_classes() -> None:
    assert architecture(Settings(), 128, 10).inputs == 128
    assert architecture(Settings(label_inputs=True), 128, 10).inputs == 138


def test_the_seed_decides_the_first_weights() -> None:
    first, again, other = (new_model(small_settings(seed=seed), 8, 2).state_dict() for seed in (0, 0, 1))
    assert same_weights(first, again)
    assert not same_weights(first, other)


def test_a_new_model_leaves_the_global_generator_alone() -> None:
    before = torch.random.get_rng_state()
    new_model(small_settings(), 8, 2)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_the_network_sees_all_steps_the_static_one_the_last_and_as_of_those_before() -> None:
    graph = small_graph()
    assert make_problem(graph, small_settings(), CPU).steps == (0, 1, 2, 3, 4)
    assert make_problem(graph, small_settings(static=True), CPU).steps == (4,)
    assert make_problem(graph, small_settings(), CPU).until(2).steps == (0, 1, 2)
    assert make_problem(graph, small_settings(static=True), CPU).until(2).steps == (2,)


def test_hops_hold_features_and_then_labels() -> None:
    problem = small_problem(label_inputs=True)
    hops = problem.rows(problem.split.train[:4], 0).hops()
    assert [list(hop.shape) for hop in hops] == [[5, 4, 10], [5, 12, 10], [5, 24, 10]]
    plain = small_problem().rows(problem.split.train[:4], 0).hops()
    assert all(torch.equal(hop[..., :8], bare) for hop, bare in zip(hops, plain, strict=True))


def test_a_split_that_is_given_is_used() -> None:
    split = Split(np.array([0, 1]), np.array([2]), np.array([3]))
    assert make_problem(small_graph(), small_settings(), CPU, split).split is split


def test_targets_are_the_classes_of_the_nodes() -> None:
    graph = small_graph()
    assert graph.labels is not None
    assert small_problem(graph).targets(np.array([5, 3])).tolist() == graph.labels[[5, 3]].tolist()


def test_a_graph_mapped_from_disk_gives_no_warnings(tmp_path: Path) -> None:
    graph = open_graph(save_graph(small_graph(), tmp_path / "graph"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        problem = make_problem(graph, small_settings(label_inputs=True), CPU)
        problem.rows(problem.split.train, 0, 0)
        problem.targets(problem.split.train)


def test_what_is_missing_is_said() -> None:
    graph = small_graph()
    for changes, message in (
        ({"features": None}, "no features"),
        ({"labels": None, "class_names": ()}, "no labels"),
        ({"labels": np.zeros(120, dtype=np.int64), "class_names": ("a",)}, "1 class, and 2 are needed"),
    ):
        with pytest.raises(GraphError, match=message):
            make_problem(replace(graph, **changes), small_settings(), CPU)


def test_a_ratio_that_leaves_nothing_to_test_on_is_refused() -> None:
    graph = small_graph()
    assert graph.labels is not None
    few = np.where(np.arange(120) < 4, graph.labels, -1)
    with pytest.raises(InputError, match="4 labelled nodes at ratio 0.2 leave 0 to train on"):
        split_for(graph.with_labels(few, graph.class_names), small_settings(ratio=0.2))


@pytest.mark.parametrize(
    ("train", "least", "size"), [(21_063, 8, 1024), (21_063, 1, 1024), (1_000, 8, 125), (1_001, 8, 126), (100, 8, 32)]
)
def test_a_small_training_set_is_cut_into_several_batches(train: int, least: int, size: int) -> None:
    assert batch_size(Settings(min_batches=least), train) == size
