from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score

from chronospike.data.graph import DynamicGraph
from chronospike.data.synthetic import activity_rates, split_classes, synthetic_graph
from chronospike.errors import InputError


@pytest.fixture(scope="module")
def by_timing() -> DynamicGraph:
    return synthetic_graph(structure=0.0, timing=1.0, seed=3)


@pytest.fixture(scope="module")
def by_structure() -> DynamicGraph:
    return synthetic_graph(structure=0.8, timing=0.0, seed=3)


@pytest.fixture(scope="module")
def by_both() -> DynamicGraph:
    return synthetic_graph(seed=3)


def degrees(graph: DynamicGraph) -> NDArray[np.int64]:
    """`[N, T]` degree of each node in each snapshot."""
    return np.diff(graph.snapshot.step_offsets, axis=1).astype(np.int64)


def accuracy(table: NDArray[Any], labels: NDArray[np.int64] | None) -> float:
    """Cross-validated accuracy of a random forest, which finds thresholds and interactions by itself."""
    forest = RandomForestClassifier(60, min_samples_leaf=5, random_state=0)
    return float(cross_val_score(forest, table.reshape(len(table), -1), labels, cv=3).mean())


def propagate(graph: DynamicGraph, seed: int = 0, rounds: int = 20) -> float:
    """Accuracy of label propagation on the union graph from 60 % of the labels."""
    assert graph.labels is not None
    rows, _, neighbours = graph.history.entries()
    known = np.random.default_rng(seed).random(graph.num_nodes) < 0.6
    truth = np.eye(graph.num_classes)[graph.labels] * known[:, None]
    scores = truth.copy()
    for _ in range(rounds):
        spread = np.zeros_like(scores)
        np.add.at(spread, rows, scores[neighbours])
        scores = 0.9 * spread / np.maximum(spread.sum(axis=1, keepdims=True), 1e-9)
        scores[known] = truth[known]
    return float((scores.argmax(axis=1) == graph.labels)[~known].mean())


def test_four_patterns_over_nine_steps_are_shifted_windows() -> None:
    expected = [
        [2, 2, 2, 2, 0, 0, 0, 0, 1],
        [0, 0, 2, 2, 2, 2, 0, 0, 1],
        [0, 0, 0, 0, 2, 2, 2, 2, 1],
        [2, 2, 0, 0, 0, 0, 2, 2, 1],
    ]
    np.testing.assert_array_equal(activity_rates(4, 9), expected)


@pytest.mark.parametrize("patterns", [2, 3, 4, 5, 7])
@pytest.mark.parametrize("steps", [8, 12, 27])
def test_all_patterns_have_the_same_total_and_the_same_last_step(patterns: int, steps: int) -> None:
    rates = activity_rates(patterns, steps)
    np.testing.assert_allclose(rates.sum(axis=1), steps)
    assert len({tuple(row) for row in rates.tolist()}) == patterns
    np.testing.assert_array_equal(rates[:, -1], 1.0)


def test_one_pattern_is_active_alike_at_all_steps() -> None:
    np.testing.assert_array_equal(activity_rates(1, 5), np.ones((1, 5)))


@pytest.mark.parametrize(
    ("classes", "structure", "timing", "expected"),
    [(4, 0.8, 1.0, (2, 2)), (6, 0.5, 0.5, (3, 2)), (4, 0.0, 1.0, (1, 4)), (5, 0.7, 0.0, (5, 1)), (3, 0.0, 0.0, (1, 3))],
)
def test_classes_are_pairs_of_community_and_pattern(
    classes: int, structure: float, timing: float, expected: tuple[int, int]
) -> None:
    assert split_classes(classes, structure, timing) == expected


def test_same_seed_gives_the_same_graph_and_another_seed_another() -> None:
    one, same, other = (synthetic_graph(nodes=100, seed=seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one.snapshot.neighbours, same.snapshot.neighbours)
    np.testing.assert_array_equal(one.features, same.features)
    assert not np.array_equal(np.asarray(one.labels), np.asarray(other.labels))


def test_counts_are_as_asked_for() -> None:
    graph = synthetic_graph(nodes=600, steps=10, classes=6, degree=5.0, feature_dim=3)
    assert (graph.num_nodes, graph.num_steps, graph.num_classes) == (600, 10, 6)
    assert graph.features is not None and graph.features.shape == (10, 600, 3)
    assert np.bincount(graph.labels).tolist() == [100] * 6  # type: ignore[arg-type]
    assert graph.facts["self_loops"] == 0
    assert degrees(graph).mean() == pytest.approx(5.0, rel=0.05)


def test_feature_dim_zero_leaves_the_features_out() -> None:
    assert synthetic_graph(nodes=50, feature_dim=0).features is None


def test_directed_graph_keeps_one_direction_of_each_edge() -> None:
    graph = synthetic_graph(nodes=200, directed=True)
    assert graph.directed
    assert graph.snapshot_edges == graph.facts["rows"] - graph.facts["duplicates"]


def test_activity_shows_in_the_edges_into_a_node_of_a_directed_graph() -> None:
    graph = synthetic_graph(structure=0.0, directed=True, seed=3)
    assert accuracy(degrees(graph), graph.labels) > 0.9


def test_activity_over_time_tells_the_timing_classes_apart(by_timing: DynamicGraph) -> None:
    assert accuracy(degrees(by_timing), by_timing.labels) > 0.95


def test_own_features_over_time_tell_the_timing_classes_apart(by_timing: DynamicGraph) -> None:
    assert by_timing.features is not None
    table = by_timing.features.transpose(1, 0, 2).reshape(by_timing.num_nodes, -1)
    model = LogisticRegression(max_iter=500)
    assert cross_val_score(model, table, by_timing.labels, cv=3).mean() > 0.95


@pytest.mark.parametrize("what", ["union degree", "last degree", "last features", "mean features", "sorted degrees"])
def test_whatever_ignores_the_order_of_steps_is_at_chance_on_timing(by_timing: DynamicGraph, what: str) -> None:
    assert by_timing.features is not None
    table: NDArray[Any] = {
        "union degree": by_timing.history.degrees(),
        "last degree": degrees(by_timing)[:, -1],
        "last features": by_timing.features[-1],
        "mean features": by_timing.features.mean(axis=0),
        "sorted degrees": np.sort(degrees(by_timing), axis=1),
    }[what]
    assert accuracy(table, by_timing.labels) < 0.32


def test_label_propagation_on_the_union_is_at_chance_on_timing(by_timing: DynamicGraph) -> None:
    assert propagate(by_timing) < 0.32


def test_label_propagation_on_the_union_solves_structure(by_structure: DynamicGraph) -> None:
    assert propagate(by_structure) > 0.95


def test_activity_over_time_is_at_chance_on_structure(by_structure: DynamicGraph) -> None:
    assert accuracy(degrees(by_structure), by_structure.labels) < 0.32


def test_own_features_hint_at_the_community_and_neighbours_confirm_it(by_structure: DynamicGraph) -> None:
    assert by_structure.features is not None
    own = by_structure.features.mean(axis=0)
    rows, _, neighbours = by_structure.history.entries()
    around = np.zeros_like(own)
    np.add.at(around, rows, own[neighbours])
    around /= by_structure.history.degrees()[:, None]
    model = LogisticRegression(max_iter=500)
    alone = cross_val_score(model, own, by_structure.labels, cv=3).mean()
    together = cross_val_score(model, around, by_structure.labels, cv=3).mean()
    assert 0.3 < alone < 0.6 < 0.95 < together


def test_a_time_blind_model_gets_half_of_the_classes_and_time_gives_the_rest(by_both: DynamicGraph) -> None:
    assert by_both.labels is not None
    assert propagate(by_both) < 0.6
    # Class = pattern · 2 + community: the rest is in when a node is active.
    assert accuracy(degrees(by_both), by_both.labels // 2) > 0.95


def test_timing_knob_is_the_share_of_nodes_that_follow_their_class() -> None:
    graph = synthetic_graph(structure=0.0, timing=0.5, seed=4)
    # Half follow their class; of the others a quarter does by chance.
    assert accuracy(degrees(graph), graph.labels) == pytest.approx(0.625, abs=0.06)


def test_structure_knob_is_the_share_of_edges_inside_the_community() -> None:
    graph = synthetic_graph(structure=0.6, timing=0.0, seed=5)
    rows, _, neighbours = graph.snapshot.entries()
    assert graph.labels is not None
    inside = (graph.labels[rows] == graph.labels[neighbours]).mean()
    assert inside == pytest.approx(0.6 + 0.4 / 4, abs=0.02)


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"classes": 5}, "structure or timing"),
        ({"classes": 1}, "at least 2"),
        ({"structure": 1.5}, "structure is 1.5"),
        ({"timing": -0.1}, "timing is -0.1"),
        ({"nodes": 7}, "too few"),
        ({"steps": 4, "structure": 0.0}, "at least 5 are needed"),
        ({"degree": 0.0}, "degree"),
        ({"nodes": 10**11}, "nodes is 100,000,000,000; it must be below 2"),
        ({"steps": 10**400}, "steps is 10,000"),
        ({"classes": 10**30}, "classes is 1,000"),
        ({"feature_dim": 2**31}, "feature_dim is"),
        ({"nodes": 2 * 10**9}, "this synthetic graph needs about .* Lower nodes .now 2,000,000,000."),
        ({"steps": 2 * 10**9}, "this synthetic graph needs about"),
        ({"degree": 1e12}, r"this synthetic graph needs about .* degree .now 1e\+12"),
        ({"degree": 1e308}, "this synthetic graph needs about inf GB"),
        ({"feature_dim": 2**30}, "this synthetic graph needs about"),
        ({"seed": -1}, "the seed is -1"),
    ],
)
def test_impossible_settings_are_named(options: dict[str, Any], word: str) -> None:
    with pytest.raises(InputError, match=word):
        synthetic_graph(**options)


@pytest.mark.parametrize(("name", "value"), [("nodes", 100.5), ("steps", "8"), ("seed", None)])
def test_a_number_that_is_not_whole_is_refused(name: str, value: Any) -> None:
    with pytest.raises(InputError, match=f"{name} is {value!r}; it must be a whole number"):
        synthetic_graph(**{name: value})
