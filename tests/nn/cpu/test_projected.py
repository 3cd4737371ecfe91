from __future__ import annotations

import numpy as np

from chronospike.nn.cpu.projected import distinct_nodes


def test_targets_come_first_and_each_node_once() -> None:
    nodes = np.array([[5, 2, 5, 7, 2, 9], [0, 0, 0, 0, 0, 0]], dtype=np.int32)
    found = distinct_nodes(nodes, targets=3, table_rows=10)
    assert found.counts.tolist() == [4, 1]
    assert found.targets.tolist() == [2, 1]
    assert found.nodes[0, :4].tolist() == [5, 2, 7, 9]
    assert found.slots.tolist() == [[0, 1, 0, 2, 1, 3], [0] * 6]


def test_slots_lead_back_to_the_nodes() -> None:
    nodes = np.random.default_rng(3).integers(0, 40, (9, 200), dtype=np.int32)
    found = distinct_nodes(nodes, targets=80, table_rows=40)
    assert np.array_equal(np.take_along_axis(found.nodes, found.slots.astype(np.int64), axis=1), nodes)
    assert found.counts.tolist() == [len(set(row)) for row in nodes.tolist()]
    assert found.targets.tolist() == [len(set(row[:80])) for row in nodes.tolist()]


def test_a_tree_of_targets_alone() -> None:
    found = distinct_nodes(np.array([[3, 3, 1]], dtype=np.int32), targets=3, table_rows=4)
    assert (found.counts.tolist(), found.targets.tolist()) == ([2], [2])
