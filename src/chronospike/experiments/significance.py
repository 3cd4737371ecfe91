"""Whether the best method is better than the second by more than the seeds' chance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

LEVEL = 0.05


@dataclass(frozen=True)
class PairedTest:
    """A two-sided Wilcoxon signed-rank test of two variants' scores, paired by ratio and seed.

    Attributes:
        ratio: None where the scores of all ratios are taken together.
        p: corrected by Holm's method; None where so few pairs could not reach the level.
    """

    metric: str
    ratio: float | None
    best: str
    second: str
    scores: Sequence[tuple[float, float]]
    p: float | None = None

    @property
    def differences(self) -> list[float]:
        """Of distinct pairs that differ: a deterministic method repeats its score, which is no further evidence."""
        return [first - second for first, second in dict.fromkeys(self.scores) if first != second]

    @property
    def n(self) -> int:
        """Pairs."""
        return len(self.differences)


def with_p_values(family: Sequence[PairedTest]) -> list[PairedTest]:
    """The tests, those with enough pairs carried out and corrected for how many they are."""
    from scipy.stats import wilcoxon

    # If all differences have one sign, the p-value is 2 / 2^n, and no outcome has a smaller one.
    reachable = [least <= LEVEL for least in holm([min(1.0, 2.0 ** (1 - one.n)) for one in family])]
    tested = [one for one, enough in zip(family, reachable, strict=True) if enough]
    corrected = iter(holm([float(wilcoxon(one.differences).pvalue) for one in tested]))
    return [replace(one, p=next(corrected)) if enough else one for one, enough in zip(family, reachable, strict=True)]


def holm(values: Sequence[float]) -> list[float]:
    """p-values corrected by Holm's step-down method, in the order given."""
    corrected, largest = [0.0] * len(values), 0.0
    for rank, place in enumerate(sorted(range(len(values)), key=values.__getitem__)):
        largest = max(largest, min(1.0, (len(values) - rank) * values[place]))
        corrected[place] = largest
    return corrected
