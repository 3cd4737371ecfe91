from __future__ import annotations

import csv
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from chronospike.cli import run as run_command
from chronospike.data.graph import DynamicGraph
from chronospike.data.ids import NodeIds
from chronospike.data.storage import open_graph, save_graph
from chronospike.files import LOCK
from tests.lock_holder import CLAIM, started
from tests.small_runs import (
    assignments,
    command,
    contents,
    refused,
    saved_graph,
    small_graph,
    train,
    with_other_future,
    worked,
)
from tests.standard_input import standard_input


def dated_graph() -> DynamicGraph:
    """Text ids with leading zeros, and steps that are the years 2018 to 2022."""
    years = np.arange("2018", "2023", dtype="datetime64[Y]").astype("datetime64[D]")
    ids = NodeIds.of([f"{v:04d}" for v in range(120)])
    return replace(small_graph(), ids=ids, step_start=years, step_end=years + 364)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a graph `g` and a finished run `run`, which every test leaves as it was."""
    folder = tmp_path_factory.mktemp("use")
    save_graph(dated_graph(), folder / "g")
    arguments = ["train", folder / "g", "-o", folder / "run", "--device", "cpu", *assignments()]
    assert run_command([str(part) for part in arguments]) == 0
    return folder


def read_csv(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_predict_writes_what_training_wrote(capsys: pytest.CaptureFixture[str], place: Path, tmp_path: Path) -> None:
    said = worked(capsys, "predict", place / "run", "-o", tmp_path / "out.csv")
    assert (tmp_path / "out.csv").read_bytes() == (place / "run" / "predictions.csv").read_bytes()
    assert "120 nodes, seed 0" in said
    rows = read_csv(tmp_path / "out.csv")
    assert [row["node"] for row in rows] == [f"{v:04d}" for v in range(120)]
    assert all(abs(float(row["probability 0"]) + float(row["probability 1"]) - 1) < 2e-6 for row in rows)


def test_predict_takes_nodes_from_a_file_in_its_order(
    capsys: pytest.CaptureFixture[str], place: Path, tmp_path: Path
) -> None:
    (tmp_path / "nodes.txt").write_text("0077\n\n0003\n0077\n")
    worked(capsys, "predict", place / "run", "--nodes", tmp_path / "nodes.txt", "-o", tmp_path / "deep" / "out.csv")
    rows = read_csv(tmp_path / "deep" / "out.csv")
    assert [row["node"] for row in rows] == ["0077", "0003", "0077"]
    everyone = {row["node"]: row for row in read_csv(place / "run" / "predictions.csv")}
    assert rows == [everyone[row["node"]] for row in rows]


@pytest.mark.parametrize("verb", ["predict", "embed"])
def test_nodes_that_are_not_in_the_graph_are_named(
    capsys: pytest.CaptureFixture[str], place: Path, tmp_path: Path, verb: str
) -> None:
    (tmp_path / "nodes.txt").write_text("0003\n3\n004\nx\ny\n")
    out = tmp_path / ("out.csv" if verb == "predict" else "out.npy")
    said = refused(capsys, verb, place / "run", "--nodes", tmp_path / "nodes.txt", "-o", out)
    assert "nodes.txt: 4 node(s) are not in the graph, the first: '3', '004', 'x'" in said
    assert not out.exists()


def test_a_node_file_that_is_missing_or_empty_is_named(
    capsys: pytest.CaptureFixture[str], place: Path, tmp_path: Path
) -> None:
    (tmp_path / "empty.txt").write_text("\n \n")
    arguments = ("predict", place / "run", "-o", tmp_path / "out.csv", "--nodes")
    assert "empty.txt holds no nodes" in refused(capsys, *arguments, tmp_path / "empty.txt")
    assert "none.txt: no such file" in refused(capsys, *arguments, tmp_path / "none.txt")


def test_predictions_are_written_as_their_ending_says(
    capsys: pytest.CaptureFixture[str], place: Path, tmp_path: Path
) -> None:
    for name in ("p.csv", "p.parquet", "p.jsonl"):
        worked(capsys, "predict", place / "run", "-o", tmp_path / name)
    lines = (tmp_path / "p.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line) for line in lines] == pq.read_table(tmp_path / "p.parquet").to_pylist()
    assert [json.loads(line)["class"] for line in lines] == [row["class"] for row in read_csv(tmp_path / "p.csv")]


@pytest.mark.parametrize(("verb", "name"), [("predict", "p.txt"), ("predict", "p.npy"), ("embed", "z"), ("embed", "a")])
def test_an_ending_that_tells_no_format_is_refused_before_any_work(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, verb: str, name: str
) -> None:
    (tmp_path / "a").mkdir()
    assert str(tmp_path / name) in refused(capsys, verb, tmp_path / "no run", "-o", tmp_path / name)


@pytest.mark.parametrize("output", ["-", "/dev/stdout", "link.csv"])
def test_standard_output_gets_the_predictions_and_nothing_else(
    capfd: pytest.CaptureFixture[str], place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, output: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link.csv").symlink_to("/dev/stdout")
    result = command(capfd, "predict", place / "run", "--smooth", "-o", output)
    assert result.out.splitlines()[0] == '"node","class","probability 0","probability 1","label","split"'
    assert len(result.out.splitlines()) == 121
    assert "smoothed with the training labels" in result.err
    assert [path.name for path in tmp_path.iterdir()] == ["link.csv"]
    assert Path("/dev/stdout").is_symlink()


def test_after_standard_output_messages_go_where_they_did(
    capfd: pytest.CaptureFixture[str], place: Path, tmp_path: Path
) -> None:
    assert "wrote" in command(capfd, "embed", place / "run", "-o", "-", "--format", "jsonl").err
    assert "wrote" in worked(capfd, "embed", place / "run", "-o", tmp_path / "z.csv")


def test_a_reader_that_went_away_is_no_failure(capfd: pytest.CaptureFixture[str], place: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        result = command(capfd, "predict", place / "run", "-o", f"/dev/fd/{writing}")
    finally:
        os.close(writing)
    assert (result.code, result.err) == (0, "")


def test_nodes_come_from_standard_input_and_from_predictions(
    capsys: pytest.CaptureFixture[str], place: Path, tmp_path: Path
) -> None:
    with standard_input(b"0077\r\n0003\r\n0077\r\n"):
        worked(capsys, "predict", place / "run", "--nodes", "-", "-o", tmp_path / "a.csv")
    worked(capsys, "predict", place / "run", "--nodes", tmp_path / "a.csv", "-o", tmp_path / "b.csv")
    assert [row["node"] for row in read_csv(tmp_path / "a.csv")] == ["0077", "0003", "0077"]
    assert (tmp_path / "b.csv").read_bytes() == (tmp_path / "a.csv").read_bytes()


def test_embeddings_are_written_as_npy_and_as_parquet(
    capsys: pytest.CaptureFixture[str], place: Path, tmp_path: Path
) -> None:
    for name in ("z.npy", "z.parquet"):
        worked(capsys, "embed", place / "run", "-o", tmp_path / name)
    vectors, table = np.load(tmp_path / "z.npy"), pq.read_table(tmp_path / "z.parquet")
    assert (vectors.shape, vectors.dtype) == ((120, 8), np.float32)
    assert table.column_names == ["node", *(f"z{i}" for i in range(8))]
    assert table["node"].to_pylist() == [f"{v:04d}" for v in range(120)]
    np.testing.assert_array_equal(np.stack([table[f"z{i}"].to_numpy() for i in range(8)], axis=1), vectors)
    worked(capsys, "embed", place / "run", "-o", tmp_path / "z.csv")
    np.testing.assert_array_equal([np.float32(row["z3"]) for row in read_csv(tmp_path / "z.csv")], vectors[:, 3])


@pytest.mark.parametrize(("as_of", "same"), [("2", "2020-06-30"), ("0", "2018-01-01"), ("4", "2022")])
def test_as_of_takes_a_step_or_a_time(
    capsys: pytest.CaptureFixture[str], place: Path, tmp_path: Path, as_of: str, same: str
) -> None:
    for name, value in (("a", as_of), ("b", same)):
        worked(capsys, "embed", place / "run", "--as-of", value, "-o", tmp_path / f"{name}.npy")
    np.testing.assert_array_equal(np.load(tmp_path / "a.npy"), np.load(tmp_path / "b.npy"))


def test_as_of_a_step_nothing_later_matters(capsys: pytest.CaptureFixture[str], place: Path, tmp_path: Path) -> None:
    save_graph(with_other_future(dated_graph(), 2), tmp_path / "other")
    for name, graph in (("here", place / "g"), ("there", tmp_path / "other")):
        options = ("--graph", graph, "--as-of", "2")
        worked(capsys, "embed", place / "run", *options, "-o", tmp_path / f"{name}.npy")
        worked(capsys, "predict", place / "run", *options, "-o", tmp_path / f"{name}.csv")
        worked(capsys, "embed", place / "run", "--graph", graph, "-o", tmp_path / f"{name} now.npy")
    assert (tmp_path / "here.npy").read_bytes() == (tmp_path / "there.npy").read_bytes()
    assert (tmp_path / "here.csv").read_bytes() == (tmp_path / "there.csv").read_bytes()
    assert (tmp_path / "here now.npy").read_bytes() != (tmp_path / "there now.npy").read_bytes()


@pytest.mark.parametrize("as_of", ["soon", "1990-01-01", "-1", "nan", "17"])
def test_a_time_that_makes_no_sense_is_one_line(
    capsys: pytest.CaptureFixture[str], place: Path, tmp_path: Path, as_of: str
) -> None:
    said = refused(capsys, "predict", place / "run", f"--as-of={as_of}", "-o", tmp_path / "out.csv")
    assert as_of in said
    assert list(tmp_path.iterdir()) == []


def test_smoothing_is_said_and_is_not_for_the_past(
    capsys: pytest.CaptureFixture[str], place: Path, tmp_path: Path
) -> None:
    said = worked(capsys, "predict", place / "run", "--smooth", "-o", tmp_path / "out.csv")
    assert "smoothed with the training labels" in said
    arguments = ("predict", place / "run", "--smooth", "--as-of", "1", "-o", tmp_path / "out2.csv")
    assert "cannot be combined with --as-of" in refused(capsys, *arguments)


def test_evaluate_finds_the_same_scores(capsys: pytest.CaptureFixture[str], place: Path) -> None:
    before = json.loads((place / "run" / "metrics.json").read_text())
    predictions = (place / "run" / "predictions.csv").read_bytes()
    found = json.loads(worked(capsys, "evaluate", place / "run", "--json", "--device", "cpu"))
    kept = ("test", "validation", "seconds_per_epoch", "best_epoch", "parameters", "seed")
    assert {name: found[name] for name in kept} == {name: before[name] for name in kept}
    assert (place / "run" / "predictions.csv").read_bytes() == predictions
    assert "ChronoSpike" in worked(capsys, "evaluate", place / "run", "--device", "cpu")


def test_report_is_written_anew(capsys: pytest.CaptureFixture[str], place: Path) -> None:
    (place / "run" / "report.html").unlink()
    assert "report.html" in worked(capsys, "report", place / "run")
    assert (place / "run" / "report.html").read_text().startswith("<!")


VERBS: dict[str, list[str]] = {
    "evaluate": [], "predict": ["-o", "out.csv"], "embed": ["-o", "out.npy"], "report": [],
}  # fmt: skip


@pytest.mark.parametrize("verb", VERBS)
def test_a_folder_that_is_no_run_is_one_line(capsys: pytest.CaptureFixture[str], tmp_path: Path, verb: str) -> None:
    assert str(tmp_path) in refused(capsys, verb, tmp_path, *VERBS[verb])
    assert "nowhere" in refused(capsys, verb, tmp_path / "nowhere", *VERBS[verb])


def damaged(how: str, content: bytes) -> bytes:
    if how == "truncated":
        return content[:-100]
    if how == "tampered":
        return content[:-1] + bytes([content[-1] ^ 1])
    # A pickle that would make a folder if it were ever loaded as one.
    return b"cposix\nmkdir\n(S'pwned'\ntR."


@pytest.mark.parametrize("how", ["truncated", "tampered", "pickle"])
@pytest.mark.parametrize("verb", ["evaluate", "predict", "embed"])
def test_damaged_weights_are_said_and_never_executed(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str, verb: str
) -> None:
    monkeypatch.chdir(tmp_path)
    run = train(capsys, saved_graph(tmp_path / "g"), tmp_path / "run", epochs=1)
    weights = run / "model.safetensors"
    weights.write_bytes(damaged(how, weights.read_bytes()))
    before = contents(tmp_path)
    assert "model.safetensors is damaged or not a weights file" in refused(capsys, verb, run, *VERBS[verb])
    assert contents(tmp_path) == before
    assert not (tmp_path / "pwned").exists()


def test_a_run_that_is_not_finished_says_how_to_go_on(
    capsys: pytest.CaptureFixture[str], place: Path, tmp_path: Path
) -> None:
    for name in ("config.yaml", "run.json"):
        (tmp_path / name).write_bytes((place / "run" / name).read_bytes())
    said = refused(capsys, "predict", tmp_path, "-o", tmp_path / "out.csv")
    assert "is not finished. Resume with: chronospike train --resume" in said


def other_names(graph: DynamicGraph) -> DynamicGraph:
    return replace(graph, class_names=("cat", "dog"))


def fewer_features(graph: DynamicGraph) -> DynamicGraph:
    assert graph.features is not None
    return replace(graph, features=graph.features[..., :5])


@pytest.mark.parametrize(
    ("change", "message"),
    [(other_names, "knows the classes '0', '1', and the graph has 'cat', 'dog'"), (fewer_features, "takes 8 inputs")],
)
def test_another_graph_that_does_not_fit_is_refused(
    capsys: pytest.CaptureFixture[str], place: Path, tmp_path: Path, change: Any, message: str
) -> None:
    folder = save_graph(change(dated_graph()), tmp_path / "g")
    said = refused(capsys, "predict", place / "run", "--graph", folder, "-o", tmp_path / "out.csv")
    assert message in said


def test_a_graph_without_labels_is_predicted_and_embedded_but_not_scored(
    capsys: pytest.CaptureFixture[str], place: Path, tmp_path: Path
) -> None:
    bare = save_graph(replace(dated_graph(), labels=None, class_names=()), tmp_path / "bare")
    for name, graph in (("known", place / "g"), ("bare", bare)):
        worked(capsys, "predict", place / "run", "--graph", graph, "-o", tmp_path / f"{name}.csv")
        worked(capsys, "embed", place / "run", "--graph", graph, "-o", tmp_path / f"{name}.npy")
    assert (tmp_path / "bare.npy").read_bytes() == (tmp_path / "known.npy").read_bytes()
    columns = ["node", "class", "probability 0", "probability 1"]
    assert [list(row) for row in read_csv(tmp_path / "bare.csv")[:1]] == [columns]
    known = [{name: row[name] for name in columns} for row in read_csv(tmp_path / "known.csv")]
    assert read_csv(tmp_path / "bare.csv") == known
    before = contents(place / "run")
    assert "has no labels" in refused(capsys, "evaluate", place / "run", "--graph", bare)
    smooth = ("predict", place / "run", "--graph", bare, "--smooth", "-o", tmp_path / "smooth.csv")
    assert "has no labels" in refused(capsys, *smooth)
    assert contents(place / "run") == before
    assert not (tmp_path / "smooth.csv").exists()


def test_walks_over_other_edges_are_warned_of(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    graph = dated_graph()
    graphs = {"g": graph, "bare": replace(graph, labels=None, class_names=()), "other": with_other_future(graph, 2)}
    for name, made in graphs.items():
        save_graph(replace(made, features=None), tmp_path / name)
    walks = {"feature_method": "deepwalk", "feature_dimension": 8, "feature_walks": 2}
    run = train(capsys, tmp_path / "g", tmp_path / "run", epochs=1, **walks)
    for name, warned in (("bare", False), ("other", True)):
        said = worked(capsys, "embed", run, "--graph", tmp_path / name, "-o", tmp_path / "z.npy")
        assert ("point in directions of their own" in said) == warned


def test_labels_that_are_inputs_are_missed(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    run = train(capsys, saved_graph(tmp_path / "g"), tmp_path / "run", epochs=1, label_inputs=True)
    bare = save_graph(replace(open_graph(tmp_path / "g"), labels=None, class_names=()), tmp_path / "bare")
    said = refused(capsys, "embed", run, "--graph", bare, "-o", tmp_path / "z.npy")
    assert "takes labels of neighbours as inputs, and the graph has none" in said


def test_a_graph_that_went_away_is_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    run = train(capsys, saved_graph(tmp_path / "g"), tmp_path / "run", epochs=1)
    (tmp_path / "g").rename(tmp_path / "moved")
    assert f"{tmp_path / 'g'} does not exist" in refused(capsys, "predict", run, "-o", tmp_path / "out.csv")
    worked(capsys, "predict", run, "--graph", tmp_path / "moved", "-o", tmp_path / "out.csv")


@pytest.mark.parametrize("verb", ["evaluate", "report"])
def test_nothing_is_written_into_a_run_that_another_process_writes(
    capsys: pytest.CaptureFixture[str], place: Path, verb: str
) -> None:
    before = contents(place / "run")
    with started(CLAIM, place / "run") as other:
        said = refused(capsys, verb, place / "run")
        assert set(contents(place / "run")) == {*before, LOCK}
    assert f"in use by process {other.pid} " in said
    (place / "run" / LOCK).unlink()
    assert contents(place / "run") == before


def test_a_run_that_another_process_writes_can_be_read(
    capsys: pytest.CaptureFixture[str], place: Path, tmp_path: Path
) -> None:
    with started(CLAIM, place / "run"):
        worked(capsys, "predict", place / "run", "-o", tmp_path / "out.csv")
    (place / "run" / LOCK).unlink()


def test_a_run_that_is_not_there_is_not_made(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert "does not exist" in refused(capsys, "evaluate", tmp_path / "run")
    assert list(tmp_path.iterdir()) == []
