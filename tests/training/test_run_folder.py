from __future__ import annotations

import json
from pathlib import Path

import pytest

from chronospike.errors import InputError, StorageError
from chronospike.methods.chronospike.settings import ChronoSpikeSettings
from chronospike.training.known_labels import KnownLabels
from chronospike.training.loop import EpochReport
from chronospike.training.run_folder import RunFolder
from chronospike.training.task import split_for
from tests.small_runs import begun, contents, small_graph, small_settings


def test_a_run_keeps_what_was_asked(tmp_path: Path) -> None:
    run = begun(tmp_path / "deep" / "run")
    assert run.settings(ChronoSpikeSettings) == small_settings()
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
    run.begin("chronospike", small_settings(epochs=9), {}, graph, split_for(graph, small_settings()), overwrite=True)
    assert set(contents(run.path)) == {"config.yaml", "run.json", "labels.parquet", "notes.txt"}
    assert run.settings(ChronoSpikeSettings).epochs == 9


def test_an_overwriting_run_stopped_while_it_begins_has_nothing_of_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, graph = begun(tmp_path / "run"), small_graph()

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(KnownLabels, "save", stop)
    with pytest.raises(KeyboardInterrupt):
        run.begin("chronospike", small_settings(), {}, graph, split_for(graph, small_settings()), overwrite=True)
    with pytest.raises(StorageError, match="run.json is missing"):
        run.facts()


def test_a_folder_of_something_else_is_never_overwritten(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    graph = small_graph()
    with pytest.raises(InputError, match="holds something else"):
        RunFolder(tmp_path).begin(
            "chronospike", small_settings(), {}, graph, split_for(graph, small_settings()), overwrite=True
        )
    assert contents(tmp_path) == {"notes.txt": b"mine"}


def test_other_settings_are_named_one_by_one(tmp_path: Path) -> None:
    run = begun(tmp_path / "run")
    run.require_same(small_settings())
    with pytest.raises(InputError, match="with other settings: seed was 0, now 4; p was 0.5, now 0.3. Resume"):
        run.require_same(small_settings(p=0.3, seed=4, epochs=9))


def test_a_folder_that_is_no_run_is_named(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="is not a run \\(it has no config.yaml\\)"):
        RunFolder(tmp_path).settings(ChronoSpikeSettings)
    with pytest.raises(StorageError, match="nowhere does not exist"):
        RunFolder(tmp_path / "nowhere").settings(ChronoSpikeSettings)


def test_empty_settings_are_not_taken_for_the_defaults(tmp_path: Path) -> None:
    run = begun(tmp_path / "run")
    (run.path / "config.yaml").write_text("")
    with pytest.raises(StorageError, match=r"config.yaml is empty"):
        run.settings(ChronoSpikeSettings)


def test_metrics_of_an_unfinished_run_say_how_to_resume(tmp_path: Path) -> None:
    with pytest.raises(
        StorageError, match="is not finished. Unless it still runs, resume with: chronospike train --resume"
    ):
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
    reports = [EpochReport(n, 1.0, 0.5, 0.6, 0.01, 2.0, n == 0) for n in range(3)]
    run.write_epochs(reports)
    run.write_epochs(reports[:1])
    run.append_epoch(reports[1])
    lines = [json.loads(line) for line in (run.path / "metrics.jsonl").read_text().splitlines()]
    assert [line["epoch"] for line in lines] == [0, 1]
    assert lines[0]["best"] is True
    assert lines[0]["validation_macro_f1"] == 0.5


def test_a_score_that_was_not_computed_is_null(tmp_path: Path) -> None:
    run = begun(tmp_path / "run")
    run.append_epoch(EpochReport(0, 1.0, float("nan"), float("nan"), 0.01, 2.0, False))
    (line,) = (run.path / "metrics.jsonl").read_text().splitlines()
    assert "NaN" not in line
    assert json.loads(line)["validation_macro_f1"] is None
