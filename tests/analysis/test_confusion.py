from __future__ import annotations

from xml.etree import ElementTree

import pytest

from chronospike.analysis.confusion import class_table, heat_map, merge_small, worst_mix_ups

NAMES = ["a", "b", "c"]
COUNTS = [[6, 2, 0], [1, 3, 0], [0, 0, 0]]


def test_precision_recall_and_support_come_from_the_counts() -> None:
    first = class_table(NAMES, {}, COUNTS)[0]
    assert (first.name, first.support) == ("a", 8)
    assert first.precision == pytest.approx(6 / 7)
    assert first.recall == pytest.approx(6 / 8)
    assert first.f1 == pytest.approx(12 / 15)


def test_a_class_without_test_nodes_comes_last_and_has_no_recall() -> None:
    last = class_table(NAMES, {"a": 0.0, "b": 0.0, "c": 0.0}, COUNTS)[-1]
    assert (last.name, last.support, last.recall, last.precision) == ("c", 0, None, None)


def test_the_best_class_comes_first() -> None:
    assert [row.name for row in class_table(NAMES, {"a": 0.2, "b": 0.9, "c": 0.5}, [])] == ["b", "c", "a"]


def test_mix_ups_leave_out_what_is_right_and_what_never_happened() -> None:
    found = [(mix_up.true, mix_up.predicted, mix_up.nodes, mix_up.share) for mix_up in worst_mix_ups(NAMES, COUNTS)]
    assert found == [("a", "b", 2, 0.25), ("b", "a", 1, 0.25)]


def test_small_classes_are_added_up() -> None:
    counts = [[9, 0, 1, 0], [0, 1, 1, 0], [0, 0, 8, 2], [1, 0, 0, 2]]
    names, merged = merge_small(["a", "b", "c", "d"], counts, limit=3)
    assert names == ["a", "c", "2 others"]
    assert merged == [[9, 1, 0], [0, 8, 2], [1, 1, 3]]


def test_as_many_classes_as_the_limit_are_kept_apart() -> None:
    assert merge_small(NAMES, COUNTS, limit=3) == (NAMES, COUNTS)


def _map(names: list[str], counts: list[list[int]]) -> ElementTree.Element:
    return ElementTree.fromstring(heat_map(names, counts))


def test_every_cell_that_is_not_empty_says_its_count_and_share() -> None:
    hints = [title.text for group in _map(NAMES, COUNTS).iter("g") for title in group.iter("title")]
    gap = "\N{NO-BREAK SPACE}"
    assert hints[:2] == [
        f"a recognised: 6 of 8{gap}nodes (75.0{gap}%)",
        f"a taken for b: 2 of 8{gap}nodes (25.0{gap}%)",
    ]
    assert len(hints) == 4


def test_a_full_row_is_shaded_fully_and_counts_are_written() -> None:
    (group,) = _map(["a", "b"], [[7, 0], [0, 0]]).iter("g")
    assert [float(rect.get("fill-opacity", "")) for rect in group.iter("rect")] == [1.0]
    assert [text.text for text in group.iter("text")] == ["7"]


def test_counts_that_do_not_fit_are_left_to_the_hint() -> None:
    size = 40
    counts = [[123 if i == j else 0 for j in range(size)] for i in range(size)]
    drawing = _map([f"class {i}" for i in range(size)], counts)
    assert not [text for group in drawing.iter("g") for text in group.iter("text")]
    assert len([title for group in drawing.iter("g") for title in group.iter("title")]) == size


def test_class_names_are_escaped_and_long_ones_shortened_with_the_whole_name_as_hint() -> None:
    name = '<script>alert("everything & more")</script>'
    markup = heat_map([name, "b"], [[1, 0], [0, 1]])
    assert "<script" not in markup
    titles = [title.text for text in ElementTree.fromstring(markup).iter("text") for title in text.iter("title")]
    assert titles.count(name) == 2
