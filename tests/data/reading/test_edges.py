from __future__ import annotations

import csv
import gzip
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from chronospike.data.build import build_graph
from chronospike.data.events import Events
from chronospike.data.reading.edges import add_nodes, events_from_arrays, read_events
from chronospike.data.reading.labels import read_labels
from chronospike.data.reading.tables import missing
from chronospike.data.steps import make_steps
from chronospike.errors import InputError
from tests.standard_input import standard_input

EDGES = [("a", "b", 1), ("b", "007", 2), ("a", "b", 1)]


def edges(events: Events) -> list[tuple[Any, ...]]:
    """Rows with the user's own ids."""
    ends = (events.ids.take(end).to_pylist() for end in (events.source, events.target))
    return list(zip(*ends, events.time.tolist(), strict=True))


def written(folder: Path, text: str, name: str = "edges.csv") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8", newline="")
    return path


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("edges.csv", "source,target,time\na,b,1\nb,007,2\na,b,1\n"),
        ("edges.csv", "a,b,1\nb,007,2\na,b,1\n"),
        ("edges.tsv", "t\tu\tv\n1\ta\tb\n2\tb\t007\n1\ta\tb\n"),
        ("edges.txt", "# a b c\na b 1\nb 007 2\na b 1\n"),
        ("edges.csv", '"time";"from";"to";"note"\n1;"a";"b";""\n2;"b";"007";"x;y"\n1;"a";"b";\n'),
        ("edges.jsonl", '["a", "b", 1]\n["b", "007", 2]\n["a", "b", 1]\n'),
        ("edges.json", '{"time": 1, "dst": "b", "src": "a"}\n{"time": 2, "dst": "007", "src": "b"}\n'
                       '{"time": 1, "dst": "b", "src": "a"}\n'),
    ],
)  # fmt: skip
def test_the_same_edges_are_read_from_any_kind_of_file(tmp_path: Path, name: str, text: str) -> None:
    events = read_events(written(tmp_path, text, name))
    assert edges(events) == EDGES
    assert events.origin == name
    assert list(events.ids) == ["007", "a", "b"]


def test_parquet_with_dates_is_read(tmp_path: Path) -> None:
    table = pa.table({"u": [3, 1], "v": [1, 2], "when": [datetime(2020, 1, 1), datetime(2021, 1, 1)]})
    parquet.write_table(table, tmp_path / "edges.parquet")
    events = read_events(tmp_path / "edges.parquet")
    assert list(events.ids) == [1, 2, 3]
    assert events.time.astype("datetime64[D]").astype(str).tolist() == ["2020-01-01", "2021-01-01"]


def test_columns_can_be_named_and_counted(tmp_path: Path) -> None:
    named = written(tmp_path, "buyer,seller,when bought,time\na,b,1,x\n", "sales.csv")
    assert edges(read_events(named, source="buyer", target="seller", time="when bought")) == [("a", "b", 1)]
    counted = written(tmp_path, "1,x,a,b\n2,y,c,d\n", "plain.csv")
    assert edges(read_events(counted, source=3, target=4, time=1)) == [("a", "b", 1), ("c", "d", 2)]


def test_header_that_is_said_not_to_be_one_is_data(tmp_path: Path) -> None:
    path = written(tmp_path, "a,b,1\nb,c,2\n")
    assert len(read_events(path)) == 2
    assert len(read_events(path, source="a", target="b", time="1", header=True)) == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("u,v,t\na,b,1\na,b,\n", "edges.csv row 3: 't' is empty. Drop the row or pass --on-missing drop."),
        ("u,v,t\na,b,1\n,b,1\n", "edges.csv row 3: 'u' is empty."),
        ("a,b,1\na,b, \n", "edges.csv row 2: 'time' is empty."),
        (
            "u,v,t\na,b,yesterday\n",
            "edges.csv row 2: time 'yesterday' is not a number or an ISO date such as 2020-02-29",
        ),
        ("u,v\na,b\n", "edges.csv: no 'time' column. The columns are: 'u', 'v'."),
        ("a,b\nc,d\n", "edges.csv: 2 columns, and none is left for 'time'"),
        ("u,v,t\n", "no rows after the header"),
        ("", "the file is empty"),
    ],
)
def test_bad_files_get_one_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        read_events(written(tmp_path, text))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_rows_that_lack_a_value_are_dropped_and_counted(tmp_path: Path) -> None:
    path = written(tmp_path, "u,v,t\na,b,1\na,,2\nc,d,\n,e,3\nf,g,4\n")
    events = read_events(path, on_missing="drop")
    assert edges(events) == [("a", "b", 1), ("f", "g", 4)]
    assert events.dropped == 3


def test_after_dropping_a_bad_time_is_still_named_by_its_own_row(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="row 4: time 'soon'"):
        read_events(written(tmp_path, "u,v,t\na,,1\nb,c,2\nb,c,soon\n"), on_missing="drop")


def test_nothing_left_after_dropping_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no row has"):
        read_events(written(tmp_path, "u,v,t\na,,1\n,c,2\n"), on_missing="drop")


def test_unknown_choice_for_missing_values_is_refused() -> None:
    with pytest.raises(InputError, match="on_missing 'dorp' is not one of: error, drop. Did you mean 'drop'?"):
        read_events({"u": [1], "v": [2], "t": [3]}, on_missing="dorp")


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_data_frames_with_gaps_keep_whole_ids_whole(library: str) -> None:
    frame = pytest.importorskip(library).DataFrame({"u": [10.0, None, 9.0], "v": [9, 9, 11], "t": [1, 2, 3]})
    events = read_events(frame, on_missing="drop")
    assert edges(events) == [(10, 9, 1), (9, 11, 3)]
    with pytest.raises(InputError, match="table row 2: 'u' is empty"):
        read_events(frame)


def test_pandas_datetimes_are_read() -> None:
    pandas = pytest.importorskip("pandas")
    when = pandas.to_datetime(["2020-01-01T00:00:00+01:00", "2020-01-02T00:00:00+01:00"])
    events = read_events(pandas.DataFrame({"u": ["x", "y"], "v": ["y", "z"], "t": when}))
    assert events.time[0] == np.datetime64("2019-12-31T23:00", "us")


def test_arrays_of_any_kind_are_read() -> None:
    events = events_from_arrays(np.array([3, 5]), ["5", "9"], [0.5, 1])
    assert edges(events) == [(3, 5, 0.5), (5, 9, 1.0)]
    dates = np.array(["2020-01-01", "2020-01-02"], dtype="datetime64[D]")
    assert events_from_arrays([1, 2], [2, 3], dates).time.dtype == np.dtype("datetime64[us]")
    assert edges(events_from_arrays(["x", 1], [1, "x"], [1, 2])) == [("x", "1", 1), ("1", "x", 2)]


def test_arrays_of_indices_refer_to_the_ids_in_their_order() -> None:
    events = events_from_arrays([0, 2], [1, 0], [1, 2], ids=["z", "a", "m", "alone"])
    assert edges(events) == [("z", "a", 1), ("m", "z", 2)]
    assert len(events.ids) == 4


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([1, 2], [2], [1, 2]), "lengths differ: source 2, target 1, time 2"),
        (([0, 3], [1, 1], [1, 2], ["a", "b"]), r"source\[1\] is 3, and there are 2 ids"),
        (([0, 1], [1.5, 1], [1, 2], ["a", "b"]), "'target' must hold indices"),
        (([0, 1], [1, 1], [1, None], ["a", "b"]), "row 2: 'time' is empty"),
        (([0, 1], [1, 1], [1.0, float("nan")]), "row 2: 'time' is empty"),
        (([0, 1], [1, 1], np.array(["2020", "NaT"], dtype="datetime64[D]")), "row 2: 'time' is empty"),
    ],
)
def test_bad_arrays_are_refused(arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(InputError, match=message):
        events_from_arrays(*arguments)


def test_added_nodes_take_their_place_in_the_order() -> None:
    events = add_nodes(events_from_arrays([1, 5], [5, 9], [1, 2]), [7, 0, 5])
    assert list(events.ids) == [0, 1, 5, 7, 9]
    assert edges(events) == [(1, 5, 1), (5, 9, 2)]


ids = st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"]), min_size=1, max_size=8)
awkward = st.sampled_from(["007", "a,b", '"', "x\ny", "\r", " ", "#tag", "NA", "1e5", "source", "-0", "é"])


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(ids | awkward, ids | awkward), min_size=1, max_size=8), st.sampled_from(",\t;|"))
def test_ids_of_any_text_come_back_unchanged(pairs: list[tuple[str, str]], delimiter: str) -> None:
    # Among whole numbers alone, "NA" and "?" are no ids.
    assume(not missing(pa.chunked_array([[end for pair in pairs for end in pair]])).any())
    with TemporaryDirectory() as folder:
        path = Path(folder) / "edges.csv"
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, delimiter=delimiter)
            writer.writerow(["source", "target", "time"])
            writer.writerows((u, v, 3) for u, v in pairs)
        events = read_events(path, delimiter=delimiter)
    assert [(str(u), str(v)) for u, v, _ in edges(events)] == pairs


def test_a_users_own_file_goes_in_and_its_ids_come_back_unchanged(tmp_path: Path) -> None:
    people = ["Müller, Ann", "007", 'J. "Jo" Doe', "42", "x y"]
    rows = [(people[i], people[j], f"2020-0{m}-15", "a note, quoted") for i, j, m in
            ((0, 1, 1), (1, 2, 2), (2, 3, 2), (3, 4, 3), (4, 0, 5))]  # fmt: skip
    with (tmp_path / "calls.csv").open("w", newline="", encoding="utf-8-sig") as file:
        csv.writer(file).writerows([("Sender", "Receiver", "Date", "Note"), *rows])
    with (tmp_path / "kinds.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(
            [("id", "class"), (people[0], "good, mostly"), (people[1], ""), (people[2], "bad"), (people[3], "bad")]
        )
    events = read_events(tmp_path / "calls.csv")
    labels, facts = read_labels(tmp_path / "kinds.csv", events.ids)
    graph = build_graph(events, make_steps(events.time, every="1mo"), labels=labels)
    assert [row[:2] for row in edges(events)] == [row[:2] for row in rows]
    assert sorted(map(str, graph.ids)) == sorted(people)
    assert (graph.num_steps, graph.snapshot_edges) == (5, 5)
    assert graph.class_names == ("bad", "good, mostly")
    assert facts["labels_missing"] == 1
    assert {str(graph.ids[int(k)]) for k in graph.labelled} == {people[0], people[2], people[3]}


def test_dblp_has_its_published_counts(data_root: Path) -> None:
    events = read_events(data_root / "dblp" / "dblp.txt")
    labels, _ = read_labels(data_root / "dblp" / "node2label.txt", events.ids)
    graph = build_graph(events, make_steps(events.time), labels=labels)
    counts = (len(events), graph.num_nodes, graph.num_steps, graph.num_classes)
    assert counts == (235379, 28085, 27, 10)
    assert (graph.snapshot_edges, graph.union_edges) == (207194, 150568)


def parquet_bytes(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    parquet.write_table(table, sink)
    content: bytes = sink.getvalue().to_pybytes()
    return content


@pytest.mark.parametrize(
    "content",
    [
        b"a,b,1\nb,c,2\n",
        gzip.compress(b"source,target,time\na,b,1\nb,c,2\n"),
        b'[{"u": "a", "v": "b", "t": 1}, {"u": "b", "v": "c", "t": 2}]',
        b'["a", "b", 1]\n["b", "c", 2]\n',
        parquet_bytes(pa.table({"u": ["a", "b"], "v": ["b", "c"], "t": [1, 2]})),
    ],
    ids=["text", "gzip", "one array", "JSON lines", "Parquet"],
)
def test_standard_input_is_read_whatever_its_kind(content: bytes) -> None:
    with standard_input(content):
        events = read_events("-")
    assert (list(events.ids), events.time.tolist(), events.origin) == (["a", "b", "c"], [1, 2], "standard input")


def test_rows_of_standard_input_are_named_after_it_was_read() -> None:
    with standard_input(b"u,v,t\na,b,1\nb,,2\n"), pytest.raises(InputError, match="standard input row 3: 'v' is empty"):
        read_events("-")


@pytest.mark.parametrize("turned", [False, True])
def test_a_word_for_no_value_is_an_id_where_either_end_has_text(turned: bool) -> None:
    numbers, texts = ["5", "-"], ["m", "n"]
    ends = (texts, numbers) if turned else (numbers, texts)
    assert list(events_from_arrays(*ends, [1, 2]).ids) == ["5", "-", "m", "n"]
    with pytest.raises(InputError, match="arrays row 2: '(source|target)' is empty"):
        events_from_arrays(numbers, ["1", "2"], [1, 2])
