"""The seven ablations of the paper, a switch each, and the sum aggregator, from training to predictions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.small_runs import saved_graph, train, worked

# The network alone; each ablation takes one part of it away.
ALONE = {"label_sequences": "false", "label_features": "false", "activity": "false"}
ABLATIONS: dict[str, dict[str, Any]] = {
    "fixed neurons": {"neuron": "fixed"},
    "no transformer": {"temporal": "mean"},
    "no attention": {"aggregator": "mean"},
    "no contrastive loss": {"contrastive": 0},
    "no spikes": {"neuron": "relu"},
    "lstm": {"temporal": "lstm"},
    "static": {"static": "true"},
    "sum": {"aggregator": "sum"},
}


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved_graph(tmp_path_factory.mktemp("graphs") / "g")


def facts(run: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    epochs = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return json.loads((run / "metrics.json").read_text()), epochs


@pytest.mark.parametrize("name", ABLATIONS)
def test_an_ablation_trains_learns_and_predicts(
    capsys: pytest.CaptureFixture[str], graph: Path, tmp_path: Path, name: str
) -> None:
    run = train(capsys, graph, tmp_path / "run", **{"epochs": 4, "batch_size": 16, **ALONE, **ABLATIONS[name]})
    metrics, epochs = facts(run)
    assert epochs[-1]["classification_loss"] < epochs[0]["classification_loss"]
    assert (name == "no spikes") == (metrics["firing_rate"] == [])
    assert all(len(layer) == (1 if name == "static" else 5) for layer in metrics["firing_rate_per_step"])
    worked(capsys, "embed", run, "--as-of", "2", "-o", tmp_path / "z.npy")


def test_each_ablation_changes_the_model(capsys: pytest.CaptureFixture[str], graph: Path, tmp_path: Path) -> None:
    whole = train(capsys, graph, tmp_path / "whole", epochs=1, **ALONE)
    reference = (whole / "predictions.csv").read_bytes()
    parameters = facts(whole)[0]["parameters"]
    counts = {}
    for name, change in ABLATIONS.items():
        run = train(capsys, graph, tmp_path / name, epochs=1, **ALONE, **change)
        assert (run / "predictions.csv").read_bytes() != reference, name
        counts[name] = facts(run)[0]["parameters"]
    # τ, V_th and α of 16 and 8 channels are what fixed neurons do not learn and ReLU does not have.
    assert parameters - counts["fixed neurons"] == parameters - counts["no spikes"] == 3 * (16 + 8)
    assert counts["no contrastive loss"] == counts["static"] == parameters
    assert counts["no transformer"] < counts["lstm"]
