"""A small finished run, written the way training writes it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

MakeRun = Callable[..., Path]


def example_metrics() -> dict[str, Any]:
    """8 of 10 test nodes are right: confusion [[5, 1], [1, 3]]."""
    return {
        "test": {
            "macro_f1": 0.79,
            "micro_f1": 0.8,
            "per_class_f1": {"cats": 5 / 6, "dogs": 0.75},
            "confusion": [[5, 1], [1, 3]],
            "nodes": 10,
        },
        "validation": {"macro_f1": 0.74, "micro_f1": 0.75, "nodes": 4},
        "parameters": 105738,
        "seconds_per_epoch": 1.2,
        "epochs": 3,
        "best_epoch": 1,
        "seed": 7,
        "classes": ["cats", "dogs"],
        "firing_rate": [0.12, 0.08],
        "firing_rate_per_step": [[0.1, 0.14], [0.06, 0.1]],
        "baselines": {
            "majority class": {"macro_f1": 0.3, "micro_f1": 0.6},
            "label propagation": {"macro_f1": 0.4, "micro_f1": 0.5},
        },
        "smoothed": {"macro_f1": 0.88, "micro_f1": 0.9, "strengths": {"correct": 0.5}},
        "graph": {"nodes": 40, "steps": 2, "classes": 2, "union_edges": 99, "provenance": {"dataset": "pets"}},
        "split": {"train": 20, "validation": 4, "test": 10, "dropped_isolated": 2, "notes": ["dogs are few"]},
        "device": "cpu",
        "versions": {"chronospike": "0.1.0", "torch": "2.6.0"},
    }


def example_epochs() -> list[dict[str, Any]]:
    scores = [(0.5, True), (0.74, True), (0.7, False)]
    return [
        {
            "epoch": number,
            "loss": 2.0 - number / 2,
            "classification_loss": 1.5 - number / 2,
            "contrastive_loss": 5.0,
            "validation_macro_f1": score,
            "validation_micro_f1": score + 0.01,
            "learning_rate": 0.005,
            "seconds": 1.2,
            "best": best,
        }
        for number, (score, best) in enumerate(scores)
    ]


@pytest.fixture
def metrics() -> dict[str, Any]:
    return example_metrics()


@pytest.fixture
def make_run(tmp_path: Path) -> MakeRun:
    """Write a run folder and return its path; metrics given by name replace those of the example."""

    def make(config: str = "fanouts: [10, 5]\nseed: 7\n", **changes: Any) -> Path:
        run = tmp_path / "run"
        run.mkdir()
        (run / "metrics.json").write_text(json.dumps({**example_metrics(), **changes}))
        (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in example_epochs()))
        (run / "config.yaml").write_text(config)
        return run

    return make
