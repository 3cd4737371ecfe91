from __future__ import annotations

from collections import Counter
from fractions import Fraction
from itertools import product
from math import prod
from typing import Any

import numpy as np
import pytest
import torch

from chronospike.data.graph import DynamicGraph
from chronospike.methods.spikenet_sampler import OfficialSampler, official_picks, sampler_bytes, undirected
from chronospike.rng import derive, signed
from chronospike.sampling.hybrid import HybridSampler, SamplingSettings
from chronospike.sampling.tree import NeighbourTree
from tests.methods.test_tgat import _directed
from tests.methods.test_triads import graph_of
from tests.small_runs import CPU, small_graph, with_other_future


def _settings(fanouts: tuple[int, ...] = (5, 2), p: float = 0.5, seed: int = 0) -> SamplingSettings:
    return SamplingSettings(fanouts, p, "inclusive", "split", False, seed)


def _sample(graph: DynamicGraph, roots: list[int] | None = None, **options: Any) -> NeighbourTree:
    given = {name: options.pop(name) for name in ("fanouts", "p", "seed") if name in options}
    some = np.arange(graph.num_nodes) if roots is None else np.array(roots)
    call = {"epoch": 0, "steps": range(graph.num_steps), **options}
    return OfficialSampler(graph, _settings(**given), CPU).sample(some, **call)


# The published rule, word for word, on Python's own numbers.


def slow_picks(words: list[int], degree: int) -> list[int]:
    """Of a row of `degree` neighbours; `words` are what would be rand()."""
    count = len(words)

    def rand(word: int, bound: int) -> int:
        return ((word >> 32) * bound) >> 32

    if degree <= count:
        return [slot if slot < degree else rand(words[slot], degree) for slot in range(count)]
    chosen: list[int] = []
    for slot, j in enumerate(range(degree - count, degree)):
        r = rand(words[slot], j)
        chosen.append(r if r not in chosen else j)
    return chosen


def slow_tree(graph: DynamicGraph, root: int, step: int, settings: SamplingSettings, epoch: int) -> list[list[int]]:
    """The hops of one root: plain sets of neighbours, the node itself among them."""
    rows, steps, others = graph.snapshot.entries()
    pairs = list(zip(rows.tolist(), others.tolist(), steps.tolist(), strict=True))
    pairs += [(b, a, t) for a, b, t in pairs]
    key = derive(derive(settings.key(epoch), int(graph.node_keys[root])), step)
    hops, slot = [[root]], 1
    for fanout in settings.fanouts:
        drawn: list[int] = []
        cumulative = max(int(fanout * settings.p), 1)
        for node in hops[-1]:
            so_far = sorted({node, *(b for a, b, t in pairs if a == node and t <= step)})
            now = sorted({node, *(b for a, b, t in pairs if a == node and t == step)})
            words = [derive(key, slot + j) for j in range(fanout)]
            drawn += [so_far[i] for i in slow_picks(words[:cumulative], len(so_far))]
            drawn += [now[i] for i in slow_picks(words[cumulative:], len(now))]
            slot += fanout
        hops.append(drawn)
    return hops


@pytest.mark.parametrize("p", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("fanouts", [(5, 2), (3,), (2, 2, 3)])
def test_trees_are_those_of_the_published_rule_with_the_same_draws(p: float, fanouts: tuple[int, ...]) -> None:
    graph, roots = small_graph(nodes=40, seed=3), [0, 7, 31, 39]
    tree = _sample(graph, roots, fanouts=fanouts, p=p, seed=5, epoch=2)
    settings = _settings(fanouts, p, 5)
    for step in (0, 2, 4):
        wanted = [slow_tree(graph, root, step, settings, 2) for root in roots]
        for hop in range(len(fanouts) + 1):
            assert tree.hop(hop)[step].tolist() == [node for one in wanted for node in one[hop]]


def test_picks_are_those_of_the_published_rule_for_random_words() -> None:
    rng = np.random.default_rng(0)
    for count in (1, 2, 3, 5):
        degree = torch.from_numpy(rng.integers(1, 9, 200))
        words = torch.from_numpy(rng.integers(-(2**63), 2**63, (200, count)))
        found = official_picks(words, degree).tolist()
        for row, given, size in zip(found, words.tolist(), degree.tolist(), strict=True):
            assert row == slow_picks([word % 2**64 for word in given], size)


def _inclusion(degree: int, count: int) -> list[Fraction]:
    """The probability of each neighbour, by going through all draws there are."""
    bounds = range(degree - count, degree)
    draws = list(product(*map(range, bounds)))
    # The smallest word whose upper half gives r of `bound`.
    words = [[signed(-(-(r << 32) // bound) << 32) for r, bound in zip(draw, bounds, strict=True)] for draw in draws]
    picks = official_picks(torch.tensor(words), torch.full((len(draws),), degree))
    assert all(len(set(row)) == count for row in picks.tolist())
    met = Counter(picks.flatten().tolist())
    return [Fraction(met[place], prod(bounds)) for place in range(degree)]


@pytest.mark.parametrize(
    ("degree", "count", "wanted"),
    [
        (2, 1, ["1", "0"]),
        (3, 2, ["1", "1/2", "1/2"]),
        (6, 2, ["2/5"] * 4 + ["1/5"] * 2),
        (10, 5, ["5/9"] * 5 + ["4/9"] * 5),
        (7, 1, ["1/6"] * 6 + ["0"]),
    ],
)
def test_neighbours_are_met_as_often_as_in_the_published_program(degree: int, count: int, wanted: list[str]) -> None:
    assert _inclusion(degree, count) == [Fraction(share) for share in wanted]


def test_few_neighbours_are_all_met() -> None:
    words = torch.randint(-(2**62), 2**62, (300, 5))
    for degree in range(1, 6):
        picks = official_picks(words, torch.full((300,), degree))
        assert all(set(row) == set(range(degree)) for row in picks.tolist())
        assert picks.shape == (300, 5)


def _cliques(size: int, count: int) -> DynamicGraph:
    """`count` cliques of `size` nodes each: a row is the whole clique, the node itself among them."""
    return graph_of(
        [(c * size + i, c * size + j, 0) for c in range(count) for i in range(size) for j in range(i)], size * count
    )


def _rates(nodes: torch.Tensor, size: int) -> list[float]:
    """How often each place of a clique is met by a row; `nodes [N, k]`."""
    places = nodes.long() % size
    return [float((places == place).any(dim=1).float().mean()) for place in range(size)]


def test_draws_have_the_official_frequencies() -> None:
    tree = _sample(_cliques(6, 2000), fanouts=(2,), p=1.0)
    assert _rates(tree.neighbours(0)[0], 6) == pytest.approx([0.4] * 4 + [0.2] * 2, abs=0.02)


def test_the_uniform_sampler_meets_all_neighbours_alike() -> None:
    sampler = HybridSampler(_cliques(6, 2000), (2,), 1.0, "inclusive", "split")
    assert _rates(sampler.sample(np.arange(12_000)).neighbours(0)[0], 6) == pytest.approx([1 / 3] * 6, abs=0.02)


@pytest.mark.parametrize(("fanout", "p", "slots"), [(5, 0.5, 2), (2, 0.5, 1), (5, 1.0, 5), (5, 0.1, 1), (5, 0.0, 1)])
def test_slots_are_split_between_the_views_as_published(fanout: int, p: float, slots: int) -> None:
    assert _settings((fanout,), p).history_slots == (slots,)
    # Edges of step 0 only: at step 1 the step itself holds nobody else.
    graph = graph_of([(0, v, 0) for v in range(1, 9)] + [(9, 10, 1)], 11)
    drawn = _sample(graph, [0], fanouts=(fanout,), p=p).neighbours(0)[1, 0]
    assert (drawn[slots:] == 0).all()
    # Node 0 is the first of its row, so a slot may draw it as any other.
    assert len(set(drawn[:slots].tolist())) == slots


def test_one_slot_never_meets_the_last_neighbour_of_a_row() -> None:
    graph = _cliques(4, 1)
    found = {int(v) for epoch in range(200) for v in _sample(graph, fanouts=(1,), epoch=epoch).hop(1).flatten()}
    assert found == {0, 1, 2}


def test_of_a_node_and_its_only_neighbour_one_slot_meets_the_lower() -> None:
    for epoch in range(20):
        assert _sample(graph_of([(0, 1, 0)], 2), fanouts=(1,), epoch=epoch).hop(1).tolist() == [[0, 0]]


def test_a_node_without_edges_meets_itself() -> None:
    graph = graph_of([(0, 1, 1), (2, 1, 0)], 4)
    tree = _sample(graph, [3, 0])
    assert (tree.nodes[:, [0, *range(2, 7), *range(12, 22)]] == 3).all()
    # Node 0 has no edge yet at step 0.
    assert (tree.hop(1)[0, 5:] == 0).all()


def test_a_tree_does_not_depend_on_the_batch_or_on_other_steps() -> None:
    graph = small_graph()
    whole = _sample(graph)
    part = _sample(graph, [17, 3, 99], steps=[1, 4])
    for hop in range(3):
        wanted = whole.hop(hop).view(5, 120, -1)[[1, 4]][:, [17, 3, 99]]
        assert torch.equal(part.hop(hop).view(2, 3, -1), wanted)


def test_epochs_and_purposes_and_seeds_have_trees_of_their_own() -> None:
    graph = small_graph()
    base = _sample(graph).nodes
    assert torch.equal(base, _sample(graph).nodes)
    for other in ({"epoch": 1}, {"purpose": "inference"}, {"seed": 1}):
        assert not torch.equal(base, _sample(graph, **other).nodes)


def test_nothing_after_a_step_is_read_for_it() -> None:
    graph = small_graph()
    one, other = (_sample(each).nodes for each in (graph, with_other_future(graph, 2)))
    assert torch.equal(one[:3], other[:3])
    assert not torch.equal(one[3:], other[3:])


def test_the_direction_of_edges_does_not_matter() -> None:
    assert torch.equal(_sample(_directed()).nodes, _sample(small_graph()).nodes)
    graph = undirected(_directed())
    for view, wanted in ((graph.history, small_graph().history), (graph.snapshot, small_graph().snapshot)):
        assert all(np.array_equal(a, b) for a, b in zip(view.entries(), wanted.entries(), strict=True))


def test_what_the_sampler_holds_is_counted() -> None:
    graph = small_graph()
    sampler = OfficialSampler(graph, _settings(), CPU)
    views = (sampler._cumulative, sampler._evolving)
    held = [x for view in views for x in (view._starts, view._offsets, view._entries)] + [sampler._node_keys]
    # But for the two empty places of each view.
    assert sum(x.nbytes for x in held) == sampler_bytes(graph) + 2 * 2 * 4
    assert sampler_bytes(_directed()) == sampler_bytes(graph)
