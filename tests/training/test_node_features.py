from __future__ import annotations

import numpy as np
import pytest

from chronospike.data.attributes import Column
from chronospike.errors import GraphError
from chronospike.training.node_features import NodeFeatures, input_width
from tests.six_nodes import six_nodes

MADE = np.random.default_rng(0).normal(size=(4, 6, 3)).astype(np.float32)


def test_each_step_of_made_features_is_standardised_on_its_own() -> None:
    made = np.zeros((4, 6, 1), dtype=np.float32)
    # Mean 2.5 and deviation 0.5 at step 0; a constant block at step 1.
    made[0, :, 0] = [2, 3, 2, 3, 2, 3]
    made[1] = 7
    features = NodeFeatures(six_nodes().with_made_features(made), over_all=True)
    assert features.at(0).tolist() == [[-1.0], [1.0], [-1.0], [1.0], [-1.0], [1.0]]
    assert features.at(1).tolist() == [[0.0]] * 6


def test_made_features_are_standardised_by_the_nodes_seen_so_far() -> None:
    graph, other = six_nodes(), MADE.copy()
    for step in range(4):
        other[step, ~graph.seen_by(step)] += 100
    one, two = (NodeFeatures(graph.with_made_features(made)) for made in (MADE, other))
    for step in range(4):
        seen = graph.seen_by(step)
        assert np.array_equal(one.at(step)[seen], two.at(step)[seen])
    assert one.at(3)[graph.seen_by(3)].std() == pytest.approx(1, abs=1e-5)
    whole = NodeFeatures(graph.with_made_features(other), over_all=True)
    assert not np.allclose(whole.at(0)[graph.seen_by(0)], one.at(0)[graph.seen_by(0)])


def test_features_without_time_are_the_same_at_every_step() -> None:
    values = np.array([[2], [3], [2], [3], [2], [3]], dtype=np.float32)
    features = NodeFeatures(six_nodes().with_features(values))
    assert features.static
    assert features.blocks == 1
    for step in (0, 3):
        assert features.at(step)[:, 0].tolist() == pytest.approx([-1, 1, -1, 1, -1, 1])


def test_attributes_with_time_are_read_at_their_step() -> None:
    values = np.zeros((4, 6, 1), dtype=np.float32)
    values[2] = 1
    features = NodeFeatures(six_nodes().with_features(values))
    assert not features.static
    assert features.blocks == 4
    assert np.array_equal(features.at(0), features.at(3))
    assert np.all(features.at(2) > features.at(0))


def test_attributes_come_first_and_made_features_after_them() -> None:
    codes = np.array([[0, 5], [0, 6], [0, 7], [1, 8], [1, 9], [1, np.nan]], dtype=np.float32)
    graph = six_nodes().with_features(codes, (Column("colour", "category", ("blue", "red")), Column("age")))
    both = graph.with_made_features(MADE)
    features = NodeFeatures(both)
    assert features.encoder is not None
    assert features.encoder.names == ["colour=blue", "colour=red", "age", "age missing"]
    assert features.width == input_width(both) == 7
    assert not features.static
    for step in (0, 3):
        assert np.array_equal(features.at(step)[:, :4], NodeFeatures(graph).at(step))
        assert np.array_equal(features.at(step)[:, 4:], NodeFeatures(six_nodes().with_made_features(MADE)).at(step))


def test_several_made_sets_are_each_standardised_by_themselves() -> None:
    features = NodeFeatures(six_nodes().with_made_features(MADE, MADE * 5 + 3))
    assert features.width == 6
    np.testing.assert_allclose(features.at(1)[:, 3:], features.at(1)[:, :3], atol=1e-5)


def test_rows_of_some_nodes_are_those_of_all() -> None:
    codes = np.arange(6, dtype=np.float32)[:, None]
    features = NodeFeatures(six_nodes().with_features(codes).with_made_features(MADE))
    nodes = np.array([4, 1, 4])
    assert np.array_equal(features.at(2, nodes), features.at(2)[nodes])
    assert features.at(2, nodes[:0]).shape == (0, 4)


def test_an_encoder_from_an_earlier_fit_is_used_by_column_name() -> None:
    values = np.column_stack([np.arange(6), np.arange(6)[::-1] * 10]).astype(np.float32)
    first = NodeFeatures(six_nodes().with_features(values, (Column("a"), Column("b"))))
    swapped = six_nodes().with_features(values[:, ::-1] * 1.0, (Column("b"), Column("a")))
    assert np.array_equal(NodeFeatures(swapped, first.encoder).at(0), first.at(0))


def test_what_an_earlier_fit_did_not_know_is_said() -> None:
    values = np.arange(6, dtype=np.float32)[:, None]
    first = NodeFeatures(six_nodes().with_features(values, (Column("age"),)))
    assert first.notes == []
    values = values.copy()
    values[2] = np.nan
    again = NodeFeatures(six_nodes().with_features(values, (Column("age"),)), first.encoder)
    assert again.notes == ["missing values in attributes that had none in training: age (1)"]


def test_a_graph_without_features_is_refused() -> None:
    assert input_width(six_nodes()) == 0
    with pytest.raises(GraphError, match="the graph has no features"):
        NodeFeatures(six_nodes())
