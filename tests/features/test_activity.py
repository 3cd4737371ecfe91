from __future__ import annotations

import numpy as np

from chronospike.data.activity import SPANS, SUMMARY_WIDTH, activity_profile
from chronospike.features.activity import ActivitySteps
from chronospike.features.options import Activity
from tests.six_nodes import six_nodes
from tests.small_runs import small_graph


def test_six_nodes_by_hand() -> None:
    values = ActivitySteps(six_nodes()).make_step(2)
    assert values.shape == (6, Activity().dimension)
    # In step 2; then in all, at most, per step since the first, distinct neighbours.
    np.testing.assert_allclose(values[0, :5], np.log1p([2, 4, 2, 4 / 3, 3]), rtol=1e-6)
    np.testing.assert_allclose(values[2, :5], np.log1p([0, 2, 2, 1, 2]), rtol=1e-6)
    # Shares of the three steps since the first and since the last edge, and with an edge.
    np.testing.assert_allclose(values[2, 5:8], [2 / 3, 1 / 3, 1 / 3], rtol=1e-6)


def test_nodes_without_an_edge_so_far_are_zero() -> None:
    assert not ActivitySteps(six_nodes()).make_step(2)[4:].any()


def test_a_step_is_the_profile_of_the_graph_that_ends_there() -> None:
    graph = small_graph()
    for step in range(graph.num_steps):
        values, profile = ActivitySteps(graph).make_step(step), activity_profile(graph, step)
        active = profile[:, 0] > 0
        np.testing.assert_array_equal(values[active, 1:], profile[active, :SUMMARY_WIDTH])
        np.testing.assert_array_equal(values[active, 0], profile[active, 17 + SPANS - 1])
