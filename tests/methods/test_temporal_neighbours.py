from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from chronospike.data.graph import DynamicGraph
from chronospike.data.ids import NodeIds
from chronospike.methods.temporal_neighbours import Hop, Targets, TemporalNeighbours
from chronospike.rng import derive
from tests.methods.test_triads import graph_of, random_edges
from tests.six_nodes import EDGES, six_nodes
from tests.small_runs import CPU, small_graph, with_other_future

Event = tuple[int, int]  # node met, step


def _targets(nodes: list[int], queries: list[int]) -> Targets:
    return Targets(torch.tensor(nodes), torch.tensor(queries))


def _all_targets(graph: DynamicGraph) -> Targets:
    nodes, queries = torch.meshgrid(
        torch.arange(graph.num_nodes), torch.arange(graph.num_steps + 1), indexing="ij"
    )  # fmt: skip
    return Targets(nodes.flatten(), queries.flatten())


def _known(edges: list[tuple[int, int, int]], node: int, query: int) -> list[Event]:
    """Whom a node met before a step, each once a step, in the order of a row."""
    both = {(v, t) for u, v, t in edges if u == node} | {(u, t) for u, v, t in edges if v == node}
    return sorted(((v, t) for v, t in both if v != node and t < query), key=lambda event: event[::-1])


def _sampled(sampler: TemporalNeighbours, targets: Targets, count: int, **options: object) -> list[list[Event]]:
    found = sampler.sample(targets, count, key=5, recent=bool(options.get("recent", False)))
    rows = zip(found.nodes.tolist(), found.steps.tolist(), found.present.tolist(), strict=True)
    return [[(v, t) for v, t, there in zip(*row, strict=True) if there] for row in rows]


@pytest.mark.parametrize("directed", [False, True])
def test_recent_events_are_the_last_before_the_query_the_latest_first(directed: bool) -> None:
    sampler = TemporalNeighbours(six_nodes(directed), CPU)
    found = _sampled(sampler, _targets([0, 0, 0, 0, 5], [4, 3, 1, 0, 4]), 3, recent=True)
    assert found == [[(4, 3), (3, 2), (1, 2)], [(3, 2), (1, 2), (2, 1)], [(1, 0)], [], []]


@pytest.mark.parametrize("directed", [False, True])
def test_draws_are_those_of_a_plain_form(directed: bool) -> None:
    graph = six_nodes(directed)
    targets = _all_targets(graph)
    found = _sampled(TemporalNeighbours(graph, CPU), targets, 7)
    for node, query, events in zip(targets.nodes.tolist(), targets.queries.tolist(), found, strict=True):
        known = _known(EDGES, node, query)
        own = derive(derive(5, int(graph.node_keys[node])), len(known))
        wanted = [known[((derive(own, slot) >> 32) * len(known)) >> 32] for slot in range(7)] if known else []
        assert events == wanted


@pytest.mark.parametrize("recent", [False, True])
def test_no_event_at_or_after_the_query_is_drawn(recent: bool) -> None:
    graph = graph_of(random_edges(12, 6, 80), 12)
    targets = _all_targets(graph)
    events = TemporalNeighbours(graph, CPU).sample(targets, 9, key=1, recent=recent)
    assert events.present.any()
    assert (events.steps < targets.queries[:, None])[events.present].all()


def test_every_known_event_is_drawn_about_equally_often() -> None:
    sampler = TemporalNeighbours(six_nodes(), CPU)
    events = sampler.sample(_targets([0], [4]), 50_000, key=3, recent=False)
    kinds, counts = torch.unique(events.nodes * 10 + events.steps, return_counts=True)
    assert kinds.tolist() == [10, 12, 21, 32, 43]
    # Five standard deviations of a binomial with a fifth of the draws.
    assert (counts - 10_000).abs().max() < 5 * 89.4


def test_draws_depend_on_node_and_history_and_not_on_the_batch() -> None:
    sampler = TemporalNeighbours(small_graph(), CPU)
    nodes = list(range(120))
    together = sampler.sample(_targets(nodes, [5] * 120), 4, key=2, recent=False)
    alone = sampler.sample(_targets([70], [5]), 4, key=2, recent=False)
    longer = sampler.sample(_targets(nodes, [5] * 120), 9, key=2, recent=False)
    other = sampler.sample(_targets(nodes, [5] * 120), 4, key=3, recent=False)
    assert torch.equal(together.nodes[70:71], alone.nodes)
    assert torch.equal(together.nodes, longer.nodes[:, :4])
    assert not torch.equal(together.nodes, other.nodes)


def _hops(graph: DynamicGraph, roots: list[int], last_step: int, layers: int = 2, **options: bool) -> tuple[Hop, ...]:
    sampler = TemporalNeighbours(graph, CPU)
    return sampler.hops(torch.tensor(roots), last_step, layers, 3, key=5, **options).hops


def test_rows_of_all_hops_lead_to_the_nodes_and_steps_that_were_drawn() -> None:
    graph, last_step = graph_of(random_edges(12, 6, 80), 12), 4
    sampler = TemporalNeighbours(graph, CPU)
    targets = Targets(torch.arange(12), torch.full((12,), last_step + 1))
    first, second, third = _hops(graph, list(range(12)), last_step, layers=3)

    def met(rows: Tensor) -> tuple[Tensor, Tensor]:
        """Node and step of rows of the second hop's targets, by the features that each reads of itself."""
        features = first.own[second.own[rows]]
        return features % 12, features // 12

    events = sampler.sample(targets, 3, derive(5, 3), recent=False)
    assert events.present.all()
    assert torch.equal(met(third.own)[0], targets.nodes)
    assert (met(third.own)[1] == last_step).all()
    assert torch.equal(met(third.neighbours)[0], events.nodes)
    assert torch.equal(met(third.neighbours)[1], events.steps)
    assert torch.equal(third.gaps, last_step + 1 - events.steps)

    one = Targets(events.nodes[:, 1], events.steps[:, 1])
    beyond = sampler.sample(one, 3, derive(5, 2), recent=False)
    rows = third.neighbours[:, 1]
    assert torch.equal(second.present[rows], beyond.present)
    assert torch.equal(second.gaps[rows], (one.queries[:, None] - beyond.steps) * beyond.present)
    assert torch.equal((first.own[second.neighbours[rows]] % 12)[beyond.present], beyond.nodes[beyond.present])


def test_a_target_that_is_met_twice_is_computed_once() -> None:
    graph = small_graph()
    first, second = _hops(graph, list(range(120)), 4)
    root_row = second.own
    others = torch.ones(len(first.own), dtype=torch.bool)
    others[root_row] = False
    # A root and a neighbour met at the last step read the same features, and know different events.
    assert len(torch.unique(first.own[others])) == int(others.sum())
    assert len(first.own) < 120 * (1 + 3)


def test_without_history_there_are_no_events_and_no_gaps() -> None:
    (hop,) = _hops(six_nodes(), [5, 0], 3, layers=1)
    assert hop.present.tolist() == [[False] * 3, [True] * 3]
    assert hop.gaps[0].tolist() == [0, 0, 0]
    assert hop.own.tolist() == [3 * 6 + 5, 3 * 6]


def test_attributes_of_all_steps_have_one_row_for_each_node() -> None:
    (hop,) = _hops(six_nodes(), [0, 3], 3, layers=1, static=True)
    assert hop.own.tolist() == [0, 3]
    assert int(hop.neighbours.max()) < 6


@pytest.mark.parametrize("recent", [False, True])
def test_what_comes_after_the_last_step_changes_nothing(recent: bool) -> None:
    graph = small_graph()
    one, other = (_hops(g, list(range(120)), 2, recent=recent) for g in (graph, with_other_future(graph, 2)))
    pairs = [pair for left, right in zip(one, other, strict=True) for pair in zip(left, right, strict=True)]
    assert all(torch.equal(*pair) for pair in pairs)


def test_parts_have_one_size_and_hold_every_target() -> None:
    (hop,) = _hops(small_graph(), list(range(50)), 4, layers=1)
    parts = list(hop.parts(16))
    assert [len(part.own) for part in parts] == [16] * 4
    assert torch.equal(torch.cat([part.neighbours for part in parts])[:50], hop.neighbours)
    assert not torch.cat([part.present for part in parts])[50:].any()


def test_draws_follow_the_ids_of_nodes() -> None:
    graph = six_nodes()
    renamed = replace(graph, ids=NodeIds.of([10, 11, 12, 13, 14, 15]))
    draws = [TemporalNeighbours(g, CPU).sample(_targets([0], [4]), 40, 5, False).nodes for g in (graph, renamed)]
    assert not torch.equal(*draws)
