"""Whether the best method is better than the second by more than the seeds' chance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

LEVEL = 0.05


@dataclass(frozen=True)
class Pairs:
    """Scores of two variants by ratio and seed; `ratio` is None where those of all ratios are taken together."""

    metric: str
    ratio: float | None
    best: str
    second: str
    scores: Sequence[tuple[float, float]]

    @property
    def differences(self) -> list[float]:
        """Of distinct pairs that differ: a deterministic method repeats its score, which is no further evidence."""
        return [first - second for first, second in dict.fromkeys(self.scores) if first != second]


@dataclass(frozen=True)
class PairedTest:
    """A two-sided Wilcoxon signed-rank test of paired scores.

    Attributes:
        n: pairs.
        p: corrected by Holm's method; None where so few pairs could not reach the level.
    """

    pairs: Pairs
    n: int
    p: float | None


def compare_pairs(family: Sequence[Pairs]) -> list[PairedTest]:
    """Tests of all comparisons that have enough pairs, corrected for how many they are."""
    from scipy.stats import wilcoxon

    # If all differences have one sign, the p-value is 2 / 2^n, and no outcome has a smaller one.
    counts = [len(one.differences) for one in family]
    reachable = [least <= LEVEL for least in holm([min(1.0, 2.0 ** (1 - n)) for n in counts])]
    tested = [one for one, enough in zip(family, reachable, strict=True) if enough]
    corrected = iter(holm([float(wilcoxon(one.differences).pvalue) for one in tested]))
    return [
        PairedTest(one, n, next(corrected) if enough else None)
        for one, n, enough in zip(family, counts, reachable, strict=True)
    ]


def holm(values: Sequence[float]) -> list[float]:
    """p-values corrected by Holm's step-down method, in the order given."""
    corrected, largest = [0.0] * len(values), 0.0
    for rank, place in enumerate(sorted(range(len(values)), key=values.__getitem__)):
        largest = max(largest, min(1.0, (len(values) - rank) * values[place]))
        corrected[place] = largest
    return corrected
