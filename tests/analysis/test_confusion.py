from __future__ import annotations

from xml.etree import ElementTree

import pytest

from chronospike.analysis.confusion import cell_size, class_table, heat_map, merge_small, worst_mix_ups

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


@pytest.mark.parametrize(
    ("classes", "largest", "cell"), [(2, 9, 56.0), (2, 12_345_678, 78.0), (31, 9, 20.0), (99, 9, 15.0)]
)
def test_a_cell_has_room_for_its_count_as_far_as_the_page_allows(classes: int, largest: int, cell: float) -> None:
    assert cell_size(classes, largest) == pytest.approx(cell)


def test_a_map_wider_than_a_phone_scrolls_by_keyboard_and_says_so() -> None:
    size = 12
    drawing = _map([f"class {i}" for i in range(size)], [[1] * size] * size)
    (region,) = [part for part in drawing.iter("div") if part.get("role") == "region"]
    assert (region.get("tabindex"), region.get("aria-label")) == ("0", "Confusion matrix")
    assert [part.text for part in drawing.iter("p")] == ["Scroll sideways to see all of it →"]
    narrowest = float((drawing.get("style") or "").removeprefix("--narrowest:").removesuffix("px"))
    assert narrowest > 390
    assert f"min-width:{narrowest:.0f}px" in (region[0].get("style") or "")


def test_a_map_of_few_classes_fits_a_phone() -> None:
    drawing = _map(["a", "b", "c", "d", "e"], [[1] * 5] * 5)
    assert float((drawing.get("style") or "").removeprefix("--narrowest:").removesuffix("px")) < 320


def test_a_class_name_cannot_turn_the_text_about() -> None:
    shown = [text[0].tail for text in _map(["\u202eevil", "b"], [[1, 0], [0, 1]]).iter("text") if len(text)]
    assert shown.count("⟨U+202E⟩evil") == 2


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
