from __future__ import annotations

import numpy as np
import pytest

from chronospike.data.activity import activity
from tests.six_nodes import six_nodes

DEGREES = np.array([[1, 1, 2, 1], [1, 1, 1, 0], [0, 2, 0, 1], [0, 0, 1, 1], [0, 0, 0, 1], [0, 0, 0, 0]])


def test_six_nodes_by_hand() -> None:
    values = activity(six_nodes())
    np.testing.assert_allclose(values[:, :4], np.log1p(DEGREES), rtol=1e-6)
    np.testing.assert_allclose(values[:, 4], np.log1p([5, 3, 3, 2, 1, 0]), rtol=1e-6)
    assert values[:, 5].tolist() == [0, 0, 1, 2, 3, 4]
    assert values[:, 6].tolist() == [3, 2, 3, 3, 3, -1]


def test_directed_edges_count_at_both_ends() -> None:
    """0-1 goes both ways at step 0; all else is as in the undirected graph."""
    expected = DEGREES.copy()
    expected[[0, 1], 0] = 2
    np.testing.assert_allclose(activity(six_nodes(directed=True))[:, :4], np.log1p(expected), rtol=1e-6)


@pytest.mark.parametrize("directed", [False, True])
def test_as_of_a_step_there_is_nothing_later(directed: bool) -> None:
    whole, values = activity(six_nodes(directed)), activity(six_nodes(directed), last_step=1)
    assert np.array_equal(values[:, :2], whole[:, :2])
    assert values[:, 3].tolist() == [0, 0, 1, 2, 2, 2]
    assert values[:, 4].tolist() == [1, 1, 1, -1, -1, -1]
