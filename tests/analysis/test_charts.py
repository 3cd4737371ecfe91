from __future__ import annotations

import math
from xml.etree import ElementTree

import pytest
from markupsafe import Markup

from chronospike.analysis.charts import (
    BOTTOM,
    HEIGHT,
    TOP,
    WIDTH,
    Line,
    Spread,
    bar,
    line_chart,
    reliability_chart,
    spread_chart,
    ticks,
)
from chronospike.analysis.run_files import ReliabilityBin


def _drawn(chart: Markup, tag: str, kind: str) -> list[ElementTree.Element]:
    return [part for part in ElementTree.fromstring(chart).iter(tag) if kind in part.get("class", "").split()]


def _curve(chart: Markup) -> list[tuple[float, float]]:
    (line,) = _drawn(chart, "polyline", "s0")
    return [(float(x), float(y)) for x, y in (pair.split(",") for pair in line.get("points", "").split())]


@pytest.mark.parametrize(
    ("low", "high", "whole", "expected"),
    [
        (0.0, 1.0, False, [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]),
        (0.61, 0.79, False, [0.6, 0.65, 0.7, 0.75, 0.8]),
        (0, 99, True, [0, 20, 40, 60, 80, 100]),
        (0, 2, True, [0, 1, 2]),
        (4, 4, True, [4]),
    ],
)
def test_ticks_are_round_and_enclose_the_values(low: float, high: float, whole: bool, expected: list[float]) -> None:
    assert ticks(low, high, whole=whole) == pytest.approx(expected)


def test_a_line_from_the_lowest_to_the_highest_tick_fills_the_height() -> None:
    curve = _curve(line_chart([Line("loss", [0, 1, 2], [0.0, 5.0, 10.0])], label="", x_label=""))
    assert [y for _, y in curve] == [HEIGHT - BOTTOM, (HEIGHT - BOTTOM + TOP) / 2, TOP]


def test_epochs_are_evenly_spaced() -> None:
    curve = _curve(line_chart([Line("loss", [3, 4, 5], [1.0, 2.0, 1.5])], label="", x_label=""))
    assert curve[1][0] - curve[0][0] == pytest.approx(curve[2][0] - curve[1][0], abs=0.11)


def test_one_epoch_is_a_dot_in_the_middle() -> None:
    chart = line_chart([Line("loss", [0], [2.5])], label="", x_label="")
    (dot,) = _drawn(chart, "circle", "dot")
    assert 0 < float(dot.get("cx", "")) < WIDTH
    assert TOP < float(dot.get("cy", "")) < HEIGHT - BOTTOM
    assert not _drawn(chart, "polyline", "series")


def test_a_value_that_is_not_finite_leaves_a_gap() -> None:
    chart = line_chart([Line("loss", [0, 1, 2, 3, 4], [4.0, 3.0, math.nan, 2.0, 1.0])], label="", x_label="")
    assert [len(line.get("points", "").split()) for line in _drawn(chart, "polyline", "s0")] == [2, 2]
    assert "nan" not in chart


def test_a_chart_without_any_finite_value_is_left_out() -> None:
    assert line_chart([Line("loss", [0, 1], [math.nan, math.inf])], label="", x_label="") == ""


def test_the_mark_stands_at_its_epoch() -> None:
    line = Line("loss", [0, 1, 2], [3.0, 2.0, 1.0])
    chart = line_chart([line], label="", x_label="", best_epoch=1)
    (rule,) = _drawn(chart, "line", "mark")
    (words,) = _drawn(chart, "text", "mark-text")
    assert float(rule.get("x1", "")) == _curve(chart)[1][0]
    assert words.text == "best epoch: 1"


@pytest.mark.parametrize("epoch", [None, 3])
def test_an_epoch_that_the_line_does_not_reach_has_no_mark(epoch: int | None) -> None:
    chart = line_chart([Line("loss", [0, 1, 2], [3.0, 2.0, 1.0])], label="", x_label="", best_epoch=epoch)
    assert not _drawn(chart, "line", "mark")


def test_the_words_of_a_mark_at_the_right_edge_stay_inside() -> None:
    line = Line("loss", [0, 1, 2], [3.0, 2.0, 1.0])
    (words,) = _drawn(line_chart([line], label="", x_label="", best_epoch=2), "text", "mark-text")
    assert words.get("text-anchor") == "end"


def test_shares_are_labelled_in_percent() -> None:
    chart = line_chart([Line("F1", [0, 1], [0.5, 0.7])], label="", x_label="", as_percent=True)
    shown = [text.text for text in _drawn(chart, "text", "tick")]
    assert "50\N{NO-BREAK SPACE}%" in shown


def test_flat_scores_of_one_stay_within_the_chart() -> None:
    curve = _curve(line_chart([Line("F1", [0, 1], [1.0, 1.0])], label="", x_label="", as_percent=True))
    assert all(TOP <= y <= HEIGHT - BOTTOM for _, y in curve)


def test_the_label_and_names_are_escaped() -> None:
    chart = line_chart([Line("<b>", [0, 1], [1.0, 2.0])], label='"><script>', x_label="&")
    assert ElementTree.fromstring(chart).get("aria-label") == '"><script>'
    assert "<b>" not in chart


@pytest.mark.parametrize(("share", "width"), [(0.25, 25.0), (-1.0, 0.0), (1.5, 100.0), (math.nan, 0.0)])
def test_a_bar_fills_its_share(share: float, width: float) -> None:
    (fill,) = _drawn(bar(share), "rect", "fill")
    assert float(fill.get("width", "")) == width


def test_a_spread_reaches_one_deviation_to_each_side_of_its_dot() -> None:
    chart = spread_chart([("a", [Spread(0, 0.5, 0.1)]), ("b", [Spread(0, 0.8)])], ["80 %"], label="")
    first, second = _drawn(chart, "circle", "dot")
    line = _drawn(chart, "line", "spread")[0]
    left, right = float(line.get("x1", "")), float(line.get("x2", ""))
    assert float(first.get("cx", "")) == pytest.approx((left + right) / 2, abs=0.1)
    assert right - left == pytest.approx(2 * (float(second.get("cx", "")) - float(first.get("cx", ""))) / 3, abs=0.2)


def test_series_of_a_row_lie_below_one_another_in_their_colours() -> None:
    chart = spread_chart([("a", [Spread(0, 0.5), Spread(1, 0.5)])], ["40 %", "80 %"], label="")
    first, second = _drawn(chart, "circle", "dot")
    assert "s0" in first.get("class", "")
    assert "s1" in second.get("class", "")
    assert float(second.get("cy", "")) > float(first.get("cy", ""))


def test_no_spreads_make_no_chart() -> None:
    assert spread_chart([], ["80 %"], label="") == ""


def said(confidence: float, accuracy: float, nodes: int) -> ReliabilityBin:
    return ReliabilityBin(low=0, high=1, confidence=confidence, accuracy=accuracy, nodes=nodes)


def _place(dot: ElementTree.Element) -> tuple[float, float]:
    return float(dot.get("cx", "")), float(dot.get("cy", ""))


def test_dots_that_say_what_is_right_lie_on_the_diagonal() -> None:
    chart = reliability_chart([said(0.0, 0.0, 1), said(0.5, 0.5, 1), said(1.0, 1.0, 1)], [], label="")
    (ideal, _) = _drawn(chart, "line", "ideal")
    first, middle, last = map(_place, _drawn(chart, "circle", "said"))
    assert first == (float(ideal.get("x1", "")), float(ideal.get("y1", "")))
    assert last == (float(ideal.get("x2", "")), float(ideal.get("y2", "")))
    assert middle == pytest.approx(((first[0] + last[0]) / 2, (first[1] + last[1]) / 2), abs=0.1)


def test_the_more_nodes_the_larger_the_dot() -> None:
    chart = reliability_chart([said(0.6, 0.6, 10), said(0.8, 0.8, 1000), said(0.9, 0.9, 0)], [], label="")
    small, large = (float(dot.get("r", "")) for dot in _drawn(chart, "circle", "said"))
    assert small < large
    assert "1,000\N{NO-BREAK SPACE}nodes predicted with 80.0\N{NO-BREAK SPACE}% on average" in chart


def test_before_calibration_is_drawn_and_named_only_where_it_differs() -> None:
    after, before = [said(0.6, 0.6, 1), said(0.8, 0.8, 1)], [said(0.7, 0.6, 1), said(0.9, 0.8, 1)]
    assert len(_drawn(reliability_chart(after, before, label=""), "polyline", "before")) == 1
    alone = reliability_chart(after, [], label="")
    assert not _drawn(alone, "polyline", "before")
    assert [key.text for key in _drawn(alone, "text", "key")] == ["calibrated", "ideal"]


def test_nobody_makes_no_reliability_chart() -> None:
    assert reliability_chart([], [said(0.5, 0.5, 1)], label="") == ""
    assert reliability_chart([said(0.5, 0.5, 0)], [], label="") == ""
