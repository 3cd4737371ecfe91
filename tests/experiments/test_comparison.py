from __future__ import annotations

import math
from typing import Any

import pytest

from chronospike.experiments.comparison import (
    PairedTest,
    holm,
    in_words,
    order_in_words,
    summarise,
    with_p_values,
)
from tests.experiments.small_grids import done


def _failed(variant: str, ratio: float, seed: int, status: str | None) -> dict[str, Any]:
    facts = {"variant": variant, "method": variant, "ratio": ratio, "seed": seed}
    return facts if status is None else {**facts, "status": status, "reason": "why"}


def test_the_deviation_is_that_of_a_sample() -> None:
    found = summarise([done("a", 0.8, seed, score) for seed, score in enumerate((0.7, 0.8, 0.9))])
    entry = found.entries["a", 0.8, "macro_f1"]
    # (0.1² + 0² + 0.1²) / (3 - 1)
    assert entry.mean == pytest.approx(0.8)
    assert entry.deviation == pytest.approx(math.sqrt(0.01))


def test_one_run_has_no_deviation() -> None:
    assert summarise([done("a", 0.8, 0, 0.7)]).entries["a", 0.8, "macro_f1"].deviation is None


def test_each_metric_and_ratio_has_a_best_and_a_second() -> None:
    scores = {"a": (0.5, 0.9), "b": (0.7, 0.8), "c": (0.6, 0.1)}
    found = summarise([done(name, 0.8, 0, macro, micro) for name, (macro, micro) in scores.items()])
    ranks = {metric: [found.entries[name, 0.8, metric].rank for name in "abc"] for metric in ("macro_f1", "micro_f1")}
    assert ranks == {"macro_f1": ["", "best", "second"], "micro_f1": ["best", "second", ""]}


def test_those_that_look_alike_are_best_together() -> None:
    found = summarise([done(name, 0.8, 0, score) for name, score in (("a", 0.70001), ("b", 0.7), ("c", 0.6))])
    assert [found.entries[name, 0.8, "macro_f1"].rank for name in "abc"] == ["best", "best", "second"]


def test_a_method_alone_is_not_the_best() -> None:
    assert summarise([done("a", 0.8, 0, 0.7)]).entries["a", 0.8, "macro_f1"].rank == ""


@pytest.mark.parametrize(
    ("statuses", "shown"), [(["time", "failed"], "time"), (["failed", None], "failed"), ([None, None], "–")]
)
def test_without_a_score_stands_why(statuses: list[str | None], shown: str) -> None:
    entry = summarise([_failed("a", 0.8, seed, status) for seed, status in enumerate(statuses)])
    found = entry.entries["a", 0.8, "micro_f1"]
    assert (found.mean, found.instead, found.planned) == (None, shown, 2)


def test_the_papers_figure_stands_beside_the_plain_method_on_its_dataset() -> None:
    results = [done("chronospike", 0.8, 0, 0.8), {**done("no clip", 0.8, 0, 0.8), "method": "chronospike"}]
    found = summarise(results, "dblp").entries
    assert found["chronospike", 0.8, "macro_f1"].paper == pytest.approx(0.7913)
    assert found["chronospike", 0.8, "macro_f1"].difference == pytest.approx(0.0087)
    assert found["no clip", 0.8, "macro_f1"].paper is None
    assert summarise(results, "pubmed").entries["chronospike", 0.8, "macro_f1"].paper is None


def test_the_best_is_tested_against_the_second_over_all_ratios() -> None:
    results = [
        done(name, ratio, seed, base + seed / 1000 * lead)
        for name, base, lead in (("low", 0.3, 0), ("best", 0.8, 2), ("second", 0.75, 1))
        for ratio in (0.4, 0.8)
        for seed in range(5)
    ]
    for number, one in enumerate(results):
        one["macro_f1"] += number / 1e5
    tests = summarise(results).tests
    pooled = [test for test in tests if test.ratio is None]
    assert [(test.metric, test.best, test.second) for test in pooled] == [
        ("macro_f1", "best", "second"),
        ("micro_f1", "best", "second"),
    ]
    # Ten pairs of distinct macro scores; of micro the two ratios repeat each other, and five pairs are too few.
    assert [(test.n, test.p) for test in pooled] == [(10, pytest.approx(2 / 2**10)), (5, None)]
    words = in_words(tests, {"best": "The Best"})
    assert words[0] == "Macro-F1 over all ratios: The Best against second, n = 10, p = 0.002, significant."
    assert words[1].startswith("Too few pairs that differ for a test: Macro-F1 at 40 % (n = 5), ")


def test_costs_are_means_and_leave_out_the_time_of_a_resumed_fit() -> None:
    cost = {"parameters": 10, "seconds_per_epoch": None, "peak_memory_bytes": 100}
    results = [
        done("a", 0.8, 0, 0.5, seconds=3.0, resumed=False, **cost),
        done("a", 0.8, 1, 0.5, seconds=5.0, resumed=False, **{**cost, "peak_memory_bytes": 300}),
        done("a", 0.8, 2, 0.5, seconds=0.1, resumed=True, **{**cost, "peak_memory_bytes": 200}),
    ]
    (found,) = summarise(results).costs
    assert (found.parameters, found.seconds_per_epoch, found.seconds, found.peak_memory_bytes) == (10, None, 4.0, 200)


def _pairs(*differences: float, ratio: float | None = None) -> PairedTest:
    return PairedTest(
        "macro_f1", ratio, "a", "b", [(0.5 + d + i / 100, 0.5 + i / 100) for i, d in enumerate(differences)]
    )


def test_holm_multiplies_the_smallest_most_and_never_lets_a_larger_one_pass() -> None:
    # 4 · 0.01; 3 · 0.02 = 0.06; 2 · 0.025 = 0.05, below the one before; 1 · 0.5.
    assert holm([0.5, 0.02, 0.01, 0.025]) == pytest.approx([0.5, 0.06, 0.04, 0.06])


def test_six_differences_of_one_sign_have_a_p_value_of_two_in_64() -> None:
    (test,) = with_p_values([_pairs(0.01, 0.02, 0.03, 0.04, 0.05, 0.06)])
    assert test.n == 6
    assert test.p == pytest.approx(2 / 64)


def test_the_rank_of_a_difference_against_the_others_counts() -> None:
    # The smallest of seven points the other way: subsets of 1 to 7 with a sum of at most 1 are 2, on either side.
    (test,) = with_p_values([_pairs(-0.01, 0.02, 0.03, 0.04, 0.05, 0.06, 0.07)])
    assert test.p == pytest.approx(2 * 2 / 2**7)


def test_five_runs_are_too_few() -> None:
    (test,) = with_p_values([_pairs(0.01, 0.02, 0.03, 0.04, 0.05)])
    assert (test.n, test.p) == (5, None)


def test_six_runs_are_too_few_for_two_comparisons() -> None:
    one = _pairs(0.01, 0.02, 0.03, 0.04, 0.05, 0.06)
    assert [test.p for test in with_p_values([one, one])] == [None, None]


def test_comparisons_with_too_few_runs_do_not_count_in_the_correction() -> None:
    enough, few = _pairs(0.01, 0.02, 0.03, 0.04, 0.05, 0.06, 0.07), _pairs(0.01, 0.02)
    tests = with_p_values([few, enough])
    assert [test.p for test in tests] == [None, pytest.approx(2 / 2**7)]


def test_equal_scores_and_repeated_pairs_are_no_evidence() -> None:
    pairs = PairedTest("macro_f1", None, "a", "b", [(0.6, 0.5)] * 10 + [(0.7, 0.7)])
    assert pairs.differences == pytest.approx([0.1])


def test_places_here_and_in_the_paper_and_how_far_the_orders_agree() -> None:
    # The paper at 80 %: SpikeNet 74.65, TGAT 72.15, HTNE 68.36.
    scores = {"spikenet": 0.75, "tgat": 0.78, "htne": 0.69, "labels": 0.84}
    found = summarise([done(name, 0.8, 0, score) for name, score in scores.items()], "dblp")
    order = next(one for one in found.orders if one.metric == "macro_f1")
    assert order.places == {"spikenet": (2, 1), "tgat": (1, 2), "htne": (3, 3)}
    # Of three pairs two are in the same order and one is not.
    assert order.tau == pytest.approx(1 / 3)
    assert order_in_words(found.orders)[0] == (
        "Macro-F1: Kendall's τ between our order and the paper's, of 3 methods: 0.33 at 80 %."
    )


def test_equal_scores_share_the_better_place_and_all_equal_have_no_order() -> None:
    scores = {"spikenet": 0.75, "tgat": 0.75004, "htne": 0.69}
    found = summarise([done(name, 0.8, 0, score) for name, score in scores.items()], "dblp").orders[0]
    assert found.places == {"spikenet": (1, 1), "tgat": (1, 2), "htne": (3, 3)}
    # One pair is tied here: (2 - 0) / √(2 · 3).
    assert found.tau == pytest.approx(2 / math.sqrt(6))
    level = summarise([done(name, 0.8, 0, 0.7) for name in scores], "dblp").orders
    assert [one.tau for one in level] == [None, None]
    assert order_in_words(level) == []


@pytest.mark.parametrize("dataset", [None, "pubmed"])
def test_without_two_methods_of_the_papers_there_is_no_order(dataset: str | None) -> None:
    assert summarise([done(name, 0.8, 0, 0.7) for name in ("tgat", "htne")], dataset).orders == []
    assert summarise([done(name, 0.8, 0, 0.7) for name in ("tgat", "labels")], "dblp").orders == []
