from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from chronospike.analysis.run_files import read_run
from chronospike.errors import InputError, StorageError
from tests.analysis.conftest import MakeRun


def test_scores_epochs_and_settings_are_read(make_run: MakeRun) -> None:
    run = read_run(make_run())
    assert run.metrics.test.confusion == [[5, 1], [1, 3]]
    assert [epoch.validation_macro_f1 for epoch in run.epochs] == [0.5, 0.74, 0.7]
    assert run.settings == {"fanouts": [10, 5], "seed": 7}


def test_the_name_is_that_of_the_dataset(make_run: MakeRun) -> None:
    assert read_run(make_run()).name == "pets"


def test_the_name_is_that_of_the_folder_when_the_graph_has_none(make_run: MakeRun) -> None:
    assert read_run(make_run(graph={})).name == "run"


def test_scores_alone_are_enough(tmp_path: Path) -> None:
    part = {"macro_f1": 0.5, "micro_f1": 0.5}
    (tmp_path / "metrics.json").write_text(json.dumps({"test": part, "validation": part, "firing_rate": None}))
    run = read_run(tmp_path)
    assert (run.epochs, run.settings, run.metrics.firing_rate) == ([], {}, [])


def test_whole_number_ids_of_wrong_nodes_are_read_as_text(make_run: MakeRun) -> None:
    wrong = [{"node": 7, "class": "cats", "predicted": "dogs", "probability": 1}]
    (row,) = read_run(make_run(confidently_wrong=wrong)).metrics.confidently_wrong
    assert (row.node, row.true, row.predicted, row.probability) == ("7", "cats", "dogs", 1.0)


def test_a_run_from_before_the_wrong_nodes_were_kept_is_read(make_run: MakeRun) -> None:
    metrics = read_run(make_run(confidently_wrong=None, unlabelled=None)).metrics
    assert metrics.confidently_wrong == []
    assert metrics.unlabelled.predicted == {}


@pytest.mark.parametrize("tail", ['{"epoch": 3, "lo', '{"loss": 1.0', "\x00\x00"])
def test_half_a_last_line_is_left_out(make_run: MakeRun, tail: str) -> None:
    run = make_run()
    with (run / "metrics.jsonl").open("a") as file:
        file.write(tail)
    assert [epoch.epoch for epoch in read_run(run).epochs] == [0, 1, 2]


def test_a_damaged_line_before_the_last_is_named(make_run: MakeRun) -> None:
    run = make_run()
    lines = (run / "metrics.jsonl").read_text().splitlines()
    lines[1] = lines[1][:20]
    (run / "metrics.jsonl").write_text("\n".join(lines))
    with pytest.raises(StorageError, match=r"metrics.jsonl row 2 is damaged"):
        read_run(run)


def test_an_epoch_repeated_by_a_resumed_run_counts_once(make_run: MakeRun) -> None:
    run = make_run()
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"epoch": 1, "loss": 0.25}\n')
    assert [(epoch.epoch, epoch.loss) for epoch in read_run(run).epochs] == [(0, 2.0), (1, 0.25), (2, 1.0)]


def test_a_folder_that_does_not_exist_is_said(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="nowhere does not exist"):
        read_run(tmp_path / "nowhere")


def test_a_folder_of_something_else_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is not a run folder: it has no metrics.json"):
        read_run(tmp_path)


def test_a_run_that_was_interrupted_is_told_to_go_on(make_run: MakeRun) -> None:
    run = make_run()
    (run / "metrics.json").unlink()
    with pytest.raises(InputError, match="has not finished. Unless it still runs, resume with: .*--resume"):
        read_run(run)


@pytest.mark.parametrize("text", ['{"test": ', "[]", "\xff", '{"test": {"macro_f1": 0.5, "micro_f1": 0.5}}'])
def test_damaged_results_are_one_line(make_run: MakeRun, text: str) -> None:
    run = make_run()
    (run / "metrics.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(StorageError, match="metrics.json is damaged: ") as caught:
        read_run(run)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("confusion", [[[5, 1]], [[5, 1], [1]], [[1, 0, 0], [0, 1, 0], [0, 0, 1]]])
def test_a_confusion_matrix_of_another_shape_is_refused(
    make_run: MakeRun, metrics: dict[str, Any], confusion: list[list[int]]
) -> None:
    with pytest.raises(StorageError, match="test.confusion has"):
        read_run(make_run(test={**metrics["test"], "confusion": confusion}))


def test_a_score_above_one_is_refused(make_run: MakeRun) -> None:
    with pytest.raises(StorageError, match="validation.micro_f1: Input should be less than or equal to 1"):
        read_run(make_run(validation={"macro_f1": 0.5, "micro_f1": 79.3}))


def test_parts_estimate_and_calibration_are_read(make_run: MakeRun, built: dict[str, Any]) -> None:
    metrics = read_run(make_run(**built)).metrics
    assert [part.name for part in metrics.parts] == ["network", "bag", "stack: logistic", "labels alone"]
    assert metrics.chosen_part is metrics.parts[2]
    assert metrics.estimate is not None
    assert (metrics.estimate.nodes, metrics.estimate.micro_f1_std) == (22468, 0.003)
    assert metrics.calibration is not None
    assert [row.micro_f1 for row in metrics.calibration.abstention] == [0.8, 0.93, None]
    held_out = metrics.baselines["majority class"].held_out
    assert held_out is not None
    assert held_out.micro_f1 == 0.51


def test_a_run_from_before_there_were_parts_is_read(make_run: MakeRun) -> None:
    metrics = read_run(make_run(parts=None, estimate=None, calibration=None)).metrics
    assert (metrics.parts, metrics.chosen_part, metrics.estimate, metrics.calibration) == ([], None, None, None)
    assert metrics.baselines["label propagation"].held_out is None


def test_parts_and_calibration_without_their_optional_keys_are_read(make_run: MakeRun) -> None:
    metrics = read_run(make_run(parts=[{"name": "network", "held_out": None}], calibration={})).metrics
    assert metrics.parts[0].held_out is None
    assert metrics.calibration is not None
    assert metrics.calibration.reliability == []


_SCORE = {"macro_f1": 0.5, "micro_f1": 0.5}
_BIN = {"low": 0, "high": 1, "confidence": 0.5, "accuracy": 0.5, "nodes": 1}


@pytest.mark.parametrize(
    ("changes", "where"),
    [
        ({"parts": {}}, "parts"),
        ({"parts": [{"title": "no name"}]}, "parts.0.name"),
        ({"parts": [{"name": "a", "test": {"macro_f1": 0.5, "micro_f1": 2}}]}, "parts.0.test.micro_f1"),
        ({"parts": [{"name": "a", "on": "training"}]}, "parts.0.on"),
        ({"parts": [{"name": "a"}] * 101}, "parts"),
        ({"baselines": {"a": {**_SCORE, "held_out": 7}}}, "baselines.a.held_out"),
        ({"estimate": {**_SCORE, "nodes": -1}}, "estimate.nodes"),
        ({"estimate": {**_SCORE, "micro_f1_std": float("nan")}}, "estimate.micro_f1_std"),
        ({"calibration": {"temperature": 0}}, "calibration.temperature"),
        ({"calibration": {"temperature": float("inf")}}, "calibration.temperature"),
        ({"calibration": {"ece_after": "much"}}, "calibration.ece_after"),
        ({"calibration": {"reliability": [{**_BIN, "accuracy": float("nan")}]}}, "calibration.reliability.0.accuracy"),
        ({"calibration": {"abstention": [{"threshold": 0.5, "kept": -1}]}}, "calibration.abstention.0.kept"),
    ],
)
def test_what_cannot_be_a_part_or_a_calibration_is_refused(
    make_run: MakeRun, changes: dict[str, Any], where: str
) -> None:
    with pytest.raises(StorageError, match=f"metrics.json is damaged: {where}: ") as caught:
        read_run(make_run(**changes))
    assert "\n" not in str(caught.value)
