from __future__ import annotations

import errno
import json
from pathlib import Path

import numpy as np
import pytest

from chronospike.data import storage
from chronospike.data.lookalike import LIKE
from chronospike.data.storage import open_graph
from tests.small_runs import contents, refused, saved_graph, worked
from tests.standard_input import standard_input

EDGES = "source,target,time\na,b,1\nb,c,2\nc,d,3\nd,a,3\na,a,3\nb,c,2\n"
LABELS = "node,label\na,cat\nb,dog\nc,cat\n"


@pytest.fixture
def edges(tmp_path: Path) -> Path:
    path = tmp_path / "edges.csv"
    path.write_text(EDGES)
    return path


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_import_and_info_agree(capsys: pytest.CaptureFixture[str], tmp_path: Path, edges: Path) -> None:
    labels = write(tmp_path / "labels.csv", LABELS)
    said = json.loads(worked(capsys, "data", "import", edges, "--labels", labels, "-o", tmp_path / "g", "--json"))
    found = json.loads(worked(capsys, "data", "info", tmp_path / "g", "--json"))
    expected = {
        "nodes": 4, "steps": 3, "classes": 2, "rows": 6, "snapshot_edges": 4, "union_edges": 4, "duplicates": 1,
        "self_loops": 1, "events": 5, "labelled": 3, "class_sizes": {"cat": 2, "dog": 1}, "first_time": "1",
        "last_time": "3",
    }  # fmt: skip
    for summary in (said, found):
        assert {name: summary[name] for name in expected} == expected
    assert said["output"] == str(tmp_path / "g")


def test_import_tells_people_what_it_did(capsys: pytest.CaptureFixture[str], tmp_path: Path, edges: Path) -> None:
    said = worked(capsys, "data", "import", edges, "-o", tmp_path / "g")
    assert "6; repeats within a step 1, self-loops 1 (both left out)" in said
    assert f"wrote {tmp_path / 'g'}" in said
    assert "none" in worked(capsys, "data", "info", tmp_path / "g")


def test_edges_and_labels_come_from_standard_input(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, edges: Path
) -> None:
    with standard_input(EDGES.encode()):
        worked(capsys, "data", "import", "-", "-o", tmp_path / "g")
    with standard_input(LABELS.encode()):
        worked(capsys, "data", "import", edges, "--labels", "-", "-o", tmp_path / "labelled")
    assert open_graph(tmp_path / "g").snapshot_edges == 4
    assert len(open_graph(tmp_path / "labelled").labelled) == 3


def test_the_current_folder_is_not_replaced(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, edges: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert ". is the current folder or contains it" in refused(capsys, "data", "import", edges, "-o", ".")
    assert list(tmp_path.iterdir()) == [edges]


def test_columns_steps_and_direction_can_be_chosen(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = write(tmp_path / "e.tsv", "when\tgiver\ttaker\n1\tx\ty\n2\ty\tz\n3\tz\tx\n4\tx\tz\n")
    columns = ("--source", "giver", "--target", "taker", "--time", "when", "--steps", "2", "--directed", "--json")
    said = json.loads(worked(capsys, "data", "import", file, "-o", tmp_path / "g", *columns))
    assert (said["steps"], said["directed"], said["snapshot_edges"]) == (2, True, 4)


def test_a_graph_folder_is_not_replaced_unasked(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, edges: Path
) -> None:
    worked(capsys, "data", "import", edges, "-o", tmp_path / "g")
    before = contents(tmp_path / "g")
    assert "--overwrite" in refused(capsys, "data", "import", edges, "-o", tmp_path / "g", "--directed")
    assert contents(tmp_path / "g") == before
    worked(capsys, "data", "import", edges, "-o", tmp_path / "g", "--directed", "--overwrite")
    assert open_graph(tmp_path / "g").directed


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("", ["edges.csv", "empty"]),
        ("source,target,time\n", ["edges.csv"]),
        ("source,target,weight\na,b,1\n", ["edges.csv", "time", "source", "target", "weight"]),
        ("source,target,time\na,b,1\na,c,soon\n", ["edges.csv row 3", "'soon'"]),
        ("source,target,time\na,b,1\n,c,2\n", ["edges.csv row 3", "'source' is empty", "--on-missing drop"]),
        ("source,target,time\na,b,1\nb,c,\n", ["edges.csv row 3", "'time' is empty", "--on-missing drop"]),
        ("source,target,time\na,b,1\nb,c\n", ["edges.csv row 3"]),
        ("source,target,time\na,a,1\n", ["edges.csv", "self-loops"]),
    ],
    ids=["empty", "header only", "no column", "time", "no id", "no time", "short row", "self-loops"],
)
def test_a_bad_edge_file_is_one_line_and_no_folder(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, text: str, parts: list[str]
) -> None:
    file = write(tmp_path / "edges.csv", text)
    said = refused(capsys, "data", "import", file, "-o", tmp_path / "deep" / "g")
    assert all(part in said for part in parts), said
    assert [path.name for path in tmp_path.iterdir()] == ["edges.csv"]


def test_a_missing_file_is_named(capsys: pytest.CaptureFixture[str], tmp_path: Path, edges: Path) -> None:
    for arguments in (
        [tmp_path / "none.csv"],
        [edges, "--labels", tmp_path / "none.csv"],
        [edges, "--features", tmp_path / "none.csv"],
    ):
        assert "none.csv" in refused(capsys, "data", "import", *arguments, "-o", tmp_path / "g")
        assert not (tmp_path / "g").exists()


def test_rows_without_a_value_can_be_dropped(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = write(tmp_path / "e.csv", "source,target,time\na,b,1\n,c,2\nb,c,\nb,c,3\n")
    arguments = ("data", "import", file, "-o", tmp_path / "g", "--on-missing", "drop", "--json")
    said = json.loads(worked(capsys, *arguments))
    assert (said["rows"], said["rows_dropped"]) == (2, 2)


def test_labels_of_unknown_nodes_are_counted_and_the_first_three_named(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, edges: Path
) -> None:
    labels = write(tmp_path / "labels.csv", LABELS + "w,cat\nx,cat\ny,dog\nz,dog\n")
    arguments = ("data", "import", edges, "--labels", labels, "-o", tmp_path / "g")
    said = refused(capsys, *arguments)
    assert "4 labelled nodes are not in the graph, the first three: 'w', 'x', 'y'. Pass --on-unknown drop" in said
    assert not (tmp_path / "g").exists()
    assert json.loads(worked(capsys, *arguments, "--on-unknown", "drop", "--json"))["labelled"] == 3


def test_an_unknown_choice_gets_the_choices(capsys: pytest.CaptureFixture[str], tmp_path: Path, edges: Path) -> None:
    labels = write(tmp_path / "labels.csv", LABELS)
    said = refused(capsys, "data", "import", edges, "--labels", labels, "-o", tmp_path / "g", "--on-unknown", "dropp")
    assert "--on-unknown" in said
    assert "'dropp' is not one of 'error', 'drop'" in said


@pytest.mark.parametrize(
    ("verb", "choices"),
    [("import", ["s|ms|us|ns", "error|drop"]), ("get", ["|".join(LIKE)])],
)
def test_help_shows_the_choices(capsys: pytest.CaptureFixture[str], verb: str, choices: list[str]) -> None:
    said = worked(capsys, "data", verb, "--help")
    assert all(text in said for text in choices), said


def row(said: str, name: str) -> str:
    return next(line.split(maxsplit=1)[1] for line in said.splitlines() if line.startswith(f"  {name} "))


DATED = "source,target,time,amount,currency\na,b,2022-01-03,1,EUR\nb,c,2022-02-10 11:02,1,EUR\n"


@pytest.mark.parametrize(
    ("options", "steps"),
    [
        ((), "2, from 2022-01-03 to 2022-02-10 11:02"),
        (
            ("--every", "30d"),
            "2, from 2022-01-03 to 2022-03-04 (last event 2022-02-10 11:02), every 30d from 2022-01-03",
        ),
        (("--every", "1mo"), "2, from 2022-01-01 to 2022-03-01 (last event 2022-02-10 11:02), every 1mo"),
        (
            ("--every", "1mo", "--origin", "2021-12-02"),
            "2, from 2022-01-02 to 2022-03-02 (last event 2022-02-10 11:02), every 1mo from 2021-12-02",
        ),
    ],
    ids=["distinct", "days", "calendar", "origin"],
)
def test_import_and_info_say_where_steps_begin_and_end_and_when_the_last_event_was(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, options: tuple[str, ...], steps: str
) -> None:
    file = write(tmp_path / "e.csv", DATED)
    for said in (
        worked(capsys, "data", "import", file, "-o", tmp_path / "g", *options),
        worked(capsys, "data", "info", tmp_path / "g"),
    ):
        assert row(said, "steps") == steps


def test_info_of_a_graph_without_its_events_times_shows_the_steps(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    graph = saved_graph(tmp_path / "g", facts={})
    assert row(worked(capsys, "data", "info", graph), "steps") == "5, from 0 to 4"


def test_info_says_how_many_events_are_kept_and_over_what_time(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = write(tmp_path / "e.csv", DATED + "b,a,2022-01-03,1,EUR\n")
    worked(capsys, "data", "import", file, "-o", tmp_path / "g", "--every", "1y")
    said = row(worked(capsys, "data", "info", tmp_path / "g"), "events")
    assert said == "3 from 2022-01-03 to 2022-02-10 11:02, repeats included"


def test_import_names_the_columns_it_used(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    edges = write(tmp_path / "e.csv", "day,payer,payee\n1,a,b\n2,b,c\n")
    labels = write(tmp_path / "l.csv", "account,type,is_fraud\na,x,1\nb,y,0\n")
    said = worked(capsys, "data", "import", edges, "--labels", labels, "-o", tmp_path / "g")
    assert row(said, "columns") == "source: payer, target: payee, time: day"
    assert row(said, "label") == "column type; other columns: is_fraud"
    assert row(said, "nodes") == "3, 0 without an edge; 1 are both a source and a target"


def test_import_notes_what_may_be_wrong(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    edges = write(tmp_path / "e.csv", "u,v,t\na,b,1\na ,c,2\n")
    for command in (("data", "import", edges, "-o", tmp_path / "g"), ("data", "info", tmp_path / "g")):
        assert "'a' and 'a '" in row(worked(capsys, *command), "note")


def test_import_names_the_columns_it_did_not_use(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    said = worked(capsys, "data", "import", write(tmp_path / "e.csv", DATED), "-o", tmp_path / "g")
    assert said.count("not used: amount, currency") == 1
    plain = write(tmp_path / "plain.csv", EDGES)
    assert "not used" not in worked(capsys, "data", "import", plain, "-o", tmp_path / "h")


def test_unix_times_are_imported_as_dates(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = write(tmp_path / "e.csv", "source,target,time\na,b,1577836800\nb,c,1580515200\n")
    arguments = ("data", "import", file, "-o", tmp_path / "g", "--every", "1mo")
    assert "--time-unit s or --time-unit ms" in refused(capsys, *arguments)
    said = json.loads(worked(capsys, *arguments, "--time-unit", "s", "--json"))
    assert (said["first_time"], said["last_event"]) == ("2020-01-01", "2020-02-01")


def test_an_origin_without_a_width_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path, edges: Path) -> None:
    assert "--every" in refused(capsys, "data", "import", edges, "-o", tmp_path / "g", "--origin", "0")
    assert not (tmp_path / "g").exists()


def test_info_of_a_file_says_what_it_is_and_how_to_import_it(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = write(tmp_path / "e.csv", DATED)
    said = worked(capsys, "data", "info", file)
    assert row(said, "rows") == "2"
    assert row(said, "columns") == "source: source, target: target, time: time; not used: amount, currency"
    assert row(said, "times") == "2 distinct dates, from 2022-01-03 to 2022-02-10 11:02"
    assert f"chronospike data import {file} -o graphs/e\n" in said
    found = json.loads(worked(capsys, "data", "info", file, "--json"))
    assert (found["rows"], found["unused"], found["times"]["distinct"]) == (2, ["amount", "currency"], 2)


def test_a_feature_set_of_a_file_is_refused(capsys: pytest.CaptureFixture[str], edges: Path) -> None:
    assert "edges.csv is a file" in refused(capsys, "data", "info", edges, "--features", "deepwalk")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("node,label\na,cat\nb,cat\n", "only one class, 'cat'; at least two classes are needed"),
        ("node,label\na,cat\na,dog\nb,cat\n", "row 3: node 'a' is 'dog' here and 'cat' in row 2"),
        ("node,colour\na,cat\n", "colour"),
    ],
    ids=["one class", "contradiction", "no column"],
)
def test_bad_labels_are_one_line_and_no_folder(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, edges: Path, text: str, message: str
) -> None:
    labels = write(tmp_path / "labels.csv", text)
    said = refused(capsys, "data", "import", edges, "--labels", labels, "-o", tmp_path / "g", "--label", "label")
    assert message in said
    assert not (tmp_path / "g").exists()


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_features_that_are_not_finite_are_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, edges: Path, value: float
) -> None:
    features = np.ones((4, 2), dtype=np.float32)
    features[2, 1] = value
    np.save(tmp_path / "x.npy", features)
    said = refused(capsys, "data", "import", edges, "--features", tmp_path / "x.npy", "-o", tmp_path / "g")
    assert "x.npy: the value at [2, 1] is NaN, infinite or too large" in said
    assert not (tmp_path / "g").exists()


def test_a_disk_that_fills_up_leaves_nothing(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, edges: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(storage, "_write_array", full)
    assert "the disk is full" in refused(capsys, "data", "import", edges, "-o", tmp_path / "deep" / "g")
    assert [path.name for path in tmp_path.iterdir()] == ["edges.csv"]


@pytest.mark.parametrize("verb", ["info", "validate"])
def test_a_damaged_graph_folder_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path, verb: str) -> None:
    graph = saved_graph(tmp_path / "g")
    worked(capsys, "data", verb, graph)
    path = graph / "snapshot_neighbours.npy"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    assert "snapshot_neighbours.npy has a wrong checksum" in refused(capsys, "data", verb, graph)


def test_a_graph_folder_of_a_newer_version_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    graph = saved_graph(tmp_path / "g")
    meta = json.loads((graph / "meta.json").read_text())
    (graph / "meta.json").write_text(json.dumps({**meta, "version": 2}))
    assert "has graph format 2" in refused(capsys, "data", "info", graph)
    assert "Update chronospike" in refused(capsys, "train", graph, "-o", tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_something_else_is_no_graph_folder(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert "is not a graph folder" in refused(capsys, "data", "info", tmp_path)
    assert "does not exist" in refused(capsys, "data", "validate", tmp_path / "nowhere")


def test_get_makes_a_synthetic_graph_from_its_seed(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    options = ("--nodes", "60", "--steps", "4", "--classes", "2", "--timing", "0")
    said = worked(capsys, "data", "get", "synthetic", "-o", tmp_path / "a", *options)
    assert "seed 0" in said
    worked(capsys, "data", "get", "synthetic", "-o", tmp_path / "b", *options, "--seed", "0")
    worked(capsys, "data", "get", "synthetic", "-o", tmp_path / "c", *options, "--seed", "1")
    assert contents(tmp_path / "a") == contents(tmp_path / "b")
    assert contents(tmp_path / "a") != contents(tmp_path / "c")


def test_a_mistyped_dataset_gets_the_nearest(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert "Did you mean 'dblp'?" in refused(capsys, "data", "get", "dbpl", "-o", tmp_path / "g")
    assert list(tmp_path.iterdir()) == []


def test_missing_benchmark_files_are_named_with_where_to_get_them(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    said = refused(capsys, "data", "get", "tmall", "--root", tmp_path, "-o", tmp_path / "g")
    for part in ("tmall.txt (4,807,545 rows)", "node2label.txt (81,380 rows)", "https://", "--root"):
        assert part in said
    assert list(tmp_path.iterdir()) == []


def test_list_names_every_dataset(capsys: pytest.CaptureFixture[str]) -> None:
    names = ["pubmed", "dblp", "tmall", "patent", "patent12k", "synthetic"]
    assert [spec["name"] for spec in json.loads(worked(capsys, "data", "list", "--json"))] == names
    assert all(f"  {name} " in worked(capsys, "data", "list") for name in names)


def test_attributes_are_named_and_nodes_without_a_row_counted(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "edges.csv").write_text("source,target,time\na,b,1\nb,c,2\n")
    (tmp_path / "x.csv").write_text("node,age,colour\na,3,red\nb,,blue\n")
    said = worked(
        capsys, "data", "import", tmp_path / "edges.csv", "--features", tmp_path / "x.csv", "-o", tmp_path / "g"
    )
    assert "age, colour (2 values); 1 nodes without a row" in said
    assert "age, colour (2 values); 1 nodes without a row" in worked(capsys, "data", "info", tmp_path / "g")


def test_attributes_after_the_last_step_are_counted(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "edges.csv").write_text("source,target,time\na,b,1\nb,c,2\n")
    (tmp_path / "x.csv").write_text("node,time,age\na,1,3\nb,1,4\nc,2,5\na,3,9\n")
    said = worked(
        capsys, "data", "import", tmp_path / "edges.csv", "--features", tmp_path / "x.csv", "-o", tmp_path / "g"
    )
    assert "age; 1 rows after the last step left out" in said


def test_one_table_of_nodes_may_hold_labels_and_attributes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "edges.csv").write_text("u,v,t\na,b,1\nb,c,2\n")
    (tmp_path / "nodes.csv").write_text(",node,label,age\n0,a,x,1\n1,b,y,2\n2,c,x,3\n")
    nodes = tmp_path / "nodes.csv"
    command = "data", "import", tmp_path / "edges.csv", "--labels", nodes, "--features", nodes, "-o", tmp_path / "g"
    assert row(worked(capsys, *command), "attributes") == "age; not used: column 1, label"


def test_labels_and_attributes_that_were_dropped_are_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "edges.csv").write_text("u,v,t\na,b,1\nb,c,2\n")
    (tmp_path / "nodes.csv").write_text("node,label,age\na,x,1\nb,y,2\nz,x,3\n")
    nodes = tmp_path / "nodes.csv"
    command = "data", "import", tmp_path / "edges.csv", "--labels", nodes, "--features", nodes, "-o", tmp_path / "g"
    said = worked(capsys, *command, "--on-unknown", "drop")
    assert row(said, "labels") == "2 nodes in 2 classes: x 1, y 1; 1 of nodes without an edge left out"
    assert "; 1 rows of nodes without an edge left out;" in row(said, "attributes")
