from __future__ import annotations

import math

import pytest

from chronospike.analysis.probabilities import (
    about_leaving_out,
    about_temperature,
    chance_error,
    how_far_off,
    in_words,
    poor_calibration,
)
from chronospike.analysis.run_files import Calibration, Kept, Metrics, ReliabilityBin

GAP = "\N{NO-BREAK SPACE}"


def _bin(nodes: int, confidence: float = 0.5, accuracy: float = 0.5) -> ReliabilityBin:
    return ReliabilityBin(low=0, high=1, confidence=confidence, accuracy=accuracy, nodes=nodes)


@pytest.mark.parametrize(
    ("temperature", "words"),
    [(1.4, "makes them less confident"), (0.7, "makes them more confident"), (1.01, "nearly unchanged")],
)
def test_what_the_temperature_does_is_said(temperature: float, words: str) -> None:
    found = about_temperature(Calibration(temperature=temperature, chosen_on="validation", chosen_nodes=1)).replace(
        GAP, " "
    )
    assert found.startswith(f"A temperature of {temperature:.2f}, chosen on 1 validation node, ")
    assert words in found


def test_what_is_not_known_is_not_said() -> None:
    assert how_far_off(Calibration(ece_before=0.1)) == ""
    assert how_far_off(Calibration(ece_after=0.1)).endswith("(expected calibration error).")
    assert about_temperature(Calibration()) == ""
    assert about_temperature(Calibration(temperature=2, chosen_on="out-of-fold")).startswith(
        "A temperature of 2.00, chosen on out-of-fold predictions, makes"
    )
    assert about_leaving_out([Kept(threshold=0.9, kept=0)]) == ""


def test_the_example_is_the_threshold_of_nine_tenths_or_the_last_that_keeps_any() -> None:
    rows = [Kept(threshold=one, kept=1 - one, micro_f1=one) for one in (0.8, 0.9, 0.95)]
    assert f"below 90{GAP}%" in about_leaving_out(rows)
    assert f"below 80{GAP}%" in about_leaving_out([rows[0], Kept(threshold=0.99, kept=0)])


def test_the_error_of_perfect_probabilities_by_hand() -> None:
    """Coins: of 100 the share that is heads lies off 0.5 by sqrt(2 / pi) * 0.05 on average."""
    assert chance_error([_bin(100)]) == pytest.approx(math.sqrt(2 / math.pi) * 0.05)
    assert chance_error([_bin(100), _bin(100)]) == pytest.approx(math.sqrt(2 / math.pi) * 0.05)
    assert chance_error([_bin(100, confidence=1.0)]) == 0.0
    assert chance_error([]) == 0.0


@pytest.mark.parametrize(("nodes", "told"), [(10, True), (1000, False)])
def test_few_nodes_are_named_as_a_reason_for_a_large_error(nodes: int, told: bool) -> None:
    part = {"macro_f1": 0.5, "micro_f1": 0.5}
    calibration = {"ece_after": 0.2, "reliability": [_bin(nodes).model_dump()]}
    text = poor_calibration(Metrics.model_validate({"test": part, "validation": part, "calibration": calibration}))
    assert ("so few test nodes" in text) == told


def test_a_long_chart_is_told_by_its_ends_and_its_middle() -> None:
    bins = [_bin(1, i / 10, i / 10) for i in range(1, 10)]
    assert in_words(bins).count("was predicted") == 3
    assert in_words(bins[:2]).count("was predicted") == 2
