"""A comparison as one HTML page in the style of a run's report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from chronospike.analysis.charts import Spread, spread_chart
from chronospike.analysis.report import graph_facts, page_template, shown_value
from chronospike.analysis.wording import GAP, counted, listing, percent, shorten, visible
from chronospike.experiments.comparison import METRICS, Comparison, Entry, in_words, order_in_words
from chronospike.experiments.tables import missing, place, shown
from chronospike.files import atomic_file

PAGE = "index.html"
_MEANINGS = {
    "macro_f1": "Macro-F1 gives every class the same weight, however small.",
    "micro_f1": "Micro-F1 is the share of correctly classified nodes.",
}
_LONGEST_ROW_NAME = 48
# A method without half of the best score is left out of the charts.
_FAR_BELOW = 0.5


def write_page(
    output: Path, facts: Mapping[str, Any], results: Sequence[Mapping[str, Any]], comparison: Comparison
) -> Path:
    """Write `index.html` into `output`; `facts` are the contents of comparison.json."""
    target = output / PAGE
    with atomic_file(target) as partial:
        partial.write_text(render(facts, results, comparison), encoding="utf-8")
    return target


def render(facts: Mapping[str, Any], results: Sequence[Mapping[str, Any]], comparison: Comparison) -> str:
    titles = {one["name"]: one["title"] for one in facts["variants"]}
    return page_template("comparison.html.j2").render(
        facts=facts,
        headline=headline(results, comparison, titles),
        graph_facts=graph_facts(facts["summary"]),
        ratios=[_labels_known(ratio) for ratio in comparison.ratios],
        metrics=[_metric(key, comparison, titles) for key in METRICS],
        charts=[_chart(key, comparison, titles) for key in METRICS],
        orders=_orders(comparison, titles),
        agreement=order_in_words(comparison.orders),
        tests=in_words(comparison.tests, titles),
        costs=_costs(results, comparison, titles),
        ended=_without_score(results, titles),
        machine=_machine(facts),
        variants=[{"title": titles[one["name"]], "settings": _settings(one)} for one in facts["variants"]],
    )


def headline(results: Sequence[Mapping[str, Any]], comparison: Comparison, titles: Mapping[str, str]) -> str:
    """Who is best where most labels are known, and how much of the grid is done."""
    ratio = comparison.ratios[-1]
    best = []
    for metric, title in METRICS.items():
        column = {name: comparison.entries[name, ratio, metric] for name in comparison.variants}
        names = [titles[name] for name, entry in column.items() if entry.rank == "best"]
        if names:
            score = max(entry.mean or 0.0 for entry in column.values())
            best.append(f"the best {title} is {percent(score)} ({listing(names)})")
    done = sum(one.get("status") == "done" for one in results)
    state = "" if done == len(results) else f" {done} of {counted(len(results), 'cell')} are done."
    if not best:
        return f"{counted(len(comparison.variants), 'method')} side by side.{state}"
    return f"With {_labels_known(ratio)} of the labels known, {', and '.join(best)}.{state}"


def _labels_known(ratio: float) -> str:
    return percent(ratio, 0 if round(100 * ratio, 6).is_integer() else 1)


def _metric(key: str, comparison: Comparison, titles: Mapping[str, str]) -> dict[str, Any]:
    rows = []
    for name in comparison.variants:
        entries = [comparison.entries[name, ratio, key] for ratio in comparison.ratios]
        cells = [
            {"text": shown(one, f"{GAP}±{GAP}"), "rank": one.rank, "missing": missing(one).strip()} for one in entries
        ]
        paper = [_paper(one) for one in entries] if any(one.paper is not None for one in entries) else []
        rows.append({"title": titles[name], "cells": cells, "paper": paper})
    return {"key": key, "title": METRICS[key], "meaning": _MEANINGS[key], "rows": rows}


def _paper(entry: Entry) -> str:
    if entry.paper is None:
        return "–"
    gap = "" if entry.difference is None else f" ({100 * entry.difference:+.2f})".replace("-", "\N{MINUS SIGN}")
    return f"{100 * entry.paper:.2f}{gap}"


def _orders(comparison: Comparison, titles: Mapping[str, str]) -> list[dict[str, Any]]:
    """For each method of the paper's table its places here and there, by metric and ratio."""
    columns = [(metric, ratio) for metric in METRICS for ratio in comparison.ratios]
    rows = [
        {"title": titles[name], "cells": [place(comparison, name, *column) or "–" for column in columns]}
        for name in comparison.variants
    ]
    return [row for row in rows if set(row["cells"]) != {"–"}]


def _chart(key: str, comparison: Comparison, titles: Mapping[str, str]) -> dict[str, Any]:
    """Means and deviations; those that are far below would leave the others no room."""
    rows, far = [], []
    best = max((entry.mean or 0.0 for (_, _, metric), entry in comparison.entries.items() if metric == key), default=0)
    for name in comparison.variants:
        entries = [comparison.entries[name, ratio, key] for ratio in comparison.ratios]
        drawn = [
            Spread(place, one.mean, one.deviation or 0.0) for place, one in enumerate(entries) if one.mean is not None
        ]
        if drawn and max(one.mean for one in drawn) < _FAR_BELOW * best:
            far.append(titles[name])
        elif drawn:
            rows.append((shorten(visible(titles[name]), _LONGEST_ROW_NAME), drawn))
    series = [f"{100 * ratio:g}{GAP}%" for ratio in comparison.ratios]
    drawing = spread_chart(rows, series, label=f"Test {METRICS[key]} of each method; the table has the numbers")
    return {"title": f"Test {METRICS[key]}", "drawing": drawing, "far": listing(far) if far else ""}


def _costs(
    results: Sequence[Mapping[str, Any]], comparison: Comparison, titles: Mapping[str, str]
) -> list[dict[str, Any]]:
    def text(value: float | None, form: str) -> str:
        return "–" if value is None else f"{value:{form}}"

    return [
        {
            "title": titles[one.variant],
            "cells": [
                text(one.parameters, ",.0f"),
                text(one.seconds_per_epoch, ".3g"),
                text(one.seconds, ".3g"),
                "–" if one.peak_memory_bytes is None else f"{one.peak_memory_bytes / 1e6:,.0f}{GAP}MB",
                _devices(results, one.variant),
            ],
        }
        for one in comparison.costs
    ]


def _devices(results: Sequence[Mapping[str, Any]], variant: str) -> str:
    found = {one["device"] for one in results if one["variant"] == variant and one.get("status") == "done"}
    return listing(sorted(found)) if found else "–"


def _without_score(results: Sequence[Mapping[str, Any]], titles: Mapping[str, str]) -> list[dict[str, Any]]:
    """Cells that ended for want of time or in failure, seeds with the same reason together."""
    groups: dict[tuple[str, float, str, str], list[int]] = {}
    for one in results:
        if one.get("status") in ("time", "failed"):
            key = (one["variant"], one["ratio"], one["status"], str(one.get("reason", "")))
            groups.setdefault(key, []).append(one["seed"])
    return [
        {
            "title": titles[variant],
            "ratio": f"{100 * ratio:g}{GAP}%",
            "seeds": ", ".join(map(str, seeds)),
            "status": status,
            "reason": reason,
        }
        for (variant, ratio, status, reason), seeds in groups.items()
    ]


def _machine(facts: Mapping[str, Any]) -> list[str]:
    machine = facts["machine"]
    memory = f"{machine['memory_bytes'] / 1e9:.0f}{GAP}GB memory"
    gpu = [machine["gpu"]] if "gpu" in machine else []
    features = [f"features {', '.join(facts['features'])}"] if facts["features"] else []
    cpus = counted(machine["cpus"], "CPU")
    return [*gpu, machine["processor"], cpus, memory, machine["system"], *features, f"preset {facts['preset']}"]


def _settings(variant: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [
        {"name": name, "value": shown_value(value), "changed": name in variant["changed"]}
        for name, value in variant["resolved"].items()
    ]
