from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from chronospike.config import make_settings
from chronospike.data.graph import DynamicGraph
from chronospike.errors import GraphError
from chronospike.methods import dytriad
from chronospike.methods.dytriad import DyTriad, DyTriadSettings, TriadEmbedder
from chronospike.methods.dytriad_kernels import HostTables, Objective, Samples
from chronospike.methods.dytriad_torch import DeviceTables
from chronospike.methods.step_graphs import Edges
from chronospike.methods.triads import Triads
from chronospike.training.scoring import score_nodes
from chronospike.training.task import Task, make_task
from tests.methods.test_triads import PLACES, THETA, graph_of
from tests.six_nodes import six_nodes
from tests.small_runs import CPU, dated_graph, small_graph, with_other_future

SMALL: dict[str, Any] = {"dimension": 8, "epochs": 3, "batch_size": 100}


def _settings(**values: Any) -> DyTriadSettings:
    published = {"graphs": "evolving", "stride": 1, "margin": 1.0}
    return make_settings(DyTriadSettings, {**published, **SMALL, **values})


def _task(graph: DynamicGraph | None = None, seed: int = 0) -> Task:
    return make_task(graph or small_graph(), _settings(seed=seed), CPU, needs_features=False)


def _labelled(edges: list[tuple[int, int, int]], nodes: int) -> DynamicGraph:
    return graph_of(edges, nodes).with_labels(np.arange(nodes) % 2, ("a", "b"))


def _embedder(graph: DynamicGraph, last_step: int | None = None, **values: Any) -> TriadEmbedder:
    """One for a graph that need not have labels enough for a split."""
    last_step = graph.num_steps - 1 if last_step is None else last_step
    task = replace(_task(), graph=graph, last_step=last_step, seed=values.get("seed", 0))
    options = {name: values.pop(name) for name in ("threads", "in_torch") if name in values}
    return TriadEmbedder(task, _settings(**values), **options)


def _train(embedder: TriadEmbedder, first: int = 0, last: int = 3) -> list[float]:
    return [embedder.train_epoch(epoch, lambda *_: None) for epoch in range(first, last)]


def _norms(embedder: TriadEmbedder) -> NDArray[np.float32]:
    return np.asarray(np.linalg.norm(embedder.tables.values, axis=2))


# One batch against a plain form of it, with gradients by torch.


def _random_batch(rng: np.random.Generator, steps: int, nodes: int, edges: int, triads: int) -> Samples:
    def ints(high: int, size: int) -> NDArray[np.int32]:
        return rng.integers(0, high, size).astype(np.int32)

    def floats(size: int) -> NDArray[np.float32]:
        return rng.random(size).astype(np.float32) + np.float32(0.5)

    # Nodes repeat within the batch, also within an edge or a triad.
    return Samples(
        Edges(np.sort(ints(steps, edges)), ints(nodes, edges), ints(nodes, edges), floats(edges)),
        ints(nodes, edges),
        ints(nodes, edges),
        Triads(
            np.sort(ints(max(steps - 1, 1), triads)), ints(nodes, triads), ints(nodes, triads), ints(nodes, triads),
            floats(triads), floats(triads), np.ones(triads, dtype=np.bool_),
        ),
        rng.random(triads).astype(np.float32),
    )  # fmt: skip


def _plain_losses(u: Tensor, theta: Tensor, batch: Samples, objective: Objective) -> Tensor:
    def rows(steps: Any, nodes: Any) -> Tensor:
        return u[torch.from_numpy(steps).long(), torch.from_numpy(nodes).long()]

    t, w = batch.edges.steps, torch.from_numpy(batch.edges.weights)
    near = (rows(t, batch.edges.first) - rows(t, batch.edges.second)).square().sum(dim=1)
    far = (rows(t, batch.other_first) - rows(t, batch.other_second)).square().sum(dim=1)
    proximity = (w * (near - far + objective.margin).clamp(min=0)).mean()
    smoothness = (u[1:] - u[:-1]).square().sum(dim=2).mean() if len(u) > 1 else torch.zeros(())
    c, a, b = (rows(batch.triads.steps, x) for x in (batch.triads.centre, batch.triads.a, batch.triads.b))
    to_a, to_b = (torch.from_numpy(x)[:, None] for x in (batch.triads.to_a, batch.triads.to_b))
    z = (to_a * (c - a) + to_b * (c - b)) @ theta[:-1] + theta[-1]
    triads = (torch.from_numpy(batch.coefficients) * z + torch.log(1 + torch.exp(-z))).mean()
    if not batch.triads.size:
        triads = torch.zeros(())
    return torch.stack([proximity, objective.beta_smooth * smoothness, objective.beta_triad * triads])


class _Plain:
    """The same as `HostTables`, in double precision and by automatic differentiation."""

    def __init__(self, values: NDArray[np.float32], theta: NDArray[np.float32]) -> None:
        self.values, self.theta = torch.from_numpy(values).double(), torch.from_numpy(theta).double()
        self.squares, self.theta_squares = torch.zeros_like(self.values), torch.zeros_like(self.theta)

    def descend(self, batch: Samples, objective: Objective) -> Tensor:
        u, theta = self.values.clone().requires_grad_(), self.theta.clone().requires_grad_()
        losses = _plain_losses(u, theta, batch, objective)
        losses.sum().backward()
        for values, squares, leaf in ((self.values, self.squares, u), (self.theta, self.theta_squares, theta)):
            gradient = leaf.grad if leaf.grad is not None else torch.zeros_like(leaf)
            squares += gradient.square()
            values -= objective.rate * gradient / (squares.sqrt() + 1e-8)
        self.values /= self.values.norm(dim=2, keepdim=True).clamp(min=1)
        self.theta /= self.theta.norm()
        return losses.detach()


SHAPES = [(4, 70, 5), (1, 9, 3), (2, 3, 16), (3, 130, 1)]
OBJECTIVE = Objective(0.1, 1.2, 30.0, 0.7)


def _tables(kind: str, shape: tuple[int, int, int], seed: int) -> tuple[Any, _Plain]:
    rng = np.random.default_rng(seed)
    values = rng.random(shape).astype(np.float32)
    theta = rng.random(shape[2] + 1).astype(np.float32)
    plain = _Plain(values.copy(), theta.copy())
    if kind == "host":
        return HostTables(values, theta), plain
    return DeviceTables(torch.from_numpy(values), torch.from_numpy(theta)), plain


@pytest.mark.parametrize("kind", ["host", "torch"])
@pytest.mark.parametrize("shape", SHAPES)
def test_losses_and_gradients_are_those_of_automatic_differentiation(kind: str, shape: tuple[int, int, int]) -> None:
    tables, plain = _tables(kind, shape, 1)
    batch = _random_batch(np.random.default_rng(2), *shape[:2], 40, 30 if shape[0] > 1 else 0)
    losses, wanted = tables.descend(batch, OBJECTIVE), plain.descend(batch, OBJECTIVE)
    assert np.asarray(losses) == pytest.approx(wanted.numpy(), rel=1e-4, abs=1e-6)
    # After the first batch the sums are the squares of the gradient.
    assert np.allclose(np.sqrt(np.asarray(tables.squares)), plain.squares.sqrt(), rtol=1e-3, atol=1e-6)
    assert np.allclose(np.sqrt(np.asarray(tables.theta_squares)), plain.theta_squares.sqrt(), rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("kind", ["host", "torch"])
@pytest.mark.parametrize("shape", SHAPES)
def test_updates_and_projections_are_those_of_a_plain_adagrad(kind: str, shape: tuple[int, int, int]) -> None:
    tables, plain = _tables(kind, shape, 3)
    rng = np.random.default_rng(4)
    # With sums that are not zero a gradient that is almost zero moves nothing, whatever its sign.
    start = (0.01 * rng.random(shape) + 1e-3).astype(np.float32)
    tables.squares += start if kind == "host" else torch.from_numpy(start)
    plain.squares += torch.from_numpy(start)
    for _ in range(3):
        batch = _random_batch(rng, *shape[:2], 40, 30 if shape[0] > 1 else 0)
        tables.descend(batch, OBJECTIVE)
        plain.descend(batch, OBJECTIVE)
    assert np.allclose(tables.values, plain.values, atol=2e-5)
    assert np.allclose(tables.theta, plain.theta, atol=2e-5)


def test_an_empty_batch_moves_by_smoothness_alone() -> None:
    tables, plain = _tables("host", (3, 5, 4), 5)
    batch = _random_batch(np.random.default_rng(6), 3, 5, 0, 0)
    assert tables.descend(batch, OBJECTIVE)[[0, 2]].tolist() == [0, 0]
    u = plain.values.clone().requires_grad_()
    (OBJECTIVE.beta_smooth * (u[1:] - u[:-1]).square().sum(dim=2).mean()).backward()
    assert u.grad is not None
    assert np.allclose(np.sqrt(np.asarray(tables.squares)), u.grad.abs(), rtol=1e-3, atol=1e-6)


def _square_batch(closed: float, centre: int) -> Samples:
    none, one = _random_batch(np.random.default_rng(0), 1, 4, 0, 0), np.ones(1, dtype=np.float32)
    t, c, a, b = (np.array([x], dtype=np.int32) for x in (0, centre, 0, 1))
    triads = Triads(t, c, a, b, one, one, np.ones(1, dtype=np.bool_))
    return none._replace(triads=triads, coefficients=np.array([closed], dtype=np.float32))


@pytest.mark.parametrize("kind", ["host", "torch"])
@pytest.mark.parametrize(
    ("coefficient", "centre", "loss"),
    [(0.247264, 2, 0.568912), (0.202443, 3, 0.515705), (1.0, 2, 1.171101), (1.0, 3, 1.313262)],
)
def test_triad_losses_are_those_worked_out_by_hand(kind: str, coefficient: float, centre: int, loss: float) -> None:
    values, theta = PLACES[None].copy(), np.append(THETA, np.float32(0))
    tables: Any = HostTables(values, theta)
    if kind == "torch":
        tables = DeviceTables(torch.from_numpy(values), torch.from_numpy(theta))
    losses = tables.descend(_square_batch(coefficient, centre), Objective(beta_triad=1.0))
    assert float(losses[2]) == pytest.approx(loss, abs=1e-6)


@pytest.mark.parametrize("kind", ["host", "torch"])
def test_the_proximity_is_the_one_worked_out_by_hand(kind: str) -> None:
    # Squared distances 1 and 0.25, weight 2.
    values = np.array([[[0, 0], [1, 0], [0, 0], [0.5, 0]]], dtype=np.float32)
    ints = [np.array([x], dtype=np.int32) for x in range(4)]
    batch = _random_batch(np.random.default_rng(0), 1, 4, 0, 0)._replace(
        edges=Edges(ints[0], ints[0], ints[1], np.array([2], dtype=np.float32)),
        other_first=ints[2],
        other_second=ints[3],
    )
    theta = np.ones(3, dtype=np.float32)
    tables: Any = HostTables(values, theta)
    if kind == "torch":
        tables = DeviceTables(torch.from_numpy(values), torch.from_numpy(theta))
    assert float(tables.descend(batch, Objective())[0]) == pytest.approx(3.5)


# Whole iterations.


@pytest.mark.parametrize("in_torch", [False, True])
def test_rows_are_no_longer_than_one_and_theta_is_as_long_as_one_after_every_batch(in_torch: bool) -> None:
    embedder = _embedder(small_graph(), in_torch=in_torch)

    def look(*_: Any) -> None:
        assert _norms(embedder).max() <= 1 + 1e-5
        assert np.linalg.norm(embedder.tables.theta) == pytest.approx(1, abs=1e-5)

    for epoch in range(3):
        embedder.train_epoch(epoch, look)


def test_embeddings_begin_uniform_between_zero_and_one_and_differ_by_step() -> None:
    values = _embedder(small_graph(), dimension=64).embeddings()
    assert values.shape == (5, 120, 64)
    assert 0 <= values.min() < 0.001
    assert 0.999 < values.max() < 1
    assert abs(values.mean() - 0.5) < 0.01
    assert not np.allclose(values[0], values[1])


def test_with_a_single_step_smoothness_and_triads_vanish() -> None:
    embedder = _embedder(_labelled([(0, 1, 0), (0, 2, 0), (3, 4, 0)], 6))
    samples = embedder.samples(0)
    losses = embedder.tables.descend(samples, Objective())
    assert samples.triads.size == 0
    assert losses[1] == losses[2] == 0 < losses[0]


def test_the_loss_falls() -> None:
    losses = _train(_embedder(small_graph(), graphs="cumulative"), 0, 8)
    assert losses[-1] < 0.7 * losses[0]


def test_torch_and_compiled_code_learn_the_same() -> None:
    one, other = (_embedder(small_graph(), in_torch=in_torch) for in_torch in (False, True))
    losses, others = _train(one, 0, 2), _train(other, 0, 2)
    # The sign of a gradient that is almost zero may differ, and Adagrad's first steps know only the sign.
    assert losses == pytest.approx(others, rel=2e-2)
    assert np.mean(np.abs(one.embeddings() - other.embeddings())) < 5e-3


@pytest.mark.gpu
def test_a_gpu_learns_what_the_same_code_learns_on_the_cpu() -> None:
    task = replace(_task(), graph=small_graph())
    one, other = (
        TriadEmbedder(replace(task, device=torch.device(kind)), _settings(graphs="cumulative"), in_torch=True)
        for kind in ("cpu", "cuda")
    )
    assert np.array_equal(one.embeddings(), other.embeddings())
    assert _train(one, 0, 2) == pytest.approx(_train(other, 0, 2), rel=2e-2)
    assert np.mean(np.abs(one.embeddings() - other.embeddings())) < 5e-3


def test_the_number_of_threads_changes_nothing() -> None:
    one, many = (_embedder(small_graph(), threads=threads) for threads in (1, 3))
    assert _train(one) == _train(many)
    assert np.array_equal(one.embeddings(), many.embeddings())


@pytest.mark.parametrize("selection", ["last", "reconstruction"])
@pytest.mark.parametrize("in_torch", [False, True])
def test_a_run_that_was_stopped_resumes_bit_for_bit(selection: str, in_torch: bool) -> None:
    whole = _embedder(small_graph(), selection=selection, in_torch=in_torch)
    losses = _train(whole, 0, 4)
    half = _embedder(small_graph(), selection=selection, in_torch=in_torch)
    _train(half, 0, 2)
    resumed = _embedder(small_graph(), selection=selection, in_torch=in_torch)
    resumed.load_state({name: x.clone() for name, x in half.state().items()})
    assert _train(resumed, 2, 4) == losses[2:]
    assert all(torch.equal(x, resumed.state()[name]) for name, x in whole.state().items())
    assert np.array_equal(resumed.embeddings(), whole.embeddings())


def test_a_state_of_another_shape_is_refused() -> None:
    state = _embedder(small_graph(), dimension=4).state()
    with pytest.raises(ValueError, match="shape"):
        _embedder(small_graph()).load_state(state)


def test_the_same_seed_gives_the_same_bits_and_another_does_not() -> None:
    first, again, other = (_embedder(small_graph(), seed=seed) for seed in (2**62, 2**62, 1))
    for embedder in (first, again, other):
        _train(embedder, 0, 1)
    assert np.array_equal(first.embeddings(), again.embeddings())
    assert not np.array_equal(first.embeddings(), other.embeddings())


def test_progress_counts_the_batches() -> None:
    seen: list[tuple[int, int]] = []
    embedder = _embedder(small_graph())
    embedder.train_epoch(0, lambda done, total, loss: seen.append((done, total)))
    count = -(-embedder.edges.size // 100)
    assert seen == [(k + 1, count) for k in range(count)]


@pytest.mark.parametrize("graphs", ["evolving", "cumulative"])
def test_nothing_after_the_last_step_is_read(graphs: str) -> None:
    graph = small_graph()
    one, other = (_embedder(g, 2, graphs=graphs) for g in (graph, with_other_future(graph, 2)))
    assert _train(one) == _train(other)
    assert one.embeddings().shape == (3, 120, 8)
    assert np.array_equal(one.embeddings(), other.embeddings())


COMPLETE = [(u, v, t) for t in range(2) for u in range(5) for v in range(u)]
STAR = [(0, leaf, t) for t in range(3) for leaf in range(1, 7)]


@pytest.mark.parametrize(
    ("edges", "nodes"),
    [
        pytest.param([(0, 1, 0), (0, 1, 1)], 2, id="two nodes"),
        pytest.param([(0, 1, 0)], 2, id="one edge"),
        pytest.param(COMPLETE, 5, id="complete"),
        pytest.param(STAR, 7, id="star"),
        pytest.param([(0, 1, 0), (0, 2, 0), (1, 2, 1)], 50, id="isolated"),
    ],
)
@pytest.mark.parametrize("in_torch", [False, True])
@pytest.mark.parametrize("selection", ["last", "reconstruction"])
def test_small_and_odd_graphs_are_learned(
    edges: list[tuple[int, int, int]], nodes: int, in_torch: bool, selection: str
) -> None:
    embedder = _embedder(_labelled(edges, nodes), in_torch=in_torch, selection=selection)
    assert np.isfinite(_train(embedder)).all()
    assert np.isfinite(embedder.embeddings()).all()
    assert _norms(embedder).max() <= 1 + 1e-5


@pytest.mark.parametrize("directed", [False, True])
def test_six_nodes_are_learned_with_every_view_of_the_graph(directed: bool) -> None:
    views: list[dict[str, Any]] = [
        {},
        {"graphs": "cumulative"},
        {"window": 2},
        {"stride": 3},
        {"edge_weights": "events"},
    ]
    for values in views:
        embedder = _embedder(six_nodes(directed), **values)
        assert np.isfinite(_train(embedder)).all()


def test_a_directed_graph_is_learned_as_if_it_had_no_direction() -> None:
    one, other = (_embedder(six_nodes(directed)) for directed in (False, True))
    assert _train(one) == _train(other)
    assert np.array_equal(one.embeddings(), other.embeddings())


# The iteration that is kept.


def test_the_best_iteration_by_reconstruction_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    scores = iter([0.5, 0.7, 0.6])
    monkeypatch.setattr(dytriad._Choice, "_score", lambda *_: next(scores))
    embedder = _embedder(small_graph(), selection="reconstruction")
    _train(embedder, 0, 2)
    best = np.array(embedder.tables.values)
    _train(embedder, 2, 3)
    assert np.array_equal(embedder.embeddings(), best)
    assert not np.array_equal(embedder.tables.values, best)


def test_after_five_iterations_without_gain_nothing_more_is_learned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dytriad._Choice, "_score", lambda *_: 0.5)
    embedder = _embedder(small_graph(), selection="reconstruction")
    losses = _train(embedder, 0, 6)
    last = np.array(embedder.tables.values)
    assert _train(embedder, 6, 8) == [losses[-1]] * 2
    assert np.array_equal(embedder.tables.values, last)


def test_training_makes_edges_easier_to_tell_from_other_pairs() -> None:
    embedder = _embedder(small_graph(), selection="reconstruction", graphs="cumulative")
    assert embedder._choice is not None
    before = embedder._choice._score(embedder.tables.values)
    _train(embedder, 0, 5)
    assert embedder._choice._score(embedder.tables.values) > before + 0.1


# As a method.


def test_communities_are_told_apart() -> None:
    settings = _settings(epochs=10, graphs="cumulative", dimension=16)
    fitted = DyTriad(settings).fit(_task())
    assert score_nodes(fitted, fitted.split.test).micro_f1 > 0.85
    assert fitted.cost.parameters == 5 * 120 * 16 + 17


def test_readouts_are_the_last_step_their_mean_and_all_steps() -> None:
    values = np.random.default_rng(0).random((3, 7, 2)).astype(np.float32)
    last, mean, concat = (DyTriad(_settings(readout=r)).readout(values) for r in ("last", "mean", "concat"))
    assert np.array_equal(last, values[-1])
    assert np.allclose(mean, values.mean(axis=0))
    assert np.array_equal(concat[4], np.concatenate([values[0, 4], values[1, 4], values[2, 4]]))


def test_a_step_that_is_not_embedded_has_what_the_next_one_has() -> None:
    embedder = _embedder(small_graph(), stride=3)
    values = embedder.embeddings()
    assert embedder.tables.values.shape == (2, 120, 8)
    assert np.array_equal(values, np.asarray(embedder.tables.values)[[0, 0, 1, 1, 1]])
    readout = DyTriad(_settings(stride=3, readout="concat")).readout(values)
    assert np.array_equal(readout, np.concatenate([values[1], values[4]], axis=1))


def test_steps_that_are_dates_are_learned() -> None:
    fitted = DyTriad(_settings()).fit(_task(dated_graph()))
    steps = fitted.step_embeddings()
    assert steps is not None
    assert steps.shape == (5, 120, 8)


def test_weights_by_events_need_events() -> None:
    graph = replace(small_graph(), events=None)
    DyTriad(_settings()).check(graph)
    with pytest.raises(GraphError, match="without its events"):
        DyTriad(_settings(edge_weights="events")).check(graph)


def test_memory_is_that_of_the_tables() -> None:
    assert DyTriad(_settings(stride=1)).memory(small_graph()) == 2 * 4 * 5 * 120 * 8
    assert DyTriad(_settings(stride=2)).memory(small_graph()) == 2 * 4 * 3 * 120 * 8
