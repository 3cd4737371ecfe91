from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from chronospike.data.graph import DynamicGraph
from chronospike.data.lookalike import LIKE, Sizes, like, lookalike
from chronospike.errors import InputError


def patent_like(seed: int = 0, merge: int = 1, **sizes: int) -> DynamicGraph:
    return lookalike(replace(LIKE["patent"], **{"nodes": 1000, "edges": 3000, **sizes}), seed, merge)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def patents() -> DynamicGraph:
    return patent_like(seed=1, nodes=20_000, edges=102_000)


def test_nodes_edges_steps_and_classes_are_exactly_as_asked_for(patents: DynamicGraph) -> None:
    assert patents.num_nodes == 20_000
    assert patents.snapshot_edges == patents.union_edges == 102_000
    assert patents.num_steps == 25
    assert patents.num_classes == 6
    assert len(patents.labelled) == 20_000


def test_edges_are_drawn_distinct_and_without_self_loops(patents: DynamicGraph) -> None:
    assert patents.facts["rows"] == 102_000
    assert patents.facts["duplicates"] == patents.facts["self_loops"] == 0


def test_degrees_are_heavy_tailed_and_fit_16_bit_offsets(patents: DynamicGraph) -> None:
    degrees = patents.snapshot.degrees()
    assert degrees.max() > 20 * np.median(degrees)
    assert patents.snapshot.step_offsets.dtype == np.int16


def test_edges_of_a_citation_graph_belong_to_the_step_their_later_end_arrives_in(patents: DynamicGraph) -> None:
    rows, steps, neighbours = patents.snapshot.entries()
    # Indices are in the order of arrival, so the steps cut the later ends into ranges that do not overlap.
    later = [np.maximum(rows, neighbours)[steps == step] for step in range(25)]
    assert all(earlier.max() < after.min() for earlier, after in itertools.pairwise(later))


def test_nodes_that_are_there_go_on_meeting_where_it_is_not_a_citation_graph() -> None:
    graph = lookalike(Sizes(nodes=2000, edges=9000, steps=6, classes=5))
    rows, steps, _ = graph.snapshot.entries()
    assert len(set(rows[steps == 0].tolist()) & set(rows[steps == 5].tolist())) > 20


def test_most_edges_stay_inside_the_class(patents: DynamicGraph) -> None:
    rows, _, neighbours = patents.snapshot.entries()
    assert patents.labels is not None
    share = np.bincount(patents.labels) / patents.num_nodes
    inside = (patents.labels[rows] == patents.labels[neighbours]).mean()
    assert inside == pytest.approx(0.7 + 0.3 * float(share @ share), abs=0.04)


def test_class_sizes_are_uneven(patents: DynamicGraph) -> None:
    sizes = np.bincount(patents.labels)  # type: ignore[arg-type]
    assert sizes[0] > 3 * sizes[-1] > 0


def test_same_seed_gives_the_same_graph_and_another_seed_another() -> None:
    one, same, other = (patent_like(seed=seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one.snapshot.neighbours, same.snapshot.neighbours)
    assert not np.array_equal(one.snapshot.neighbours, other.snapshot.neighbours)


def test_fewer_edges_than_nodes_are_met_exactly_too() -> None:
    assert patent_like(nodes=2000, edges=1500).snapshot_edges == 1500


def test_a_dense_graph_is_met_exactly() -> None:
    assert patent_like(nodes=400, edges=7000).snapshot_edges == 7000


def test_merging_keeps_the_edges_and_bounds_in_the_original_steps() -> None:
    graph = patent_like(nodes=2000, edges=6000, merge=2)
    assert graph.snapshot_edges == 6000
    assert graph.num_steps == 13
    assert graph.step_start.tolist() == list(range(0, 25, 2))
    assert graph.step_end.tolist() == [*range(1, 25, 2), 24]


def test_merging_leaves_the_events_their_own_times() -> None:
    events = patent_like(nodes=2000, edges=6000, merge=2).events
    assert events is not None
    assert len(events) == 6000
    assert np.unique(events.time).tolist() == list(range(25))
    assert np.array_equal(events.step, events.time // 2)


def test_only_some_nodes_are_labelled_where_the_table_says_so() -> None:
    sizes = Sizes(nodes=2000, edges=9000, steps=6, classes=5, labelled=300)
    graph = lookalike(sizes)
    assert len(graph.labelled) == 300
    assert set(np.asarray(graph.labels)[graph.labelled].tolist()) == set(range(5))


def test_dblp_sized_graph_has_the_published_counts() -> None:
    graph = like("dblp", seed=0)
    assert (graph.num_nodes, graph.snapshot_edges, graph.num_steps, graph.num_classes) == (28_085, 236_894, 27, 10)


def test_table_holds_the_benchmarks_sizes() -> None:
    counts = {name: (s.nodes, s.edges, s.steps, s.classes) for name, s in LIKE.items()}
    assert counts["tmall"] == (577_314, 4_807_545, 186, 5)
    assert counts["patent"] == (2_738_012, 13_960_811, 25, 6)
    assert LIKE["tmall"].labelled == 81_380


def test_mistyped_name_gets_the_nearest_one() -> None:
    with pytest.raises(InputError, match="Did you mean 'patent'"):
        like("patnet")


@pytest.mark.parametrize(
    "options",
    [
        {"nodes": 100},
        {"steps": 1},
        {"classes": 1},
        {"nodes": 1000, "edges": 500_000},
        {"merge": 0},
        {"merge": 10**11},
        {"seed": -1},
        {"nodes": 10**5, "classes": 200},
        {"nodes": 2**31, "edges": 2**31},
        {"nodes": 2**31 - 1, "edges": 10**13},
    ],
)
def test_impossible_sizes_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="synthetic"):
        patent_like(**options)
