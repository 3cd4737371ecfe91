from __future__ import annotations

import pytest

from chronospike.experiments.significance import PairedTest, holm, with_p_values


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
