"""The default beside everything simple, on twenty-one kinds of generated graphs.

    python benchmarks/family.py [--kinds structure,timing] [--seeds 2] [--nodes 2500] [--device cpu] [--json FILE]

What tells the classes apart differs from graph to graph:

    structure     like meets like
    timing        when a node is active, not whom it meets
    attributes    the nodes' own attributes
    degree        how much a node does
    unlike        like pays unlike, four classes of 62, 20, 12 and 6 %
    few labels    as structure, 1 % of the labels known
    wrong labels  as structure, every fifth label wrong, those of the test nodes too
    bursts        whether a node's edges come in bursts or evenly
    long          as timing, over 100 steps
    rare          three classes, one of them 2 % of the nodes
    roles         directed: who pays, who is paid, and who does both
    payments      directed: as unlike, and who pays whom depends on both classes
    hubs          whether a node meets hubs
    company       the attributes of the nodes that it meets, not its own
    repeats       how often it meets the same node again within a step
    answers       directed: whether it answers
    bipartite     classes of buyers, who meet no other buyer
    circles       whether those whom a node meets meet each other
    hours         at what time of the day it is active
    origin        the class of the node that it meets first; whom it meets later says nothing
    order         which of two classes it meets earlier, both equally often

Each method learns from the same split (80 % of the labels, but for `few labels`). Micro / Macro-F1 on the test nodes,
the mean over seeds, each with a graph of its own; and how far the default is ahead of the best simple method and of its
network without labels.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from chronospike import DynamicGraph, import_graph
from chronospike.config import make_settings, read_preset
from chronospike.device import choose_device, keep_freed_memory
from chronospike.features.make import with_features_for
from chronospike.methods.registry import learner_type
from chronospike.training.scoring import score_nodes
from chronospike.training.task import make_task

SIMPLE = ("majority", "label-propagation", "label-propagation-unweighted", "logistic", "labels")
ALONE = {"label_sequences": False, "label_features": False, "activity": False, "folds": 0, "second_stage": "none"}
ONE = {"folds": 0, "second_stage": "none"}
Nodes = NDArray[np.int64]


def drawn(rng: np.random.Generator, rate: NDArray[np.float64], events: int) -> Nodes:
    return rng.choice(len(rate), events, p=rate / rate.sum())


def partners(
    rng: np.random.Generator, source: Nodes, kind: Nodes, towards: NDArray[np.float64], sort: Nodes | None = None
) -> Nodes:
    """A target for each source, of a class (or else of the given `sort`) drawn by the row of the source's class."""
    sort = kind if sort is None else sort
    members = [np.flatnonzero(sort == code) for code in range(towards.shape[1])]
    shares = (towards / towards.sum(axis=1, keepdims=True)).cumsum(axis=1)
    meets = (rng.random(len(source))[:, None] > shares[kind[source]]).sum(axis=1).clip(max=towards.shape[1] - 1)
    return np.array([rng.choice(members[code]) for code in meets])


def made(
    kind: Nodes,
    source: Nodes,
    target: Nodes,
    when: Any,
    attributes: Any = None,
    steps: int = 12,
    directed: bool = False,
) -> DynamicGraph:
    keep = source != target
    labels = {int(node): f"class {code}" for node, code in enumerate(kind)}
    events = source[keep], target[keep], np.asarray(when)[keep]
    graph = import_graph(events, labels=labels, steps=steps, on_unknown="drop", directed=directed)
    if attributes is None:
        return graph
    return graph.with_features(np.asarray(attributes, dtype=np.float32)[graph.ids.values.to_numpy()])


def mixing(classes: int, like: float) -> NDArray[np.float64]:
    return np.full((classes, classes), (1 - like) / (classes - 1)) + np.eye(classes) * (
        like - (1 - like) / (classes - 1)
    )


def structure(rng: np.random.Generator, nodes: int, like: float = 0.6, classes: int = 5) -> DynamicGraph:
    kind = rng.integers(0, classes, nodes)
    source = drawn(rng, np.exp(rng.normal(0, 0.7, nodes)), 5 * nodes)
    return made(kind, source, partners(rng, source, kind, mixing(classes, like)), rng.random(5 * nodes))


def timing(rng: np.random.Generator, nodes: int, steps: int = 12) -> DynamicGraph:
    kind = rng.integers(0, 4, nodes)
    source = rng.integers(0, nodes, 6 * nodes)
    # Every class has its season, which returns.
    phase = (kind[source] + rng.normal(0, 0.45, len(source))) / 4 % 1
    when = (rng.integers(0, 3, len(source)) + phase) / 3
    # Whoever is met has the same season half of the time.
    order = np.argsort(when + rng.normal(0, 0.02, len(when)))
    target = np.empty_like(source)
    target[order] = np.roll(source[order], 1)
    other = rng.random(len(source)) < 0.5
    target[other] = rng.integers(0, nodes, other.sum())
    return made(kind, source, target, when, steps=steps)


def attributes(rng: np.random.Generator, nodes: int) -> DynamicGraph:
    kind = rng.integers(0, 4, nodes)
    source = rng.integers(0, nodes, 5 * nodes)
    table = rng.normal(0, 1, (nodes, 12))
    table[:, :3] += rng.normal(0, 1.2, (4, 3))[kind]
    target = partners(rng, source, kind, mixing(4, 0.35))
    return made(kind, source, target, rng.random(len(source)), table)


def degree(rng: np.random.Generator, nodes: int) -> DynamicGraph:
    kind = rng.integers(0, 3, nodes)
    source = drawn(rng, np.exp(rng.normal(np.array([0.0, 1.0, 2.0])[kind], 0.35)), 8 * nodes)
    return made(kind, source, rng.integers(0, nodes, len(source)), rng.random(len(source)))


def unlike(rng: np.random.Generator, nodes: int) -> DynamicGraph:
    kind = rng.choice(4, nodes, p=(0.62, 0.2, 0.12, 0.06))
    pays = np.array([[1, 6, 2, 1], [6, 0.5, 0.5, 0.2], [2, 1, 1, 4], [1, 0.2, 4, 0.5]])
    source = drawn(rng, np.exp(rng.normal(np.array([0.0, 0.8, 0.3, 1.2])[kind], 0.8)), 8 * nodes)
    return made(kind, source, partners(rng, source, kind, pays), rng.random(len(source)))


def few_labels(rng: np.random.Generator, nodes: int) -> DynamicGraph:
    return structure(rng, 2 * nodes, 0.7, 3)


def wrong_labels(rng: np.random.Generator, nodes: int) -> DynamicGraph:
    graph = structure(rng, nodes)
    assert graph.labels is not None
    labels = np.asarray(graph.labels).copy()
    wrong = rng.random(len(labels)) < 0.2
    labels[wrong] = rng.integers(0, graph.num_classes, wrong.sum())
    return graph.with_labels(labels, graph.class_names)


def bursts(rng: np.random.Generator, nodes: int) -> DynamicGraph:
    kind = rng.integers(0, 2, nodes)
    source = rng.integers(0, nodes, 8 * nodes)
    centre = rng.random((nodes, 2))[source, rng.integers(0, 2, len(source))]
    when = np.where(
        kind[source] == 1, np.clip(centre + rng.normal(0, 0.03, len(source)), 0, 1), rng.random(len(source))
    )
    return made(kind, source, rng.integers(0, nodes, len(source)), when)


def long(rng: np.random.Generator, nodes: int) -> DynamicGraph:
    return timing(rng, nodes, steps=100)


def rare(rng: np.random.Generator, nodes: int) -> DynamicGraph:
    kind = rng.choice(3, nodes, p=(0.6, 0.38, 0.02))
    source = drawn(rng, np.exp(rng.normal(np.array([0.0, 0.2, 0.9])[kind], 0.5)), 6 * nodes)
    target = partners(rng, source, kind, np.array([[5, 3, 0.3], [4, 5, 0.2], [4, 2, 2]]))
    return made(kind, source, target, rng.random(len(source)))


def roles(rng: np.random.Generator, nodes: int) -> DynamicGraph:
    kind, events = rng.integers(0, 3, nodes), 6 * nodes
    pays, earns = (np.array(rates)[kind] * np.exp(rng.normal(0, 0.4, nodes)) for rates in ((3, 1, 0.3), (0.3, 1, 3)))
    return made(kind, drawn(rng, pays, events), drawn(rng, earns, events), rng.random(events), directed=True)


def payments(rng: np.random.Generator, nodes: int) -> DynamicGraph:
    kind = rng.choice(4, nodes, p=(0.62, 0.2, 0.12, 0.06))
    pays = np.array([[1, 6, 2, 1], [2, 0.5, 3, 0.2], [0.5, 1, 1, 6], [3, 0.2, 0.4, 0.5]])
    source = drawn(rng, np.exp(rng.normal(np.array([0.0, 0.4, 0.3, 0.6])[kind], 0.8)), 6 * nodes)
    return made(kind, source, partners(rng, source, kind, pays), rng.random(len(source)), directed=True)


def hubs(rng: np.random.Generator, nodes: int) -> DynamicGraph:
    kind, is_hub = rng.integers(0, 2, nodes), (rng.random(nodes) < 0.15).astype(np.int64)
    source = rng.integers(0, nodes, 5 * nodes)
    meets = partners(rng, source, kind, np.array([[0.7, 0.3], [0.3, 0.7]]), is_hub)
    return made(kind, source, meets, rng.random(len(source)))


def company(rng: np.random.Generator, nodes: int) -> DynamicGraph:
    kind, trait, table = rng.integers(0, 2, nodes), rng.integers(0, 2, nodes), rng.normal(0, 1, (nodes, 8))
    table[:, 0] += 2 * trait
    source = rng.integers(0, nodes, 6 * nodes)
    meets = partners(rng, source, kind, np.array([[0.75, 0.25], [0.25, 0.75]]), trait)
    return made(kind, source, meets, rng.random(len(source)), table)


def repeats(rng: np.random.Generator, nodes: int) -> DynamicGraph:
    kind, source, target = (
        rng.integers(0, 2, nodes),
        rng.integers(0, nodes, 4 * nodes),
        rng.integers(0, nodes, 4 * nodes),
    )
    times = 1 + rng.poisson(np.where(kind[source] == 1, 3.0, 0.7))
    return made(kind, source.repeat(times), target.repeat(times), rng.random(len(source)).repeat(times))


def answers(rng: np.random.Generator, nodes: int) -> DynamicGraph:
    kind, source, target = (
        rng.integers(0, 2, nodes),
        rng.integers(0, nodes, 4 * nodes),
        rng.integers(0, nodes, 4 * nodes),
    )
    # Who does not answer turns to somebody else, as often.
    sends = rng.random(len(source)) < 0.6
    to = np.where(kind[target] == 1, source, rng.integers(0, nodes, len(source)))[sends]
    when = rng.random(len(source))
    both = np.concatenate([source, target[sends]]), np.concatenate([target, to]), np.concatenate([when, when[sends]])
    return made(kind, *both, directed=True)


def bipartite(rng: np.random.Generator, nodes: int) -> DynamicGraph:
    kind, sort = rng.integers(0, 3, nodes), rng.integers(0, 3, nodes // 4)
    source = rng.integers(0, nodes, 6 * nodes)
    bought = nodes + partners(rng, source, kind, mixing(3, 0.65), sort)
    return made(kind, source, bought, rng.random(len(source)))


def circles(rng: np.random.Generator, nodes: int) -> DynamicGraph:
    kind = rng.integers(0, 2, nodes)
    first, second, third, fourth, fifth = rng.integers(0, nodes, (5, nodes))
    # Two more edges for everybody: between those whom a node meets, or anywhere.
    meet = kind == 1
    source = [np.arange(nodes)] * 3 + [np.where(meet, first, fourth), np.where(meet, second, fifth)]
    target = [first, second, third, np.where(meet, second, fifth), np.where(meet, third, rng.permutation(nodes))]
    return made(kind, np.concatenate(source), np.concatenate(target), rng.random(5 * nodes))


def hours(rng: np.random.Generator, nodes: int) -> DynamicGraph:
    kind = rng.integers(0, 3, nodes)
    source = rng.integers(0, nodes, 5 * nodes)
    day, hour = rng.integers(0, 700, len(source)), rng.normal(8 * kind[source], 4.0)
    when = np.datetime64("2022-01-01", "us") + (3.6e9 * (24 * day + hour)).astype("timedelta64[us]")
    return made(kind, source, rng.integers(0, nodes, len(source)), when)


def origin(rng: np.random.Generator, nodes: int) -> DynamicGraph:
    # Nodes arrive one after the other and meet one of those before them; the first twenty have a class of their own.
    kind, comes = rng.integers(0, 4, nodes), np.sort(rng.random(nodes))
    newcomers = np.arange(20, nodes)
    first = rng.integers(0, newcomers)
    for node in newcomers[rng.random(len(newcomers)) < 0.9]:
        kind[node] = kind[first[node - 20]]
    source, target = rng.integers(0, nodes, (2, 5 * nodes))
    known = np.maximum(comes[source], comes[target])
    when = known + (1 - known) * rng.random(len(source))
    # Numbers that do not tell the order of arrival.
    number = rng.permutation(nodes)
    source, target = number[np.concatenate([newcomers, source])], number[np.concatenate([first, target])]
    labels = np.empty(nodes, dtype=np.int64)
    labels[number] = kind
    return made(labels, source, target, np.concatenate([comes[newcomers], when]))


def order(rng: np.random.Generator, nodes: int) -> DynamicGraph:
    sort, early = rng.integers(0, 2, (2, nodes))
    source, when = rng.integers(0, nodes, 6 * nodes), rng.random(6 * nodes)
    first, then = (partners(rng, source, meets, mixing(2, 0.9), sort) for meets in (early, 1 - early))
    return made(sort + 2 * early, source, np.where(when < 0.5, first, then), when)


KINDS: dict[str, Callable[[np.random.Generator, int], DynamicGraph]] = {
    "structure": structure, "timing": timing, "attributes": attributes, "degree": degree, "unlike": unlike,
    "few labels": few_labels, "wrong labels": wrong_labels, "bursts": bursts, "long": long, "rare": rare,
    "roles": roles, "payments": payments, "hubs": hubs, "company": company, "repeats": repeats, "answers": answers,
    "bipartite": bipartite, "circles": circles, "hours": hours,
    "origin": origin, "order": order,
}  # fmt: skip


def scores(graph: DynamicGraph, method: str, values: dict[str, Any], device: Any) -> tuple[float, float]:
    kind = learner_type(method)
    preset = read_preset("default")
    known = {name: value for name, value in {**preset, **values}.items() if name in kind.settings_type.model_fields}
    settings = make_settings(kind.settings_type, known)
    fitted = kind(settings).fit(make_task(graph, settings, device, needs_features=kind.needs_features))
    found = score_nodes(fitted, fitted.split.test)
    return 100 * found.micro_f1, 100 * found.macro_f1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--nodes", type=int, default=2500)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--json", type=Path, help="write the figures to this file too")
    options = parser.parse_args()
    device = choose_device(options.device)
    keep_freed_memory()
    rows: dict[str, dict[str, list[tuple[float, float]]]] = {}
    forms = {
        **{name: (name, {}) for name in SIMPLE},
        "network alone": ("chronospike", ALONE),
        "one network": ("chronospike", ONE),
        "default": ("chronospike", {}),
    }
    for kind in options.kinds.split(","):
        rows[kind] = {name: [] for name in forms}
        began = time.perf_counter()
        for seed in range(options.seeds):
            graph = KINDS[kind](np.random.default_rng(seed), options.nodes)
            values: dict[str, Any] = {"seed": seed}
            if kind == "few labels":
                values |= {"ratio": 0.0125, "validation": 0.0025}
            settings = make_settings(learner_type("chronospike").settings_type, {**read_preset("default"), **values})
            graph = with_features_for(graph, settings, str(device))
            for name, (method, given) in forms.items():
                rows[kind][name].append(scores(graph, method, {**values, **given}, device))
        print_row(kind, rows[kind], time.perf_counter() - began)
        if options.json:
            options.json.write_text(json.dumps(rows, indent=2) + "\n")
    leads = [ahead(found)[0] for found in rows.values()]
    print(
        f"mean lead over the best simple method: {statistics.fmean(leads):+.2f} Micro-F1; the least {min(leads):+.2f}"
    )


def means(found: dict[str, list[tuple[float, float]]]) -> dict[str, tuple[float, float]]:
    return {name: tuple(statistics.fmean(values) for values in zip(*each, strict=True)) for name, each in found.items()}  # type: ignore[misc]


def ahead(found: dict[str, list[tuple[float, float]]]) -> tuple[float, float, str]:
    """Micro-F1 of the default over the best simple method, over the network alone, and which the best is."""
    mean = means(found)
    best = max(SIMPLE, key=lambda name: mean[name][0])
    return mean["default"][0] - mean[best][0], mean["default"][0] - mean["network alone"][0], best


def print_row(kind: str, found: dict[str, list[tuple[float, float]]], seconds: float) -> None:
    shown = "  ".join(f"{name} {micro:.1f}/{macro:.1f}" for name, (micro, macro) in means(found).items())
    simple, alone, best = ahead(found)
    print(
        f"{kind:<13}{shown}\n{'':<13}{simple:+.2f} over {best}, {alone:+.2f} over the network alone, {seconds:.0f} s",
        flush=True,
    )


if __name__ == "__main__":
    main()
