from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from chronospike.data.synthetic import synthetic_graph
from chronospike.methods.chronospike.root_table import RootTable, root_widths
from chronospike.training.task import make_task
from tests.small_runs import CPU, small_network, small_settings


@pytest.mark.parametrize(
    ("values", "widths"),
    [
        ({}, (0, 0)),
        ({"label_sequences": True}, (4, 0)),
        # Three recencies of one hop, two hops and two diffusions, and the labels met first; up to a multiple of four.
        ({"label_features": True}, (0, 39 + 1)),
        ({"activity": True}, (0, 85 + 3)),
        ({"label_sequences": True, "label_features": True, "activity": True}, (4, 39 + 85)),
        # The last snapshot alone has no steps to count over.
        ({"static": True, "activity": True}, (0, 0)),
    ],
)
def test_widths_for_three_classes(values: dict[str, Any], widths: tuple[int, int]) -> None:
    assert root_widths(small_settings(**values), 3) == widths


def test_of_a_directed_graph_both_ways_are_read_apart() -> None:
    settings = small_settings(label_sequences=True, label_features=True, activity=True)
    assert root_widths(settings, 3, directed=True) == (4, 57 + 170 + 1)


@pytest.mark.parametrize("values", [{"label_sequences": True}, {"label_features": True}, {"activity": True}])
def test_only_what_is_asked_for_is_held(values: dict[str, Any]) -> None:
    table = RootTable(small_network().task.tables, small_settings(**values), CPU)
    assert (table.counts is not None) == ("label_sequences" in values)
    assert (table.numbers is not None) == ("label_sequences" not in values)


def test_rows_are_those_of_the_roots() -> None:
    tables = small_network().task.tables
    settings = small_settings(label_sequences=True, label_features=True, activity=True)
    found = RootTable(tables, settings, CPU).rows(torch.tensor([7, 3, 7]))
    assert found.counts is not None
    assert found.numbers is not None
    assert np.array_equal(found.counts.numpy(), tables.counts[[7, 3, 7]])
    both = np.concatenate([tables.features, tables.activity], axis=1)
    assert np.array_equal(found.numbers[:, : both.shape[1]].numpy(), both[[7, 3, 7]])


def test_numbers_end_with_zeros_up_to_a_multiple_of_four() -> None:
    settings = small_settings(activity=True)
    graph = synthetic_graph(nodes=60, steps=4, classes=2, directed=True, timing=0.0, feature_dim=4)
    tables = make_task(graph, settings, CPU).tables
    numbers = RootTable(tables, settings, CPU).numbers
    assert numbers is not None
    assert np.array_equal(numbers[:, :170].numpy(), tables.activity)
    assert numbers.shape == (60, 172)
    assert not numbers[:, 170:].any()


def test_known_numbers_are_those_of_labelled_nodes() -> None:
    tables = small_network().task.tables
    found = RootTable(tables, small_settings(activity=True), CPU).known_numbers()
    assert np.array_equal(found[:, : tables.activity.shape[1]].numpy(), tables.activity[tables.known])
