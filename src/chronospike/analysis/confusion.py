"""The confusion matrix as a heat map, scores per class, and the most common mistakes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from chronospike.analysis.charts import CHARACTER, svg, text
from chronospike.analysis.wording import counted, percent, shorten, visible

Matrix = Sequence[Sequence[int]]

LARGEST_MAP = 40
NAME_LENGTH = 20
LARGEST_CELL = 56.0
# The map's letters of 12 pixels become 10 on a narrow page, and 15 on a wide one where there is room.
SMALLEST_SCALE, LARGEST_SCALE = 0.84, 1.25
DIGIT = 7.2
# With the style sheet's colours black and white text are both readable (contrast 4.5) on a cell of this share.
INK_CHANGES = 0.66


@dataclass(frozen=True)
class ClassScores:
    """One class on the test nodes; what the confusion matrix would tell is None without one."""

    name: str
    f1: float
    support: int | None = None
    precision: float | None = None
    recall: float | None = None


@dataclass(frozen=True)
class MixUp:
    """Nodes of class `true` that were predicted to be `predicted`; `share` of all of class `true`."""

    true: str
    predicted: str
    nodes: int
    share: float


def class_table(names: Sequence[str], f1: dict[str, float], confusion: Matrix) -> list[ClassScores]:
    """The classes, best F1 first; those without a test node come last."""
    if not confusion:
        rows = [ClassScores(name, f1[name]) for name in names if name in f1]
        return sorted(rows, key=lambda row: -row.f1)
    rows = []
    for i, name in enumerate(names):
        support, predicted, right = sum(confusion[i]), sum(row[i] for row in confusion), confusion[i][i]
        rows.append(
            ClassScores(
                name=name,
                f1=f1.get(name, 2 * right / max(1, support + predicted)),
                support=support,
                precision=right / predicted if predicted else None,
                recall=right / support if support else None,
            )
        )
    return sorted(rows, key=lambda row: (row.support == 0, -row.f1))


def worst_mix_ups(names: Sequence[str], confusion: Matrix, limit: int = 5) -> list[MixUp]:
    """The pairs of classes with the most nodes, most first."""
    found = [
        MixUp(names[i], names[j], nodes, nodes / sum(row))
        for i, row in enumerate(confusion)
        for j, nodes in enumerate(row)
        if i != j and nodes > 0
    ]
    return sorted(found, key=lambda mix_up: -mix_up.nodes)[:limit]


def merge_small(names: Sequence[str], confusion: Matrix, limit: int = LARGEST_MAP) -> tuple[list[str], list[list[int]]]:
    """At most `limit` classes: the largest in their own order, the others added up in a last row and column."""
    if len(confusion) <= limit:
        return list(names), [list(row) for row in confusion]
    by_size = sorted(range(len(confusion)), key=lambda i: (-sum(confusion[i]), i))
    kept = sorted(by_size[: limit - 1])
    place = dict.fromkeys(range(len(confusion)), limit - 1) | {i: at for at, i in enumerate(kept)}
    merged = [[0] * limit for _ in range(limit)]
    for i, row in enumerate(confusion):
        for j, nodes in enumerate(row):
            merged[place[i]][place[j]] += nodes
    return [*(names[i] for i in kept), f"{len(confusion) - len(kept)} others"], merged


def heat_map(names: Sequence[str], confusion: Matrix) -> Markup:
    """Rows are true classes, columns predicted ones; a cell's shade is its share of the row.

    Counts are written in the cells where they fit; every cell says all of it when pointed at.
    """
    size = len(confusion)
    cell = cell_size(size, max(map(max, confusion)))
    short = [shorten(visible(name), NAME_LENGTH) for name in names]
    margin = 34 + CHARACTER * max(len(name) for name in short)
    # Names above the columns stand upright unless each fits over its cell.
    upright = margin - 34 + 8 > cell
    above = 26 + (margin - 34 + 8 if upright else 20)
    width, height = margin + size * cell + 4, above + size * cell + 4
    middle = size * cell / 2
    parts = [
        text(margin + middle, 14, "predicted class", "axis", "middle"),
        text(12, above + middle, "true class", "axis", "middle", turned=True),
        Markup('<rect class="ground" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}"/>').format(
            margin, above, size * cell, size * cell
        ),
    ]
    for i, name in enumerate(short):
        at = (i + 0.5) * cell
        words = Markup("<title>{}</title>{}").format(names[i], name)
        parts.append(text(margin - 8, above + at + 4, words, "tick", "end"))
        parts.append(
            text(margin + at + 4, above - 7, words, "tick", "start", turned=True)
            if upright
            else text(margin + at, above - 8, words, "tick", "middle")
        )
    for i, row in enumerate(confusion):
        for j, nodes in enumerate(row):
            if nodes:
                hint = f"{names[i]} taken for {names[j]}" if i != j else f"{names[i]} recognised"
                hint = f"{hint}: {nodes:,} of {counted(sum(row), 'node')} ({percent(nodes / sum(row))})"
                parts.append(_cell(margin + j * cell, above + i * cell, cell, nodes, nodes / sum(row), hint))
    label = f"Confusion matrix of {size} classes; the mix-ups with the most nodes are listed below it"
    drawing = svg(parts, width, height, label, "map")
    # Names and counts stay readable: a narrower page scrolls, and says so.
    narrowest = width if size > 20 else SMALLEST_SCALE * width
    widest = max(width, min(LARGEST_SCALE * width, 700))
    return Markup(
        '<div class="wide" style="--narrowest:{0:.0f}px"><p class="scroll-hint" aria-hidden="true">Scroll sideways '
        'to see all of it →</p><div class="scroll" tabindex="0" role="region" aria-label="Confusion matrix">'
        '<div style="width:{1:.0f}px;max-width:{2};min-width:{0:.0f}px">{3}</div></div></div>'
    ).format(narrowest, widest, "none" if size > 20 else "100%", drawing)


def cell_size(classes: int, largest: int) -> float:
    """Width of a cell: room for the `largest` count and for a finger, but so that all classes fit the page."""
    return max(15.0, min(max(LARGEST_CELL, DIGIT * len(f"{largest:,}") + 6), 620 / max(1, classes)))


def _cell(x: float, y: float, cell: float, nodes: int, share: float, hint: str) -> Markup:
    square = Markup('<rect class="heat" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}" fill-opacity="{:.3f}"/>')
    # Rare mix-ups stay visible: a cell that is not empty is never quite blank.
    drawn = square.format(x + 0.5, y + 0.5, cell - 1, cell - 1, 0.05 + 0.95 * share)
    if cell >= 22 and DIGIT * len(f"{nodes:,}") <= cell - 6:
        kind = "on-strong" if share > INK_CHANGES else "on-pale"
        drawn += text(x + cell / 2, y + cell / 2 + 4, f"{nodes:,}", kind, "middle")
    return Markup("<g><title>{}</title>{}</g>").format(hint, drawn)
