"""One knob for how much work a fit is worth: what it changes of the settings of a preset."""

from __future__ import annotations

from typing import Any

QUALITIES: dict[str, dict[str, Any]] = {
    # One network without a second fit, on features that are made in seconds.
    "fast": {"epochs": 10, "refit": False, "samples": 1, "feature_method": "fastrp"},
    # What the preset says: one network, fitted again on the validation nodes too.
    "good": {},
    # Five networks on five folds, and a second stage on top of them.
    "best": {"folds": 5, "second_stage": "auto"},
}
