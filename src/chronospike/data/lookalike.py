"""Graphs of the benchmark's sizes, for timing and memory where the real files are not available.

Nodes arrive over the steps. Each has a heavy-tailed appeal, and edges go to nodes that have arrived by then in
proportion to it, most of them inside the class of the node they start from. In a citation graph only the
arrivals of a step start edges; otherwise any node that is there may.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from chronospike.data.build import build_graph
from chronospike.data.events import Events, NodeLabels, Steps
from chronospike.data.graph import DynamicGraph
from chronospike.data.ids import NodeIds
from chronospike.errors import InputError, nearest
from chronospike.memory import require_bytes

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

# Tail exponent of the appeal and its largest value relative to the smallest. Together they put the best-cited of
# 2.7 M nodes at a few thousand edges, as in real citation graphs, and within the range of 16-bit row offsets.
TAIL = 2.0
LARGEST_APPEAL = 300.0
# Edges drawn at a time: bounds the memory of the draw.
CHUNK = 1 << 21


@dataclass(frozen=True)
class Sizes:
    """What a look-alike has to match.

    Attributes:
        edges: distinct undirected pairs; each is active at one step.
        labelled: nodes with a label, drawn at random; None for all.
        citations: only the arrivals of a step start edges.
        homophily: share of the edges that stay inside the class.
        first: share of the nodes that are there at the first step.
    """

    nodes: int
    edges: int
    steps: int
    classes: int
    labelled: int | None = None
    citations: bool = False
    homophily: float = 0.7
    first: float = 0.05


LIKE: dict[str, Sizes] = {
    "dblp": Sizes(nodes=28_085, edges=236_894, steps=27, classes=10),
    "tmall": Sizes(nodes=577_314, edges=4_807_545, steps=186, classes=5, labelled=81_380, homophily=0.5),
    "patent": Sizes(nodes=2_738_012, edges=13_960_811, steps=25, classes=6, citations=True),
}


def like(name: str, seed: int = 0, merge: int = 1) -> DynamicGraph:
    """A graph of the size of the benchmark's `name`, with `merge` consecutive steps taken as one."""
    if name not in LIKE:
        raise InputError(f"no sizes are known for '{name}'.{nearest(name, LIKE)} There are: {', '.join(LIKE)}")
    return lookalike(LIKE[name], seed, merge, origin=f"synthetic like {name}")


def lookalike(sizes: Sizes, seed: int = 0, merge: int = 1, origin: str = "synthetic") -> DynamicGraph:
    """A graph with exactly these counts. The order of the node indices is the order of arrival."""
    _check(sizes, seed, merge)
    rng = np.random.default_rng(seed)
    population = _Population.draw(sizes, rng)
    source, target, step = _distinct_edges(sizes, population, rng)
    start = np.arange(0, sizes.steps, merge, dtype=np.int64)
    codes = population.classes.astype(np.int64)
    if sizes.labelled is not None:
        unlabelled = rng.permutation(sizes.nodes)[sizes.labelled :]
        codes[unlabelled] = -1
    return build_graph(
        Events(source, target, step.astype(np.int64), NodeIds.range(sizes.nodes), origin=origin),
        Steps(step // np.int32(merge), start, np.minimum(start + merge, sizes.steps) - 1, rule=f"merged by {merge}"),
        labels=NodeLabels(codes, tuple(str(c) for c in range(sizes.classes))),
        provenance={"seed": seed, "merge": merge},
    )


@dataclass(frozen=True)
class _Population:
    """The nodes, and running sums that turn a uniform number into a node by binary search.

    Attributes:
        arrived: `[T + 1]` how many nodes are there before each step.
        classes: `[N]` class of each node.
        zeal: `[N + 1]` running sum of how readily nodes start edges.
        appeal: `[N + 1]` running sum of how readily they are met.
        by_class: `[N]` nodes sorted by class, then by arrival.
        class_appeal: `[N + 1]` running sum of the appeal in that order.
        class_arrived: `[C, T + 1]` positions in that order up to which the class is there before each step.
    """

    arrived: Ints
    classes: NDArray[np.int8]
    zeal: Floats
    appeal: Floats
    by_class: NDArray[np.int32]
    class_appeal: Floats
    class_arrived: Ints

    @classmethod
    def draw(cls, sizes: Sizes, rng: np.random.Generator) -> _Population:
        arrived = _arrivals(sizes)
        # Class sizes fall by a quarter from one to the next, as uneven as Patent's.
        share = 0.75 ** np.arange(sizes.classes)
        classes = rng.choice(sizes.classes, size=sizes.nodes, p=share / share.sum()).astype(np.int8)
        # At least one of each class among the first arrivals, or there would be nobody to meet.
        classes[: sizes.classes] = np.arange(sizes.classes)
        largest = min(LARGEST_APPEAL, float(np.sqrt(sizes.nodes)))
        appeal = np.minimum((1.0 - rng.random(sizes.nodes)) ** (-1.0 / TAIL), largest)
        by_class = np.argsort(classes, kind="stable").astype(np.int32)
        sorted_classes = classes[by_class]
        class_arrived = np.stack(
            [
                np.searchsorted(sorted_classes, c) + np.searchsorted(by_class[sorted_classes == c], arrived)
                for c in range(sizes.classes)
            ]
        )
        return cls(
            arrived=arrived,
            classes=classes,
            zeal=_running_sum(rng.lognormal(0.0, 0.7, sizes.nodes)),
            appeal=_running_sum(appeal),
            by_class=by_class,
            class_appeal=_running_sum(appeal[by_class]),
            class_arrived=class_arrived,
        )


def _arrivals(sizes: Sizes) -> Ints:
    """`[T + 1]` nodes there before each step: some at once, the rest at a rate that doubles over the steps."""
    first = max(2 * sizes.classes, int(sizes.first * sizes.nodes))
    growth = np.cumsum(1.0 + np.arange(sizes.steps - 1) / max(1, sizes.steps - 2))
    later = np.floor((sizes.nodes - first) * growth / growth[-1] + 1e-9).astype(np.int64)
    return np.concatenate([[0, first], first + later])


def _distinct_edges(
    sizes: Sizes, people: _Population, rng: np.random.Generator
) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int32]]:
    """Exactly `sizes.edges` distinct pairs and their steps; every node starts at least one on its arrival."""
    node = np.arange(sizes.nodes)
    arrival = np.searchsorted(people.arrived, node, side="right") - 1
    wanted = sizes.edges
    keys, steps = _draw_pairs(node, arrival, sizes, people, rng)
    keys, steps = _without_repeats(keys, steps, wanted, rng)
    for _ in range(100):
        missing = wanted - len(keys)
        if missing == 0:
            break
        more = missing + missing // 20 + 100
        # Each step as likely as it has nodes that may start an edge.
        active = np.diff(people.arrived) if sizes.citations else people.arrived[1:]
        later = _pick(_running_sum(active.astype(np.float64)), 0.0, float(active.sum()), rng, more)
        low = people.zeal[people.arrived[later]] if sizes.citations else 0.0
        source = _pick(people.zeal, low, people.zeal[people.arrived[later + 1]], rng)
        fresh, fresh_steps = _draw_pairs(source, later, sizes, people, rng)
        fresh, fresh_steps = _without_repeats(fresh, fresh_steps, len(fresh), rng)
        new = ~np.isin(fresh, keys, assume_unique=True, kind="sort")
        fresh, fresh_steps = _without_repeats(fresh[new], fresh_steps[new], missing, rng)
        keys, steps = np.concatenate([keys, fresh]), np.concatenate([steps, fresh_steps])
    else:
        raise InputError(f"synthetic: {sizes.edges:,} distinct edges do not fit between {sizes.nodes:,} nodes")
    larger, smaller = np.divmod(keys, sizes.nodes)
    return larger.astype(np.int32), smaller.astype(np.int32), steps


def _draw_pairs(
    source: Ints, step: Ints, sizes: Sizes, people: _Population, rng: np.random.Generator
) -> tuple[Ints, NDArray[np.int32]]:
    """A partner for each source among the nodes there by its step, as keys `larger · N + smaller`; no self-loops."""
    keys = np.empty(len(source), dtype=np.int64)
    for start in range(0, len(source), CHUNK):
        here = slice(start, start + CHUNK)
        at, now = source[here], step[here]
        home = rng.random(len(at)) < sizes.homophily
        kind, then = people.classes[at[home]], now[home]
        low = people.class_appeal[people.class_arrived[kind, 0]]
        high = people.class_appeal[people.class_arrived[kind, then + 1]]
        target = np.empty_like(at)
        target[home] = people.by_class[_pick(people.class_appeal, low, high, rng)]
        target[~home] = _pick(people.appeal, 0.0, people.appeal[people.arrived[now[~home] + 1]], rng)
        keys[here] = np.maximum(at, target) * sizes.nodes + np.minimum(at, target)
    proper = keys % (sizes.nodes + 1) != 0  # v · N + v is a multiple of N + 1, and no other key is
    return keys[proper], step[proper].astype(np.int32)


def _without_repeats(
    keys: Ints, steps: NDArray[np.int32], at_most: int, rng: np.random.Generator
) -> tuple[Ints, NDArray[np.int32]]:
    """The distinct keys in ascending order, a random `at_most` of them."""
    keys, first = np.unique(keys, return_index=True)
    steps = steps[first]
    if len(keys) > at_most:
        kept = np.sort(rng.permutation(len(keys))[:at_most])
        keys, steps = keys[kept], steps[kept]
    return keys, steps


def _running_sum(values: Floats) -> Floats:
    return np.concatenate([[0.0], np.cumsum(values)])


def _pick(
    sums: Floats, low: Floats | float, high: Floats | float, rng: np.random.Generator, count: int | None = None
) -> Ints:
    """Indices drawn in proportion to the values behind the running sums, between two of those sums."""
    size = len(np.atleast_1d(high)) if count is None else count
    point = low + rng.random(size) * (np.asarray(high) - low)
    # Rounding may put a point on the upper sum itself, which belongs to the index after the last allowed one.
    point = np.minimum(point, np.nextafter(high, -np.inf))
    return (np.searchsorted(sums, point, side="right") - 1).astype(np.int64)


def _check(sizes: Sizes, seed: int, merge: int) -> None:
    if seed < 0:
        raise InputError(f"synthetic: the seed is {seed}; it must not be below 0")
    if merge > sizes.steps:
        raise InputError(f"synthetic: merge is {merge}, and there are {sizes.steps} steps")
    if sizes.classes > 127:
        raise InputError(f"synthetic: {sizes.classes} classes; at most 127")
    if sizes.nodes >= 2**31:
        raise InputError(f"synthetic: {sizes.nodes:,} nodes; at most 2^31 - 1")
    if sizes.steps < 2 or sizes.classes < 2 or merge < 1:
        raise InputError(f"synthetic: {sizes.steps} steps, {sizes.classes} classes, merge {merge}: at least 2, 2, 1")
    if sizes.nodes < 40 * sizes.classes or sizes.nodes < 2 * sizes.steps:
        raise InputError(f"synthetic: {sizes.nodes} nodes are too few for {sizes.classes} classes, {sizes.steps} steps")
    if not 0 < sizes.edges <= sizes.nodes * (sizes.nodes - 1) // 20:
        raise InputError(f"synthetic: {sizes.edges:,} edges do not suit {sizes.nodes:,} nodes")
    # Three running sums, arrival and class of each node; key, step and both rows of each edge.
    require_bytes(40 * sizes.nodes + 32 * sizes.edges, "this synthetic graph", "Lower nodes or edges")
