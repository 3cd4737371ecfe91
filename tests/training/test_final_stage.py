from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save

from chronospike.errors import StorageError
from chronospike.training.calibration import with_temperature
from chronospike.training.final_stage import (
    LABELS_ALONE,
    NETWORK,
    FinalStage,
    log_probabilities,
    rows_read,
    softmax,
    stage_rows,
)
from chronospike.training.second_stage import StageSettings, fit_second_stage
from chronospike.training.task import Task, make_task
from tests.small_runs import CPU, small_network, small_settings

ALONE = f"{LABELS_ALONE}: logistic"
SCORES = {"network": {"macro_f1": 0.5, "micro_f1": 0.625}}


@pytest.fixture(scope="module")
def task() -> Task:
    return small_network().task


def logs(nodes: int = 30) -> Any:
    return log_probabilities(np.random.default_rng(0).dirichlet([1, 1], nodes))


@pytest.fixture(scope="module")
def stacked(task: Task) -> FinalStage:
    rows, labels = stage_rows(logs(), task, np.arange(30)), np.arange(30) % 2
    stages = {
        "stack: trees": fit_second_stage(rows, labels, 2, "trees", 0, StageSettings(trees=5)),
        "stack: logistic": fit_second_stage(rows, labels, 2, "logistic", 0),
        ALONE: fit_second_stage(rows[:, 2:], labels, 2, "logistic", 0),
    }
    weights = {NETWORK: 0.5, "stack: logistic": 0.25, ALONE: 0.25}
    return FinalStage(stages, weights, 1.5, "out-of-fold", 30, SCORES)


def test_without_anything_the_networks_are_taken_at_their_word(task: Task) -> None:
    found = FinalStage().probabilities(np.log([[0.2, 0.8]]), task, np.array([3]))
    np.testing.assert_allclose(found, [[0.2, 0.8]])


def test_a_temperature_of_two_takes_roots_by_hand(task: Task) -> None:
    found = FinalStage(temperature=2.0).probabilities(np.log([[0.1, 0.9]]), task, np.array([3]))
    np.testing.assert_allclose(found, [[1 / 4, 3 / 4]])


def test_a_second_stage_reads_log_probabilities_then_label_features_then_activity_then_own_attributes(
    task: Task,
) -> None:
    nodes = np.array([4, 90])
    rows = stage_rows(logs(2), task, nodes)
    assert rows.shape == (2, 2 + 26 + 85 + 8 + 8)
    np.testing.assert_allclose(rows[:, :2], logs(2), rtol=1e-6)
    assert np.array_equal(rows[:, 2:28], task.tables.features[nodes])
    assert np.array_equal(rows[:, 28:113], task.tables.activity[nodes])
    assert task.features is not None
    # Without made features, own attributes are all there are.
    assert np.array_equal(rows[:, 113:121], task.features.at(task.last_step, nodes))
    around = task.features.own_of_neighbours(task.last_step, nodes)
    assert around is not None
    assert np.array_equal(rows[:, 121:], around)


def test_own_attributes_are_those_as_of_the_last_step(task: Task) -> None:
    earlier = task.until(2)
    assert earlier.features is not None
    rows = stage_rows(logs(120), earlier, np.arange(120))
    assert np.array_equal(rows[:, 113:121], earlier.features.at(2))
    assert not np.array_equal(rows[:, 113:121], earlier.features.at(4))


def test_made_features_are_not_read_by_a_second_stage(task: Task) -> None:
    features = np.random.default_rng(1).normal(size=(5, 120, 3)).astype(np.float32)
    for graph, width in ((task.graph.with_features(None), 0), (task.graph, 16)):
        other = make_task(graph.with_made_features(features), small_settings(), CPU, task.split)
        assert stage_rows(logs(120), other, np.arange(120)).shape == (120, 113 + width)


def test_one_reads_features_of_the_last_step_alone(task: Task) -> None:
    features = np.random.default_rng(1).normal(size=(5, 120, 3)).astype(np.float32)
    other = make_task(task.graph.with_made_features(features), small_settings(), CPU, task.split).until(2)
    assert other.features is not None
    found = rows_read(["features alone: logistic"], logs(120), other, np.arange(120))["features alone: logistic"]
    assert found.shape == (120, 8 + 3)
    assert np.array_equal(found, other.features.at(2))


def test_several_that_read_no_networks_have_a_name_together() -> None:
    assert FinalStage(weights={"labels alone: trees": 0.5, "labels alone: logistic": 0.5}).name == "labels alone"
    assert FinalStage(weights={"labels alone: trees": 0.5, "features alone: logistic": 0.5}).name == "ensemble"


def test_an_ensemble_is_the_weighted_mean_of_its_members(stacked: FinalStage, task: Task) -> None:
    nodes, rows = np.arange(30), stage_rows(logs(), task, np.arange(30))
    stack = stacked.stages["stack: logistic"].probabilities(rows)
    # The one that does not read the networks.
    alone = stacked.stages[ALONE].probabilities(rows[:, 2:])
    found = stacked.uncalibrated(logs(), task, nodes)
    np.testing.assert_allclose(found, softmax(logs()) / 2 + stack / 4 + alone / 4)
    assert not np.allclose(stack, alone, atol=1e-3)
    assert stacked.name == "ensemble"


def test_an_ensemble_of_one_member_has_its_name_and_its_bits(stacked: FinalStage, task: Task) -> None:
    one = replace(stacked, weights={ALONE: 1.0})
    nodes, rows = np.arange(30), stage_rows(logs(), task, np.arange(30))
    assert one.name == ALONE
    expected = stacked.stages[ALONE].probabilities(rows[:, 2:])
    assert np.array_equal(one.uncalibrated(logs(), task, nodes), expected)


def test_what_an_ensemble_says_of_a_node_does_not_depend_on_the_others(stacked: FinalStage, task: Task) -> None:
    whole = stacked.probabilities(logs(), task, np.arange(30))
    for some in (np.array([7]), np.array([29, 3, 7])):
        assert np.array_equal(stacked.probabilities(logs()[some], task, some), whole[some])


def test_the_temperature_follows_the_second_stage(stacked: FinalStage, task: Task) -> None:
    before = stacked.uncalibrated(logs(), task, np.arange(30))
    after = stacked.probabilities(logs(), task, np.arange(30))
    powers = before ** (1 / 1.5)
    np.testing.assert_allclose(after, powers / powers.sum(axis=1, keepdims=True), rtol=1e-9)


def test_a_temperature_is_fitted_to_held_out_nodes_and_says_to_which() -> None:
    sure, labels = np.array([[0.99, 0.01]] * 4), np.array([0, 0, 0, 1])
    found = FinalStage().calibrated(sure, labels, "validation")
    # Three of four are right, each with a doubt of 1/6: (3 · 5/6 + 1/6) / 4 = 2/3 is what 99 % becomes.
    assert found.temperature == pytest.approx(np.log(99) / np.log(2))
    assert (found.chosen_on, found.chosen_nodes) == ("validation", 4)


def test_nodes_that_are_all_right_do_not_make_the_next_one_certain() -> None:
    """Of eight nodes that are all right, nine of ten are taken to be."""
    labels = np.arange(8) % 2
    sure = np.where(labels[:, None] == [0, 1], 0.99, 0.01)
    found = FinalStage().calibrated(sure, labels, "validation")
    np.testing.assert_allclose(with_temperature(sure, found.temperature).max(axis=1), 0.9)


def test_no_probability_is_below_the_floor_and_shares_add_up_to_one() -> None:
    found = log_probabilities(np.array([[0.0, 1.0]]))
    assert found.tolist() == [[np.log(1e-6), 0.0]]
    np.testing.assert_allclose(softmax(found), [[1e-6, 1.0]], rtol=1e-5)
    np.testing.assert_allclose(softmax(np.array([[-1e4, -1e4]])), [[0.5, 0.5]])


def test_a_stage_comes_back_as_it_was(stacked: FinalStage, task: Task, tmp_path: Path) -> None:
    stacked.save(tmp_path / "stage")
    found = FinalStage.load(tmp_path / "stage")
    assert (found.temperature, found.chosen_on, found.chosen_nodes) == (1.5, "out-of-fold", 30)
    assert list(found.weights.items()) == list(stacked.weights.items())
    # What has no weight is not kept.
    assert list(found.stages) == ["stack: logistic", ALONE]
    assert found.held_out == SCORES
    nodes = np.arange(30)
    assert np.array_equal(found.probabilities(logs(), task, nodes), stacked.probabilities(logs(), task, nodes))


def test_a_stage_is_not_used_with_other_networks(stacked: FinalStage, tmp_path: Path) -> None:
    """A training that goes on and is killed between two files leaves the new weights and the earlier stage."""
    stacked.save(tmp_path / "stage", "abc")
    assert FinalStage.load(tmp_path / "stage", "abc").weights == stacked.weights
    with pytest.raises(StorageError, match="belongs to other weights"):
        FinalStage.load(tmp_path / "stage", "abd")
    stacked.save(tmp_path / "stage")
    assert FinalStage.load(tmp_path / "stage", "abd").weights == stacked.weights


def test_nothing_but_a_temperature_comes_back_too(tmp_path: Path) -> None:
    FinalStage(temperature=0.7, chosen_nodes=60).save(tmp_path / "stage")
    assert FinalStage.load(tmp_path / "stage") == FinalStage(temperature=0.7, chosen_nodes=60)


def test_the_same_stage_gives_the_same_bytes(stacked: FinalStage, tmp_path: Path) -> None:
    contents = set()
    for _ in range(8):
        stacked.save(tmp_path / "stage")
        contents.add((tmp_path / "stage").read_bytes())
    assert len(contents) == 1


def damage(path: Path) -> str:
    """What is said of a file that cannot be read."""
    with pytest.raises(StorageError, match=r"is damaged or of another version \(.*\). Train the run again") as caught:
        FinalStage.load(path)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_any_changed_byte_is_noticed(stacked: FinalStage, tmp_path: Path) -> None:
    path = tmp_path / "stage"
    stacked.save(path)
    content = path.read_bytes()
    for position in range(0, len(content), 37):
        path.write_bytes(content[:position] + bytes([content[position] ^ 4]) + content[position + 1 :])
        damage(path)


@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.99])
def test_a_truncated_file_is_called_damaged(stacked: FinalStage, tmp_path: Path, share: float) -> None:
    path = tmp_path / "stage"
    stacked.save(path)
    path.write_bytes(path.read_bytes()[: int(share * path.stat().st_size)])
    damage(path)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    assert str(tmp_path / "none") in damage(tmp_path / "none")


@pytest.mark.parametrize("entry", ["[]", "7", "{}", "{", "null", json.dumps({"format": "chronospike-ensemble"})])
def test_other_contents_are_called_damaged(entry: str, tmp_path: Path) -> None:
    (tmp_path / "stage").write_bytes(save({"x": torch.zeros(1)}, {"chronospike": entry}))
    damage(tmp_path / "stage")


def test_a_file_of_an_earlier_version_is_called_that(tmp_path: Path) -> None:
    entry = json.dumps({"format": "chronospike-final-stage", "share": 0.5})
    (tmp_path / "stage").write_bytes(save({"x": torch.zeros(1)}, {"chronospike": entry}))
    assert "it was written by an earlier version" in damage(tmp_path / "stage")


def test_a_final_stage_is_shown_without_the_arrays_of_its_classifiers(stacked: FinalStage) -> None:
    assert stacked.stages
    assert "weights=" in repr(stacked)
    assert "array" not in repr(stacked)
