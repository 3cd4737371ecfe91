from __future__ import annotations

import json
import os
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from chronospike.data.csr import history_and_snapshot
from chronospike.data.storage import save_graph
from chronospike.files import LOCK
from tests.lock_holder import CLAIM, started
from tests.small_runs import (
    command,
    contents,
    dated_graph,
    read_csv,
    refused,
    saved_graph,
    train,
    with_other_future,
    worked,
)
from tests.standard_input import standard_input


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
    assert "empty.txt contains no nodes" in refused(capsys, *arguments, tmp_path / "empty.txt")
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


@pytest.mark.parametrize(("as_of", "same"), [("1", "2020-12-29"), ("2", "2020-12-31"), ("0", "2019"), ("4", "2031")])
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


@pytest.mark.parametrize("as_of", ["soon", "1990-01-01", "-1", "nan", "17", "", "NaT", "now", "today"])
def test_a_time_that_makes_no_sense_is_one_line(
    capsys: pytest.CaptureFixture[str], place: Path, tmp_path: Path, as_of: str
) -> None:
    said = refused(capsys, "predict", place / "run", f"--as-of={as_of}", "-o", tmp_path / "out.csv")
    assert as_of in said
    assert list(tmp_path.iterdir()) == []


def test_as_of_a_date_the_step_and_its_end_are_said(
    capsys: pytest.CaptureFixture[str], place: Path, tmp_path: Path
) -> None:
    said = worked(capsys, "embed", place / "run", "--as-of", "2020-06-30", "-o", tmp_path / "z.parquet")
    assert "as of step 1, which ended 2019-12-31" in said


def test_nodes_not_seen_by_a_date_are_marked(capsys: pytest.CaptureFixture[str], place: Path, tmp_path: Path) -> None:
    graph = dated_graph()
    rows, steps, neighbours = graph.snapshot.entries()
    # Ten nodes without an edge before the last step.
    kept = (steps == 4) | ((rows >= 10) & (neighbours >= 10))
    history, snapshot = history_and_snapshot(rows[kept], neighbours[kept], steps[kept], 120, 5)
    graph = replace(graph, history=history, snapshot=snapshot)
    save_graph(graph, tmp_path / "g")
    count = int((~graph.seen_by(0)).sum())
    assert count >= 10
    for name in ("out.csv", "z.parquet"):
        verb = "predict" if name == "out.csv" else "embed"
        options = ("--graph", tmp_path / "g", "--as-of", "0", "-o", tmp_path / name)
        assert f"{count} of them without an edge by then" in worked(capsys, verb, place / "run", *options)
    rows_read = read_csv(tmp_path / "out.csv")
    assert [row["split"] for row in rows_read] == [row["split"] for row in read_csv(place / "run" / "predictions.csv")]
    marks = [row["seen"] == "true" for row in rows_read]
    assert marks == graph.seen_by(0).tolist() == pq.read_table(tmp_path / "z.parquet")["seen"].to_pylist()


def test_smoothing_is_said_and_ends_at_the_date(
    capsys: pytest.CaptureFixture[str], place: Path, tmp_path: Path
) -> None:
    said = worked(capsys, "predict", place / "run", "--smooth", "-o", tmp_path / "out.csv")
    assert re.search(r"smoothed with the training labels: correct [\d.]+, smooth [\d.]+, ", said)
    save_graph(with_other_future(dated_graph(), 2), tmp_path / "other")
    for name, graph in (("here", place / "g"), ("there", tmp_path / "other")):
        options = ("--smooth", "--graph", graph, "--as-of", "2", "-o", tmp_path / f"{name}.csv")
        worked(capsys, "predict", place / "run", *options)
    assert (tmp_path / "here.csv").read_bytes() == (tmp_path / "there.csv").read_bytes()


def test_evaluate_finds_the_same_scores(capsys: pytest.CaptureFixture[str], place: Path) -> None:
    before = json.loads((place / "run" / "metrics.json").read_text())
    predictions = (place / "run" / "predictions.csv").read_bytes()
    found = json.loads(worked(capsys, "evaluate", place / "run", "--json", "--device", "cpu"))
    kept = ("test", "validation", "seconds_per_epoch", "best_epoch", "parameters", "seed")
    assert {name: found[name] for name in kept} == {name: before[name] for name in kept}
    assert (place / "run" / "predictions.csv").read_bytes() == predictions
    assert "ChronoSpike" in worked(capsys, "evaluate", place / "run", "--device", "cpu")


def test_report_is_rewritten(capsys: pytest.CaptureFixture[str], place: Path) -> None:
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
    assert "is not finished. Unless it still runs, resume with: chronospike train --resume" in said


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


def test_nodes_below_a_threshold_have_no_class_and_what_that_buys_is_said(
    capsys: pytest.CaptureFixture[str], place: Path, tmp_path: Path
) -> None:
    everyone = read_csv(place / "run" / "predictions.csv")
    highest = [max(float(row["probability 0"]), float(row["probability 1"])) for row in everyone]
    # Just above the lowest: the validation nodes are judged by the network before the second fit, which is less sure.
    threshold = round(min(highest) + 0.001, 3)
    said = worked(capsys, "predict", place / "run", "-o", tmp_path / "out.csv", "--abstain", str(threshold))
    rows = read_csv(tmp_path / "out.csv")
    left_out = [index for index, value in enumerate(highest) if value < threshold]
    assert [index for index, row in enumerate(rows) if row["class"] == ""] == left_out
    assert 0 < len(left_out) < 120
    # All else is as it was, the probabilities of those without a class too.
    kept = [
        row | {"class": old["class"]} if row["class"] == "" else row for row, old in zip(rows, everyone, strict=True)
    ]
    assert kept == everyone
    assert f"{len(left_out)} of 120 nodes have no class. On 6 validation nodes that keeps " in said
    assert " % of them and takes Micro-F1 from " in said


@pytest.mark.parametrize(
    ("threshold", "left_out", "bought"), [("0", 0, "keeps 100.0 % of them"), ("1", 120, "none would have one")]
)
def test_no_threshold_leaves_nobody_out_and_one_of_certainty_everybody(
    capsys: pytest.CaptureFixture[str], place: Path, tmp_path: Path, threshold: str, left_out: int, bought: str
) -> None:
    said = worked(capsys, "predict", place / "run", "-o", tmp_path / "out.csv", "--abstain", threshold)
    assert sum(row["class"] == "" for row in read_csv(tmp_path / "out.csv")) == left_out
    assert f"{left_out} of 120 nodes have no class" in said
    assert bought in said


def test_with_folds_all_labelled_nodes_tell_what_abstaining_buys(
    capsys: pytest.CaptureFixture[str], place: Path, tmp_path: Path
) -> None:
    train(capsys, place / "g", tmp_path / "run", epochs=1, folds=2)
    known = len(pq.read_table(tmp_path / "run" / "out_of_fold.parquet"))
    for threshold, bought in ("0", "keeps 100.0 % of them"), ("1", "none would have one"):
        said = worked(capsys, "predict", tmp_path / "run", "-o", tmp_path / "out.csv", "--abstain", threshold)
        assert f"n {known} labelled nodes, out of fold, " in said.replace("Of", "On")
        assert bought in said


def test_what_abstaining_buys_is_not_said_of_smoothed_probabilities(
    capsys: pytest.CaptureFixture[str], place: Path, tmp_path: Path
) -> None:
    said = worked(capsys, "predict", place / "run", "-o", tmp_path / "out.csv", "--abstain", "0.6", "--smooth")
    assert " of 120 nodes have no class\n" in said


@pytest.mark.parametrize("threshold", ["1.5", "-0.1", "half"])
def test_a_threshold_that_is_no_probability_is_refused(
    capsys: pytest.CaptureFixture[str], place: Path, tmp_path: Path, threshold: str
) -> None:
    assert "--abstain" in refused(capsys, "predict", place / "run", "-o", tmp_path / "out.csv", "--abstain", threshold)
    assert not (tmp_path / "out.csv").exists()
