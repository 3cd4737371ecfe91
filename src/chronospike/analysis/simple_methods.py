"""The model compared with simple methods, in both measures, and how much of the difference may be chance."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from chronospike.analysis.run_files import MethodScores, Metrics

MAJORITY = "majority class"
GUESSING = "always guessing the largest class"


@dataclass(frozen=True)
class Margins:
    """By how much chance alone moves the two measures on the test nodes; 0 where nothing is known of them."""

    micro: float
    macro: float


@dataclass(frozen=True)
class Rival:
    """A simple method and the model's lead over it in each measure, negative where the model is behind."""

    name: str
    scores: MethodScores
    micro_lead: float
    macro_lead: float


def margin(share: float, nodes: int) -> float:
    """Half the width of the 95 % interval of a share counted over `nodes`.

    Its deviation is that of the share with two more nodes of either kind (Agresti and Coull): else a share of 0 or 1
    would look certain, however few the nodes.
    """
    share = (share * nodes + 2) / (nodes + 4)
    return 1.96 * math.sqrt(share * (1 - share) / nodes)


def macro_margin(confusion: Sequence[Sequence[int]]) -> float:
    """Half the width of the 95 % interval of Macro-F1, by the delta method over the cells of the matrix.

    With p the shares of all nodes and s the share of class i's row plus that of its column, F1 is 2 p_ii / s_i. Its
    derivative is 2 (1 - F1) / s_i by p_ii and -F1 / s_i by any other cell of the row or column; their mean is zero.
    """
    nodes = sum(map(sum, confusion))
    columns: list[int] = [sum(column) for column in zip(*confusion, strict=True)]
    sizes = [sum(row) + column for row, column in zip(confusion, columns, strict=True)]
    f1 = [2 * row[i] / size if size else 0.0 for i, (row, size) in enumerate(zip(confusion, sizes, strict=True))]
    lost = [score * nodes / size if size else 0.0 for score, size in zip(f1, sizes, strict=True)]
    variance = 0.0
    for i, row in enumerate(confusion):
        for j, count in enumerate(row):
            if count:
                slope = 2 * (1 - f1[i]) * nodes / sizes[i] if i == j else lost[i] + lost[j]
                variance += count / nodes * slope**2
    present = sum(size > 0 for size in sizes)
    return 1.96 * math.sqrt(variance / nodes) / present


def margins(metrics: Metrics) -> Margins:
    """For Macro-F1 at least the margin of Micro-F1: it depends on fewer nodes per class."""
    nodes = metrics.test_nodes
    micro = margin(metrics.test.micro_f1, nodes) if nodes else 0.0
    counted = any(map(any, metrics.test.confusion))
    return Margins(micro, max(micro, macro_margin(metrics.test.confusion)) if counted else micro)


def beats_guessing(scores: MethodScores, metrics: Metrics) -> bool:
    """Whether a method is better than guessing in one measure at least, by more than chance."""
    if MAJORITY not in metrics.baselines:
        return True
    floor, chance = metrics.baselines[MAJORITY], margins(metrics)
    macro_floor = max(floor.macro_f1, random_macro_f1(metrics))
    return scores.micro_f1 > floor.micro_f1 + chance.micro or scores.macro_f1 > macro_floor + chance.macro


def random_macro_f1(metrics: Metrics) -> float:
    """The best expected Macro-F1 of guesses at random; 0 where the classes are not known.

    With a class having the share p of the nodes and q of the guesses, its F1 is 2pq / (p + q). Both add up to one over
    the C classes, and this mean is concave in them, so no choice of q gives a Macro-F1 above 1 / C.
    """
    present = [i for i, row in enumerate(metrics.test.confusion) if any(row)]
    classes = len(present) or len(metrics.class_names)
    return 1 / classes if classes else 0.0


def held_out_nodes(metrics: Metrics) -> int | None:
    """How many nodes the held-out scores of the chosen part are counted over."""
    part, estimate, calibration = metrics.chosen_part, metrics.estimate, metrics.calibration
    if part is None or part.held_out is None:
        return None
    if part.held_out.nodes is not None:
        return part.held_out.nodes
    if part.on == "validation":
        return metrics.validation.nodes or metrics.split.validation
    if estimate is not None and estimate.nodes:
        return estimate.nodes
    return calibration.chosen_nodes if calibration is not None and calibration.chosen_on == part.on else None


def held_out_beats_guessing(metrics: Metrics) -> bool:
    """Whether the held-out scores of the chosen part are better than guessing; true where they are not known."""
    part, floor = metrics.chosen_part, metrics.baselines.get(MAJORITY)
    if part is None or part.held_out is None or floor is None:
        return True
    found, least, nodes = part.held_out, floor.held_out or floor, held_out_nodes(metrics)
    micro_chance = margin(found.micro_f1, nodes) if nodes else 0.0
    # Macro-F1 moves by more than Micro-F1 does, as on the test nodes.
    usual = margins(metrics)
    macro_chance = micro_chance * (usual.macro / usual.micro if usual.micro else 1.0)
    macro_floor = max(least.macro_f1, random_macro_f1(metrics))
    return found.micro_f1 > least.micro_f1 + micro_chance or found.macro_f1 > macro_floor + macro_chance


def useful_rivals(metrics: Metrics) -> list[Rival]:
    """The simple methods that tell the classes apart at all, best Micro-F1 first."""
    names = [name for name, scores in metrics.baselines.items() if name != MAJORITY and beats_guessing(scores, metrics)]
    rivals = [rival(name, metrics) for name in names]
    return sorted(rivals, key=lambda one: (-one.scores.micro_f1, -one.scores.macro_f1))


def rival(name: str, metrics: Metrics) -> Rival:
    """The simple method `name` beside the model."""
    scores = metrics.baselines[name]
    return Rival(name, scores, metrics.test.micro_f1 - scores.micro_f1, metrics.test.macro_f1 - scores.macro_f1)
