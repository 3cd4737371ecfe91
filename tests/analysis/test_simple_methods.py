from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from chronospike.analysis.run_files import Metrics
from chronospike.analysis.simple_methods import beats_guessing, macro_margin, margin, margins, useful_rivals


def _metrics(confusion: list[list[int]] | None = None, nodes: int | None = None, **baselines: Any) -> Metrics:
    test = {"micro_f1": 0.8, "macro_f1": 0.7, "confusion": confusion, "nodes": nodes}
    simple = {
        name.replace("_", " "): {"micro_f1": micro, "macro_f1": macro} for name, (micro, macro) in baselines.items()
    }
    return Metrics.model_validate({"test": test, "validation": {**test}, "baselines": simple})


def test_the_margin_of_a_half_over_a_hundred_nodes_is_ten_points() -> None:
    assert margin(0.5, 100) == pytest.approx(0.098)


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_a_share_of_none_or_all_of_few_nodes_is_not_certain(share: float) -> None:
    assert 0.05 < margin(share, 20) < 0.15
    assert margin(share, 2000) < 0.002


def test_the_margin_of_macro_f1_is_that_of_resampled_nodes() -> None:
    confusion = np.array([[300, 20, 5], [30, 80, 4], [2, 9, 50]])
    draws = np.random.default_rng(0).multinomial(confusion.sum(), confusion.ravel() / confusion.sum(), size=20_000)
    tables = draws.reshape(-1, 3, 3)
    right = tables[:, range(3), range(3)]
    macro = (2 * right / (tables.sum(axis=1) + tables.sum(axis=2))).mean(axis=1)
    assert macro_margin(confusion.tolist()) == pytest.approx(1.96 * macro.std(), rel=0.05)


def test_a_class_that_does_not_occur_does_not_count() -> None:
    two = [[5, 1], [1, 3]]
    with_third = [[5, 1, 0], [1, 3, 0], [0, 0, 0]]
    assert macro_margin(with_third) == pytest.approx(macro_margin(two))


def test_macro_f1_is_at_least_as_uncertain_as_micro_f1() -> None:
    found = margins(_metrics([[10, 0], [0, 10]], nodes=20))
    assert found.macro == found.micro == pytest.approx(margin(0.8, 20))


def test_without_nodes_nothing_is_chance() -> None:
    found = margins(_metrics())
    assert (found.micro, found.macro) == (0.0, 0.0)


def test_an_empty_confusion_matrix_is_as_good_as_none() -> None:
    assert margins(_metrics([[0, 0], [0, 0]])).macro == 0.0


@pytest.mark.parametrize(
    ("scores", "better"), [((0.6, 0.3), False), ((0.62, 0.32), False), ((0.7, 0.3), True), ((0.5, 0.4), True)]
)
def test_better_than_guessing_is_more_than_chance_in_one_measure(scores: tuple[float, float], better: bool) -> None:
    metrics = _metrics(nodes=1000, majority_class=(0.6, 0.3), label_propagation=scores)
    assert beats_guessing(metrics.baselines["label propagation"], metrics) == better
    assert [rival.name for rival in useful_rivals(metrics)] == ["label propagation"] * better


def test_without_the_majority_class_every_method_counts() -> None:
    assert [rival.name for rival in useful_rivals(_metrics(a=(0.1, 0.1), b=(0.2, 0.1)))] == ["b", "a"]
