"""A run's results in plain words: the headline, and how far they can be trusted."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from chronospike.analysis.confusion import ClassScores
from chronospike.analysis.parts import SMOOTHED, without_network
from chronospike.analysis.probabilities import poor_calibration
from chronospike.analysis.run_files import Metrics
from chronospike.analysis.simple_methods import (
    GUESSING,
    MAJORITY,
    Rival,
    beats_guessing,
    held_out_beats_guessing,
    margin,
    margins,
    random_macro_f1,
    rival,
    useful_rivals,
)
from chronospike.analysis.unlabelled import odd_shares
from chronospike.analysis.wording import GAP, counted, listing, percent, points, quoted

WEAK_F1 = 0.5
SILENT, SATURATED = 0.01, 0.9
# Without the number of nodes there is no margin to compare with; 3 points is much for any usual test set.
USUAL_GAP = 0.03
# A test score beside what cross-validation expects: so many deviations of the folds, and so many points at least.
FAR_DEVIATIONS, FAR_POINTS = 3, 0.02


@dataclass(frozen=True)
class Finding:
    """One sentence or two, and whether it reassures, informs or warns."""

    level: Literal["good", "note", "warning"]
    text: str


def headline(metrics: Metrics) -> str:
    """The result in one sentence, beside what needs no model."""
    nodes = metrics.test_nodes
    # Where parts are chosen by held-out scores, these are not the test's.
    kind = "test node" if metrics.parts else "held-out node"
    which = f"the {counted(nodes, kind)}" if nodes else f"the {kind}s"
    sentence = f"{percent(metrics.test.micro_f1)} of {which} are classified correctly"
    useful = useful_rivals(metrics)
    others = []
    if useful:
        others.append(f"the best simple method, {useful[0].name}, gets {percent(useful[0].scores.micro_f1)}")
    if MAJORITY in metrics.baselines:
        verb = "" if others else " gets"
        others.append(f"{GUESSING}{verb} {percent(metrics.baselines[MAJORITY].micro_f1)}")
    return f"{sentence}; {', '.join(others)}." if others else f"{sentence}."


def findings(metrics: Metrics, classes: Sequence[ClassScores], settings: Mapping[str, Any]) -> list[Finding]:
    """All that speaks for or against the scores, warnings first."""
    found = [
        *_beside_guessing(metrics),
        *_beside_simple_methods(metrics),
        *(Finding("note", text) for text in [without_network(metrics)] if text),
        *_beside_estimate(metrics),
        *(Finding("warning", text) for text in [poor_calibration(metrics)] if text),
        *_parts(metrics),
        *_order(metrics, settings),
        *_gap(metrics),
        *_margin_note(metrics),
        *_dropped(metrics),
        *(Finding("note", f"About the split: {note}.") for note in metrics.split.notes),
        *_weak_classes(classes),
        *(Finding("note", text) for text in odd_shares(metrics)),
        *_still_improving(metrics, settings),
        *_firing(metrics),
        *_smoothing(metrics),
        *(Finding("note", note) for note in metrics.notes),
    ]
    return sorted(found, key=lambda finding: ("warning", "note", "good").index(finding.level))


def expectation(metrics: Metrics) -> str:
    """What cross-validation says the score will be, in a sentence; empty if there was none."""
    found = metrics.estimate
    if found is None:
        return ""
    over = "the labelled nodes" if found.nodes is None else counted(found.nodes, "labelled node")
    folds = "" if found.folds is None else f" in {counted(found.folds, 'fold')}"
    low, high, spread = found.micro_f1_low, found.micro_f1_high, ""
    if found.folds == 1:
        # It says nothing of how much the score varies.
        pass
    elif low is not None and high is not None:
        spread = f" (95{GAP}% interval: {percent(low)} to {percent(high)})"
    elif found.micro_f1_std is not None:
        spread = f"{GAP}±{GAP}{points(found.micro_f1_std)}"
    return f"Cross-validation over {over}{folds} expects a Micro-F1 of {percent(found.micro_f1)}{spread}."


def unpredictable(metrics: Metrics) -> str:
    """A sentence if the held-out scores of the chosen part are no better than guessing; else empty."""
    part = metrics.chosen_part
    if part is None or part.held_out is None or held_out_beats_guessing(metrics):
        return ""
    floor = metrics.baselines[MAJORITY].held_out or metrics.baselines[MAJORITY]
    pair = f"Micro-F1 {percent(part.held_out.micro_f1)} against {percent(floor.micro_f1)}"
    said = f"the model is no better than guessing the largest class ({pair})"
    if beats_guessing(metrics.test, metrics):
        return f"By its held-out scores {said}, but on the test nodes it is. The held-out nodes may be too few to tell."
    return f"The labels could not be predicted from this graph: on held-out nodes {said}, as on the test nodes."


def _beside_guessing(metrics: Metrics) -> list[Finding]:
    """By the held-out scores of the chosen part where they are kept, else by the test scores."""
    text = unpredictable(metrics)
    if beats_guessing(metrics.test, metrics):
        return [Finding("warning", text)] if text else []
    return [Finding("warning", text + _advice(metrics))] if text else [_only_guessing(metrics)]


def _only_guessing(metrics: Metrics) -> Finding:
    guessing = rival(MAJORITY, metrics)
    text = f"The model is no better than always guessing the largest class ({_both(guessing, metrics)})."
    at_random = random_macro_f1(metrics)
    if metrics.test.macro_f1 > guessing.scores.macro_f1 + margins(metrics).macro and at_random:
        text += f" Guessing at random gets a Macro-F1 of up to {percent(at_random)}."
    return Finding("warning", text + _advice(metrics))


def _advice(metrics: Metrics) -> str:
    """To whom no simple method does better either."""
    alike = len(metrics.baselines) > 1 and not useful_rivals(metrics)
    return " No simple method does better: try other features, or label more nodes." if alike else ""


def _beside_simple_methods(metrics: Metrics) -> list[Finding]:
    """Against the simple methods that tell the classes apart, and against guessing if the model does."""
    rivals = useful_rivals(metrics)
    unbeaten = [one for one in rivals if one.micro_lead <= 0 and one.macro_lead <= 0]
    if unbeaten:
        return [_unbeaten(unbeaten[0], metrics)]
    if MAJORITY in metrics.baselines and beats_guessing(metrics.test, metrics):
        rivals.append(rival(MAJORITY, metrics))
    if not rivals:
        return []
    by_micro = min(rivals, key=lambda one: one.micro_lead)
    by_macro = min(rivals, key=lambda one: one.macro_lead)
    found = []
    if by_micro.micro_lead < 0:
        found.append(_more_nodes_right(by_micro, metrics))
    if by_macro.macro_lead < 0:
        found.append(_better_macro(by_macro, metrics))
    return found or [_lead(by_micro, by_macro, metrics)]


def _unbeaten(best: Rival, metrics: Metrics) -> Finding:
    text = (
        f"The model does not beat {best.name}, a simple method ({_both(best, metrics)}). "
        f"Use {best.name}, or try --quality best or other features."
    )
    chance = margins(metrics)
    if -best.micro_lead <= chance.micro and -best.macro_lead <= chance.macro:
        return Finding("note", f"{text} The difference may be chance.")
    return Finding("warning", text)


def _more_nodes_right(best: Rival, metrics: Metrics) -> Finding:
    text = (
        f"{_capital(_name(best))} classifies more nodes correctly than the model, but is worse on the rarer classes "
        f"({_both(best, metrics)}). Prefer the model if every class matters, however rare."
    )
    chance = margins(metrics)
    if -best.micro_lead <= chance.micro and -best.macro_lead <= chance.macro:
        return Finding("note", f"{text} The difference may be chance.")
    return Finding("warning", text)


def _better_macro(best: Rival, metrics: Metrics) -> Finding:
    text = (
        f"{_capital(_name(best))} classifies fewer nodes correctly than the model, but has the better Macro-F1 "
        f"({_both(best, metrics)}): the model is weaker at the rarer classes."
    )
    if best.name != MAJORITY:
        text += f" Prefer {best.name} if every class matters, however rare."
    if -best.macro_lead <= margins(metrics).macro:
        return Finding("note", f"{text} The difference in Macro-F1 may be chance.")
    return Finding("warning", text)


def _lead(by_micro: Rival, by_macro: Rival, metrics: Metrics) -> Finding:
    chance = margins(metrics)
    leads = [
        ("Micro-F1", by_micro.micro_lead, by_micro.micro_lead > chance.micro, by_micro),
        ("Macro-F1", by_macro.macro_lead, by_macro.macro_lead > chance.macro, by_macro),
    ]
    if {points(size) for _, size, _, _ in leads} == {points(0)}:
        return Finding("note", f"The model is level with {_name(by_micro)} ({_both(by_micro, metrics)}).")
    told = [f"{points(size)} of {measure} over {_name(over)}" for measure, size, _, over in leads]
    if by_micro.name == by_macro.name:
        told[0] = told[0].removesuffix(f" over {_name(by_micro)}")
    text = f"The model leads every simple method, by {listing(told)}"
    small = [measure for measure, _, is_clear, _ in leads if not is_clear]
    if small:
        return Finding("note", f"{text}. The lead in {listing(small)} is small enough to be chance.")
    return Finding("good", f"{text}.")


def _both(beside: Rival, metrics: Metrics) -> str:
    """The model and a simple method in both measures."""
    pairs = (
        ("Micro-F1", metrics.test.micro_f1, beside.scores.micro_f1),
        ("Macro-F1", metrics.test.macro_f1, beside.scores.macro_f1),
    )
    return ", ".join(f"{measure} {percent(ours)} against {percent(theirs)}" for measure, ours, theirs in pairs)


def _name(simple: Rival) -> str:
    return GUESSING if simple.name == MAJORITY else simple.name


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _parts(metrics: Metrics) -> list[Finding]:
    split = metrics.split
    chose = "the best epoch was chosen" if metrics.best_epoch is not None else "choices were made"
    uses: tuple[tuple[int | None, str, str], ...] = (
        (split.train, "the model was trained", ""), (split.validation, chose, ""),
    )  # fmt: skip
    if metrics.estimate is not None and split.train is not None:
        known = split.train + (split.validation or 0)
        uses = ((known, "the networks were trained", ", each without one fold of them"),)
    told = [f"{use} on {counted(nodes, 'node')}{how}" for nodes, use, how in uses if nodes is not None]
    if split.test is not None:
        was = "was" if split.test == 1 else "were"
        told.append(f"{counted(split.test, 'node')} {was} held out for the test and not used for any choice")
    found = [Finding("good", f"{_capital(listing(told))}.")] if told else []
    if metrics.refit is not None:
        for_as_many = "" if metrics.best_epoch is None else ", for the best number of epochs"
        text = f"In the end the model was trained again on the training and validation nodes{for_as_many}."
        found.append(Finding("note", f"{text} The validation scores are from before that."))
    return found


def _order(metrics: Metrics, settings: Mapping[str, Any]) -> list[Finding]:
    order = metrics.split.order or settings.get("split_order")
    if order == "time":
        text = "The model was trained on the nodes seen first and tested on those seen last, as in practice."
        return [Finding("good", text)]
    if order == "random":
        text = (
            "The split is random: the scores measure how well missing labels are filled in, not how well the nodes of "
            "a later time are classified. Train with split_order=time to measure that."
        )
        return [Finding("note", text)]
    return []


def _gap(metrics: Metrics) -> list[Finding]:
    test, held = metrics.test, metrics.validation
    if held.nodes == 0:
        return []
    gap = held.micro_f1 - test.micro_f1
    pair = f"Micro-F1 is {percent(held.micro_f1)} on validation and {percent(test.micro_f1)} on test"
    held_nodes = held.nodes or metrics.split.validation
    if metrics.test_nodes and held_nodes:
        usual = math.hypot(margin(test.micro_f1, metrics.test_nodes), margin(held.micro_f1, held_nodes))
        why = f"chance explains up to {points(usual)} for parts of these sizes"
    else:
        usual, why = USUAL_GAP, f"a gap of up to {points(USUAL_GAP)} is usual"
    if abs(gap) <= usual:
        return [Finding("good", f"{pair}: {points(gap)} apart, and {why}.")]
    if gap < 0:
        return [Finding("note", f"{pair}: {points(gap)} better on test, and {why}. The test nodes may be easier.")]
    advice = "Choosing the epoch may have fitted the validation nodes, or the test nodes differ from the others."
    return [Finding("warning", f"{pair}: {points(gap)} apart, but {why}. {advice}")]


def _beside_estimate(metrics: Metrics) -> list[Finding]:
    """Only a gap that neither the folds nor the number of test nodes explain is mentioned."""
    estimate, test, chance = metrics.estimate, metrics.test, margins(metrics)
    if estimate is None:
        return []
    measures = (
        ("Micro-F1", test.micro_f1, estimate.micro_f1, estimate.micro_f1_std, chance.micro),
        ("Macro-F1", test.macro_f1, estimate.macro_f1, estimate.macro_f1_std, chance.macro),
    )
    far = [
        (measure, found, expected)
        for measure, found, expected, deviation, usual in measures
        if deviation is not None and abs(found - expected) > max(FAR_DEVIATIONS * deviation, FAR_POINTS, usual)
    ]
    if not far:
        return []
    told = listing([f"{measure} is {percent(found)}, not {percent(expected)}" for measure, found, expected in far])
    text = f"The test scores differ from what cross-validation expects: {told}."
    if all(found > expected for _, found, expected in far):
        return [Finding("note", f"{text} The test nodes may be easier than the others.")]
    later = ": they are the last to appear" if metrics.split.order == "time" else ""
    return [Finding("warning", f"{text} The test nodes may differ from the others{later}.")]


def _margin_note(metrics: Metrics) -> list[Finding]:
    if not metrics.test_nodes:
        return []
    wide = margin(metrics.test.micro_f1, metrics.test_nodes)
    seed = "" if metrics.seed is None else f" This is one run with seed {metrics.seed}: others will differ a little."
    text = f"With {counted(metrics.test_nodes, 'test node')}, chance alone moves the test Micro-F1 by ±{points(wide)}."
    return [Finding("note", text + seed)]


def _dropped(metrics: Metrics) -> list[Finding]:
    dropped = metrics.split.dropped_isolated
    if dropped is None:
        return []
    if dropped == 0:
        return [Finding("good", "No test node was left out.")]
    verb = "was" if dropped == 1 else "were"
    which = f"{counted(dropped, 'node')} without any edge {verb} left out of the test"
    return [Finding("note", f"{which}: the scores do not cover such nodes.")]


def _weak_classes(classes: Sequence[ClassScores]) -> list[Finding]:
    found = []
    tested = [row for row in classes if row.support != 0]
    weak = sorted((row for row in tested if row.f1 < WEAK_F1), key=lambda row: row.f1)
    if weak:
        named = listing([_weak_class(row) for row in weak])
        verb = "has" if len(weak) == 1 else "have"
        text = f"{len(weak)} of {len(tested)} classes {verb} an F1 under {WEAK_F1}: {named}. Check these before use."
        found.append(Finding("warning", text))
    elif tested:
        found.append(Finding("good", f"Every class has an F1 of at least {WEAK_F1}."))
    absent = [quoted(row.name) for row in classes if row.support == 0]
    if absent:
        text = f"No test node belongs to {listing(absent)}, so their scores are unknown."
        found.append(Finding("note", text))
    return found


def _weak_class(row: ClassScores) -> str:
    nodes = "" if row.support is None else f", {counted(row.support, 'node')}"
    return f"{quoted(row.name)} ({row.f1:.2f}{nodes})"


def _still_improving(metrics: Metrics, settings: Mapping[str, Any]) -> list[Finding]:
    if metrics.best_epoch is None or not metrics.epochs or metrics.epochs != settings.get("epochs"):
        return []
    if metrics.best_epoch < metrics.epochs - 1:
        return []
    return [Finding("note", "The last epoch was the best one: more epochs may give a better score.")]


def _firing(metrics: Metrics) -> list[Finding]:
    found = []
    for number, rate in enumerate(metrics.firing_rate, start=1):
        if rate < SILENT:
            text = f"Layer {number} is nearly silent (firing rate {percent(rate)}): it passes on little information."
            found.append(Finding("warning", text))
        elif rate > SATURATED:
            text = f"Layer {number} fires almost always ({percent(rate)}): it is saturated."
            found.append(Finding("warning", text))
    return found


def _smoothing(metrics: Metrics) -> list[Finding]:
    # As a part it stands among the others, and may be what predicts.
    if metrics.smoothed is None or any(part.name == SMOOTHED for part in metrics.parts):
        return []
    change = metrics.smoothed.micro_f1 - metrics.test.micro_f1
    way = "better" if change > 0 else "worse"
    text = (
        f"Smoothing with the training labels (Correct and Smooth) is {points(change)} {way} on test; "
        "its strengths were chosen on validation. The other figures on this page are without it."
    )
    return [Finding("note", text)]
