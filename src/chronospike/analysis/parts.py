"""The parts of a run and the simple methods: one row each, with held-out and test scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from chronospike.analysis.run_files import HeldOut, MethodScores, Metrics
from chronospike.analysis.wording import LONGEST_NAME, listing, percent, shorten, visible

LABELS_ALONE, SMOOTHED = "labels alone", "smoothed"


@dataclass(frozen=True)
class Row:
    """A part or a simple method.

    Attributes:
        chosen: whether the predictions come from it.
        on: where `held_out` comes from; None where that is not known.
    """

    name: str
    title: str
    is_simple: bool
    chosen: bool
    held_out: MethodScores | None
    test: MethodScores | None
    on: HeldOut | None


def part_rows(metrics: Metrics) -> list[Row]:
    """The parts in the order of building; a run without any is one part, scored on its validation nodes."""
    rows = [
        Row(part.name, part.title or part.name, False, part.chosen, part.held_out, part.test, part.on)
        for part in metrics.parts
    ]
    if not rows:
        held_out = None if metrics.validation.nodes == 0 else metrics.validation
        rows.append(
            Row("method", metrics.title, False, True, held_out, metrics.test, "validation" if held_out else None)
        )
    if metrics.smoothed is not None and all(row.name != SMOOTHED for row in rows):
        # What --smooth adds: its test scores alone are kept.
        rows.append(Row(SMOOTHED, f"{metrics.title}, smoothed", False, False, None, metrics.smoothed, None))
    return rows


def simple_rows(metrics: Metrics) -> list[Row]:
    """The simple methods, with held-out scores where there are any."""
    ways = {part.on for part in metrics.parts if part.on is not None}
    # They are scored as the parts are; where these differ, nothing says how.
    on = ways.pop() if len(ways) == 1 else None
    return [
        Row(name, name, True, False, scores.held_out, scores, on if scores.held_out else None)
        for name, scores in metrics.baselines.items()
    ]


def best_first(rows: Sequence[Row]) -> list[Row]:
    """By held-out Micro-F1; those without one last, in their order, since test scores choose nothing."""
    return sorted(rows, key=lambda row: (row.held_out is None, -row.held_out.micro_f1 if row.held_out else 0.0))


def about_scores(rows: Sequence[Row]) -> str:
    """Which predictions the held-out scores are counted on, and what they are for."""
    meanings = {
        "out-of-fold": "out-of-fold: each node is predicted by models that were not fitted to its label",
        "validation": "those of the validation nodes",
    }
    scored = [row for row in rows if row.held_out is not None]
    ways = sorted({row.on for row in scored if row.on is not None})
    if not scored:
        told = "No held-out scores were kept."
    elif len(ways) == 1:
        told = f"Held-out scores are {meanings[ways[0]]}."
    else:
        told = " ".join(
            f"Held-out scores of {listing([shown(row) for row in scored if row.on == way])} are {meanings[way]}."
            for way in ways
        )
    purpose = "They determine which part predicts; test" if scored else "Test"
    return f"{told} {purpose} scores are not used for any choice."


def shown(row: Row) -> str:
    """Its title on one line, cut if it is very long."""
    return shorten(visible(row.title), LONGEST_NAME)


def without_network(metrics: Metrics) -> str:
    """A sentence if classifiers that do not read the network do as well, by held-out scores; else empty."""
    chosen = metrics.chosen_part
    if chosen is not None and chosen.name == LABELS_ALONE:
        return (
            "The network adds nothing significant here, so the predictions do not use it: they come from classifiers "
            "that read the known labels around a node and its activity."
        )
    if chosen is None or chosen.held_out is None or chosen.name.startswith(LABELS_ALONE):
        return ""
    others = (part for part in metrics.parts if part.name.startswith(LABELS_ALONE) and part.on == chosen.on)
    scores = [part.held_out for part in others if part.held_out is not None]
    if not scores:
        return ""
    with_it, without = chosen.held_out, max(scores, key=lambda one: one.micro_f1)
    if without.micro_f1 < with_it.micro_f1 or without.macro_f1 < with_it.macro_f1:
        return ""
    return (
        "The network adds nothing here: a classifier that reads the known labels around a node and its activity, but "
        "not the network, does as well on the held-out nodes "
        f"(Micro-F1 {percent(without.micro_f1)} against {percent(with_it.micro_f1)}, "
        f"Macro-F1 {percent(without.macro_f1)} against {percent(with_it.macro_f1)})."
    )
