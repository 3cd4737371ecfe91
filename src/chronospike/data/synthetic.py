"""A generated dynamic graph with labels, with one option for structure and one for timing.

A class is a pair (community, pattern). The community shows in *whom* a node meets: a share `structure` of its
edges stays inside. The pattern shows in *when* a node reaches out: it starts edges during its own window of
steps and rests outside it. Whom it meets does not depend on anyone's pattern, and every pattern is a cyclic
shift of every other, so that whatever ignores the order of the steps (the union graph, total degrees, means
over time) is distributed alike for all patterns. The last step belongs to no window. A model that ignores time
is left with the communities alone.

A knob at zero takes its signal away, and the other one then carries all classes: `structure=0` is a graph whose
classes differ in timing only, `timing=0` one whose classes differ in structure only.
"""

from __future__ import annotations

import math
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray

from chronospike.data.build import build_graph
from chronospike.data.events import Events, NodeLabels, Steps
from chronospike.data.graph import DynamicGraph
from chronospike.data.ids import NodeIds
from chronospike.errors import InputError
from chronospike.memory import require_bytes

# Distance between community centres in units of the noise. Small enough that a node's own features say little
# about its community and the mean over its neighbours says much.
CENTRE_DISTANCE = 1.0


def synthetic_graph(
    nodes: int = 2000,
    steps: int = 12,
    classes: int = 4,
    degree: float = 6.0,
    structure: float = 0.8,
    timing: float = 1.0,
    feature_dim: int = 16,
    feature_noise: float = 1.0,
    directed: bool = False,
    seed: int = 0,
) -> DynamicGraph:
    """A graph with balanced classes told apart by structure, by timing, or by both.

    Args:
        degree: mean degree of a node in one snapshot.
        structure: share of the edges that stay inside the community; the rest goes anywhere.
        timing: share of the nodes that follow the pattern of their class; the rest follow a random one.
        feature_dim: width d of the features `[T, N, d]`; 0 for none.
        feature_noise: standard deviation of the noise in the features, where the activity has 1.
        directed: keep one direction of each edge, drawn by coin.
    """
    settings: dict[str, Any] = {
        "nodes": nodes, "steps": steps, "classes": classes, "degree": degree, "structure": structure,
        "timing": timing, "feature_dim": feature_dim, "feature_noise": feature_noise, "seed": seed,
    }  # fmt: skip
    _check(**settings)
    communities, patterns = split_classes(classes, structure, timing)
    if steps < max(2, patterns + 1):
        raise InputError(
            f"synthetic: {steps} steps are too few to tell {patterns} patterns apart; "
            f"at least {max(2, patterns + 1)} are needed"
        )
    rng = np.random.default_rng(seed)
    label = rng.permutation(np.arange(nodes) % classes)
    community, pattern = label % communities, label // communities
    stray = rng.random(nodes) >= timing
    pattern = np.where(stray, rng.integers(0, patterns, nodes), pattern)

    rates = activity_rates(patterns, steps) * degree / 2
    source, step = _reach_out(rates[pattern], rng)
    target = _meet(source, community, structure, rng)
    ends = np.concatenate([step * nodes + source, step * nodes + target])
    degrees = np.bincount(ends, minlength=steps * nodes).reshape(steps, nodes)
    if directed:
        swap = rng.random(len(source)) < 0.5
        source, target = np.where(swap, target, source), np.where(swap, source, target)
    features = _features(degrees, community, feature_dim, feature_noise, rng) if feature_dim else None

    bounds = np.arange(steps, dtype=np.int64)
    return build_graph(
        Events(source, target, step.astype(np.int64), NodeIds.range(nodes), origin="synthetic"),
        Steps(step.astype(np.int32), bounds, bounds),
        directed=directed,
        labels=NodeLabels(label.astype(np.int64), tuple(str(c) for c in range(classes))),
        features=features,
        provenance={**settings, "communities": communities, "patterns": patterns},
    )


def split_classes(classes: int, structure: float, timing: float) -> tuple[int, int]:
    """(communities, patterns) whose pairs are the classes; a signal whose knob is zero gets one value."""
    if classes < 2:
        raise InputError(f"synthetic: classes is {classes}; at least 2 are needed")
    if timing == 0:
        return (classes, 1) if structure > 0 else (1, classes)
    if structure == 0:
        return 1, classes
    patterns = max(p for p in range(1, math.isqrt(classes) + 1) if classes % p == 0)
    if patterns == 1:
        raise InputError(
            f"synthetic: {classes} classes cannot be divided between structure and timing. "
            "Take 4, 6, 8, 9, … classes, or set structure or timing to 0"
        )
    return classes // patterns, patterns


def activity_rates(patterns: int, steps: int) -> NDArray[np.float64]:
    """`[P, T]` how many edges a node starts at each step, relative to the mean over the steps.

    Over the first M steps, M the largest multiple of P below T, pattern p is active in a window of M/2 steps
    that starts at step p·M/P and wraps around. From step M on, the last one included, all patterns are alike.
    """
    rates = np.ones((patterns, steps))
    if patterns == 1:
        return rates
    cycle = (steps - 1) // patterns * patterns
    window = cycle // 2
    shift = np.arange(patterns)[:, None] * (cycle // patterns)
    inside = (np.arange(cycle)[None, :] - shift) % cycle < window
    rates[:, :cycle] = inside * (cycle / window)
    return rates


def _reach_out(rates: NDArray[np.float64], rng: np.random.Generator) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(node, step) of each edge started. `rates` is `[N, T]`; a fraction is rounded up or down by chance."""
    counts = np.floor(rates + rng.random(rates.shape)).astype(np.int64)
    cells = np.repeat(np.arange(counts.size), counts.reshape(-1))
    return cells // rates.shape[1], cells % rates.shape[1]


def _meet(
    source: NDArray[np.int64], community: NDArray[np.int64], structure: float, rng: np.random.Generator
) -> NDArray[np.int64]:
    """`[E]` whom each edge leads to: anyone but the node itself, in its community with probability `structure`."""
    nodes = len(community)
    by_community = np.argsort(community, kind="stable")
    sizes = np.bincount(community)
    first = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    place = np.empty(nodes, dtype=np.int64)
    place[by_community] = np.arange(nodes) - first[community[by_community]]

    home = community[source]
    inside = rng.random(len(source)) < structure
    choices = np.where(inside, sizes[home], nodes)
    own = np.where(inside, place[source], source)
    # One choice fewer, and everyone from the node itself on moves up by one: no self-loops, still uniform.
    drawn = rng.integers(0, choices - 1)
    drawn += drawn >= own
    members = by_community[np.minimum(first[home] + drawn, nodes - 1)]
    target: NDArray[np.int64] = np.where(inside, members, drawn)
    return target


def _features(
    degrees: NDArray[np.int64], community: NDArray[np.int64], width: int, noise: float, rng: np.random.Generator
) -> NDArray[np.float32]:
    """`[T, N, d]`: the activity at that step, a trace of the community, and noise.

    The activity is log(1 + degree in the snapshot), standardised over the nodes at each step and written along
    one direction of ±1 entries. The trace is the community's centre under noise that stays the same at all
    steps, so that averaging over time does not clear it up and averaging over neighbours does.
    """
    steps, nodes = degrees.shape
    activity = np.log1p(degrees)
    spread = activity.std(axis=1, keepdims=True)
    activity = (activity - activity.mean(axis=1, keepdims=True)) / np.where(spread > 0, spread, 1.0)
    direction = rng.choice([-1.0, 1.0], width)
    centres = rng.standard_normal((int(community.max()) + 1, width))
    centres *= CENTRE_DISTANCE * noise / np.sqrt(2.0 * width)
    lasting = centres[community] + noise * rng.standard_normal((nodes, width))
    features = np.empty((steps, nodes, width), dtype=np.float32)
    for step in range(steps):
        passing = 0.5 * noise * rng.standard_normal((nodes, width))
        features[step] = activity[step, :, None] * direction + lasting + passing
    return features


def _check(
    nodes: int, steps: int, classes: int, degree: float, structure: float, timing: float, feature_dim: int,
    feature_noise: float, seed: int,
) -> None:  # fmt: skip
    for name, count in (("nodes", nodes), ("steps", steps), ("classes", classes), ("feature_dim", feature_dim)):
        if not isinstance(count, Integral):
            raise InputError(f"synthetic: {name} is {count!r}; it must be a whole number")
        if count >= 2**31:
            raise InputError(f"synthetic: {name} is {count:,}; it must be below 2^31")
    if not isinstance(seed, Integral) or seed < 0:
        raise InputError(f"synthetic: the seed is {seed!r}; it must be a whole number and not below 0")
    if nodes < 2 * classes:
        raise InputError(f"synthetic: {nodes} nodes are too few for {classes} classes of at least two")
    for name, share in (("structure", structure), ("timing", timing)):
        if not 0 <= share <= 1:
            raise InputError(f"synthetic: {name} is {share}; it is a share between 0 and 1")
    if not (degree > 0 and math.isfinite(degree)) or feature_dim < 0 or feature_noise < 0:
        raise InputError(
            f"synthetic: degree {degree} must be above 0, feature_dim {feature_dim} and noise {feature_noise} not below"
        )
    # At the very least: rates, draws and degrees of each node and step; two ends, step and place of each edge; the
    # features.
    cells = nodes * steps
    require_bytes(
        24 * cells + 32 * cells * degree / 2 + 4 * cells * feature_dim,
        "this synthetic graph",
        f"Lower nodes (now {nodes:,}), steps (now {steps:,}) or degree (now {degree:g})",
    )
