"""Sentences on how reliable the probabilities are; the chart is `charts.reliability_chart`."""

from __future__ import annotations

import math
from collections.abc import Sequence

from chronospike.analysis.run_files import Calibration, Kept, Metrics, ReliabilityBin
from chronospike.analysis.wording import counted, percent, points

# Above this the probabilities are too far off to be taken at their word.
POOR_ECE = 0.1
# Temperatures this near to one change nothing that a reader would see.
UNCHANGED = 0.02
USUAL_THRESHOLD = 0.9


def how_far_off(calibration: Calibration) -> str:
    """The calibration error before and after, in a sentence; empty if it is not known."""
    before, after = calibration.ece_before, calibration.ece_after
    if after is None:
        return ""
    sentence = f"On the test nodes the probabilities are off by {points(after)} on average (expected calibration error)"
    return f"{sentence}." if before is None else f"{sentence}; before calibration by {points(before)}."


def about_temperature(calibration: Calibration) -> str:
    """What the temperature did and where it comes from; empty if there is none."""
    temperature = calibration.temperature
    if temperature is None:
        return ""
    if abs(temperature - 1) < UNCHANGED:
        effect = "leaves them nearly unchanged"
    else:
        effect = "makes them less confident" if temperature > 1 else "makes them more confident"
    chosen = ""
    if calibration.chosen_on is not None:
        kind = "out-of-fold prediction" if calibration.chosen_on == "out-of-fold" else "validation node"
        number = calibration.chosen_nodes
        chosen = f", chosen on {f'{kind}s' if number is None else counted(number, kind)},"
    return f"A temperature of {temperature:.2f}{chosen} {effect}; it changes no predicted class."


def about_leaving_out(rows: Sequence[Kept]) -> str:
    """One row of the table as an example: that of 0.9, else the highest threshold that keeps any node."""
    known = [row for row in rows if row.micro_f1 is not None]
    if not known:
        return ""
    row = next((one for one in known if one.threshold == USUAL_THRESHOLD), known[-1])
    return (
        f"If nodes with a highest probability below {percent(row.threshold, 0)} are left out, "
        f"{percent(row.kept)} of the nodes are kept, with a Micro-F1 of {percent(row.micro_f1 or 0.0)}."
    )


def poor_calibration(metrics: Metrics) -> str:
    """A sentence or two if the probabilities are far off after calibration; else empty."""
    calibration = metrics.calibration
    if calibration is None or calibration.ece_after is None or calibration.ece_after <= POOR_ECE:
        return ""
    text = (
        f"The probabilities are off by {points(calibration.ece_after)} on average, even after calibration: "
        "use them to rank nodes, not as probabilities."
    )
    chance = chance_error(calibration.reliability)
    if chance > calibration.ece_after / 2:
        text += f" With so few test nodes, about {points(chance)} are expected by chance."
    return text


def chance_error(bins: Sequence[ReliabilityBin]) -> float:
    """The calibration error to expect of perfect probabilities on these nodes.

    The share that is right in a bin of n nodes lies off its mean p by sqrt(2 / pi) sqrt(p (1 - p) / n) on average.
    """
    nodes = sum(row.nodes for row in bins)
    spread = sum(math.sqrt(row.nodes * row.confidence * (1 - row.confidence)) for row in bins)
    return math.sqrt(2 / math.pi) * spread / nodes if nodes else 0.0


def in_words(bins: Sequence[ReliabilityBin]) -> str:
    """The chart for those who cannot see it."""
    filled = [row for row in bins if row.nodes]
    told = [
        f"{percent(row.accuracy, 0)} correct where {percent(row.confidence, 0)} was predicted"
        for row in (filled if len(filled) < 3 else [filled[0], filled[len(filled) // 2], filled[-1]])
    ]
    return f"Accuracy of predictions against their probability: {'; '.join(told)}"
