from __future__ import annotations

from typing import Any

import pytest

from chronospike.data.graph import DynamicGraph
from chronospike.errors import InputError
from chronospike.methods.chronospike.estimate import estimate
from chronospike.methods.chronospike.inference import LANE
from chronospike.methods.chronospike.memory import least_bytes, require_memory
from tests.small_runs import CPU, small_graph, small_settings


@pytest.fixture(scope="module")
def graph() -> DynamicGraph:
    return small_graph()


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"fanouts": [10, 5]},
        {"hidden": [64, 8], "batch_size": 1024},
        {"static": True},
        {"aggregator": "mean"},
        {"temporal": "lstm", "kernels": "plain"},
    ],
)
def test_the_bound_is_below_the_estimate(values: dict[str, Any], graph: DynamicGraph) -> None:
    settings = small_settings(**values)
    assert 0 < least_bytes(graph, settings, 8, 90, LANE) < estimate(graph, settings, 8)["heap_bytes"]


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (
            {"fanouts": [100_000, 100_000]},
            r"this run needs about .* Lower batch_size .* fanouts .now \[100000, 100000\]",
        ),
        ({"fanouts": [2**31 - 1] * 2}, "this run needs about"),
        ({"hidden": [2**20, 2**20]}, r"hidden .now \[1048576, 1048576\]"),
        ({"hidden": [16, 2**20], "feedforward": 2**20}, "this run needs about"),
        ({"max_steps": 2**31 - 1, "hidden": [16, 2**20]}, "this run needs about"),
    ],
)
def test_settings_that_fit_no_machine_are_refused(values: dict[str, Any], said: str, graph: DynamicGraph) -> None:
    with pytest.raises(InputError, match=said):
        require_memory(graph, small_settings(**values), 0, 90, CPU)


def test_a_usual_run_is_not_refused(graph: DynamicGraph) -> None:
    require_memory(graph, small_settings(), 0, 90, CPU)
