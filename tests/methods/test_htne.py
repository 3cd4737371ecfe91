from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from chronospike.config import make_settings
from chronospike.methods.hawkes_torch import TensorSlots
from chronospike.methods.htne import HTNEEmbedder, HTNESettings
from tests.methods.hawkes_reference import (
    as_arrays,
    assert_close,
    descended,
    event_graph,
    htne_terms,
    plain_slots,
    random_graph,
    shaken,
    task_of,
)

SQUARE = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
VARIANTS = [("official", "after"), ("paper", "after"), ("official", "before"), ("paper", "before")]
KEY = 5


def _embedder(graph: Any = None, compiled: bool = True, **values: Any) -> HTNEEmbedder:
    settings = make_settings(HTNESettings, {"dimension": 6, "negatives": 3, "learning_rate": 0.05, **values})
    return HTNEEmbedder(task_of(graph or random_graph(0)), settings, compiled=compiled)


def _square(compiled: bool = True, **values: Any) -> HTNEEmbedder:
    graph = event_graph([2, 0, 0], [3, 2, 1], [0.0, 0.5, 1.0])
    embedder = _embedder(graph, compiled, dimension=2, negatives=1, **values)
    embedder.vectors.copy_(SQUARE)
    return embedder


def _record(nodes: list[int], gaps: list[float], present: list[float]) -> TensorSlots:
    """A node, whom it met, a negative and two neighbours."""
    return TensorSlots(torch.tensor([nodes]), torch.tensor([[gaps]]), torch.tensor([[present]]), torch.tensor([0]))


# Node 0 meets 1 at time 1; it met 2 at 0.5 and nobody before; the negative is node 3.
KNOWN = _record([0, 1, 3, 2, 0], [0.5, 1.0], [1.0, 0.0])


def _loss(embedder: HTNEEmbedder, slots: TensorSlots) -> float:
    """Of one record, by either path."""
    if not embedder.compiled:
        return embedder.torch_step(slots).item()
    embedder.gradients(as_arrays(slots), 0, 1)
    return float(embedder.losses[0])


@pytest.mark.parametrize(
    ("sign", "mask", "positive", "negative", "loss"),
    [
        ("official", "after", -1.886819, -2.443409, 2.111218),
        ("paper", "after", -1.326242, -2.163121, 1.670506),
        ("paper", "before", -2.213061, -2.606531, 2.388033),
    ],
)
def test_the_loss_of_four_nodes_in_a_square(
    sign: str, mask: str, positive: float, negative: float, loss: float
) -> None:
    found = htne_terms(SQUARE, torch.ones(4), KNOWN, 1, 1.0 if sign == "official" else -1.0, mask == "before")
    if mask == "after":
        assert found["attention"].tolist()[0] == pytest.approx([0.268941, 0.731059], abs=1e-6)
    terms = [found[name].item() for name in ("positive", "negative", "losses")]
    assert terms == pytest.approx([positive, negative, loss], abs=2e-6)
    for compiled in (True, False):
        assert _loss(_square(compiled, decay_sign=sign, mask=mask), KNOWN) == pytest.approx(loss, abs=2e-6)


@pytest.mark.parametrize(("sign", "mask"), VARIANTS)
@pytest.mark.parametrize("seed", range(3))
def test_a_compiled_batch_is_a_step_down_the_gradient_of_the_loss(sign: str, mask: str, seed: int) -> None:
    embedder = _embedder(random_graph(seed), decay_sign=sign, mask=mask, history=3)
    shaken(embedder, seed)
    before = embedder.state()
    places = np.random.default_rng(seed).permutation(len(embedder.records))[:50].astype(np.int32)
    slots = plain_slots(embedder, places, KEY)
    loss = embedder.compiled_step(embedder.find_slots(places, KEY))

    def reference(tables: Any) -> Any:
        terms = htne_terms(tables["vectors"], tables["decays"], slots, 3, embedder.sign, embedder.before)
        return terms["losses"].sum()

    wanted, after = descended(before, reference, embedder.rate)
    assert loss == pytest.approx(wanted, rel=1e-5)
    assert_close(embedder.state(), after, before, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize(("sign", "mask"), VARIANTS)
@pytest.mark.parametrize("seed", range(3))
def test_torch_learns_what_the_compiled_functions_learn(sign: str, mask: str, seed: int) -> None:
    one, other = (
        _embedder(random_graph(seed), compiled, decay_sign=sign, mask=mask, batch_size=16) for compiled in (True, False)
    )
    shaken(one, seed)
    other.load_state(one.state())
    before = one.state()
    losses = [embedder.train_epoch(3, lambda *_: None) for embedder in (one, other)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    assert_close(other.state(), one.state(), before, rtol=1e-3, atol=2e-5)


@pytest.mark.parametrize("compiled", [True, False])
def test_missing_neighbours_pull_at_node_0_through_the_softmax(compiled: bool) -> None:
    """With the mask before the softmax nothing moves it."""
    moved = {}
    for mask in ("after", "before"):
        embedder = _square(compiled, mask=mask)
        # 1 meets 3 and has met 2, which is the negative as well.
        slots = _record([1, 3, 2, 2, 0], [0.5, 1.0], [1.0, 0.0])
        if compiled:
            embedder.compiled_step(as_arrays(slots))
        else:
            embedder.torch_step(slots)
        moved[mask] = embedder.vectors[0].abs().max().item()
    assert moved["after"] > 1e-3
    assert moved["before"] == 0


def test_without_a_past_the_intensity_is_the_distance_alone() -> None:
    embedder = _square()
    wanted = -np.log(1 / (1 + np.e) + 1e-6) - np.log(1 / (1 + np.exp(-2)) + 1e-6)
    assert _loss(embedder, _record([0, 1, 3, 0, 0], [1.0, 1.0], [0.0, 0.0])) == pytest.approx(wanted, abs=1e-6)
    assert embedder.decay_changes[0, 0] == 0


def test_a_rigid_motion_of_all_embeddings_changes_no_loss() -> None:
    one, other = _embedder(), _embedder()
    shaken(one, 1)
    turn, _ = torch.linalg.qr(torch.randn(6, 6, generator=torch.Generator().manual_seed(0)))
    state = one.state()
    other.load_state({**state, "vectors": state["vectors"] @ turn + 0.7})
    slots = one.find_slots(np.arange(len(one.records), dtype=np.int32), KEY)
    assert one.compiled_step(slots) == pytest.approx(other.compiled_step(slots), rel=1e-5)


def test_published_values_are_the_defaults() -> None:
    s = HTNESettings()
    assert (s.dimension, s.negatives, s.history, s.learning_rate) == (128, 10, 2, 0.01)
    assert (s.batch_size, s.epochs, s.decay_sign, s.mask) == (1000, 20, "official", "after")


def test_embeddings_and_decays_are_counted() -> None:
    assert _embedder().parameters == 12 * 6 + 12
