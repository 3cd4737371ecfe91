"""The quality levels: the changes they make to the settings of a preset."""

from __future__ import annotations

from typing import Any

QUALITIES: dict[str, dict[str, Any]] = {
    # One network without a second fit, on features that are made in seconds.
    "fast": {
        "epochs": 10,
        "refit": False,
        "samples": 1,
        "folds": 0,
        "second_stage": "none",
        "feature_method": "fastrp",
    },
    # What the preset says; the default's five networks on five folds and a second stage on top of them.
    "good": {},
    # Twice as many networks, each on more of the labels, and more sampled neighbourhoods.
    "best": {"folds": 10, "second_stage": "auto", "samples": 5},
}
