from __future__ import annotations

from datetime import datetime
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from chronospike.data.reading.adapters import events_from_networkx, events_from_temporal_data
from chronospike.errors import InputError

nx = pytest.importorskip("networkx")


def edges(events: Any) -> list[tuple[Any, ...]]:
    ends = (events.ids.take(end).to_pylist() for end in (events.source, events.target))
    return sorted(zip(*ends, events.time.tolist(), strict=True))


@pytest.mark.parametrize("kind", ["Graph", "DiGraph", "MultiGraph", "MultiDiGraph"])
def test_graphs_of_every_kind_are_read(kind: str) -> None:
    graph = getattr(nx, kind)()
    graph.add_edge("a", "b", time=3)
    graph.add_edge("b", "c", time=1)
    assert edges(events_from_networkx(graph)) == [("a", "b", 3), ("b", "c", 1)]


def test_parallel_edges_are_events_of_their_own() -> None:
    graph = nx.MultiDiGraph()
    graph.add_edges_from([(1, 2, {"year": 1990}), (1, 2, {"year": 1991}), (2, 1, {"year": 1990})])
    assert edges(events_from_networkx(graph, time="year")) == [(1, 2, 1990), (1, 2, 1991), (2, 1, 1990)]


def test_nodes_without_an_edge_are_kept() -> None:
    graph = nx.Graph()
    graph.add_node(0)
    graph.add_edge(1, 2, time=1)
    assert list(events_from_networkx(graph).ids) == [0, 1, 2]


def test_dates_on_edges_are_read() -> None:
    graph = nx.Graph()
    graph.add_edge(1, 2, time=datetime(2020, 1, 1))
    assert events_from_networkx(graph).time[0] == np.datetime64("2020-01-01", "us")


def test_ids_of_other_kinds_become_text() -> None:
    graph = nx.Graph()
    graph.add_edge((0, 1), None.__class__, time=1)
    graph.add_edge((0, 1), 5, time=2)
    assert list(events_from_networkx(graph).ids) == ["5", str((0, 1)), str(type(None))]


def test_nodes_that_would_share_an_id_are_refused() -> None:
    graph = nx.Graph()
    graph.add_edge(1, "1", time=1)
    with pytest.raises(InputError, match=r"nodes 1 and '1' would share the id '1'"):
        events_from_networkx(graph)


def test_an_edge_without_the_attribute_is_named_with_what_there_is() -> None:
    graph = nx.Graph()
    graph.add_edge("a", "b", when=1, weight=2.0)
    with pytest.raises(InputError, match=r"edge \('a', 'b'\) has no 'time'; .*: weight, when. Pass time=NAME"):
        events_from_networkx(graph)


def test_a_list_of_snapshots_has_positions_for_times() -> None:
    first, second = nx.Graph([("a", "b")]), nx.Graph([("b", "c")])
    assert edges(events_from_networkx([first, second])) == [("a", "b", 0), ("b", "c", 1)]


def test_a_sliced_temporal_graph_has_its_edges_own_times_or_else_positions() -> None:
    temporal = pytest.importorskip("networkx_temporal").temporal_graph(directed=True)
    temporal.add_edge("a", "b", year=1990)
    temporal.add_edge("b", "c", year=1995)
    sliced = temporal.slice(attr="year")
    assert edges(events_from_networkx(sliced, time="year")) == [("a", "b", 1990), ("b", "c", 1995)]
    assert edges(events_from_networkx(sliced)) == [("a", "b", 0), ("b", "c", 1)]


def test_what_is_no_graph_is_refused() -> None:
    with pytest.raises(InputError, match="a int is not a networkx graph"):
        events_from_networkx([1, 2])
    with pytest.raises(InputError, match="no edges"):
        events_from_networkx(nx.Graph())


def test_temporal_data_is_read_from_tensors() -> None:
    torch = pytest.importorskip("torch")
    data = SimpleNamespace(src=torch.tensor([3, 1]), dst=torch.tensor([1, 2]), t=torch.tensor([10, 20]))
    assert edges(events_from_temporal_data(data)) == [(1, 2, 20), (3, 1, 10)]


def test_temporal_data_without_times_is_refused() -> None:
    with pytest.raises(InputError, match="no 't'; events need src, dst and t"):
        events_from_temporal_data(SimpleNamespace(src=[1], dst=[2], t=None))
