from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from chronospike.data.ids import NodeIds
from chronospike.data.splits import Split
from chronospike.errors import InputError, StorageError
from chronospike.training.loop import EpochReport
from chronospike.training.problem import split_for
from chronospike.training.run import RunFolder, write_predictions
from tests.six_nodes import six_nodes
from tests.small_runs import begun, contents, small_graph, small_settings


def test_a_run_keeps_what_was_asked(tmp_path: Path) -> None:
    run = begun(tmp_path / "deep" / "run")
    assert run.settings() == small_settings()
    facts = run.facts()
    assert (facts["graph"], facts["classes"], facts["split"]["train"]) == ("mine", ["0", "1"], 90)


def test_a_run_that_is_there_is_refused(tmp_path: Path) -> None:
    run = begun(tmp_path / "run")
    before = contents(run.path)
    with pytest.raises(InputError, match="run exists. Choose another name or pass --overwrite"):
        begun(run.path, epochs=9)
    assert contents(run.path) == before


def test_overwriting_takes_the_old_results_away(tmp_path: Path) -> None:
    run = begun(tmp_path / "run")
    for name in ("metrics.jsonl", "metrics.json", "predictions.csv", "model.safetensors", "report.html"):
        (run.path / name).write_text("old")
    run.checkpoint.parent.mkdir()
    run.checkpoint.write_text("old")
    (run.path / "notes.txt").write_text("mine")
    graph = small_graph()
    run.begin(small_settings(epochs=9), {}, graph, split_for(graph, small_settings()), overwrite=True)
    assert set(contents(run.path)) == {"config.yaml", "run.json", "labels.parquet", "notes.txt"}
    assert run.settings().epochs == 9


def test_a_folder_of_something_else_is_never_overwritten(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    graph = small_graph()
    with pytest.raises(InputError, match="is not a folder that chronospike wrote"):
        RunFolder(tmp_path).begin(small_settings(), {}, graph, split_for(graph, small_settings()), overwrite=True)
    assert contents(tmp_path) == {"notes.txt": b"mine"}


def test_other_settings_are_named_one_by_one(tmp_path: Path) -> None:
    run = begun(tmp_path / "run")
    run.require_same(small_settings())
    with pytest.raises(InputError, match="with other settings: p was 0.5, now 0.3; seed was 0, now 4. Resume"):
        run.require_same(small_settings(p=0.3, seed=4, epochs=9))


def test_a_folder_that_is_no_run_is_named(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="is not a run \\(it has no config.yaml\\)"):
        RunFolder(tmp_path).settings()
    with pytest.raises(StorageError, match="nowhere does not exist"):
        RunFolder(tmp_path / "nowhere").settings()


def test_metrics_of_an_unfinished_run_say_how_to_resume(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="is not finished. Resume with: chronospike train --resume"):
        begun(tmp_path / "run").metrics()


@pytest.mark.parametrize("text", ["{", "[1]", "\x00"])
def test_damaged_facts_are_named(tmp_path: Path, text: str) -> None:
    run = begun(tmp_path / "run")
    (run.path / "run.json").write_text(text)
    with pytest.raises(StorageError, match="run.json"):
        run.facts()


def test_missing_facts_are_named(tmp_path: Path) -> None:
    run = begun(tmp_path / "run")
    (run.path / "run.json").unlink()
    with pytest.raises(StorageError, match="run.json is missing"):
        run.facts()


def test_epochs_are_rewritten_and_appended(tmp_path: Path) -> None:
    run = begun(tmp_path / "run")
    reports = [EpochReport(n, 1.0, 0.9, 1.0, 0.5, 0.6, 0.01, 2.0, n == 0) for n in range(3)]
    run.write_epochs(reports)
    run.write_epochs(reports[:1])
    run.append_epoch(reports[1])
    lines = [json.loads(line) for line in (run.path / "metrics.jsonl").read_text().splitlines()]
    assert [line["epoch"] for line in lines] == [0, 1]
    assert lines[0]["best"] is True
    assert lines[0]["validation_macro_f1"] == 0.5


def test_predictions_are_written_by_the_users_own_ids(tmp_path: Path) -> None:
    graph = six_nodes().with_labels(np.array([0, 1, 1, -1, -1, 0]), ("Zürich", "a,b"))
    graph = replace(graph, ids=NodeIds.of(["007", "7", 'say "hi"', "x,y", "naïve", "-"]))
    split = Split(np.array([0]), np.array([1]), np.array([2]))
    chances = np.array([[0.25, 0.75], [1 / 3, 2 / 3], [0.9, 0.1], [0.5, 0.5]])
    write_predictions(tmp_path / "out.csv", graph, np.array([3, 0, 2, 1]), chances, split)
    with (tmp_path / "out.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file))
    assert rows == [
        ["node", "class", "probability Zürich", "probability a,b", "label", "split"],
        ["x,y", "a,b", "0.25", "0.75", "", ""],
        ["007", "a,b", "0.333333", "0.666667", "Zürich", "train"],
        ['say "hi"', "Zürich", "0.9", "0.1", "a,b", "test"],
        ["7", "Zürich", "0.5", "0.5", "a,b", "validation"],
    ]


def test_predictions_without_labels_or_split_have_no_such_columns(tmp_path: Path) -> None:
    graph = replace(six_nodes(), class_names=("a", "b"))
    write_predictions(tmp_path / "out.csv", graph, np.array([0]), np.array([[0.25, 0.75]]), None)
    assert (tmp_path / "out.csv").read_text().splitlines()[0] == '"node","class","probability a","probability b"'
