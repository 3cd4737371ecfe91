"""A comparison as files: results.jsonl, table.csv, table.md and table.tex."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from chronospike.experiments.comparison import METRICS, Comparison, Entry, in_words, order_in_words
from chronospike.files import atomic_file

RESULTS, CSV, MARKDOWN, TEX = "results.jsonl", "table.csv", "table.md", "table.tex"
CAPTION = "Test scores in percent, mean ± standard deviation (n - 1) over seeds; best bold, second underlined."
_TEX_SIGNS = {
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "–": "--",
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
}  # fmt: skip
# Of parameters, seconds per epoch, seconds and megabytes.
_COST_FORMATS = (",.0f", ".3g", ".3g", ",.0f")

Mark = Callable[[str, str], str]  # what is written, and the rank of the entry


def write_tables(
    output: Path, results: Sequence[Mapping[str, Any]], comparison: Comparison, titles: Mapping[str, str]
) -> None:
    """Write all four, each at once; `titles` are the variants' names for readers."""
    lines = "".join(json.dumps(result, ensure_ascii=False) + "\n" for result in results)
    texts = {
        RESULTS: lines,
        CSV: as_csv(comparison),
        MARKDOWN: as_markdown(comparison, titles),
        TEX: as_tex(comparison, titles),
    }
    for name, text in texts.items():
        with atomic_file(output / name) as partial:
            partial.write_text(text, encoding="utf-8", newline="")


def shown(entry: Entry, sign: str = " ± ") -> str:
    """`79.33 ± 0.12`, or what stands in its place."""
    if entry.mean is None:
        return entry.instead
    return f"{100 * entry.mean:.2f}" + ("" if entry.deviation is None else f"{sign}{100 * entry.deviation:.2f}")


def missing(entry: Entry) -> str:
    """` (4 of 5)` where some runs are missing and some are there."""
    return f" ({len(entry.scores)} of {entry.planned})" if 0 < len(entry.scores) < entry.planned else ""


def as_csv(comparison: Comparison) -> str:
    """A row for each variant, ratio and metric; scores between 0 and 1."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    names = ("mean", "std", "runs", "planned", "rank", "paper", "difference", "place")
    writer.writerow(("variant", "ratio", "metric", *names))
    for (variant, ratio, metric), entry in comparison.entries.items():
        numbers = (entry.mean, entry.deviation, len(entry.scores), entry.planned)
        where = place(comparison, variant, metric, ratio)
        writer.writerow((variant, ratio, metric, *numbers, entry.rank, entry.paper, entry.difference, where))
    return file.getvalue()


def as_markdown(comparison: Comparison, titles: Mapping[str, str]) -> str:
    """The scores, the tests in words, and the costs."""

    def mark(text: str, rank: str) -> str:
        return {"best": f"**{text}**", "second": f"<u>{text}</u>"}.get(rank, text)

    heads = [f"{METRICS[metric]} {100 * ratio:g} %" for metric, ratio in _columns(comparison)]
    rows = [[_plain(label), *cells] for label, cells in _rows(comparison, titles, mark)]
    costs = []
    for cost in comparison.costs:
        megabytes = None if cost.peak_memory_bytes is None else cost.peak_memory_bytes / 1e6
        numbers = zip((cost.parameters, cost.seconds_per_epoch, cost.seconds, megabytes), _COST_FORMATS, strict=True)
        cells = ("–" if value is None else f"{value:{form}}" for value, form in numbers)
        costs.append([_plain(titles.get(cost.variant, cost.variant)), *cells])
    paragraphs = [
        CAPTION,
        _markdown_table(["Method", *heads], rows),
        "\n".join(f"- {_plain(sentence)}" for sentence in in_words(comparison.tests, titles)),
        _places(comparison, titles),
        _markdown_table(["Method", "Parameters", "Seconds per epoch", "Seconds to fit", "Peak memory, MB"], costs),
    ]
    return "\n\n".join(filter(None, paragraphs)) + "\n"


def as_tex(comparison: Comparison, titles: Mapping[str, str]) -> str:
    """A table for LaTeX with the package booktabs."""

    def mark(text: str, rank: str) -> str:
        return {"best": rf"\textbf{{{text}}}", "second": rf"\underline{{{text}}}"}.get(rank, text)

    count = len(comparison.ratios)
    groups = " & ".join(rf"\multicolumn{{{count}}}{{c}}{{{name}}}" for name in METRICS.values())
    rules = "".join(rf"\cmidrule(lr){{{2 + i * count}-{1 + (i + 1) * count}}}" for i in range(len(METRICS)))
    heads = " & ".join(rf"{100 * ratio:g}\,\%" for _, ratio in _columns(comparison))
    rows = [
        " & ".join([escape_tex(label), *cells]) + r" \\"
        for label, cells in _rows(comparison, titles, mark, r"\,$\pm$\,", escape_tex)
    ]
    lines = [
        f"% {CAPTION}",
        r"% \usepackage{booktabs}",
        rf"\begin{{tabular}}{{l{'r' * count * len(METRICS)}}}",
        r"\toprule",
        rf" & {groups} \\",
        rules,
        rf"Method & {heads} \\",
        r"\midrule",
        *rows,
        r"\bottomrule",
        r"\end{tabular}",
    ]
    return "\n".join(lines) + "\n"


def escape_tex(text: str) -> str:
    """Text in which nothing means anything to LaTeX."""
    return "".join(_TEX_SIGNS.get(sign, sign) for sign in " ".join(text.split()))


def _columns(comparison: Comparison) -> list[tuple[str, float]]:
    return [(metric, ratio) for metric in METRICS for ratio in comparison.ratios]


def _rows(
    comparison: Comparison,
    titles: Mapping[str, str],
    mark: Mark,
    sign: str = " ± ",
    escape: Callable[[str], str] = str,
) -> list[tuple[str, list[str]]]:
    """Label and cells of each row; below a method that the paper has, its figures and the differences."""
    rows: list[tuple[str, list[str]]] = []
    for name in comparison.variants:
        entries = [comparison.entries[name, ratio, metric] for metric, ratio in _columns(comparison)]
        cells = [
            mark(shown(one, sign) if one.scores else escape(one.instead), one.rank) + missing(one) for one in entries
        ]
        rows.append((titles.get(name, name), cells))
        if any(one.paper is not None for one in entries):
            rows.append(("the paper", ["" if one.paper is None else f"{100 * one.paper:.2f}" for one in entries]))
            gaps = (one.difference for one in entries)
            rows.append(("difference", ["" if gap is None else f"{100 * gap:+.2f}" for gap in gaps]))
    return rows


def place(comparison: Comparison, variant: str, metric: str, ratio: float) -> str:
    """`3 (5)`: the place of a variant here, and in the paper; empty where one of them is not known."""
    orders = (one.places for one in comparison.orders if (one.metric, one.ratio) == (metric, ratio))
    places = next(orders, {}).get(variant)
    return "" if places is None else f"{places[0]} ({places[1]})"


def _places(comparison: Comparison, titles: Mapping[str, str]) -> str:
    """Where the methods of the paper's table stand here and there, and how far the orders agree."""
    columns = _columns(comparison)
    heads = [f"{METRICS[metric]} {100 * ratio:g} %" for metric, ratio in columns]
    rows = []
    for name in comparison.variants:
        cells = [place(comparison, name, *column) for column in columns]
        if any(cells):
            rows.append([_plain(titles.get(name, name)), *cells])
    if not rows:
        return ""
    table = _markdown_table(["Place here (in the paper)", *heads], rows)
    return "\n\n".join([table, *order_in_words(comparison.orders)])


def _plain(text: str) -> str:
    """Text that stays within its cell of a Markdown table, and is no HTML."""
    return " ".join(text.split()).replace("&", "&amp;").replace("<", "&lt;").replace("|", "\\|")


def _markdown_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [heads, ["---", *("--:" for _ in heads[1:])], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
