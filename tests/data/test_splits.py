from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.random import RandomState
from sklearn.model_selection import train_test_split

from chronospike.data.build import build_graph
from chronospike.data.events import Events, NodeLabels, Steps
from chronospike.data.graph import DynamicGraph
from chronospike.data.ids import NodeIds
from chronospike.data.splits import Split, _shuffled, _stratified, make_split
from chronospike.errors import InputError


def ring(
    codes: list[int], ids: NodeIds | None = None, isolated: int = 0, directed: bool = False, steps: int | None = None
) -> DynamicGraph:
    """Node v meets v + 1, at step v unless there are fewer steps; the last `isolated` nodes meet nobody."""
    nodes = len(codes)
    source = np.arange(nodes - isolated - 1)
    total = steps or len(source)
    bounds = np.arange(total)
    when = Steps((source * total // len(source)).astype(np.int32), bounds, bounds)
    labels = NodeLabels(np.array(codes, dtype=np.int64), tuple("abcdefghij"[: max(codes) + 1]))
    events = Events(source, source + 1, source, ids or NodeIds.range(nodes))
    return build_graph(events, when, labels=labels, directed=directed)


def parts(split: Split) -> list[list[int]]:
    return [split.train.tolist(), split.validation.tolist(), split.test.tolist()]


@pytest.mark.parametrize(("ratio", "sizes"), [(0.8, [21_063, 1405, 5617]), (0.4, [9829, 1405, 16_851])])
def test_sizes_of_as_many_nodes_as_dblp_has_are_the_benchmarks(ratio: float, sizes: list[int]) -> None:
    split = make_split(ring([v % 10 for v in range(28_085)], steps=2), ratio=ratio)
    assert [len(part) for part in parts(split)] == sizes


@pytest.mark.parametrize("ratio", [0.4, 0.6, 0.8])
def test_parts_are_disjoint_and_cover_the_labelled_nodes(ratio: float) -> None:
    codes = [v % 3 if v % 4 else -1 for v in range(400)]
    split = make_split(ring(codes), ratio=ratio)
    together = np.concatenate(parts(split)).tolist()
    assert sorted(together) == [v for v in range(400) if v % 4]
    assert len(split.train) + len(split.validation) == int(ratio * 300)
    assert len(split.validation) == 15


def test_classes_keep_their_proportions() -> None:
    codes = [0] * 600 + [1] * 300 + [2] * 100
    split = make_split(ring(codes), ratio=0.8)
    counts = [np.bincount(np.array(codes)[part], minlength=3).tolist() for part in parts(split)]
    assert counts == [[450, 225, 75], [30, 15, 5], [120, 60, 20]]


def test_equals_two_calls_of_scikit_learn_with_one_seed() -> None:
    codes = np.random.default_rng(0).integers(0, 4, 500)
    split = make_split(ring(codes.tolist()), ratio=0.6, seed=42)
    part, test = train_test_split(np.arange(500), train_size=0.6, test_size=0.4, random_state=42, stratify=codes)
    train, held = train_test_split(part, train_size=0.55 / 0.6, random_state=42, stratify=codes[part])
    assert parts(split) == [sorted(train), sorted(held), sorted(test)]


def test_real_dblp_split_is_the_benchmarks(data_root: Path) -> None:
    node, code = np.loadtxt(data_root / "dblp" / "node2label.txt", dtype=np.int64).T
    assert np.array_equal(node, np.arange(28_085))
    split = make_split(ring(code.tolist(), steps=2), ratio=0.8)
    part, test = train_test_split(node, train_size=0.8, test_size=0.2, random_state=42, stratify=code)
    train, held = train_test_split(part, train_size=0.75 / 0.8, random_state=42, stratify=code[part])
    assert parts(split) == [sorted(train), sorted(held), sorted(test)]


def test_split_goes_by_the_ids_and_not_by_the_order_of_import() -> None:
    codes = np.random.default_rng(1).integers(0, 3, 200)
    order = np.random.default_rng(2).permutation(200)
    plain, shuffled = ring(codes.tolist()), ring(codes[order].tolist(), ids=NodeIds.of(order))
    assert parts(make_split(plain)) == [sorted(order[part]) for part in parts(make_split(shuffled))]


def test_same_seed_gives_the_same_split_and_another_seed_another() -> None:
    graph = ring([v % 2 for v in range(100)])
    assert parts(make_split(graph, seed=1)) == parts(make_split(graph, seed=1))
    assert parts(make_split(graph, seed=1)) != parts(make_split(graph, seed=2))


def test_isolated_nodes_leave_the_test_set_and_are_counted() -> None:
    graph = ring([v % 2 for v in range(200)], isolated=50)
    split, whole = make_split(graph), make_split(graph, drop_isolated=False)
    alone = [v for v in whole.test.tolist() if v >= 150]
    assert alone
    assert split.dropped_isolated == split.facts["dropped_isolated"] == len(alone)
    assert split.test.tolist() == [v for v in whole.test.tolist() if v < 150]
    assert split.train.tolist() == whole.train.tolist()
    assert whole.dropped_isolated == 0


def test_class_with_one_member_is_trained_on_and_noted() -> None:
    split = make_split(ring([0] * 50 + [1] * 50 + [2]))
    assert 100 in split.train
    assert split.facts["notes"] == [
        "1 class(es) too small for the test part: 'c'",
        "1 class(es) too small for the validation part: 'c'",
    ]


def test_class_with_one_member_left_for_validation_is_trained_on_and_the_rest_stratified() -> None:
    split = make_split(ring([0] * 60 + [1] * 60 + [2] * 2), ratio=0.5, validation=0.2)
    counts = [np.bincount(np.array([0] * 60 + [1] * 60 + [2] * 2)[part], minlength=3).tolist() for part in parts(split)]
    assert counts == [[18, 18, 1], [12, 12, 0], [30, 30, 1]]
    assert split.facts["notes"] == ["1 class(es) too small for the validation part: 'c'"]


def test_more_classes_than_validation_nodes_gives_an_unstratified_part_and_a_note() -> None:
    split = make_split(ring([v % 10 for v in range(100)]))
    assert [len(part) for part in parts(split)] == [75, 5, 20]
    assert split.facts["notes"] == ["the validation part is not stratified: it is smaller than the number of classes"]


def test_no_validation_is_possible() -> None:
    split = make_split(ring([v % 2 for v in range(100)]), validation=0.0)
    assert [len(part) for part in parts(split)] == [80, 0, 20]


@pytest.mark.parametrize("directed", [False, True])
def test_first_step_is_that_of_the_first_edge_in_either_direction(directed: bool) -> None:
    assert ring([0, 1, 0, 1, 0], isolated=1, directed=directed).first_steps.tolist() == [0, 0, 1, 2, 3]


def test_time_order_trains_on_the_earliest_and_tests_on_the_latest() -> None:
    split = make_split(ring([v % 2 for v in range(100)]), order="time", ratio=0.7, validation=0.1)
    # Nodes 0 and 1 tie at step 0 and are both far from a border.
    assert parts(split) == [list(range(60)), list(range(60, 70)), list(range(70, 100))]


def test_time_order_breaks_ties_by_the_seed() -> None:
    nodes = np.arange(0, 40, 2)
    steps = Steps(np.zeros(20, dtype=np.int32), np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.int64))
    labels = NodeLabels(np.arange(40) % 2, ("a", "b"))
    graph = build_graph(Events(nodes, nodes + 1, np.zeros(20), NodeIds.range(40)), steps, labels=labels)
    one, other = (make_split(graph, order="time", seed=seed) for seed in (1, 2))
    assert parts(one) == parts(make_split(graph, order="time", seed=1))
    assert parts(one) != parts(other)


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"ratio": 1.0}, "ratio of 1.0"),
        ({"ratio": 0.05}, "0.05 for validation"),
        ({"validation": -0.1}, "-0.1 for validation"),
        ({"order": "sideways"}, "'sideways'"),
    ],
)
def test_impossible_settings_are_named(options: dict[str, Any], word: str) -> None:
    with pytest.raises(InputError, match=word):
        make_split(ring([v % 2 for v in range(40)]), **options)


def test_missing_labels_and_a_single_class_are_refused() -> None:
    with pytest.raises(InputError, match="no labels"):
        make_split(ring([-1] * 10 + [0]).with_labels(np.full(11, -1), ()))
    with pytest.raises(InputError, match="1 class, and 2 are needed"):
        make_split(ring([0] * 20))


def test_nothing_left_to_test_on_is_refused() -> None:
    with pytest.raises(
        InputError, match="0 to test on; the only node of a class is trained on, and 5 classes have one"
    ):
        make_split(ring([0, 1, 2, 3, 4]))
    with pytest.raises(InputError, match=r"0 to test on \(10 without an edge are left out\);"):
        make_split(ring([-1] * 10 + [v % 2 for v in range(50)], isolated=50), ratio=0.8)


@pytest.mark.parametrize("seed", range(20))
def test_the_draws_are_those_of_scikit_learn(seed: int) -> None:
    generator = np.random.default_rng(seed)
    codes = generator.choice(6, size=200, p=generator.dirichlet(np.ones(6)))
    codes = codes[np.bincount(codes, minlength=6)[codes] > 1]
    count = int(generator.integers(20, len(codes) - 20))
    sizes: dict[str, Any] = {"train_size": count, "test_size": len(codes) - count, "random_state": seed}
    by_class, by_chance = _stratified(codes, count, RandomState(seed)), _shuffled(len(codes), count, RandomState(seed))
    for drawn, stratify in ((by_class, codes), (by_chance, None)):
        expected = train_test_split(np.arange(len(codes)), stratify=stratify, **sizes)
        for one, other in zip(drawn, expected, strict=True):
            assert np.array_equal(one, other)


@pytest.mark.parametrize("seed", [None, -1, 2**32, "a"])
def test_a_seed_that_is_none_or_out_of_range_is_refused(seed: Any) -> None:
    with pytest.raises(InputError, match=f"the seed of a split is {seed!r}; it must be a whole number"):
        make_split(ring([0, 1] * 10), seed=seed)
