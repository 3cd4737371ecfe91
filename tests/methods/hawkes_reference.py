"""HTNE and M2DNE as their papers and programs say, slowly: plain differences, and gradients by autograd."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from chronospike.data.graph import DynamicGraph
from chronospike.data.ingest import import_graph
from chronospike.data.splits import Split
from chronospike.methods.hawkes import HawkesEmbedder, Slots
from chronospike.methods.hawkes_torch import TensorSlots
from chronospike.training.task import Task
from tests.small_runs import CPU


def squared(one: Tensor, other: Tensor) -> Tensor:
    return (one - other).square().sum(-1)


def event_graph(source: Any, target: Any, times: Any, directed: bool = False, **options: Any) -> DynamicGraph:
    return import_graph((np.array(source), np.array(target), np.array(times)), directed=directed, **options)


def random_graph(seed: int, nodes: int = 12, events: int = 40, moments: int = 6) -> DynamicGraph:
    """Events between random nodes at a few times, repeats and self-loops among them."""
    rng = np.random.default_rng(seed)
    source, target = rng.integers(0, nodes, (2, events))
    return event_graph(source, target, rng.integers(0, moments, events))


def task_of(graph: DynamicGraph, seed: int = 0) -> Task:
    """A task without labels: embedders read none."""
    none = np.arange(0)
    return Task(graph, Split(none, none, none), CPU, seed, None, graph.num_steps - 1)


def plain_slots(embedder: HawkesEmbedder, places: NDArray[Any], key: int) -> TensorSlots:
    """The slots of some records, found one by one. The negatives are those that the compiled function draws."""
    records, h, sides = embedder.records, embedder.history, embedder.sides
    drawn = embedder.find_slots(places, key).nodes[:, 2 : 2 + sides * embedder.negatives].tolist()
    nodes: list[list[int]] = []
    gaps: list[list[float]] = []
    present: list[list[float]] = []
    for b, p in enumerate(places):
        now, past = records.times[records.moment[p]], []
        for place in [p, records.mirror[p]][:sides]:
            last = list(range(records.indptr[records.node[place]], place))[::-1][:h]
            missing = h - len(last)
            past += [int(records.neighbour[q]) for q in last] + [0] * missing
            gaps.append([float(now - records.times[records.moment[q]]) for q in last] + [float(now)] * missing)
            present.append([1.0] * len(last) + [0.0] * missing)
        nodes.append([int(records.node[p]), int(records.neighbour[p]), *drawn[b], *past])
    shape = len(places), sides, h
    moments = torch.from_numpy(records.moment[places].astype(np.int64))
    return TensorSlots(torch.tensor(nodes), torch.tensor(gaps).view(shape), torch.tensor(present).view(shape), moments)


def as_arrays(slots: TensorSlots) -> Slots:
    """The same for the compiled functions."""
    return Slots(
        slots.nodes.numpy().astype(np.int32),
        slots.gaps.flatten(1).numpy(),
        slots.present.sum(2).long().numpy(),
        slots.moments.numpy().astype(np.int32),
    )


def htne_terms(
    vectors: Tensor, decays: Tensor, slots: TensorSlots, negatives: int, sign: float = 1.0, before: bool = False
) -> dict[str, Tensor]:
    """Attention, intensities of the positive and the negatives, and losses of a batch."""
    rows = vectors[slots.nodes]
    own, candidates, past = rows[:, 0], rows[:, 1 : 2 + negatives], rows[:, 2 + negatives :]
    gaps, present = slots.gaps[:, 0], slots.present[:, 0]
    scores = -squared(own[:, None], past)
    if before:
        scores = scores.masked_fill(present == 0, -1e9)
    attention = scores.softmax(1)
    kernel = (sign * decays[slots.nodes[:, :1]] * gaps).exp()
    distances = squared(past[:, :, None], candidates[:, None])  # [B, h, C]
    found = -squared(own[:, None], candidates) - ((attention * kernel * present)[:, :, None] * distances).sum(1)
    losses = -(found[:, 0].sigmoid() + 1e-6).log() - ((-found[:, 1:]).sigmoid() + 1e-6).log().sum(1)
    return {"attention": attention, "positive": found[:, 0], "negative": found[:, 1:], "losses": losses}


def m2dne_terms(
    tables: dict[str, Tensor], slots: TensorSlots, negatives: int, history: int, tied: bool = True
) -> dict[str, Tensor]:
    """The micro part of a batch; `tables` as `M2DNEEmbedder.tables` has them, with the attention."""
    rows = tables["vectors"][slots.nodes]
    s, t = rows[:, 0], rows[:, 1]
    noise = rows[:, 2 : 2 + negatives], rows[:, 2 + negatives : 2 + 2 * negatives]
    first = 2 + 2 * negatives
    past = rows[:, first : first + history], rows[:, first + history :]
    second = tables["decays"] if tied else tables["other_decays"]
    decays = tables["decays"][slots.nodes[:, 0]], second[slots.nodes[:, 1]]
    attentions, outs, sims = [], [], []
    for i, own in enumerate((s, t)):
        used = decays[0] if tied else decays[i]
        pairs = torch.cat([(own @ tables["W"])[:, None].expand(-1, history, -1), past[i] @ tables["W"]], dim=2)
        fading = (-used[:, None] * slots.gaps[:, i]).exp()
        sims.append(torch.nn.functional.leaky_relu(fading * (pairs @ tables["a"]), 0.2))
        attention = sims[-1].softmax(1)
        z = ((attention * slots.present[:, i])[:, :, None] * (past[i] @ tables["W"])).sum(1)
        z = z * (-decays[i] * slots.gaps[:, i].mean(1)).exp()[:, None]
        attentions.append(attention)
        outs.append((z @ tables["linear"] + tables["bias"]).tanh())
    mix = torch.stack(outs, dim=1).softmax(1)

    def excited(i: int, target: Tensor) -> Tensor:
        """What the neighbours of side i add for `target [B, C, d]`."""
        weights = attentions[i] * (decays[i][:, None] * slots.gaps[:, i]).exp() * slots.present[:, i]
        return -mix[:, i, None] * (weights[:, :, None] * squared(past[i][:, :, None], target[:, None])).sum(1)

    positive = -squared(s, t) + excited(0, t[:, None])[:, 0] + excited(1, s[:, None])[:, 0]
    negative = [-squared(own[:, None], noise[i]) + excited(i, noise[i]) for i, own in enumerate((s, t))]
    losses = -(positive.sigmoid() + 1e-6).log()
    for found in negative:
        losses = losses - ((-found).sigmoid() + 1e-6).log().sum(1)
    return {
        "sims": torch.stack(sims, dim=1),
        "mix": mix,
        "positive": positive,
        "negative": torch.stack(negative, dim=1),
        "losses": losses,
    }


def macro_losses(distance: Tensor, growth: Tensor, time: Tensor, nodes: Tensor, events: Tensor) -> Tensor:
    zeta, gamma, theta = growth
    edge = (-distance).sigmoid()
    predicted = edge / (time + 1e-6) ** theta * nodes * (zeta * (nodes - 1) ** gamma)
    miss: Tensor = (predicted + 1e-6).log() - (events + 1e-6).log()
    return miss.square()


def descended(
    tables: dict[str, Tensor], loss: Callable[[dict[str, Tensor]], Tensor], rate: float
) -> tuple[float, dict[str, Tensor]]:
    """The loss, and the tables after a plain gradient step, in double precision."""
    leaves = {name: table.double().clone().requires_grad_() for name, table in tables.items()}
    value = loss(leaves)
    value.backward()
    stepped = {
        name: (leaf if leaf.grad is None else leaf - rate * leaf.grad).detach().float() for name, leaf in leaves.items()
    }
    return value.item(), stepped


def shaken(embedder: HawkesEmbedder, seed: int) -> None:
    """Give everything that is learned other values, far enough from the first that no term vanishes."""
    generator = torch.Generator().manual_seed(seed)
    state = embedder.state()
    for name, table in state.items():
        noise = torch.randn(table.shape, generator=generator, dtype=table.dtype)
        state[name] = 0.5 * noise if name == "vectors" else table + 0.3 * noise.clamp(-1, 1)
    embedder.load_state(state)


def assert_close(
    found: dict[str, Tensor], wanted: dict[str, Tensor], before: dict[str, Tensor], rtol: float, atol: float
) -> None:
    """The changes agree, not only the values."""
    for name in found:
        change, right = found[name] - before[name], wanted[name].to(found[name].dtype) - before[name]
        np.testing.assert_allclose(change, right, rtol=rtol, atol=atol, err_msg=name)
