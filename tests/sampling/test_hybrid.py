"""Known answers on the graph of six nodes. Node 0 knows 1, 2, 3 before step 3 and meets 4 at step 3."""

from __future__ import annotations

from collections import Counter
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import settings as run
from scipy import stats

from chronospike.data.graph import DynamicGraph
from chronospike.errors import InputError
from chronospike.rng import stream
from chronospike.sampling import hybrid
from chronospike.sampling.hybrid import HybridSampler, SamplingSettings, default_backend
from tests.sampling.reference import BACKENDS, Edge, edge_lists, graph_of, reference_tree, settings
from tests.six_nodes import EDGES, six_nodes

COPIES, EPOCHS = 5000, 20
DRAWS = COPIES * EPOCHS


@cache
def many_copies() -> DynamicGraph:
    """The graph of six nodes 5,000 times over, so that one call draws for 5,000 roots alike."""
    edges = np.array(EDGES)[None] + 6 * np.arange(COPIES)[:, None, None] * np.array([1, 1, 0])
    return graph_of(edges.reshape(-1, 3).tolist(), 6 * COPIES, 4)


def draws_of_node_0(step: int, **options: Any) -> np.ndarray:
    """`[100,000, S]` sampled neighbours of node 0 at `step`."""
    sampler = HybridSampler(many_copies(), **options)
    roots = 6 * np.arange(COPIES)
    drawn = [sampler.sample(roots, epoch, steps=[step]).neighbours(0)[0] % 6 for epoch in range(EPOCHS)]
    return torch.cat(drawn).numpy()


def neighbours(root: int, step: int, **options: Any) -> list[int]:
    """The sorted one-hop sample of `root` at `step`."""
    drawn: list[int] = HybridSampler(six_nodes(), **options).sample([root], steps=[step]).hop(1)[0].tolist()
    return sorted(drawn)


@pytest.mark.parametrize(("step", "known"), [(0, [0]), (1, [0, 1]), (2, [0, 1, 2]), (3, [0, 1, 2, 3])])
def test_strict_history_holds_the_earlier_steps_and_the_node_itself(step: int, known: list[int]) -> None:
    assert neighbours(0, step, fanouts=len(known), p=1.0) == known


@pytest.mark.parametrize(("step", "known"), [(0, [0, 1]), (1, [0, 1, 2]), (2, [0, 1, 2, 3]), (3, [0, 1, 2, 3, 4])])
def test_inclusive_history_adds_the_edges_of_the_step_itself(step: int, known: list[int]) -> None:
    assert neighbours(0, step, fanouts=len(known), p=1.0, history="inclusive") == known


@pytest.mark.parametrize(("step", "active"), [(0, [0, 1]), (1, [0, 2]), (2, [0, 1, 3]), (3, [0, 4])])
def test_snapshot_holds_the_edges_of_the_step_and_the_node_itself(step: int, active: list[int]) -> None:
    assert neighbours(0, step, fanouts=len(active), p=0.0) == active


@pytest.mark.parametrize("p", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("replace", [False, True])
def test_an_isolated_node_samples_itself_in_every_hop(p: float, replace: bool) -> None:
    tree = HybridSampler(six_nodes(), (3, 2), p, replace=replace).sample([5])
    assert tree.nodes.tolist() == [[5] * 10] * 4


def test_split_fills_the_first_slots_from_the_history() -> None:
    for seed in range(30):
        sampler = HybridSampler(six_nodes(), (5,), p=0.5, mix="split", seed=seed)
        drawn = sampler.sample([0], steps=[3]).hop(1)[0].tolist()
        assert len(set(drawn[:2])) == 2
        assert set(drawn[:2]) <= {0, 1, 2, 3}
        assert set(drawn[2:]) == {0, 4}


def test_second_hop_samples_the_neighbours_of_the_first() -> None:
    # At step 3 node 4 meets 0 and node 0 meets 4, so three slots each hold both and one of them again.
    tree = HybridSampler(six_nodes(), (2, 3), p=0.0).sample([4], steps=[3])
    assert set(tree.hop(1)[0].tolist()) == {0, 4}
    assert [set(drawn.tolist()) for drawn in tree.neighbours(1)[0]] == [{0, 4}, {0, 4}]


@pytest.mark.parametrize("fanout", [1, 2, 3])
def test_every_subset_is_equally_likely_when_the_degree_is_above_the_fanout(fanout: int) -> None:
    drawn = np.sort(draws_of_node_0(3, fanouts=fanout, p=1.0), axis=1)
    subsets = Counter(map(tuple, drawn.tolist()))
    assert all(len(set(subset)) == fanout for subset in subsets)
    assert len(subsets) == [4, 6, 4][fanout - 1]
    assert stats.chisquare(list(subsets.values())).pvalue > 1e-3


def test_every_neighbour_comes_once_when_the_degree_equals_the_fanout() -> None:
    drawn = np.sort(draws_of_node_0(3, fanouts=4, p=1.0), axis=1)
    assert (drawn == [0, 1, 2, 3]).all()


def test_left_over_slots_repeat_uniformly_when_the_degree_is_below_the_fanout() -> None:
    drawn = draws_of_node_0(3, fanouts=6, p=1.0)
    times = np.stack([(drawn == node).sum(1) for node in range(4)], axis=1)
    assert times.min() == 1
    # Two repeats of four neighbours: the same one twice in 4 of 16 outcomes, each other pair in 2 of 16.
    repeats = Counter(map(tuple, (times - 1).tolist()))
    expected = [DRAWS * (1 if max(pair) == 2 else 2) / 16 for pair in repeats]
    assert len(repeats) == 10
    assert stats.chisquare(list(repeats.values()), expected).pvalue > 1e-3


def test_a_single_slot_takes_the_history_with_probability_p() -> None:
    counts = np.bincount(draws_of_node_0(3, fanouts=1, p=0.3)[:, 0], minlength=6)
    # 0.3 over {1, 2, 3, 0} and 0.7 over {4, 0}.
    assert counts[5] == 0
    assert stats.chisquare(counts[:5], DRAWS * np.array([0.425, 0.075, 0.075, 0.075, 0.35])).pvalue > 1e-3


def test_slots_choose_their_view_and_neighbour_independently_with_replacement() -> None:
    drawn = draws_of_node_0(3, fanouts=5, p=0.3, replace=True)
    fours = np.bincount((drawn == 4).sum(1), minlength=6)
    assert stats.chisquare(fours, DRAWS * stats.binom.pmf(np.arange(6), 5, 0.35)).pvalue > 1e-3


@pytest.mark.parametrize(
    ("node", "probability"),
    [
        # k of 5 slots take the history with probability C(5, k) / 32, and then hold min(k, 4) of its 4 neighbours:
        # (1·5 + 2·10 + 3·10 + 4·5 + 4·1) / 32 / 4.
        (1, 79 / 128),
        # Of the snapshot's 2 neighbours they hold min(5 - k, 2): (2·1 + 2·5 + 2·10 + 2·10 + 1·5) / 32 / 2.
        (4, 57 / 64),
    ],
)
def test_inclusion_probability_under_the_mixture(node: int, probability: float) -> None:
    held = int((draws_of_node_0(3, fanouts=5, p=0.5) == node).any(1).sum())
    assert stats.binomtest(held, DRAWS, probability).pvalue > 1e-3


@pytest.mark.parametrize(("p", "allowed"), [(0.0, {0, 4}), (1.0, {0, 1, 2, 3})])
def test_the_limits_of_p_take_one_view_only(p: float, allowed: set[int]) -> None:
    assert set(np.unique(draws_of_node_0(3, fanouts=3, p=p)).tolist()) == allowed


@given(edge_lists(), settings)
@run(max_examples=150, deadline=None)
def test_no_neighbour_comes_from_a_later_step(case: tuple[list[Edge], int, int], options: dict[str, Any]) -> None:
    edges, num_nodes, num_steps = case
    tree = HybridSampler(graph_of(*case), **options).sample(range(num_nodes))
    for step in range(num_steps):
        allowed = {(v, v) for v in range(num_nodes)}
        for u, v, when in edges:
            if when <= step:
                allowed |= {(u, v), (v, u)}
        for hop in range(tree.num_hops):
            for parent, drawn in zip(tree.hop(hop)[step].tolist(), tree.neighbours(hop)[step].tolist(), strict=True):
                assert {(parent, node) for node in drawn} <= allowed


@given(edge_lists(), settings)
@run(max_examples=80, deadline=None)
def test_the_future_has_no_influence(case: tuple[list[Edge], int, int], options: dict[str, Any]) -> None:
    edges, num_nodes, num_steps = case
    whole = HybridSampler(graph_of(*case), **options).sample(range(num_nodes))
    for now in range(num_steps):
        past = [edge for edge in edges if edge[2] <= now and edge[0] != edge[1]]
        tree = HybridSampler(graph_of(past, num_nodes, num_steps), **options).sample(range(num_nodes), steps=[now])
        assert tree.nodes[0].equal(whole.nodes[now])


@pytest.mark.parametrize("where", BACKENDS)
def test_a_seed_gives_the_same_tree_in_every_version(where: dict[str, Any]) -> None:
    tree = HybridSampler(six_nodes(), (3, 2), seed=5, **where).sample([0, 2], epoch=3, steps=[2, 3])
    # Worked out with `reference_tree`, slot after slot.
    assert tree.nodes.tolist() == [
        [0, 2, 1, 3, 2, 2, 2, 0, 1, 2, 0, 3, 0, 2, 2, 2, 2, 0, 0, 2],
        [0, 2, 4, 0, 4, 0, 1, 2, 4, 4, 2, 4, 4, 4, 4, 0, 0, 1, 1, 2],
    ]


@pytest.mark.parametrize("where", BACKENDS)
def test_a_root_has_the_same_tree_in_any_batch(where: dict[str, Any]) -> None:
    sampler = HybridSampler(six_nodes(), (3, 2), **where)
    together = sampler.sample([3, 0, 2, 0])
    for place, root in enumerate([3, 0, 2, 0]):
        alone = sampler.sample([root])
        for hop, width in enumerate([1, 3, 6]):
            assert alone.hop(hop).equal(together.hop(hop)[:, place * width : (place + 1) * width])


@pytest.mark.parametrize("where", BACKENDS)
def test_a_step_has_the_same_tree_whatever_other_steps_are_asked_for(where: dict[str, Any]) -> None:
    sampler = HybridSampler(six_nodes(), **where)
    whole, some = sampler.sample(range(6)), sampler.sample(range(6), steps=[3, 1])
    assert some.steps == (3, 1)
    assert some.nodes.equal(whole.nodes[[3, 1]])


def test_epochs_and_seeds_give_different_trees_and_the_same_ones_again() -> None:
    first = HybridSampler(six_nodes(), seed=0)
    trees = [
        first.sample(range(6)),
        first.sample(range(6), epoch=1),
        HybridSampler(six_nodes(), seed=1).sample(range(6)),
    ]
    assert len({tuple(tree.nodes.flatten().tolist()) for tree in trees}) == 3
    assert HybridSampler(six_nodes(), seed=0).sample(range(6), epoch=1).nodes.equal(trees[1].nodes)


@pytest.mark.parametrize("where", BACKENDS)
def test_another_purpose_draws_from_another_stream(where: dict[str, Any]) -> None:
    roots = list(range(6))
    tree = HybridSampler(six_nodes(), seed=7, **where).sample(roots, epoch=2, purpose="inference")
    assert tree.nodes.tolist() == reference_tree(six_nodes(), roots, range(4), seed=7, epoch=2, purpose="inference")
    assert tree.nodes.tolist() != reference_tree(six_nodes(), roots, range(4), seed=7, epoch=2)


@pytest.mark.parametrize("roots", [[1, 2], (1, 2), np.array([1, 2], dtype=np.int32), torch.tensor([1, 2])])
def test_roots_may_be_a_list_an_array_or_a_tensor(roots: Any) -> None:
    assert HybridSampler(six_nodes()).sample(roots).hop(0).tolist() == [[1, 2]] * 4


@pytest.mark.parametrize("where", BACKENDS)
def test_an_empty_batch_gives_an_empty_tree(where: dict[str, Any]) -> None:
    assert HybridSampler(six_nodes(), **where).sample([]).nodes.shape == (4, 0)


@pytest.mark.parametrize(
    ("roots", "steps", "message"),
    [
        ([0, 6], None, r"roots\[1\] = 6 is outside 0..5"),
        ([-1], None, r"roots\[0\] = -1 is outside 0..5"),
        ([0.5], None, r"roots must be a list of whole numbers, got float64"),
        ([[0], [1]], None, r"roots must be .* of shape \[2, 1\]"),
        ([0], [4], r"steps\[0\] = 4 is outside 0..3"),
    ],
)
def test_roots_and_steps_out_of_range_are_named(roots: Any, steps: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        HybridSampler(six_nodes()).sample(roots, steps=steps)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"backend": "numbar"}, r"backend 'numbar' is not one of: numba, triton. Did you mean 'numba'\?"),
        ({"threads": 0}, r"threads 0 is below 1"),
        ({"device": "gpu"}, r"device 'gpu' is not known. Use auto, cpu, cuda"),
        ({"p": 2}, r"p 2 is outside 0..1"),
    ],
)
def test_a_wrong_option_is_one_line_with_the_way_out(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        HybridSampler(six_nodes(), **wrong)


@pytest.mark.parametrize(
    ("device", "works", "backend"), [("cpu", True, "numba"), ("cuda", True, "triton"), ("cuda", False, "numba")]
)
def test_the_device_decides_the_backend(
    monkeypatch: pytest.MonkeyPatch, device: str, works: bool, backend: str
) -> None:
    monkeypatch.setattr(hybrid, "triton_trouble", lambda _: None if works else "no compiler")
    assert default_backend(torch.device(device)) == backend


@pytest.mark.gpu
def test_numba_copies_its_trees_to_the_gpu() -> None:
    tree = HybridSampler(six_nodes(), device="cuda", backend="numba").sample(range(6))
    assert tree.nodes.device.type == "cuda"
    assert tree.nodes.cpu().equal(HybridSampler(six_nodes()).sample(range(6)).nodes)


def test_repr_shows_the_settings() -> None:
    assert repr(HybridSampler(six_nodes(), (3,), 0.25)).startswith(
        "HybridSampler(fanouts=(3,), p=0.25, history='strict'"
    )


@pytest.mark.parametrize(
    ("fanout", "p", "from_history"), [(5, 0.5, 2), (2, 0.5, 1), (5, 1.0, 5), (5, 0.1, 1), (10, 0.3, 3), (4, 0.0, 1)]
)
def test_split_takes_the_floor_of_the_share_and_at_least_one(fanout: int, p: float, from_history: int) -> None:
    assert SamplingSettings((fanout,), p, mix="split").history_slots == (from_history,)


def test_bernoulli_fixes_no_slot() -> None:
    assert SamplingSettings((5, 2)).history_slots == (-1, -1)


def test_tree_size_counts_the_root_and_every_hop() -> None:
    assert SamplingSettings((5, 2)).tree_size == 16


def test_a_single_number_is_one_hop() -> None:
    one, other = (HybridSampler(six_nodes(), fanouts).settings.fanouts for fanouts in (5, [5]))
    assert one == other == (5,)


def test_epochs_and_purposes_have_streams_of_their_own() -> None:
    assert SamplingSettings(seed=4).key(2) == stream(4, "sampler", 2)
    assert SamplingSettings(seed=4).key(2, "inference") == stream(4, "inference", 2)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"fanouts": ()}, r"fanouts \[\]: give one whole number, at least 1, for each hop"),
        ({"fanouts": (5, 0)}, r"fanouts \[5, 0\]: .* at least 1"),
        ({"fanouts": (2.5,)}, r"fanouts \[2.5\]"),
        ({"p": 1.5}, r"p 1.5 is outside 0..1"),
        ({"p": -0.1}, r"p -0.1 is outside 0..1"),
        ({"p": float("nan")}, r"p nan is outside 0..1"),
        ({"p": "half"}, r"p 'half' is outside 0..1"),
        ({"history": "strickt"}, r"history 'strickt' is not one of: strict, inclusive. Did you mean 'strict'\?"),
        ({"mix": "bernouli"}, r"mix 'bernouli' is not one of: bernoulli, split. Did you mean 'bernoulli'\?"),
        ({"seed": 0.5}, r"seed 0.5 is not a whole number"),
    ],
)
def test_a_setting_out_of_range_names_the_range(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        SamplingSettings(**wrong)


def test_triton_is_refused_on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    monkeypatch.setattr(hybrid, "has_triton", lambda: True)
    with pytest.raises(InputError, match="'triton' samples on a GPU: give device='cuda', or use backend 'numba'"):
        HybridSampler(six_nodes(), backend="triton")
