"""Small charts as inline SVG. Colours come from the page's style sheet by class, so they follow light and dark."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from chronospike.analysis.run_files import ReliabilityBin
from chronospike.analysis.wording import counted, percent

WIDTH, HEIGHT = 460, 250
LEFT, RIGHT, TOP, BOTTOM = 46, 14, 34, 40
SERIES_STYLES = 4
# Of a chart of spreads: the height of a dot and of the name above it, and the room for half a tick's text.
ROW, LABEL, MARGIN = 14, 28, 24
# Of a reliability diagram: its height, the room for "100 %" at the left and half of it at the right, and radii of dots.
SQUARE, WIDE_LEFT, WIDE_RIGHT = 400, 54, 26
SMALLEST, LARGEST = 2.0, 10.0
# Average width of a character at the charts' font size; there is no text to measure without a browser.
CHARACTER = 6.6


@dataclass(frozen=True)
class Line:
    """One line of a chart; a y that is not finite leaves a gap."""

    name: str
    x: Sequence[float]
    y: Sequence[float]

    def points(self) -> list[tuple[float, float]]:
        return [(x, y) for x, y in zip(self.x, self.y, strict=True) if math.isfinite(y)]


@dataclass(frozen=True)
class _Scale:
    """Maps values to positions."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        share = (value - self.low) / (self.high - self.low) if self.high > self.low else 0.5
        return self.start + share * (self.end - self.start)


def line_chart(
    lines: Sequence[Line], *, label: str, x_label: str, best_epoch: int | None = None, as_percent: bool = False
) -> Markup:
    """A chart of one to a few lines over whole numbers; an empty string if there is no finite value.

    Args:
        label: what a screen reader says instead of the picture.
        best_epoch: marked, if the first line has a value there.
        as_percent: the values are shares.
    """
    values = [y for line in lines for _, y in line.points()]
    if not values:
        return Markup("")
    x_values = [x for line in lines for x, _ in line.points()]
    y_ticks = ticks(*_padded(min(values), max(values), 1.0 if as_percent else math.inf))
    x_ticks = ticks(min(x_values), max(x_values), wanted=6, whole=True)
    across = _Scale(min(x_values), max(x_values), LEFT + 8, WIDTH - RIGHT - 8)
    down = _Scale(y_ticks[0], y_ticks[-1], HEIGHT - BOTTOM, TOP)
    inside = [x for x in x_ticks if across.low <= x <= across.high]
    parts = [
        *(_y_tick(y, down(y), y_ticks, as_percent) for y in y_ticks),
        *(text(across(x), HEIGHT - BOTTOM + 17, f"{x:g}", "tick", "middle") for x in inside),
        text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 5, x_label, "axis", "middle"),
        *(_line(line, number, across, down) for number, line in enumerate(lines)),
        *_mark(best_epoch, lines, across, down),
        *_legend([line.name for line in lines]),
    ]
    return svg(parts, WIDTH, HEIGHT, label, "chart")


@dataclass(frozen=True)
class Spread:
    """A mean and its standard deviation in one row of a chart of spreads; the series tells its colour."""

    series: int
    mean: float
    deviation: float = 0.0


def spread_chart(rows: Sequence[tuple[str, Sequence[Spread]]], series: Sequence[str], *, label: str) -> Markup:
    """A row for each name, with a dot for each mean and a line of one deviation to each side; values are shares."""
    spreads = [one for _, row in rows for one in row]
    if not spreads:
        return Markup("")
    low, high = min(one.mean - one.deviation for one in spreads), max(one.mean + one.deviation for one in spreads)
    x_ticks = ticks(*_padded(low, high, 1.0))
    across = _Scale(x_ticks[0], x_ticks[-1], MARGIN, WIDTH - MARGIN)
    height = ROW * len(series) + LABEL
    bottom = TOP + height * len(rows)
    rule = Markup('<line class="rule" x1="{0:.1f}" x2="{0:.1f}" y1="{1}" y2="{2:.1f}"/>')
    parts = [rule.format(across(x), TOP, bottom) for x in x_ticks]
    for number, (name, row) in enumerate(rows):
        top = TOP + number * height
        parts.append(text(0, top + LABEL - 6, name, "row-name", "start"))
        parts += [_spread(one, across, top + LABEL + ROW * (one.series + 0.5)) for one in row]
    parts += [text(across(x), bottom + 17, percent(x, _digits(x_ticks)), "tick", "middle") for x in x_ticks]
    return svg([*parts, *_legend(series, 0)], WIDTH, bottom + 24, label, "chart")


def _spread(one: Spread, across: _Scale, y: float) -> Markup:
    line = Markup('<line class="series s{} spread" x1="{:.1f}" x2="{:.1f}" y1="{:.1f}" y2="{:.1f}"/>')
    dot = Markup('<circle class="series s{} dot" cx="{:.1f}" cy="{:.1f}" r="4"/>')
    style, ends = one.series % SERIES_STYLES, (one.mean - one.deviation, one.mean + one.deviation)
    return line.format(style, *map(across, ends), y, y) + dot.format(style, across(one.mean), y)


def reliability_chart(after: Sequence[ReliabilityBin], before: Sequence[ReliabilityBin], *, label: str) -> Markup:
    """Accuracy against confidence beside the diagonal, dots as large as their nodes are many; `before` is faint."""
    after, before = [one for one in after if one.nodes], [one for one in before if one.nodes]
    if not after:
        return Markup("")
    lowest = min(min(one.confidence, one.accuracy) for one in (*after, *before))
    low = 0.5 if lowest >= 0.5 else 0.0
    across, down = _Scale(low, 1.0, WIDE_LEFT, WIDTH - WIDE_RIGHT), _Scale(low, 1.0, SQUARE - BOTTOM, TOP)
    marks = ticks(low, 1.0)
    diagonal = Markup('<line class="ideal" x1="{:.1f}" x2="{:.1f}" y1="{:.1f}" y2="{:.1f}"/>')
    most = max(one.nodes for one in after)
    keys = [("series s0", "calibrated"), *([("series before", "before")] if before else []), ("ideal", "ideal")]
    parts = [
        *(_y_tick(y, down(y), marks, True, WIDE_LEFT, WIDE_RIGHT) for y in marks),
        *(text(across(x), SQUARE - BOTTOM + 17, percent(x, 0), "tick", "middle") for x in marks),
        text((across.start + across.end) / 2, SQUARE - 5, "probability of the predicted class", "axis", "middle"),
        diagonal.format(across(low), across(1.0), down(low), down(1.0)),
        _path(before, "series before", across, down),
        *(_dot(one, SMALLEST, "before-dot", across, down) for one in before),
        _path(after, "series s0", across, down),
        *(_dot(one, _radius(one.nodes / most), "said", across, down) for one in after),
        *_keys(keys, WIDE_LEFT),
    ]
    return svg(parts, WIDTH, SQUARE, label, "chart")


def _path(points: Sequence[ReliabilityBin], style: str, across: _Scale, down: _Scale) -> Markup:
    places = " ".join(f"{across(one.confidence):.1f},{down(one.accuracy):.1f}" for one in points)
    return Markup('<polyline class="{}" points="{}"/>').format(style, places) if len(points) > 1 else Markup("")


def _radius(share: float) -> float:
    """So that areas compare as the numbers of nodes do, apart from a least size that can be seen."""
    return SMALLEST + (LARGEST - SMALLEST) * math.sqrt(share)


def _dot(one: ReliabilityBin, radius: float, kind: str, across: _Scale, down: _Scale) -> Markup:
    dot = Markup('<circle class="{}" cx="{:.1f}" cy="{:.1f}" r="{:.1f}"><title>{}</title></circle>')
    words = (
        f"{counted(one.nodes, 'node')} predicted with {percent(one.confidence)} on average: "
        f"{percent(one.accuracy)} are correct"
    )
    return dot.format(kind, across(one.confidence), down(one.accuracy), radius, words)


def bar(share: float, kind: str = "") -> Markup:
    """A horizontal bar that fills `share` of its width, hidden from screen readers: its number stands beside it."""
    width = 100 * min(1.0, max(0.0, share)) if math.isfinite(share) else 0.0
    return Markup(
        '<svg class="bar {}" viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true">'
        '<rect class="track" width="100" height="10"/><rect class="fill" width="{:.2f}" height="10"/></svg>'
    ).format(kind, width)


def svg(parts: Sequence[Markup], width: float, height: float, label: str, kind: str) -> Markup:
    """The parts in a drawing that scales with the page."""
    opening = Markup('<svg class="{}" viewBox="0 0 {:g} {:g}" role="img" aria-label="{}">')
    return opening.format(kind, width, height, label) + Markup("").join(parts) + Markup("</svg>")


def ticks(low: float, high: float, wanted: int = 5, whole: bool = False) -> list[float]:
    """Round numbers, evenly spaced, that reach from at most `low` to at least `high`."""
    span = high - low
    if span <= 0:
        return [low] if whole else ticks(low - 0.5, low + 0.5, wanted)
    rough = span / wanted
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough * 0.999)
    step = max(1.0, round(step)) if whole else step
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [number * step for number in range(first, last + 1)]


def _padded(low: float, high: float, ceiling: float) -> tuple[float, float]:
    """Bounds with room around a flat line, and from zero where the values reach near it."""
    if high == low:
        room = max(abs(low) * 0.1, 0.01)
        low, high = low - room if low > room else 0.0, min(high + room, max(ceiling, high))
    return (0.0 if 0 <= low < 0.5 * (high - low) else low), high


def _y_tick(
    value: float,
    position: float,
    all_ticks: Sequence[float],
    as_percent: bool,
    left: float = LEFT,
    right: float = RIGHT,
) -> Markup:
    digits = _digits(all_ticks, 100 if as_percent else 1)
    shown = percent(value, digits) if as_percent else f"{value:.{digits}f}"
    rule = Markup('<line class="rule" x1="{}" x2="{}" y1="{:.1f}" y2="{:.1f}"/>')
    return rule.format(left, WIDTH - right, position, position) + text(left - 7, position + 4, shown, "tick", "end")


def _digits(all_ticks: Sequence[float], factor: float = 100) -> int:
    """Decimals that tell the ticks apart, multiplied by `factor`."""
    step = all_ticks[1] - all_ticks[0] if len(all_ticks) > 1 else 1.0
    return max(0, -math.floor(math.log10(step * factor) + 1e-9))


def _line(line: Line, number: int, across: _Scale, down: _Scale) -> Markup:
    """The stretches of finite values; a stretch of one value is a dot."""
    stretches: list[list[str]] = [[]]
    for x, y in zip(line.x, line.y, strict=True):
        if math.isfinite(y):
            stretches[-1].append(f"{across(x):.1f},{down(y):.1f}")
        elif stretches[-1]:
            stretches.append([])
    style = f"series s{number % SERIES_STYLES}"
    drawn = []
    for stretch in filter(None, stretches):
        if len(stretch) > 1:
            drawn.append(Markup('<polyline class="{}" points="{}"/>').format(style, " ".join(stretch)))
        else:
            dot = Markup('<circle class="{} dot" cx="{}" cy="{}" r="4"/>')
            drawn.append(dot.format(style, *stretch[0].split(",")))
    return Markup("").join(drawn)


def _mark(best_epoch: int | None, lines: Sequence[Line], across: _Scale, down: _Scale) -> list[Markup]:
    """A rule, a dot where it meets the first line, and the words at whichever end is farther from the lines."""
    if best_epoch is None or all(x != best_epoch for x, _ in lines[0].points()):
        return []
    position, words = across(best_epoch), f"best epoch: {best_epoch}"
    heights = [down(y) for line in lines for x, y in line.points() if x == best_epoch]
    bottom = HEIGHT - BOTTOM
    words_y = TOP + 12 if sum(heights) > len(heights) * (TOP + bottom) / 2 else bottom - 7
    on_left = position + 6 + CHARACTER * len(words) > WIDTH - RIGHT
    rule = Markup('<line class="mark" x1="{0:.1f}" x2="{0:.1f}" y1="{1}" y2="{2}"/>')
    dot = Markup('<circle class="best" cx="{:.1f}" cy="{:.1f}" r="4"/>')
    return [
        rule.format(position, TOP, bottom),
        *(dot.format(position, height) for height in heights[:1]),
        text(position + (-6 if on_left else 6), words_y, words, "mark-text", "end" if on_left else "start"),
    ]


def _legend(names: Sequence[str], left: float = LEFT) -> list[Markup]:
    return _keys([(f"series s{number % SERIES_STYLES}", name) for number, name in enumerate(names)], left)


def _keys(styles: Sequence[tuple[str, str]], left: float = LEFT) -> list[Markup]:
    """A piece of line in each style, and its name beside it."""
    parts, x = [], float(left)
    for style, name in styles:
        swatch = Markup('<line class="{}" x1="{:.1f}" x2="{:.1f}" y1="14" y2="14"/>')
        parts += [swatch.format(style, x, x + 20), text(x + 26, 18, name, "key", "start")]
        x += 26 + CHARACTER * len(name) + 16
    return parts


def text(x: float, y: float, words: str, kind: str, anchor: str, turned: bool = False) -> Markup:
    turn = Markup(' transform="rotate(-90 {:.1f} {:.1f})"').format(x, y) if turned else ""
    form = Markup('<text class="{}" x="{:.1f}" y="{:.1f}" text-anchor="{}"{}>{}</text>')
    return form.format(kind, x, y, anchor, turn, words)
