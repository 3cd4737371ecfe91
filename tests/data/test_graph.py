from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from chronospike.data.attributes import default_columns
from chronospike.data.csr import TimeSlicedCSR
from chronospike.errors import GraphError
from tests.path_of_four import path_of_four
from tests.six_nodes import six_nodes


def test_counts_of_the_six_node_graph() -> None:
    graph = six_nodes()
    assert (graph.num_nodes, graph.num_steps, graph.snapshot_edges, graph.union_edges) == (6, 4, 7, 6)


def test_isolated_nodes_have_no_edge_but_a_self_loop() -> None:
    assert np.flatnonzero(six_nodes().isolated).tolist() == [5]


def test_a_directed_source_is_not_isolated() -> None:
    graph = six_nodes(directed=True)
    # Node 3 only cites: nothing points to it until step 3, and node 1's row is what points to 1.
    assert np.flatnonzero(graph.isolated).tolist() == [5]
    assert graph.history.before(3, 3).tolist() == []
    assert graph.history.before(3, 4).tolist() == [2]


def test_a_directed_source_counts_as_seen_from_its_first_edge_on() -> None:
    assert path_of_four(directed=True).seen_by(0).tolist() == [True] * 4


def test_repr_says_what_the_graph_is() -> None:
    assert repr(six_nodes()) == (
        "DynamicGraph(6 nodes, 4 steps from 10 to 40, 7 undirected edges, 6 in the union, no labels, no features)"
    )


def test_dates_are_shown_without_a_clock_they_do_not_have() -> None:
    days = np.array(["2020-01-01", "2020-02-01", "2020-03-01", "2021-01-01T09:30"], dtype="datetime64[us]")
    graph = replace(six_nodes(), step_start=days, step_end=days)
    assert "4 steps from 2020-01-01 to 2021-01-01 09:30," in repr(graph)
    assert (graph.summary()["first_time"], graph.summary()["last_time"]) == ("2020-01-01", "2021-01-01 09:30")


def test_features_are_given_or_made() -> None:
    fixed = np.arange(12.0).reshape(6, 2)
    changing = np.arange(48.0).reshape(4, 6, 2)
    assert six_nodes().with_features(fixed).columns == default_columns(2)
    assert six_nodes().with_made_features(changing, changing).made_features == (changing, changing)


@pytest.mark.parametrize("shape", [(5, 2), (6,), (3, 6, 2), (6, 0)])
def test_features_of_a_wrong_shape_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(GraphError, match="features have shape"):
        six_nodes().with_features(np.zeros(shape))


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_features_that_are_not_finite_name_the_node_and_step(bad: float) -> None:
    x = np.zeros((4, 6, 2))
    x[2, 4, 1] = bad
    with pytest.raises(GraphError, match=r"1 node\(s\) at step 2 are NaN or infinite, the first is node 4"):
        six_nodes().with_features(x)


def test_labels_outside_the_classes_are_refused() -> None:
    with pytest.raises(GraphError, match="labels run from -1 to 2, but there are 2"):
        six_nodes().with_labels(np.array([0, 1, 2, -1, 0, 1]), ("a", "b"))


def test_validate_names_a_neighbour_out_of_range() -> None:
    graph = six_nodes()
    broken = replace(graph.history, neighbours=graph.history.neighbours + 3)
    with pytest.raises(GraphError, match=r"history names a neighbour outside 0\.\.5"):
        replace(graph, history=broken).validate()


def test_validate_names_offsets_that_do_not_ascend() -> None:
    graph = six_nodes()
    offsets = graph.snapshot.step_offsets.copy()
    offsets[0, 1], offsets[0, 2] = 3, 1
    broken = TimeSlicedCSR(graph.snapshot.indptr, offsets, graph.snapshot.neighbours)
    with pytest.raises(GraphError, match="step offsets of the snapshot"):
        replace(graph, snapshot=broken).validate()


def test_validate_names_step_bounds_that_do_not_ascend() -> None:
    graph = six_nodes()
    with pytest.raises(GraphError, match="step bounds do not ascend"):
        replace(graph, step_start=np.array([10, 5, 30, 40])).validate()


def test_validate_names_events_that_do_not_fit() -> None:
    events = six_nodes().events
    assert events is not None
    with pytest.raises(GraphError, match=r"an event names a node outside 0\.\.5"):
        replace(six_nodes(), events=replace(events, source=events.source + 3)).validate()


def test_other_labels_and_features_leave_the_events_as_they_are() -> None:
    graph = six_nodes()
    changed = graph.with_labels(np.zeros(6, dtype=np.int64), ("a",)).with_features(np.zeros((6, 1)))
    assert changed.with_made_features(np.zeros((4, 6, 1))).events is graph.events


def test_require_names_what_is_missing() -> None:
    graph = six_nodes()
    with pytest.raises(GraphError, match="4 step, and 5 are needed"):
        graph.require(steps=5)
    with pytest.raises(GraphError, match="no labels"):
        graph.require(classes=2)
    with pytest.raises(GraphError, match="have 1 class, and 2 are needed"):
        graph.with_labels(np.zeros(6, dtype=np.int64), ("only",)).require(classes=2)
    with pytest.raises(GraphError, match="no features"):
        graph.require(features=True)
    assert graph.require(events=True) is graph
    with pytest.raises(GraphError, match="imported without its events.* Import it again with --overwrite"):
        replace(graph, events=None).require(events=True)


def test_summary_counts_labels_per_class() -> None:
    graph = six_nodes().with_labels(np.array([0, 1, 1, -1, -1, 0]), ("a", "b"))
    assert graph.summary()["class_sizes"] == {"a": 2, "b": 2}
    assert graph.summary()["labelled"] == 4


def test_two_classes_of_one_name_are_refused() -> None:
    with pytest.raises(GraphError, match="two classes are called 'a'"):
        six_nodes().with_labels(np.zeros(6, dtype=np.int64), ("a", "b", "a"))


def test_validate_names_repeated_ids() -> None:
    from chronospike.data.ids import NodeIds

    ids = NodeIds(NodeIds.of(["a", "b", "c"]).values.take([0, 1, 2, 0, 1, 2]))
    with pytest.raises(GraphError, match="node ids repeat: 6 ids, 3 distinct"):
        replace(six_nodes(), ids=ids).validate()


def test_graphs_are_compared_and_hashed_as_objects() -> None:
    graph, same = six_nodes(), six_nodes()
    assert graph == graph
    assert graph != same
    assert {graph: 1}[graph] == 1


def test_features_and_labels_may_be_lists_or_tensors() -> None:
    graph = six_nodes()
    rows = [[float(v)] for v in range(graph.num_nodes)]
    for features in (rows, torch.tensor(rows)):
        assert graph.with_features(features).features.tolist() == rows  # type: ignore[arg-type, union-attr]
    labels = [v % 2 for v in range(graph.num_nodes)]
    for given in (labels, torch.tensor(labels)):
        assert graph.with_labels(given, ["a", "b"]).labels.tolist() == labels  # type: ignore[arg-type, union-attr]
