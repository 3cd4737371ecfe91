"""Statistics of a grid's results: means and deviations, the best and the second best, and costs.

And whether the best is better than the second by more than the seeds' chance.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from chronospike.experiments.paper_results import paper_score

METRICS = {"macro_f1": "Macro-F1", "micro_f1": "Micro-F1"}
LEVEL = 0.05
Result = Mapping[str, Any]
Rank = Literal["best", "second", ""]


@dataclass(frozen=True)
class Entry:
    """A variant at a ratio by a metric.

    Attributes:
        scores: of the runs that are done, between 0 and 1, by seed.
        planned: how many runs were asked for.
        instead: what to show where no run is done: `time`, `failed`, or `–` for not yet.
        rank: among the variants at this ratio, as far as two decimals in percent tell.
        paper: what the paper reports for this method.
    """

    scores: dict[int, float]
    planned: int
    instead: str = "–"
    rank: Rank = ""
    paper: float | None = None

    @property
    def mean(self) -> float | None:
        return statistics.fmean(self.scores.values()) if self.scores else None

    @property
    def deviation(self) -> float | None:
        """The standard deviation with n - 1; None for fewer than two runs."""
        return statistics.stdev(self.scores.values()) if len(self.scores) > 1 else None

    @property
    def difference(self) -> float | None:
        """Ours less the paper's."""
        return None if self.mean is None or self.paper is None else self.mean - self.paper


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


@dataclass(frozen=True)
class Cost:
    """Means over the cells of a variant that are done; None where no cell says."""

    variant: str
    parameters: float | None
    seconds_per_epoch: float | None
    seconds: float | None
    peak_memory_bytes: float | None


@dataclass(frozen=True)
class Order:
    """The order of the variants that both we and the paper have a score of, at a ratio by a metric.

    Attributes:
        places: of each here and in the paper, 1 for the best; equal scores share the better place.
        tau: Kendall's τ-b between the two orders, 1 where they agree; None where one of them has no order.
    """

    metric: str
    ratio: float
    places: dict[str, tuple[int, int]]
    tau: float | None


@dataclass(frozen=True)
class Comparison:
    """Everything the tables and the page show.

    Attributes:
        variants: in the order given.
        entries: by variant, ratio and metric.
        orders: for each ratio and metric at which the paper has two of the variants or more.
    """

    variants: list[str]
    ratios: list[float]
    entries: dict[tuple[str, float, str], Entry]
    tests: list[PairedTest]
    costs: list[Cost]
    orders: list[Order]


def summarise(results: Sequence[Result], dataset: str | None = None) -> Comparison:
    """The comparison of a grid.

    Args:
        results: one for each cell; one without `status` has not ended.
        dataset: its name, if it is one that the paper may have used.
    """
    variants = list(dict.fromkeys(result["variant"] for result in results))
    ratios = sorted({result["ratio"] for result in results})
    entries: dict[tuple[str, float, str], Entry] = {}
    for metric in METRICS:
        for ratio in ratios:
            here = [one for one in results if one["ratio"] == ratio]
            column = {
                name: _entry([one for one in here if one["variant"] == name], metric, dataset) for name in variants
            }
            places = _ranks({name: entry.mean for name, entry in column.items()})
            for name, entry in column.items():
                entries[name, ratio, metric] = replace(entry, rank=places[name])
    family = [test for metric in METRICS for test in _family(entries, variants, ratios, metric)]
    costs = [_cost(results, name) for name in variants]
    orders = [_order(entries, variants, ratio, metric) for metric in METRICS for ratio in ratios]
    found = [order for order in orders if len(order.places) > 1]
    return Comparison(variants, ratios, entries, with_p_values(family), costs, found)


def in_words(tests: Sequence[PairedTest], titles: Mapping[str, str]) -> list[str]:
    """A sentence for each test, and one for those that had too few runs."""
    sentences, left_out = [], []
    for test in tests:
        what = f"{METRICS[test.metric]} {'over all ratios' if test.ratio is None else f'at {100 * test.ratio:g} %'}"
        if test.p is None:
            left_out.append(f"{what} (n = {test.n})")
            continue
        verdict = "significant" if test.p <= LEVEL else "not significant"
        names = f"{titles.get(test.best, test.best)} against {titles.get(test.second, test.second)}"
        sentences.append(f"{what}: {names}, n = {test.n}, p = {test.p:.2g}, {verdict}.")
    return [*sentences, *([f"Too few pairs that differ for a test: {', '.join(left_out)}."] if left_out else [])]


def order_in_words(orders: Sequence[Order]) -> list[str]:
    """A sentence for each metric that an order is known by."""
    sentences = []
    for metric, title in METRICS.items():
        found = [order for order in orders if order.metric == metric and order.tau is not None]
        if found:
            taus = ", ".join(f"{order.tau:.2f} at {100 * order.ratio:g} %" for order in found)
            counts = sorted({len(order.places) for order in found})
            methods = f"{' to '.join(str(count) for count in dict.fromkeys((counts[0], counts[-1])))} methods"
            sentences.append(f"{title}: Kendall's τ between our order and the paper's, of {methods}: {taus}.")
    return sentences


def _order(
    entries: Mapping[tuple[str, float, str], Entry], variants: Sequence[str], ratio: float, metric: str
) -> Order:
    scores = {
        name: (entry.mean, entry.paper)
        for name in variants
        if (entry := entries[name, ratio, metric]).mean is not None and entry.paper is not None
    }
    if len(scores) < 2:
        return Order(metric, ratio, {}, None)
    from scipy.stats import kendalltau, rankdata

    # As the table shows them: those that look alike there have the same place.
    both = -np.round(100 * np.array(list(scores.values()), dtype=np.float64), 2)
    places = rankdata(both, "min", axis=0).astype(int).tolist()
    tau = float(kendalltau(*both.T).statistic)
    where = {name: (here, there) for name, (here, there) in zip(scores, places, strict=True)}
    return Order(metric, ratio, where, None if np.isnan(tau) else tau)


def _entry(runs: Sequence[Result], metric: str, dataset: str | None) -> Entry:
    scores = {one["seed"]: float(one[metric]) for one in runs if one.get("status") == "done"}
    ends = [one.get("status") for one in runs]
    instead = next((end for end in ("time", "failed") if end in ends), "–")
    # A variant with settings of its own is not what the paper ran.
    plain = next((one for one in runs if one["variant"] == one["method"]), None)
    paper = None if plain is None else paper_score(dataset, plain["method"], metric, plain["ratio"])
    return Entry(scores, len(runs), instead, paper=paper)


def _ranks(means: Mapping[str, float | None]) -> dict[str, Rank]:
    """Those that look alike in the table have the same rank; one variant alone has none."""
    shown = {name: round(100 * mean, 2) for name, mean in means.items() if mean is not None}
    order = sorted(set(shown.values()), reverse=True) if len(shown) > 1 else []
    places: dict[float, Rank] = dict(zip(order, ("best", "second"), strict=False))
    return {name: places.get(shown[name], "") if name in shown else "" for name in means}


def _family(
    entries: Mapping[tuple[str, float, str], Entry], variants: Sequence[str], ratios: Sequence[float], metric: str
) -> list[PairedTest]:
    """The best against the second at each ratio, and over all of them."""
    groups: list[tuple[float | None, Sequence[float]]] = [(ratio, [ratio]) for ratio in ratios]
    groups += [(None, ratios)] if len(ratios) > 1 else []
    found = []
    for which, some in groups:
        means = {
            name: statistics.fmean(mean for mean in each if mean is not None)
            for name in variants
            if None not in (each := [entries[name, ratio, metric].mean for ratio in some])
        }
        if len(means) < 2:
            continue
        best, second = sorted(means, key=lambda name: -means[name])[:2]
        scores = [
            (score, entries[second, ratio, metric].scores[seed])
            for ratio in some
            for seed, score in entries[best, ratio, metric].scores.items()
            if seed in entries[second, ratio, metric].scores
        ]
        found.append(PairedTest(metric, which, best, second, scores))
    return found


def _cost(results: Sequence[Result], variant: str) -> Cost:
    done = [one for one in results if one["variant"] == variant and one.get("status") == "done"]

    def mean(key: str, some: Sequence[Result] = done) -> float | None:
        values = [float(one[key]) for one in some if one.get(key) is not None]
        return statistics.fmean(values) if values else None

    # A cell that was interrupted, or uses embeddings of another, knows only what the rest of it took.
    whole = [one for one in done if not one.get("resumed")]
    memory = mean("peak_memory_bytes", whole or done)
    return Cost(variant, mean("parameters"), mean("seconds_per_epoch"), mean("seconds", whole), memory)


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
