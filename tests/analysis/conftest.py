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


def built_metrics() -> dict[str, Any]:
    """What a run built from several parts adds to its metrics."""

    def part(name: str, title: str, held_out: float, test: float, chosen: bool = False) -> dict[str, Any]:
        scores = {"held_out": held_out, "test": test}
        both = {key: {"macro_f1": value - 0.01, "micro_f1": value} for key, value in scores.items()}
        return {"name": name, "title": title, "chosen": chosen, "on": "out-of-fold", **both}

    def bins(*rows: tuple[int, float, float, int]) -> list[dict[str, Any]]:
        return [
            {"low": i / 15, "high": (i + 1) / 15, "confidence": said, "accuracy": right, "nodes": nodes}
            for i, said, right, nodes in rows
        ]

    return {
        "parts": [
            part("network", "one network (mean of 5)", 0.7, 0.71),
            part("bag", "5 networks together", 0.74, 0.75),
            part("stack: logistic", "second stage: logistic regression", 0.78, 0.8, chosen=True),
            part("labels alone", "second stage without the network", 0.72, 0.7),
        ],
        "baselines": {
            "majority class": {"macro_f1": 0.3, "micro_f1": 0.5, "held_out": {"macro_f1": 0.31, "micro_f1": 0.51}},
            "label propagation": {"macro_f1": 0.4, "micro_f1": 0.5},
        },
        "estimate": {
            "on": "out-of-fold",
            "nodes": 22468,
            "folds": 5,
            "macro_f1": 0.77,
            "micro_f1": 0.78,
            "macro_f1_std": 0.004,
            "micro_f1_std": 0.003,
        },
        "calibration": {
            "temperature": 1.37,
            "chosen_on": "out-of-fold",
            "chosen_nodes": 22468,
            "ece_before": 0.083,
            "ece_after": 0.021,
            "reliability": bins((8, 0.57, 0.55, 2), (11, 0.77, 0.8, 3), (14, 0.97, 0.96, 5)),
            "reliability_before": bins((9, 0.63, 0.5, 2), (14, 0.98, 0.9, 8)),
            "abstention": [
                {"threshold": 0.5, "kept": 1.0, "micro_f1": 0.8, "nodes": 10},
                {"threshold": 0.9, "kept": 0.71, "micro_f1": 0.93, "nodes": 7},
                {"threshold": 0.99, "kept": 0.0, "micro_f1": None, "nodes": 0},
            ],
        },
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
def built() -> dict[str, Any]:
    return built_metrics()


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
