"""Splitting labelled nodes into training, validation and test.

The benchmark's protocol: stratified, test = 1 - ratio, and the validation nodes, a share of all labelled ones,
come out of the training part. The time-ordered option trains on the nodes seen first instead.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from numbers import Integral
from typing import Any, Literal

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from chronospike.data.graph import DynamicGraph
from chronospike.errors import GraphError, InputError

Nodes = NDArray[np.int64]


@dataclass(frozen=True)
class Split:
    """Disjoint node indices, each ascending.

    Attributes:
        dropped_isolated: nodes taken out of the test set because they never have an edge.
        facts: how it was made, for the record; `notes` says what had to be done differently.
    """

    train: Nodes
    validation: Nodes
    test: Nodes
    dropped_isolated: int = 0
    facts: dict[str, Any] = field(default_factory=dict)


def make_split(
    graph: DynamicGraph,
    ratio: float = 0.8,
    validation: float = 0.05,
    seed: int = 42,
    order: Literal["random", "time"] = "random",
    drop_isolated: bool = True,
) -> Split:
    """Split the labelled nodes; the same graph and settings always give the same split.

    Args:
        ratio: share of the labelled nodes for training and validation together.
        validation: share of the labelled nodes for validation; 0 for none.
        order: `"random"` stratifies by class; `"time"` trains on the nodes whose first edge is earliest,
            validates on the last of those, and tests on the later ones.
        drop_isolated: leave nodes without any edge out of the test set.
    """
    nodes, codes = _labelled(graph)
    if not 0 <= validation < ratio < 1:
        raise InputError(
            f"a ratio of {ratio} with {validation} for validation leaves nothing to train or to test on; "
            "take 0 <= validation < ratio < 1"
        )
    if not isinstance(seed, Integral) or not 0 <= seed < 2**32:
        raise InputError(f"the seed of a split is {seed!r}; it must be a whole number from 0 to 2^32 - 1")
    notes: list[str] = []
    if order == "random":
        train, held, test = _by_class(nodes, codes, graph.class_names, ratio, validation, seed, notes)
    elif order == "time":
        train, held, test = _by_time(graph, nodes, ratio, validation, seed)
    else:
        raise InputError(f"order '{order}' is neither 'random' nor 'time'")

    alone = graph.isolated[test] if drop_isolated else np.zeros(len(test), dtype=bool)
    test = test[~alone]
    if len(train) == 0 or len(test) == 0:
        left = f" ({alone.sum()} without an edge are left out)" if alone.any() else ""
        single = np.count_nonzero(np.bincount(codes) == 1) if order == "random" else 0
        left += f"; the only node of a class is trained on, and {single} classes have one node" if single > 1 else ""
        raise InputError(
            f"{len(nodes)} labelled nodes at ratio {ratio} leave {len(train)} to train on and {len(test)} to test on"
            f"{left}; label more nodes or choose another ratio"
        )
    facts: dict[str, Any] = {
        "ratio": ratio, "validation_share": validation, "seed": seed, "order": order, "labelled": len(nodes),
        "train": len(train), "validation": len(held), "test": len(test), "dropped_isolated": int(alone.sum()),
        "notes": notes,
    }  # fmt: skip
    return Split(np.sort(train), np.sort(held), np.sort(test), int(alone.sum()), facts)


def _labelled(graph: DynamicGraph) -> tuple[Nodes, Nodes]:
    """Labelled nodes in the order of the user's ids, so that the split does not depend on the order of the file."""
    if graph.labels is None or len(graph.labelled) == 0:
        raise GraphError("the graph has no labels. Import it with --labels FILE")
    nodes = graph.labelled
    nodes = nodes[pc.array_sort_indices(graph.ids.take(nodes)).to_numpy()]
    codes = np.asarray(graph.labels)[nodes]
    present = len(np.unique(codes))
    if present < 2:
        raise GraphError(f"the labelled nodes have {present} class, and 2 are needed")
    return nodes, codes


def _by_class(
    nodes: Nodes, codes: Nodes, names: tuple[str, ...], ratio: float, validation: float, seed: int, notes: list[str]
) -> tuple[Nodes, Nodes, Nodes]:
    part, test = _divide(codes, names, ratio, seed, "test", notes)
    if validation == 0:
        return nodes[part], nodes[:0], nodes[test]
    # `part` keeps the shuffled order of the first division, as in the benchmark's own program.
    train, held = _divide(codes[part], names, (ratio - validation) / ratio, seed, "validation", notes)
    return nodes[part][train], nodes[part][held], nodes[test]


def _divide(
    codes: Nodes, names: tuple[str, ...], share: float, seed: int, what: str, notes: list[str]
) -> tuple[Nodes, Nodes]:
    """Positions of a first part, a `share` of the nodes, and of the rest, with the classes in proportion.

    A class with one member stays in the first part.
    """
    sizes = np.bincount(codes)
    single = np.flatnonzero(sizes[codes] == 1)
    if len(single):
        which = ", ".join(repr(names[code]) for code in np.sort(codes[single])[:3])
        notes.append(f"{len(single)} class(es) too small for the {what} part: {which}")
    usual = np.flatnonzero(sizes[codes] > 1)
    count = _share(share, len(usual))
    smaller = min(count, len(usual) - count)
    if smaller == 0:
        notes.append(f"too few nodes for the {what} part")
        return np.concatenate([usual[:count], single]), usual[count:]
    possible = smaller >= np.count_nonzero(sizes > 1)
    if not possible:
        notes.append(f"the {what} part is not stratified: it is smaller than the number of classes")
    random = np.random.RandomState(seed)
    first, rest = _stratified(codes[usual], count, random) if possible else _shuffled(len(usual), count, random)
    return np.concatenate([usual[first], single]), usual[rest]


def _stratified(codes: Nodes, count: int, random: np.random.RandomState) -> tuple[Nodes, Nodes]:
    """Positions of `count` nodes and of the rest with the classes in proportion, both shuffled.

    The draws are those of scikit-learn's `train_test_split`, which the benchmark uses and which takes long to import.
    """
    _, codes, sizes = np.unique(codes, return_inverse=True, return_counts=True)
    taken = _proportional(sizes, count, random)
    # All that is left goes to the rest, but scikit-learn draws here, too.
    _proportional(sizes - taken, len(codes) - count, random)
    members = np.split(np.argsort(codes, kind="stable"), np.cumsum(sizes)[:-1])
    mixed = [one[random.permutation(len(one))] for one in members]
    first = np.concatenate([one[:share] for one, share in zip(mixed, taken, strict=True)])
    rest = np.concatenate([one[share:] for one, share in zip(mixed, taken, strict=True)])
    return random.permutation(first), random.permutation(rest)


def _proportional(sizes: Nodes, count: int, random: np.random.RandomState) -> Nodes:
    """How many of each class to take: whole shares first, then one more each by the largest remainders, ties drawn."""
    shares = sizes / sizes.sum() * count
    taken = np.floor(shares)
    missing = int(count - taken.sum())
    for remainder in np.unique(shares - taken)[::-1]:
        tied = np.flatnonzero(shares - np.floor(shares) == remainder)
        if missing <= 0:
            break
        chosen = random.choice(tied, size=min(len(tied), missing), replace=False)
        taken[chosen] += 1
        missing -= len(chosen)
    result: Nodes = taken.astype(np.int64)
    return result


def _shuffled(nodes: int, count: int, random: np.random.RandomState) -> tuple[Nodes, Nodes]:
    """Positions of `count` of so many nodes and of the rest; the rest comes first, as in scikit-learn."""
    order = random.permutation(nodes)
    return order[nodes - count :], order[: nodes - count]


def _by_time(graph: DynamicGraph, nodes: Nodes, ratio: float, validation: float, seed: int) -> tuple[Nodes, ...]:
    ties = np.random.default_rng(seed).permutation(len(nodes))
    ordered = nodes[np.lexsort((ties, graph.first_steps[nodes]))]
    part = _share(ratio, len(nodes))
    train = _share((ratio - validation) / ratio, part)
    return ordered[:train], ordered[train:part], ordered[part:]


def _share(share: float, count: int) -> int:
    # 0.57 · 100 is a hair below 57 in floating point.
    return math.floor(share * count + 1e-9)
