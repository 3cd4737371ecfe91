from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save

from chronospike.errors import StorageError
from chronospike.training.final_stage import FinalStage, log_probabilities, softmax, stage_rows
from chronospike.training.second_stage import fit_second_stage
from tests.small_runs import small_network

SCORES = {"network": {"macro_f1": 0.5, "micro_f1": 0.625}}


@pytest.fixture(scope="module")
def tables() -> Any:
    return small_network().task.tables


def logs(nodes: int = 30) -> Any:
    return log_probabilities(np.random.default_rng(0).dirichlet([1, 1], nodes))


@pytest.fixture(scope="module")
def stacked(tables: Any) -> FinalStage:
    rows = stage_rows(logs(), tables, np.arange(30))
    return FinalStage(fit_second_stage(rows, np.arange(30) % 2, 2, "logistic", 0), 1.5, "out-of-fold", 30, SCORES)


def test_without_anything_the_networks_are_taken_at_their_word(tables: Any) -> None:
    found = FinalStage().probabilities(np.log([[0.2, 0.8]]), tables, np.array([3]))
    np.testing.assert_allclose(found, [[0.2, 0.8]])


def test_a_temperature_of_two_takes_roots_by_hand(tables: Any) -> None:
    found = FinalStage(temperature=2.0).probabilities(np.log([[0.1, 0.9]]), tables, np.array([3]))
    np.testing.assert_allclose(found, [[1 / 4, 3 / 4]])


def test_a_second_stage_reads_log_probabilities_then_label_features_then_activity(tables: Any) -> None:
    nodes = np.array([4, 90])
    rows = stage_rows(logs(2), tables, nodes)
    assert rows.shape == (2, 2 + 24 + 24)
    np.testing.assert_allclose(rows[:, :2], logs(2), rtol=1e-6)
    assert np.array_equal(rows[:, 2:26], tables.features[nodes])
    assert np.array_equal(rows[:, 26:], tables.activity[nodes])


def test_the_temperature_follows_the_second_stage(stacked: FinalStage, tables: Any) -> None:
    before = stacked.uncalibrated(logs(), tables, np.arange(30))
    after = stacked.probabilities(logs(), tables, np.arange(30))
    powers = before ** (1 / 1.5)
    np.testing.assert_allclose(after, powers / powers.sum(axis=1, keepdims=True), rtol=1e-9)


def test_a_temperature_is_fitted_to_held_out_nodes_and_says_to_which() -> None:
    sure, labels = np.array([[0.99, 0.01]] * 4), np.array([0, 0, 0, 1])
    found = FinalStage().calibrated(sure, labels, "validation")
    # Three of four are right: the temperature makes 99 % into 75 %.
    assert found.temperature == pytest.approx(np.log(99) / np.log(3))
    assert (found.chosen_on, found.chosen_nodes) == ("validation", 4)


def test_no_probability_is_below_the_floor_and_shares_add_up_to_one() -> None:
    found = log_probabilities(np.array([[0.0, 1.0]]))
    assert found.tolist() == [[np.log(1e-6), 0.0]]
    np.testing.assert_allclose(softmax(found), [[1e-6, 1.0]], rtol=1e-5)
    np.testing.assert_allclose(softmax(np.array([[-1e4, -1e4]])), [[0.5, 0.5]])


def test_a_stage_comes_back_as_it_was(stacked: FinalStage, tables: Any, tmp_path: Path) -> None:
    stacked.save(tmp_path / "stage")
    found = FinalStage.load(tmp_path / "stage")
    assert (found.temperature, found.chosen_on, found.chosen_nodes) == (1.5, "out-of-fold", 30)
    assert found.held_out == SCORES
    nodes = np.arange(30)
    assert np.array_equal(found.probabilities(logs(), tables, nodes), stacked.probabilities(logs(), tables, nodes))


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
    with pytest.raises(StorageError, match=r"is damaged \(.*\). Train the run again") as caught:
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


@pytest.mark.parametrize("entry", ["[]", "7", "{}", "{", "null", json.dumps({"format": "chronospike-final-stage"})])
def test_other_contents_are_called_damaged(entry: str, tmp_path: Path) -> None:
    (tmp_path / "stage").write_bytes(save({"x": torch.zeros(1)}, {"chronospike": entry}))
    damage(tmp_path / "stage")
