"""Calibration of probabilities: a temperature, the calibration error, and leaving out uncertain nodes.

Temperature scaling (Guo et al., 2017): p becomes softmax(log p / temperature). It changes how sure a prediction is and
never which class it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Probabilities = NDArray[np.floating[Any]]
Labels = NDArray[np.integer[Any]]

LOWEST, HIGHEST = 1 / 20, 20.0
THRESHOLDS = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)
_FLOOR = 1e-12
_ROUNDS = 60


def fit_temperature(probabilities: Probabilities, labels: Labels, doubt: float = 0.0) -> float:
    """The temperature with the least log-loss of `probabilities [K, C]` on `labels [K]`, between 1/20 and 20.

    `doubt` is the share of each label that goes to the other classes: a few nodes that are all right do not make the
    next one certain. 1.0 where there is nothing to learn from: fewer than two nodes, one class, or rows that tell
    nothing apart.
    """
    if len(labels) < 2 or len(np.unique(labels)) < 2:
        return 1.0
    logits = _logits(probabilities)
    if not logits.any():
        return 1.0
    own = logits[np.arange(len(labels)), labels].mean()
    others = (logits.sum(axis=1).mean() - own) / (logits.shape[1] - 1)
    own = (1 - doubt) * own + doubt * others
    # The loss is convex in b = 1 / temperature: Newton's method on its slope, within a bracket that always shrinks.
    low, high, b = 1 / HIGHEST, 1 / LOWEST, 1.0
    for _ in range(_ROUNDS):
        weights = _softmax(b * logits)
        mean = (weights * logits).sum(axis=1)
        slope = mean.mean() - own
        curvature = ((weights * logits**2).sum(axis=1) - mean**2).mean()
        low, high = (low, b) if slope > 0 else (b, high)
        step = b - slope / curvature if curvature > 0 else np.inf
        following = step if low <= step <= high else float(np.sqrt(low * high))
        if abs(following - b) <= 1e-10 * b:
            break
        b = following
    return float(np.clip(1 / b, LOWEST, HIGHEST))


def with_temperature(probabilities: Probabilities, temperature: float) -> NDArray[np.float64]:
    """softmax(log p / temperature) of `probabilities [K, C]`; a temperature of 1 leaves them as they are."""
    if not temperature > 0:
        raise ValueError(f"temperature must be above 0, not {temperature}")
    if temperature == 1.0:
        return np.array(probabilities, dtype=np.float64)
    return _softmax(_logits(probabilities) / temperature)


def expected_calibration_error(probabilities: Probabilities, labels: Labels, bins: int = 15) -> float:
    """How far confidence and accuracy lie apart, over bins of the highest probability weighted by their nodes."""
    rows = reliability(probabilities, labels, bins)
    apart = sum(row["nodes"] * abs(row["confidence"] - row["accuracy"]) for row in rows)
    return float(apart / len(labels)) if rows else 0.0


def reliability(probabilities: Probabilities, labels: Labels, bins: int = 15) -> list[dict[str, Any]]:
    """Mean confidence and accuracy of the nodes in each bin that has any; `low <= p < high`, and 1 is in the last."""
    sure, right = _sure_and_right(probabilities, labels)
    place = np.minimum((sure * bins).astype(np.int64), bins - 1)
    nodes = np.bincount(place, minlength=bins)
    confidence = np.bincount(place, weights=sure, minlength=bins)
    correct = np.bincount(place, weights=right, minlength=bins)
    return [
        {
            "low": i / bins,
            "high": (i + 1) / bins,
            # A sum of ones may end a rounding above their number.
            "confidence": min(1.0, float(confidence[i] / nodes[i])),
            "accuracy": float(correct[i] / nodes[i]),
            "nodes": int(nodes[i]),
        }
        for i in np.flatnonzero(nodes).tolist()
    ]


def abstention(
    probabilities: Probabilities, labels: Labels, thresholds: Sequence[float] = THRESHOLDS
) -> list[dict[str, Any]]:
    """What stays if nodes whose highest probability is below a threshold are left out, and how much of it is right."""
    sure, right = _sure_and_right(probabilities, labels)
    rows = []
    for threshold in thresholds:
        kept = sure >= threshold
        nodes = int(kept.sum())
        rows.append(
            {
                "threshold": float(threshold),
                "kept": nodes / len(labels) if nodes else 0.0,
                "micro_f1": float(right[kept].mean()) if nodes else None,
                "nodes": nodes,
            }
        )
    return rows


def calibration_facts(
    before: Probabilities,
    after: Probabilities,
    labels: Labels,
    temperature: float,
    chosen_on: str,
    chosen_nodes: int,
) -> dict[str, Any]:
    """Ready for JSON: `before` and `after [K, C]` on the test nodes, and where the temperature comes from.

    Args:
        chosen_on: `out-of-fold` or `validation`.
        chosen_nodes: how many nodes the temperature was fitted to.
    """
    return {
        "temperature": float(temperature),
        "chosen_on": chosen_on,
        "chosen_nodes": int(chosen_nodes),
        "ece_before": expected_calibration_error(before, labels),
        "ece_after": expected_calibration_error(after, labels),
        "reliability": reliability(after, labels),
        "reliability_before": reliability(before, labels),
        "abstention": abstention(after, labels),
    }


def _logits(probabilities: Probabilities) -> NDArray[np.float64]:
    """log p `[K, C]`, the largest of each row 0."""
    logs = np.log(np.maximum(np.asarray(probabilities, dtype=np.float64), _FLOOR))
    return np.asarray(logs - logs.max(axis=1, keepdims=True))


def _softmax(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    """Of rows whose largest is 0, so that none overflows."""
    powers = np.exp(logits)
    return np.asarray(powers / powers.sum(axis=1, keepdims=True))


def _sure_and_right(probabilities: Probabilities, labels: Labels) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """The highest probability of each node `[K]`, and whether its class is the right one."""
    predicted = probabilities.argmax(axis=1)
    sure = probabilities[np.arange(len(labels)), predicted].astype(np.float64)
    # A mean of single-precision probabilities may end a rounding above one.
    return np.clip(sure, 0.0, 1.0), predicted == labels
