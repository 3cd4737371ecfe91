from __future__ import annotations

from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from chronospike.data.attributes import Column
from chronospike.data.graph import DynamicGraph
from chronospike.data.ingest import events_from_networkx, events_from_temporal_data, import_graph
from chronospike.errors import GraphError, InputError
from tests.edges import edges_at

SOURCE, TARGET, TIME = ["a", "b", "c", "a"], ["b", "c", "a", "c"], [1, 2, 2, 3]
LABELS = {"a": "cat", "b": "dog"}


def as_csv(folder: Path) -> Path:
    rows = [f"{u},{v},{t}" for u, v, t in zip(SOURCE, TARGET, TIME, strict=True)]
    path = folder / "edges.csv"
    path.write_text("\n".join(["source,target,time", *rows]))
    return path


def as_parquet(folder: Path) -> str:
    pq.write_table(as_arrow(folder), folder / "edges.parquet")
    return str(folder / "edges.parquet")


def as_arrow(_: Path) -> pa.Table:
    return pa.table({"src": SOURCE, "dst": TARGET, "t": TIME})


def as_pandas(_: Path) -> Any:
    return pytest.importorskip("pandas").DataFrame({"u": SOURCE, "v": TARGET, "timestamp": TIME})


def as_polars(_: Path) -> Any:
    return pytest.importorskip("polars").DataFrame({"u": SOURCE, "v": TARGET, "date": TIME})


def as_arrays(_: Path) -> Any:
    return np.array(SOURCE), np.array(TARGET), np.array(TIME)


def as_triples(_: Path) -> Any:
    return list(zip(SOURCE, TARGET, TIME, strict=True))


def as_rows(_: Path) -> Any:
    return np.array(list(zip(SOURCE, TARGET, TIME, strict=True)), dtype=object)


def as_networkx(_: Path) -> Any:
    graph = pytest.importorskip("networkx").MultiGraph()
    for u, v, t in zip(SOURCE, TARGET, TIME, strict=True):
        graph.add_edge(u, v, time=t)
    return graph


def links(graph: DynamicGraph) -> list[set[frozenset[int | str]]]:
    """The edges of each step by the user's ids."""
    steps = (edges_at(graph, step) for step in range(graph.num_steps))
    return [{frozenset((graph.ids[u], graph.ids[v])) for u, v in zip(*ends, strict=True)} for ends in steps]


@pytest.mark.parametrize(
    "kind",
    [as_csv, as_parquet, as_arrow, as_pandas, as_polars, as_arrays, as_triples, as_rows, as_networkx],
)
def test_every_kind_of_input_gives_the_same_graph(tmp_path: Path, kind: Any) -> None:
    graph = import_graph(kind(tmp_path), labels=LABELS)
    assert links(graph) == [
        {frozenset("ab")}, {frozenset("bc"), frozenset("ca")}, {frozenset("ac")},
    ]  # fmt: skip
    assert graph.labels is not None
    named = {graph.ids[int(v)]: graph.class_names[graph.labels[v]] for v in graph.labelled}
    assert named == LABELS
    assert graph.step_start.tolist() == [1, 2, 3]


def test_an_object_like_temporal_data_is_taken() -> None:
    events = SimpleNamespace(src=np.array([0, 1]), dst=np.array([1, 2]), t=np.array([5, 6]))
    graph = import_graph(events)
    assert (graph.num_nodes, graph.num_steps, graph.snapshot_edges) == (3, 2, 2)


def test_columns_of_a_pandas_table_are_those_that_were_named() -> None:
    table = pytest.importorskip("pandas").DataFrame({"src": SOURCE, "dst": TARGET, "t": [0, 0, 0, 0], "day": TIME})
    assert import_graph(table, time="day").step_start.tolist() == [1, 2, 3]
    with pytest.raises(InputError, match="no column 'from'"):
        import_graph(table, source="from")


@pytest.mark.parametrize("missing", [None, float("nan")])
def test_incomplete_events_of_every_kind_are_an_error_unless_dropped(missing: Any) -> None:
    ends = ["a", missing, 3], [3, "b", "a"]
    rows = [(u, v, t) for u, v, t in zip(*ends, TIME[:3], strict=True)]
    for events in ((*ends, TIME[:3]), rows, SimpleNamespace(src=ends[0], dst=ends[1], t=TIME[:3])):
        with pytest.raises(InputError, match="row 2: 'source' is empty"):
            import_graph(events)
        graph = import_graph(events, on_missing="drop")
        assert list(graph.ids) == ["3", "a"]
        assert graph.facts["rows_dropped"] == 1


@pytest.mark.parametrize("kind", [np.array, np.float64, torch.tensor, list], ids=lambda kind: kind.__name__)
def test_rows_of_numbers_are_a_source_a_target_and_a_time(kind: Any) -> None:
    graph = import_graph(kind([[0, 1, 5], [1, 2, 6]]))
    assert list(graph.ids) == [0, 1, 2]
    assert graph.step_start.tolist() == [5, 6]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (np.zeros((2, 4)), "an array of shape [2, 4] is no list of edges; expected [E, 3]"),
        (torch.zeros(3), "an array of shape [3] is no list of edges"),
        ([(0, 1, 5), (1, 2)], "a list whose item 1 is (1, 2) is no list of edges"),
        (["abc", "def"], "a list whose item 0 is 'abc' is no list of edges"),
        (([0], [1], [5], [2], [7]), "a list whose item 0 is [0] is no list of edges"),
        (([[0]], [1], 5), "arrays: 'time' must be a list or an array of one dimension"),
        ((np.zeros((2, 2)), [1, 2], [5, 6]), "arrays: 'source' must be a list or an array of one dimension"),
    ],
)
def test_other_shapes_are_one_line(data: Any, message: str) -> None:
    with pytest.raises(InputError) as caught:
        import_graph(data)
    assert message in str(caught.value)


def test_standard_input_cannot_be_two_inputs() -> None:
    for labels in ("-", "/dev/stdin", "/proc/self/fd/0"):
        with pytest.raises(InputError, match="standard input can be read only once"):
            import_graph("-", labels=labels)


def test_labels_come_from_tables_and_files_too(tmp_path: Path) -> None:
    table = pa.table({"id": ["a", "b", "c"], "kind": ["cat", "dog", None]})
    graph = import_graph(as_arrow(tmp_path), labels=table, node="id", label="kind")
    assert len(graph.labelled) == 2
    (tmp_path / "labels.tsv").write_text("node\tlabel\na\tcat\nb\tdog\nc\t\n")
    graph = import_graph(as_arrow(tmp_path), labels=tmp_path / "labels.tsv")
    assert len(graph.labelled) == 2


@pytest.mark.parametrize(
    ("column", "message"),
    [({"label": "labels.csv"}, "so it needs --labels FILE"), ({"node": "n"}, "a column of --labels or --features")],
)
def test_a_column_of_a_table_that_is_not_given_is_refused(column: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        import_graph([("a", "b", 0), ("b", "c", 1)], **column)


def test_features_are_taken_as_an_array_or_by_node(tmp_path: Path) -> None:
    array = np.arange(6, dtype=np.float32).reshape(3, 2)
    graph = import_graph(as_arrays(tmp_path), features=array)
    assert graph.features is array
    (tmp_path / "x.csv").write_text("node,x,y\nc,4,5\na,0,1\nb,2,3\n")
    graph = import_graph(as_arrays(tmp_path), features=tmp_path / "x.csv")
    assert list(graph.ids) == ["a", "b", "c"]
    assert graph.features is not None
    np.testing.assert_array_equal(graph.features, array)
    assert [column.name for column in graph.columns] == ["x", "y"]
    assert "provenance" in graph.facts


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow", "mapping"])
def test_features_are_taken_from_a_table(tmp_path: Path, library: str) -> None:
    columns = {"node": ["c", "a", "b"], "age": [4.0, 0.0, None], "colour": ["red", None, "blue"]}
    table: Any = columns
    if library != "mapping":
        module = pytest.importorskip(library)
        table = module.table(columns) if library == "pyarrow" else module.DataFrame(columns)
    graph = import_graph(as_arrays(tmp_path), features=table)
    np.testing.assert_array_equal(graph.features, np.array([[0, np.nan], [np.nan, 0], [4, 1]]))
    assert graph.columns == (Column("age"), Column("colour", "category", ("blue", "red")))


@pytest.mark.parametrize(
    ("nodes", "label", "left_out"),
    [
        ("node,label,x\na,0,1\nb,1,2\nc,1,3\n", None, ["label"]),
        ("node,x,field\na,1,0\nb,2,1\nc,3,1\n", "field", ["field"]),
        ("a,0,1\nb,1,2\nc,1,3\n", "2", ["column 2"]),
    ],
)
def test_labels_in_the_table_of_the_nodes_are_no_attribute(
    tmp_path: Path, nodes: str, label: str | None, left_out: list[str]
) -> None:
    (tmp_path / "nodes.csv").write_text(nodes)
    both = tmp_path / "nodes.csv"
    graph = import_graph(as_arrays(tmp_path), labels=both, features=both, label=label)
    assert graph.facts["provenance"]["features_left_out"] == left_out
    assert graph.features is not None
    assert graph.features.tolist() == [[1], [2], [3]]


def test_the_column_of_the_labels_in_another_table_is_no_attribute(tmp_path: Path) -> None:
    (tmp_path / "labels.csv").write_text("a,0\nb,1\n")
    features = {"node": ["a", "b", "c"], "label": [0, 1, 1], "2": [1, 2, 3]}
    graph = import_graph(as_arrays(tmp_path), labels={"a": 0, "b": 1}, features=features)
    assert [column.name for column in graph.columns] == ["2"]
    graph = import_graph(as_arrays(tmp_path), labels=tmp_path / "labels.csv", features=features)
    assert [column.name for column in graph.columns] == ["label", "2"]


def test_row_numbers_are_no_attribute(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    nodes = pandas.DataFrame({"node": ["a", "z", "b", "c"], "x": [1, 0, 2, 3]})
    nodes = nodes[nodes.node != "z"]
    nodes.to_csv(tmp_path / "nodes.csv")
    nodes.to_parquet(tmp_path / "nodes.parquet")
    pandas.read_csv(tmp_path / "nodes.csv").to_csv(tmp_path / "again.csv", index=False)
    for features, left_out in (
        (nodes, None),
        (nodes.set_index("node"), None),
        (tmp_path / "nodes.csv", ["column 1"]),
        (tmp_path / "nodes.parquet", ["__index_level_0__"]),
        (tmp_path / "again.csv", ["Unnamed: 0"]),
    ):
        graph = import_graph(as_arrays(tmp_path), features=features)
        assert graph.columns == (Column("x"),)
        assert graph.facts["provenance"].get("features_left_out") == left_out


def test_an_index_of_node_ids_is_a_column_also_if_it_is_a_range() -> None:
    pandas = pytest.importorskip("pandas")
    nodes = pandas.DataFrame({"x": [5, 6, 7]}, index=pandas.RangeIndex(3, name="node"))
    graph = import_graph([(0, 1, 1), (1, 2, 2)], features=nodes)
    assert graph.features is not None
    assert graph.features.tolist() == [[5], [6], [7]]


def test_nodes_without_a_row_are_counted(tmp_path: Path) -> None:
    graph = import_graph(as_arrays(tmp_path), features={"node": ["a"], "x": [1]})
    assert graph.facts["provenance"]["nodes_without_features"] == 2
    assert graph.features is not None
    assert np.isnan(graph.features[1:]).all()


def test_features_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    with pytest.raises(GraphError, match="features have shape \\[2, 2\\], expected \\[3, d\\]"):
        import_graph(as_arrays(tmp_path), features=np.zeros((2, 2)))
    with pytest.raises(GraphError, match="NaN or infinite, the first is node 'b'"):
        import_graph(as_arrays(tmp_path), features=np.array([[1.0], [np.nan], [1.0]]))
    with pytest.raises(InputError, match="features are object; numbers are needed"):
        import_graph(as_arrays(tmp_path), features=np.array([["red", 1], ["red", 2], ["blue", 3]], dtype=object))


def test_features_of_a_tensor_that_numpy_has_no_type_for(tmp_path: Path) -> None:
    features = import_graph(
        as_arrays(tmp_path), features=torch.tensor([[1.0], [0.5], [3.0]], dtype=torch.bfloat16)
    ).features
    np.testing.assert_array_equal(features, [[1.0], [0.5], [3.0]])


def test_times_become_steps_as_asked(tmp_path: Path) -> None:
    assert import_graph(as_arrays(tmp_path), merge=2).num_steps == 2
    assert import_graph(as_arrays(tmp_path), steps=2).num_steps == 2
    assert import_graph(as_arrays(tmp_path), every=3).num_steps == 1


def test_an_origin_reaches_the_steps(tmp_path: Path) -> None:
    assert import_graph(as_arrays(tmp_path), every=2, origin=0).step_start.tolist() == [0, 2]


@pytest.mark.parametrize("kind", [as_csv, as_parquet, as_arrow, as_pandas, as_polars, as_arrays, as_networkx])
def test_unix_times_of_every_kind_of_input_become_dates(tmp_path: Path, kind: Any) -> None:
    graph = import_graph(kind(tmp_path), time_unit="ms")
    milliseconds = np.datetime64("1970-01-01", "us") + np.array([1, 2, 3]) * np.timedelta64(1, "ms")
    assert graph.step_start.tolist() == milliseconds.tolist()


def test_unix_times_of_temporal_data_become_dates() -> None:
    events = SimpleNamespace(src=np.array([0, 1]), dst=np.array([1, 2]), t=np.array([0, 86400]))
    assert str(import_graph(events, time_unit="s").step_start[1])[:10] == "1970-01-02"


@pytest.mark.parametrize("times", [[0, 86400], ["1970-01-01", "1970-01-02"]])
def test_features_at_unix_times_or_dates_fit_edges_at_unix_times(times: list[Any]) -> None:
    table = {"node": ["a", "a"], "time": times, "x": [1.0, 2.0]}
    graph = import_graph((["a", "a"], ["b", "b"], [0, 86400]), features=table, time_unit="s")
    assert np.asarray(graph.features)[:, 0].tolist() == [[1.0], [2.0]]


def test_direction_is_kept_if_asked(tmp_path: Path) -> None:
    graph = import_graph(as_arrays(tmp_path), directed=True)
    source, target = edges_at(graph, 0)
    assert [(graph.ids[int(source[0])], graph.ids[int(target[0])])] == [("a", "b")]


def test_unknown_labels_are_an_error_unless_dropped(tmp_path: Path) -> None:
    labels = {**LABELS, "z": "cat"}
    with pytest.raises(InputError, match="1 labelled node is not in the graph, 'z'"):
        import_graph(as_arrays(tmp_path), labels=labels)
    assert len(import_graph(as_arrays(tmp_path), labels=labels, on_unknown="drop").labelled) == 2


def test_something_that_holds_no_edges_is_refused() -> None:
    with pytest.raises(InputError):
        import_graph(42)


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


def test_a_number_that_is_not_there_is_no_node_and_no_class(tmp_path: Path) -> None:
    edges, labels = tmp_path / "edges.csv", tmp_path / "labels.csv"
    edges.write_text("u,v,t\n1,2,1\n3,NULL,2\n2,3,NA\n1,3,4\n")
    labels.write_text("node,class\n1,0\n2,NA\n3,1\n")
    with pytest.raises(InputError, match="edges.csv row 3: 'v' is empty"):
        import_graph(edges)
    graph = import_graph(edges, labels=labels, on_missing="drop")
    assert (list(graph.ids), graph.facts["rows_dropped"], graph.class_names) == ([1, 2, 3], 2, ("0", "1"))
    assert graph.facts["provenance"]["labels_missing"] == 1


def test_features_may_be_a_sparse_tensor() -> None:
    edges = ([0, 1, 2], [1, 2, 0], torch.tensor([1, 2, 3], dtype=torch.bfloat16))
    graph = import_graph(edges, features=torch.eye(3).to_sparse())
    assert graph.step_start.tolist() == [1, 2, 3]
    assert graph.features is not None
    assert graph.features.tolist() == np.eye(3).tolist()
