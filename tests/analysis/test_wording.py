from __future__ import annotations

import pytest

from chronospike.analysis.wording import GAP, count, counted, listing, percent, points, quoted, shorten, visible


def test_a_share_becomes_a_percentage() -> None:
    assert percent(0.7934) == f"79.3{GAP}%"


def test_a_share_that_is_no_number_is_said_so() -> None:
    assert percent(float("nan")) == "not a number"


@pytest.mark.parametrize(("difference", "text"), [(0.012, "1.2 points"), (-0.012, "1.2 points"), (0.01, "1.0 point")])
def test_a_difference_is_told_in_points(difference: float, text: str) -> None:
    assert points(difference).replace(GAP, " ") == text


def test_thousands_are_set_off() -> None:
    assert count(5617) == "5,617"


@pytest.mark.parametrize(("number", "text"), [(1, "1 class"), (2, "2 classes")])
def test_one_thing_is_singular(number: int, text: str) -> None:
    assert counted(number, "class", "classes").replace(GAP, " ") == text


@pytest.mark.parametrize(
    ("items", "text"), [(["a"], "a"), (["a", "b"], "a and b"), (["a", "b", "c", "d", "e"], "a, b, c and 2 more")]
)
def test_a_long_list_ends_in_a_count(items: list[str], text: str) -> None:
    assert listing(items, limit=3) == text


def test_a_long_name_ends_in_an_ellipsis() -> None:
    assert shorten("abcdef", 4) == "abc…"
    assert shorten("abcd", 4) == "abcd"


@pytest.mark.parametrize(
    ("text", "shown"),
    [("\u202egnp.exe", "⟨U+202E⟩gnp.exe"), ("a\nb", "a⟨U+000A⟩b"), ("مستخدم", "مستخدم"), ("a b", "a b")],
)
def test_what_cannot_be_seen_is_written_out(text: str, shown: str) -> None:
    assert visible(text) == shown


def test_a_quoted_name_is_cut_and_turns_nothing_about() -> None:
    assert quoted("\u202e" + "x" * 100) == "‘⟨U+202E⟩" + "x" * 51 + "…’"
