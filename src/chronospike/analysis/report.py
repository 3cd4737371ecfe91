"""A run as one HTML page that opens from disk: no script, nothing fetched, light and dark, fit for paper."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup

from chronospike._version import __version__
from chronospike.analysis.charts import Line, bar, line_chart, reliability_chart
from chronospike.analysis.confusion import class_table, heat_map, merge_small, worst_mix_ups
from chronospike.analysis.findings import WEAK_F1, expectation, findings, headline
from chronospike.analysis.parts import about_scores, part_rows, simple_rows
from chronospike.analysis.probabilities import about_leaving_out, about_temperature, how_far_off, in_words
from chronospike.analysis.run_files import Calibration, Epoch, MethodScores, Metrics, RunFiles, read_run
from chronospike.analysis.unlabelled import class_shares
from chronospike.analysis.wording import GAP, LONGEST_NAME, count, counted, percent, shorten, visible
from chronospike.config import Settings
from chronospike.data.time_text import time_span
from chronospike.files import atomic_file
from chronospike.methods.registry import DEFAULT, METHODS, settings_type


def page_template(name: str) -> Template:
    """The template of a page that extends page.html.j2: one HTML file, with every text escaped."""
    environment = Environment(
        loader=PackageLoader("chronospike", "analysis"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(percent=percent, count=count, counted=counted, shorten=shorten, visible=visible)
    environment.globals.update(bar=bar, longest_name=LONGEST_NAME, version=__version__)
    return environment.get_template(name)


def write_report(run: Path) -> Path:
    """Write `report.html` into the run folder `run` and return its path.

    Raises:
        InputError: `run` is not the folder of a finished run.
        StorageError: one of its files is damaged.
    """
    page = render(read_run(run))
    target = run / "report.html"
    with atomic_file(target) as partial:
        partial.write_text(page, encoding="utf-8")
    return target


def render(run: RunFiles) -> str:
    """The page; the same run always gives the same text."""
    metrics, names = run.metrics, run.metrics.class_names
    classes = class_table(names, metrics.test.per_class_f1, metrics.test.confusion)
    confusion = metrics.test.confusion
    parts = [*part_rows(metrics), *simple_rows(metrics)] if metrics.parts else []
    return page_template("report.html.j2").render(
        run=run,
        metrics=metrics,
        weak_f1=WEAK_F1,
        headline=headline(metrics),
        expectation=expectation(metrics),
        graph_facts=graph_facts(metrics.graph),
        run_facts=run_facts(metrics),
        methods=methods(metrics),
        parts=parts,
        about_parts=about_scores(parts),
        calibration=calibration_facts(metrics.calibration),
        findings=findings(metrics, classes, run.settings),
        loss_chart=loss_chart(run.epochs, metrics.best_epoch),
        validation_chart=validation_chart(run.epochs, metrics.best_epoch),
        classes=classes,
        map=heat_map(*merge_small(names, confusion)) if confusion else "",
        mix_ups=worst_mix_ups(names, confusion),
        unlabelled=class_shares(metrics),
        firing_chart=firing_chart(metrics.firing_rate_per_step),
        settings=settings_table(run.settings),
        command=command(run),
    )


def graph_facts(graph: Mapping[str, Any]) -> list[str]:
    """The graph in a few short phrases."""
    things = {"nodes": "node", "union_edges": "distinct edge", "steps": "time step", "classes": "class"}
    phrases = [
        counted(graph[key], thing, "classes" if thing == "class" else "")
        for key, thing in things.items()
        if isinstance(graph.get(key), int)
    ]
    if graph.get("first_time") is not None and graph.get("last_time") is not None:
        phrases.append(time_span(graph))
    return phrases


def run_facts(metrics: Metrics) -> list[tuple[str, str]]:
    """Names and values of what the run was."""
    m = metrics
    epochs = None if m.epochs is None else count(m.epochs)
    if epochs is not None and m.best_epoch is not None:
        epochs += f" (best: {m.best_epoch})"
    facts = {
        "Parameters": None if m.parameters is None else count(m.parameters),
        "Epochs": epochs,
        "Time per epoch": None if m.seconds_per_epoch is None else f"{m.seconds_per_epoch:.3g}{GAP}s",
        "Device": m.device,
        "Seed": None if m.seed is None else str(m.seed),
    }
    return [(name, value) for name, value in facts.items() if value is not None]


def methods(metrics: Metrics) -> list[tuple[str, MethodScores, bool]]:
    """Rows of the comparison: name, test scores, whether it is the model of this run."""
    rows: list[tuple[str, MethodScores, bool]] = [
        (name[:1].upper() + name[1:], scores, False) for name, scores in metrics.baselines.items()
    ]
    if metrics.teacher is not None:
        rows.append((f"Teacher: {metrics.teacher.title}", metrics.teacher.test, False))
    title = metrics.title[:1].upper() + metrics.title[1:]
    rows.append((title, metrics.test, True))
    if metrics.smoothed is not None:
        rows.append((f"{title}, smoothed", metrics.smoothed, True))
    return rows


def calibration_facts(calibration: Calibration | None) -> dict[str, Any] | None:
    """What the page says of the probabilities; None if nothing is known of them."""
    if calibration is None:
        return None
    after, before = calibration.reliability, calibration.reliability_before
    facts = {
        "error": how_far_off(calibration),
        "temperature": about_temperature(calibration),
        "chart": reliability_chart(after, before if before != after else [], label=in_words(after)),
        "rows": calibration.abstention,
        "example": about_leaving_out(calibration.abstention),
    }
    return facts if any(facts.values()) else None


def loss_chart(epochs: list[Epoch], best_epoch: int | None) -> Markup:
    """The training loss per epoch, and its part from classification where the two differ."""
    x = [epoch.epoch for epoch in epochs]
    total, part = [_value(e.loss) for e in epochs], [_value(e.classification_loss) for e in epochs]
    lines = [Line("loss", x, total)]
    if any(math.isfinite(b) and a != b for a, b in zip(total, part, strict=True)):
        lines.append(Line("classification part", x, part))
    return line_chart(lines, label=_course("Training loss", lines[0]), x_label="epoch", best_epoch=best_epoch)


def validation_chart(epochs: list[Epoch], best_epoch: int | None) -> Markup:
    """Validation Macro-F1 and Micro-F1 per epoch."""
    x = [epoch.epoch for epoch in epochs]
    lines = [
        Line("Macro-F1", x, [_value(e.validation_macro_f1) for e in epochs]),
        Line("Micro-F1", x, [_value(e.validation_micro_f1) for e in epochs]),
    ]
    label = _course("Validation Macro-F1", lines[0])
    return line_chart(lines, label=label, x_label="epoch", best_epoch=best_epoch, as_percent=True)


def firing_chart(rates: list[list[float]]) -> Markup:
    """Firing rate per step, a line per layer."""
    lines = [Line(f"layer {n}", range(len(layer)), layer) for n, layer in enumerate(rates, start=1)]
    label = "; ".join(_course(f"Firing rate of {line.name}", line, "step") for line in lines)
    return line_chart(lines, label=label, x_label="time step", as_percent=True)


def settings_table(settings: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The settings in their order, those that differ from the default marked."""
    method = str(settings.get("method", DEFAULT))
    kind = settings_type(method) if method in METHODS else Settings
    known, defaults = kind.model_fields, kind().model_dump(mode="json")
    return [
        {
            "name": name,
            "value": shown_value(value),
            "meaning": (known[name].description or "") if name in known else "",
            "changed": name in defaults and value != defaults[name],
        }
        for name, value in settings.items()
    ]


def command(run: RunFiles) -> str:
    """What trains this run again, from inside its folder."""
    if run.metrics.command:
        return run.metrics.command
    provenance = run.metrics.graph.get("provenance")
    dataset = provenance.get("dataset") if isinstance(provenance, dict) else None
    parts = ["chronospike", "train", str(dataset or "GRAPH"), "--preset", "config.yaml", "-o", "../again"]
    return shlex.join(parts) if run.settings else ""


def _value(number: float | None) -> float:
    return math.nan if number is None else number


def _course(what: str, line: Line, unit: str = "epoch") -> str:
    """A line in words, for those who cannot see it."""
    points = line.points()
    if not points:
        return what
    (first, start), (last, end) = points[0], points[-1]
    if first == last:
        return f"{what}: {start:.3f} at {unit} {first:g}"
    return f"{what}: from {start:.3f} at {unit} {first:g} to {end:.3f} at {unit} {last:g}"


def shown_value(value: Any) -> str:
    """A setting as it would be written in YAML."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return f"[{', '.join(map(shown_value, value))}]"
    return "null" if value is None else str(value)
