from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from chronospike.config import make_settings
from chronospike.methods.hawkes_torch import TensorSlots
from chronospike.methods.m2dne import M2DNEEmbedder, M2DNESettings, growth_logs
from chronospike.methods.m2dne_kernels import descend_growth
from tests.methods.hawkes_reference import (
    as_arrays,
    assert_close,
    descended,
    event_graph,
    m2dne_terms,
    macro_losses,
    plain_slots,
    random_graph,
    shaken,
    squared,
    task_of,
)

SQUARE = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
VARIANTS = [
    {}, {"train_attention": True}, {"tie_delta": False}, {"tie_delta": False, "train_attention": True},
    {"epsilon": 0.0}, {"epsilon": 1.0},
]  # fmt: skip
KEY = 5


def _embedder(graph: Any = None, compiled: bool = True, **values: Any) -> M2DNEEmbedder:
    given = {"dimension": 6, "negatives": 3, "history": 3, "learning_rate": 0.01, **values}
    settings = make_settings(M2DNESettings, given)
    return M2DNEEmbedder(task_of(graph or random_graph(0)), settings, compiled=compiled)


def _all_tables(embedder: M2DNEEmbedder) -> dict[str, Tensor]:
    return {**embedder.attention.weights, **embedder.tables()}


def _square(compiled: bool, **values: Any) -> M2DNEEmbedder:
    """Node 0 meets 1 at time 1; 0 met 2 at 0.5, and 1 met 3 at 0.75; the negative is node 2 on both sides."""
    graph = event_graph([2, 0, 1, 0], [3, 2, 3, 1], [0.0, 0.5, 0.75, 1.0])
    embedder = _embedder(graph, compiled, dimension=2, negatives=1, history=1, **values)
    embedder.vectors.copy_(SQUARE)
    # W = I, a = (1, 0, 0, 1) and a linear layer (1, 1) without bias, in the first two of the hidden units.
    for weights in embedder.attention.weights.values():
        weights.zero_()
    embedder.attention.weights["W"][0, 0] = embedder.attention.weights["W"][1, 1] = 1
    embedder.attention.weights["a"][[0, 129]] = 1
    embedder.attention.weights["linear"][:2] = 1
    embedder.attention_vectors = embedder.attention.vectors()
    return embedder


def _square_slots() -> TensorSlots:
    return TensorSlots(
        torch.tensor([[0, 1, 2, 2, 2, 3]]), torch.tensor([[[0.5], [0.25]]]), torch.ones(1, 2, 1), torch.tensor([3])
    )


def _loss(embedder: M2DNEEmbedder, slots: TensorSlots) -> float:
    """Of one record, by either path."""
    if not embedder.compiled:
        return embedder.torch_step(slots).item()
    embedder.gradients(as_arrays(slots), 0, 1)
    return float(embedder.losses[0])


def test_the_terms_of_four_nodes_in_a_square() -> None:
    found = m2dne_terms(_all_tables(_square(True)), _square_slots(), 1, 1)
    assert found["sims"].view(-1).tolist() == pytest.approx([0.606531, 1.557602], abs=1e-6)
    assert found["mix"].view(-1).tolist() == pytest.approx([0.407732, 0.592268], abs=1e-6)
    assert found["positive"].item() == pytest.approx(-3.865447, abs=2e-6)
    assert found["negative"].view(-1).tolist() == pytest.approx([-1, -2.760488], abs=2e-6)
    assert found["losses"].item() == pytest.approx(4.260735, abs=4e-6)


@pytest.mark.parametrize("compiled", [True, False])
def test_the_micro_loss_of_four_nodes_in_a_square(compiled: bool) -> None:
    assert _loss(_square(compiled, epsilon=0), _square_slots()) == pytest.approx(4.260735, abs=4e-6)


@pytest.mark.parametrize(
    ("far", "time", "nodes", "events", "loss"), [(1.0, 0.5, 4, 5, 0.065205), (0.0, 1.0, 10, 20, 0.657606)]
)
@pytest.mark.parametrize("compiled", [True, False])
def test_the_macro_loss_worked_out_by_hand(
    far: float, time: float, nodes: int, events: int, loss: float, compiled: bool
) -> None:
    embedder = _square(compiled, epsilon=1)
    embedder.vectors[1] = torch.tensor([far, 0.0])
    embedder.logs[3] = np.log([nodes - 1, time + 1e-6, nodes, events + 1e-6])
    embedder.device_logs.copy_(torch.from_numpy(embedder.logs))
    assert _loss(embedder, _square_slots()) == pytest.approx(loss, abs=1e-6)
    found = macro_losses(
        torch.tensor(far), torch.ones(3), torch.tensor(time), torch.tensor(float(nodes)), torch.tensor(float(events))
    )
    assert found.item() == pytest.approx(loss, abs=1e-5)


def test_growth_is_counted_in_nodes_seen_and_events_of_the_moment() -> None:
    records = _embedder(event_graph([0, 0, 1], [1, 1, 2], [0, 0, 4])).records
    assert growth_logs(records) == pytest.approx(np.log([[1, 1e-6, 2, 2 + 1e-6], [2, 1 + 1e-6, 3, 1 + 1e-6]]))


@pytest.mark.parametrize("values", VARIANTS)
@pytest.mark.parametrize("seed", range(2))
def test_a_compiled_batch_is_a_step_down_the_gradient_of_the_loss(values: dict[str, Any], seed: int) -> None:
    embedder = _embedder(random_graph(seed), **values)
    shaken(embedder, seed)
    before = embedder.state()
    fixed = {name: weights.clone() for name, weights in embedder.attention.weights.items()}
    places = np.random.default_rng(seed).permutation(len(embedder.records))[:50].astype(np.int32)
    slots, records, share = plain_slots(embedder, places, KEY), embedder.records, embedder.epsilon
    loss = embedder.compiled_step(embedder.find_slots(places, KEY))

    def reference(tables: Any) -> Any:
        micro = m2dne_terms(
            {**{n: w.double() for n, w in fixed.items()}, **tables}, slots, 3, 3, embedder.is_tied
        )["losses"].sum()  # fmt: skip
        ends = tables["vectors"][slots.nodes[:, :2]]
        time, nodes, events = (
            torch.from_numpy(column[slots.moments.numpy()]).double()
            for column in (records.times, records.population, records.added)
        )
        macro = macro_losses(squared(ends[:, 0], ends[:, 1]), tables["growth"], time, nodes, events).mean()
        return (1 - share) * micro + share * macro

    wanted, after = descended(before, reference, embedder.rate)
    assert loss == pytest.approx(wanted, rel=1e-5)
    assert_close(embedder.state(), after, before, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("values", VARIANTS)
@pytest.mark.parametrize("seed", range(2))
def test_torch_learns_what_the_compiled_functions_learn(values: dict[str, Any], seed: int) -> None:
    one, other = (_embedder(random_graph(seed), compiled, batch_size=16, **values) for compiled in (True, False))
    shaken(one, seed)
    other.load_state(one.state())
    before = one.state()
    losses = [embedder.train_epoch(3, lambda *_: None) for embedder in (one, other)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    assert_close(other.state(), one.state(), before, rtol=1e-3, atol=2e-5)


def test_swapping_the_two_nodes_of_a_record_changes_no_micro_loss() -> None:
    embedder = _embedder()
    shaken(embedder, 0)
    tables = _all_tables(embedder)
    tables["decays"] = torch.ones(12)
    slots = plain_slots(embedder, np.arange(20), KEY)
    swapped = slots.nodes[:, [1, 0, 5, 6, 7, 2, 3, 4, 11, 12, 13, 8, 9, 10]]
    mirrored = TensorSlots(swapped, slots.gaps.flip(1), slots.present.flip(1), slots.moments)
    one, other = (m2dne_terms(tables, found, 3, 3)["losses"] for found in (slots, mirrored))
    torch.testing.assert_close(one, other)


@pytest.mark.parametrize("compiled", [True, False])
def test_the_macro_part_alone_knows_no_past(compiled: bool) -> None:
    slots = _square_slots()
    nodes = slots.nodes.clone()
    nodes[0, 4:] = torch.tensor([1, 0])
    losses = [_loss(_square(compiled, epsilon=1), found) for found in (slots, slots._replace(nodes=nodes))]
    assert losses[0] == losses[1]


@pytest.mark.parametrize("compiled", [True, False])
def test_the_micro_part_alone_knows_no_growth(compiled: bool) -> None:
    losses = [_loss(_square(compiled, epsilon=0), _square_slots()._replace(moments=torch.tensor([m]))) for m in (1, 3)]
    assert losses[0] == losses[1]


def test_steps_of_the_growth_are_shortened_where_they_would_overshoot() -> None:
    """The loss of γ alone: half of `curvature` times the square of what it is off by."""
    embedder = _embedder(learning_rate=0.02)
    for curvature, left in ((10.0, 0.8), (1000.0, -0.9)):
        changes = np.array([[0.0, curvature, 0.0, curvature]])
        growth = np.ones(3)
        descend_growth(growth, changes, 1, 0.02)
        assert growth.tolist() == pytest.approx([1, left, 1])
        embedder.growth.fill_(1.0)
        embedder._grow(torch.from_numpy(changes[0]))
        assert embedder.growth.tolist() == pytest.approx([1, left, 1])


def test_published_values_are_the_defaults() -> None:
    s = M2DNESettings()
    assert (s.dimension, s.negatives, s.history, s.learning_rate, s.batch_size) == (128, 5, 5, 0.02, 100)
    assert (s.epochs, s.epsilon, s.train_attention, s.tie_delta) == (100, 0.4, False, True)


def test_parameters_are_embeddings_two_decays_a_node_and_three_of_the_growth() -> None:
    assert _embedder().parameters == 12 * 6 + 2 * 12 + 3
    attention = 6 * 128 + 256 + 129
    assert _embedder(train_attention=True).parameters == 12 * 6 + 2 * 12 + 3 + attention
