from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import normalize

from chronospike.config import make_settings
from chronospike.data.csr import history_and_snapshot
from chronospike.data.events import EventLog
from chronospike.data.graph import DynamicGraph
from chronospike.data.ids import NodeIds
from chronospike.errors import GraphError, InputError
from chronospike.methods import jodie
from chronospike.methods.jodie import JODIE, JODIENetwork, JODIESettings
from chronospike.methods.jodie_batches import Schedule, Span, batch_schedule, since_first, step_schedule
from chronospike.methods.jodie_model import JODIEModule, Shape, pass_span, self_supervised_losses
from chronospike.training.checkpoint import load_checkpoint, save_checkpoint
from chronospike.training.learner import FitContext
from chronospike.training.loop import Trainer, TrainingFailure
from chronospike.training.run_folder import RunFolder
from chronospike.training.scoring import score_nodes
from chronospike.training.task import Task, make_task, split_for
from tests.methods.test_jodie_batches import NODES, log_of, random_log
from tests.small_runs import CPU, dated_graph, same_weights, small_graph, with_other_future

SMALL: dict[str, Any] = {"dimension": 8, "epochs": 3, "hidden": 10, "learning_rate": 0.01}
MODES = ["tbatch", "snapshot"]


def _settings(**values: Any) -> JODIESettings:
    return make_settings(JODIESettings, {**SMALL, **values})


def _task(graph: DynamicGraph | None = None, **values: Any) -> Task:
    return make_task(graph or small_graph(), _settings(**values), CPU)


def _network(graph: DynamicGraph | None = None, **values: Any) -> JODIENetwork:
    return JODIENetwork(_task(graph, **values), _settings(**values))


def _trained(network: JODIENetwork) -> JODIENetwork:
    Trainer(network, network.settings).run()
    return network


def _module(**values: Any) -> JODIEModule:
    shape = {
        "dimension": 6, "features": 3, "classes": 4, "hidden": 5, "roles": 1, "partner_features": False,
        "join_features": True, **values,
    }  # fmt: skip
    return JODIEModule(Shape(**shape), 3.0, 2.0)


def _everyone(network: JODIENetwork) -> tuple[Tensor, Tensor]:
    return network.infer(network.module, np.arange(network.task.graph.num_nodes))


# Known answers.


def test_an_update_and_a_projection_are_those_worked_out_by_hand() -> None:
    module = _module(dimension=2, features=1)
    cell = cast(torch.nn.RNNCell, module.cells[0])
    with torch.no_grad():
        cell.weight_ih.copy_(torch.tensor([[0.1, 0.2, 0.3], [0.4, 0.5, 0.6]]))
        cell.weight_hh.copy_(0.7 * torch.eye(2))
        cell.bias_ih.zero_()
        cell.bias_hh.zero_()
        module.projection.weight.copy_(torch.tensor([[0.2], [-0.1]]))
        module.projection.bias.copy_(torch.tensor([0.0, 0.05]))
    # Both have met before, and Δ = (4 - 3) / 2.
    log = log_of([(0, 2, 0), (1, 2, 0), (0, 1, 4)], [0, 0, 1])
    for schedule in (batch_schedule(log, 3, 500, CPU), step_schedule(log, 3, False, CPU)):
        table = torch.tensor([[0.6, 0.8], [1.0, 0.0], [0.0, 0.0], [0.0, 0.0]])
        span = replace(schedule.spans[1], gap=torch.tensor([4.0, 4.0], dtype=torch.float64))
        after = pass_span(module, span, table, None).after
        assert after[0].detach().numpy() == pytest.approx([0.566446, 0.824099], abs=1e-6)
    moved = torch.tensor([0.584980, 0.851064])
    assert (moved / moved.norm()).numpy() == pytest.approx([0.566446, 0.824099], abs=1e-6)
    projected = module.project(torch.tensor([[0.6, 0.8]]), torch.tensor([4.0], dtype=torch.float64))
    assert projected[0].detach().numpy() == pytest.approx([0.66, 0.80], abs=1e-6)


def _count(module: torch.nn.Module, *names: str) -> int:
    return sum(value.numel() for name, value in module.named_parameters() if name.startswith(names))


def test_parameters_are_as_many_as_published() -> None:
    shape = Shape(128, 128, 10, 50, roles=2, partner_features=False, join_features=False)
    module = JODIEModule(shape, 0.0, 1.0)
    assert _count(module, "cells", "projection", "initial") == 66_816
    assert _count(module, "predict") == 131_328
    assert _count(module, "head") == 6_960
    assert _count(module, "") == 66_816 + 131_328 + 6_960
    tied = JODIEModule(replace(shape, roles=1), 0.0, 1.0)
    assert _count(tied, "cells", "projection", "initial") == 33_152 + 256 + 128
    wide = JODIEModule(replace(shape, partner_features=True, join_features=True), 0.0, 1.0)
    assert _count(wide, "cells") == 2 * (128 * (128 + 1 + 128) + 128**2 + 2 * 128)
    assert _count(wide, "head") == 256 * 50 + 50 + 50 * 10 + 10


def test_the_defaults_are_the_published_ones() -> None:
    s = make_settings(JODIESettings, {})
    assert (s.dimension, s.epochs, s.learning_rate, s.weight_decay, s.spans) == (128, 50, 1e-3, 1e-5, 500)
    assert (s.tie, s.self_supervised, s.selection) == (True, 1, "micro_f1")


# Against one event after the other, by torch's own cell and automatic differentiation.


class _Plain:
    """States in a dictionary; a state that a span begins with is a constant."""

    def __init__(self, module: JODIEModule, features: Tensor | None = None) -> None:
        self.module, self.features = module, features
        self.states: dict[int, Tensor] = {}
        self.since: dict[int, float] = {}
        self.roles: dict[int, int] = {}

    def initial(self, role: int) -> Tensor:
        return normalize(self.module.initial, dim=1)[min(role, self.module.shape.roles - 1)]

    def state(self, node: int, role: int) -> Tensor:
        self.roles.setdefault(node, role)
        return self.states[node] if node in self.states else self.initial(self.roles[node])

    def updated(self, node: int, role: int, own: Tensor, partner: Tensor, time: float, x: Tensor | None) -> Tensor:
        gap = torch.tensor([(time - self.since.get(node, 0.0) - 3.0) / 2.0])
        self.since[node] = time
        inputs = torch.cat([partner, gap] + ([] if x is None else [x]))
        cell = cast(torch.nn.RNNCell, self.module.cells[min(role, self.module.shape.roles - 1)])
        return normalize(cell(inputs[None], own[None])[0], dim=0)

    def event(self, u: int, v: int, time: float) -> None:
        a, b = self.state(u, 0), self.state(v, 1)
        x = self.features
        self.states[u] = self.updated(u, 0, a, b, time, None if x is None else x[v])
        self.states[v] = self.updated(v, 1, b, a, time, None if x is None else x[u])

    def step(self, events: list[tuple[int, int]], time: float, only_last: bool) -> None:
        """Every active node once, by the states before."""
        met: dict[int, list[int]] = {}
        role: dict[int, int] = {}
        for ends in events:
            for side in range(2):
                self.state(ends[side], side)
                met.setdefault(ends[side], []).append(ends[1 - side])
                role[ends[side]] = side
        met = {node: some[-1:] for node, some in met.items()} if only_last else met
        new = {}
        for node, some in met.items():
            partner = torch.stack([self.state(other, 0) for other in some]).mean(dim=0)
            x = None if self.features is None else self.features[some].mean(dim=0)
            new[node] = self.updated(node, role[node], self.state(node, 0), partner, time, x)
        self.states |= new

    def detach(self) -> None:
        self.states = {node: state.detach() for node, state in self.states.items()}


def _gradients(module: JODIEModule, loss: Tensor) -> dict[str, Tensor]:
    module.zero_grad()
    loss.backward()
    return {name: value.grad.clone() for name, value in module.named_parameters() if value.grad is not None}


def _pass_all(
    module: JODIEModule, schedule: Schedule, features: Tensor | None, weigh: Tensor, nodes: int = NODES
) -> tuple[Tensor, dict[str, Tensor]]:
    """The states at the end, and the gradient of a weighted sum of the states at the end of each span."""
    table, loss = torch.zeros(nodes + 1, module.shape.dimension), torch.zeros(())
    for span in schedule.spans:
        passed = pass_span(module, span, table, features)
        loss = loss + (passed.final * weigh[span.nodes]).sum()
        table[span.nodes] = passed.final.detach()
    return table[:-1], _gradients(module, loss)


def _agree(one: dict[str, Tensor], other: dict[str, Tensor], tolerance: float = 1e-4) -> None:
    """A weight without a gradient has one of zero."""
    for name in one.keys() | other.keys():
        first, second = (some.get(name, torch.zeros(())) for some in (one, other))
        assert torch.allclose(first, second, rtol=tolerance, atol=tolerance * float(first.abs().max())), name


@pytest.mark.parametrize("roles", [1, 2])
@pytest.mark.parametrize("reads", [False, True])
@pytest.mark.parametrize("spans", [1, 7])
def test_t_batches_give_what_one_event_after_the_other_gives(roles: int, reads: bool, spans: int) -> None:
    torch.manual_seed(10 * spans + 2 * roles + reads)
    log, module = random_log(spans + roles), _module(roles=roles, partner_features=reads)
    features, weigh = torch.randn(NODES + 1, 3) if reads else None, torch.randn(NODES, 6)
    schedule = batch_schedule(log, NODES, spans, CPU)
    table, found = _pass_all(module, schedule, features, weigh)
    plain, loss, e = _Plain(module, features), torch.zeros(()), 0
    time = since_first(log.time)
    for span in schedule.spans:
        for _ in range(len(span.owner) // 2):
            plain.event(int(log.source[e]), int(log.target[e]), float(time[e]))
            e += 1
        loss = loss + sum((plain.states[v] * weigh[v]).sum() for v in span.nodes.tolist())
        plain.detach()
    assert e == len(log)
    for node, state in plain.states.items():
        assert torch.allclose(table[node], state, atol=1e-6)
    assert not table[[v for v in range(NODES) if v not in plain.states]].any()
    _agree(_gradients(module, loss), found)


@pytest.mark.parametrize("roles", [1, 2])
@pytest.mark.parametrize("only_last", [False, True])
def test_snapshots_give_what_one_node_after_the_other_gives(roles: int, only_last: bool) -> None:
    torch.manual_seed(roles + 2 * only_last)
    log, module = random_log(roles), _module(roles=roles, partner_features=True)
    features, weigh = torch.randn(NODES + 1, 3), torch.randn(NODES, 6)
    schedule = step_schedule(log, NODES, only_last, CPU)
    table, found = _pass_all(module, schedule, features, weigh)
    plain, loss = _Plain(module, features), torch.zeros(())
    for span in schedule.spans:
        here = slice(*log.step_offsets[span.step : span.step + 2].tolist())
        events = list(zip(log.source[here].tolist(), log.target[here].tolist(), strict=True))
        plain.step(events, float(span.step), only_last)
        loss = loss + sum((plain.states[v] * weigh[v]).sum() for v in span.nodes.tolist())
        plain.detach()
    for node, state in plain.states.items():
        assert torch.allclose(table[node], state, atol=1e-6)
    _agree(_gradients(module, loss), found)


def _matching_log(seed: int, nodes: int = NODES, steps: int = 5) -> EventLog:
    """In each step no node has more than one event; the times are the steps."""
    rng, events = np.random.default_rng(seed), []
    for step in range(steps):
        order = rng.permutation(nodes)[: 2 * (nodes // 3)].reshape(-1, 2)
        events += [(int(u), int(v), step) for u, v in order]
    return log_of(events)


@pytest.mark.parametrize("roles", [1, 2])
@pytest.mark.parametrize("only_last", [False, True])
def test_both_modes_are_the_same_where_no_node_has_two_events_in_a_step(roles: int, only_last: bool) -> None:
    torch.manual_seed(3)
    log, module, weigh = _matching_log(1), _module(roles=roles), torch.randn(NODES, 6)
    x = torch.cat([torch.randn(NODES, 3), torch.zeros(1, 3)])
    schedules = batch_schedule(log, NODES, 500, CPU), step_schedule(log, NODES, only_last, CPU)
    one, other = (_pass_all(module, schedule, None, weigh) for schedule in schedules)
    assert torch.allclose(one[0], other[0], atol=1e-6)
    _agree(one[1], other[1])
    losses, table = [], torch.zeros(NODES + 1, 6)
    for spans in zip(*(schedule.spans for schedule in schedules), strict=True):
        passed = [pass_span(module, span, table, None) for span in spans]
        losses.append([self_supervised_losses(module, s, p, table, x) for s, p in zip(spans, passed, strict=True)])
        table[spans[0].nodes] = passed[0].final.detach()
    for one_loss, other_loss in losses:
        assert torch.allclose(one_loss, other_loss, atol=1e-6)
    first, second = (_gradients(module, torch.stack(some).sum()) for some in zip(*losses, strict=True))
    _agree(first, second)
    assert torch.equal(schedules[0].final_gap, schedules[1].final_gap)
    assert schedules[0].gap_std == pytest.approx(schedules[1].gap_std)


def test_losses_of_a_span_are_those_of_one_update_after_the_other() -> None:
    torch.manual_seed(4)
    log, module = random_log(8), _module()
    x = torch.cat([torch.randn(NODES, 3), torch.zeros(1, 3)])
    table = torch.zeros(NODES + 1, 6)
    plain, time, e = _Plain(module), since_first(log.time), 0
    met: dict[int, int] = {}
    for span in batch_schedule(log, NODES, 3, CPU).spans:
        begin = {v: state.clone() for v, state in plain.states.items()}
        predictions, moves = [], []
        for _ in range(len(span.owner) // 2):
            ends = int(log.source[e]), int(log.target[e])
            old = [plain.state(ends[side], side) for side in range(2)]
            for side in range(2):
                node, other = ends[side], ends[1 - side]
                gap = torch.tensor([time[e] - plain.since.get(node, 0.0)])
                before = met.get(node, NODES)
                earlier = begin.get(before, plain.initial(0))
                # What the prediction reads has seen nothing of this event.
                inputs = torch.cat([module.project(old[side][None], gap)[0], earlier, x[node], x[before]])
                target = torch.cat([old[1 - side], x[other]]).detach()
                predictions.append((module.predict(inputs) - target).square().mean())
            plain.event(*ends, float(time[e]))
            moves += [(plain.states[ends[side]] - old[side].detach()).square().mean() for side in range(2)]
            met[ends[0]], met[ends[1]] = ends[1], ends[0]
            e += 1
        wanted = torch.stack([torch.stack(predictions).mean(), 2 * torch.stack(moves).mean()])
        found = self_supervised_losses(module, span, pass_span(module, span, table, None), table, x)
        assert torch.allclose(found, wanted, atol=1e-6)
        _agree(
            _gradients(module, found @ torch.tensor([1.0, 3.0])), _gradients(module, wanted @ torch.tensor([1.0, 3.0]))
        )
        plain.detach()
        for v, state in plain.states.items():
            table[v] = state


def test_states_have_length_one_and_the_table_is_left_alone() -> None:
    module, table = _module(), torch.zeros(NODES + 1, 6)
    span = batch_schedule(random_log(0), NODES, 1, CPU).spans[0]
    passed = pass_span(module, span, table, None)
    assert torch.allclose(passed.after.norm(dim=1), torch.ones(len(span.owner)), atol=1e-6)
    assert not table.any()


def test_no_state_of_a_span_depends_on_later_events() -> None:
    log, module = random_log(2), _module()
    half = log.until(1)
    one, other = (batch_schedule(some, NODES, 1, CPU) for some in (log, half))
    table, short = torch.zeros(NODES + 1, 6), torch.zeros(NODES + 1, 6)
    for span, same in zip(one.spans, other.spans, strict=False):
        table[span.nodes] = pass_span(module, span, table, None).final.detach()
        short[same.nodes] = pass_span(module, same, short, None).final.detach()
    assert torch.equal(table, short)


# The network on a graph.


def _with_two_futures(last: int) -> tuple[Task, Task]:
    """Tasks of graphs that differ after step `last`; what attributes are scaled by is of the first alone."""
    task = _task()
    assert task.features is not None
    other = make_task(with_other_future(task.graph, last), _settings(), CPU, encoder=task.features.encoder)
    return task, other


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("more", [{}, {"tie": False, "partner_features": True}, {"join_features": False}])
def test_nothing_after_the_last_step_is_read(mode: str, more: dict[str, Any]) -> None:
    one, other = (_trained(JODIENetwork(task.until(2), _settings(mode=mode, **more))) for task in _with_two_futures(2))
    assert same_weights(one.module.state_dict(), other.module.state_dict())
    for first, second in zip(_everyone(one), _everyone(other), strict=True):
        assert torch.equal(first, second)


@pytest.mark.parametrize("mode", MODES)
def test_a_network_trained_on_all_steps_answers_for_an_earlier_one_without_reading_later_ones(mode: str) -> None:
    one, other = (JODIENetwork(task, _settings(mode=mode)) for task in _with_two_futures(2))
    _trained(one)
    other.module.load_state_dict(one.module.state_dict())
    early, same = (_everyone(n.for_task(n.task.until(2))) for n in (one, other))
    assert torch.equal(early[0], same[0])
    assert not torch.equal(early[0], _everyone(one)[0])


def test_inputs_are_shared_with_another_task_of_the_same_last_step() -> None:
    network = _network()
    other = network.for_task(network.task.with_all_labels())
    assert other.schedule is network.schedule
    assert other.features is network.features
    assert other.module is network.module
    earlier = network.for_task(network.task.until(1))
    assert earlier.features is network.features
    assert max(span.step for span in earlier.schedule.spans) == 1


@pytest.mark.parametrize("mode", MODES)
def test_the_same_seed_gives_the_same_bits_and_another_does_not(mode: str) -> None:
    first, again, other = (_trained(_network(mode=mode, seed=seed)) for seed in (5, 5, 6))
    assert same_weights(first.module.state_dict(), again.module.state_dict())
    assert torch.equal(_everyone(first)[0], _everyone(again)[0])
    assert not torch.equal(_everyone(first)[0], _everyone(other)[0])


@pytest.mark.parametrize("mode", MODES)
def test_a_run_that_was_stopped_resumes_bit_for_bit(mode: str, tmp_path: Path) -> None:
    whole, half, rest = (Trainer(n, n.settings) for n in (_network(mode=mode, weight_average=0.9) for _ in range(3)))
    whole.run()
    next(iter(half.epochs()))
    save_checkpoint(half, tmp_path / "checkpoint")
    load_checkpoint(rest, tmp_path / "checkpoint")
    assert same_weights(rest.run().state_dict(), whole.model.state_dict())
    assert [report.loss for report in rest.state.history] == [report.loss for report in whole.state.history]


@pytest.mark.parametrize("more", [{"refit": True, "calibrate": True}, {"folds": 3, "second_stage": "logistic"}])
def test_refit_folds_and_earlier_steps_work(more: dict[str, Any]) -> None:
    settings = _settings(epochs=2, **more)
    fitted = JODIE(settings).fit(make_task(small_graph(), settings, CPU))
    for some in (fitted, fitted.until(1)):
        found = some.probabilities(np.arange(120))
        assert np.allclose(found.sum(axis=1), 1)


@pytest.mark.parametrize("mode", MODES)
def test_answers_do_not_depend_on_which_nodes_are_asked_for(mode: str) -> None:
    network, nodes = _network(mode=mode), np.array([7, 3, 3, 119])
    every, some = _everyone(network), network.infer(network.module, nodes)
    assert torch.equal(every[0][nodes], some[0])
    assert torch.equal(every[1][nodes], some[1])
    assert every[1].shape == (120, 8)
    assert torch.allclose(every[0].sum(dim=1), torch.ones(120))


def _permuted(graph: DynamicGraph, order: NDArray[Any]) -> DynamicGraph:
    """Node `order[v]` of the new graph is node v of the old one."""
    rows, steps, neighbours = graph.snapshot.entries()
    views = history_and_snapshot(order[rows], order[neighbours], steps, graph.num_nodes, graph.num_steps)
    back = np.argsort(order)
    assert graph.events is not None
    assert graph.labels is not None
    assert graph.features is not None
    ends = {name: order[getattr(graph.events, name)].astype(np.int32) for name in ("source", "target")}
    return replace(
        graph, history=views[0], snapshot=views[1], ids=NodeIds.of([f"n{v}" for v in back]),
        events=replace(graph.events, **ends), labels=np.asarray(graph.labels)[back], features=graph.features[:, back],
    ).validate()  # fmt: skip


@pytest.mark.parametrize("mode", MODES)
def test_another_order_of_the_nodes_changes_nothing(mode: str) -> None:
    graph, order = small_graph(), np.random.default_rng(0).permutation(120)
    one, other = _network(graph, mode=mode), _network(_permuted(graph, order), mode=mode)
    for first, second in zip(_everyone(one), _everyone(other), strict=True):
        assert torch.allclose(first, second[order], atol=1e-5)
    nodes = one.task.split.train
    here, there = one.losses(one.module, None, nodes), other.losses(other.module, None, order[nodes])
    assert torch.allclose(here, there, atol=1e-5)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("more", [{}, {"tie": False}, {"partner": "last", "partner_features": True}])
def test_it_learns_the_classes_of_an_easy_graph(mode: str, more: dict[str, Any]) -> None:
    settings = _settings(mode=mode, epochs=20, selection="last", **more)
    fitted = JODIE(settings).fit(make_task(small_graph(), settings, CPU))
    found = score_nodes(fitted, fitted.split.test)
    assert found.micro_f1 > 0.85


def test_the_loss_falls_and_its_parts_add_up() -> None:
    settings = _settings(epochs=8, self_supervised=0.5, selection="last")
    trainer = Trainer(JODIENetwork(_task(), settings), settings)
    reports = list(trainer.epochs())
    assert reports[-1].loss < reports[0].loss
    for report in reports:
        found = report.terms
        rest = 0.5 * (found["prediction_loss"] + found["smoothness_loss"])
        assert report.loss == pytest.approx(found["classification_loss"] + rest, rel=1e-5)


@pytest.mark.parametrize("mode", MODES)
def test_without_the_self_supervised_losses_the_predict_layer_is_not_trained(mode: str) -> None:
    network = _network(mode=mode, self_supervised=0.0)
    before = {name: value.clone() for name, value in network.module.named_parameters()}
    _trained(network)
    unchanged = [name for name, value in network.module.named_parameters() if torch.equal(value, before[name])]
    assert unchanged == ["predict.weight", "predict.bias"]


@pytest.mark.parametrize("mode", MODES)
def test_spans_without_a_training_node_are_passed_all_the_same(mode: str) -> None:
    graph, train = small_graph(), _task().split.train
    assert graph.events is not None
    log = graph.events
    kept = (log.step != 1) | ~(np.isin(log.source, train) | np.isin(log.target, train))
    fewer = EventLog.of(log.source[kept], log.target[kept], log.time[kept], log.step[kept], graph.num_steps)
    network = _network(replace(graph, events=fewer), mode=mode, self_supervised=0.0)
    rows = dict(zip([span.step for span in network.schedule.spans], network.training_rows(train)[0], strict=True))
    assert len(rows[1]) == 0 < len(rows[2])
    _trained(network)


def test_every_weight_has_a_gradient_in_a_whole_pass() -> None:
    for mode in MODES:
        network = _network(mode=mode, tie=False, partner_features=True)
        network.losses(network.module, None, network.task.split.train)[0].backward()
        assert all(value.grad is not None and value.grad.any() for value in network.module.parameters())


def test_a_loss_that_is_not_finite_ends_the_training_with_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    network = _network()

    def break_one(module: Any, span: Span, *rest: Any) -> Tensor:
        return self_supervised_losses(module, span, *rest) * (float("nan") if span.step == 3 else 1.0)

    monkeypatch.setattr(jodie, "self_supervised_losses", break_one)
    with pytest.raises(TrainingFailure, match="not finite at epoch 0, batch 3"):
        _trained(network)
    assert all(value.isfinite().all() for value in network.module.parameters())


# Graphs of every kind.


@pytest.mark.parametrize("mode", MODES)
def test_graphs_with_dates_one_step_isolated_nodes_and_direction(mode: str) -> None:
    graph = small_graph()
    assert graph.events is not None
    assert graph.features is not None
    only = graph.events.until(0)
    rows, steps, neighbours = graph.snapshot.entries()
    here = steps == 0
    views = history_and_snapshot(rows[here], neighbours[here], steps[here], 120, 1)
    single = replace(
        graph, history=views[0], snapshot=views[1], events=only, features=graph.features[:1],
        step_start=graph.step_start[:1], step_end=graph.step_end[:1],
    )  # fmt: skip
    dates = replace(
        dated_graph(),
        events=replace(graph.events, time=graph.events.time.astype(np.int64).astype("datetime64[us]")),
    )
    static = graph.with_features(np.array(graph.features[0]))
    for some in (single, dates, static, replace(graph, directed=True)):
        settings = _settings(mode=mode, epochs=1)
        fitted = JODIE(settings).fit(make_task(some, settings, CPU))
        assert np.isfinite(fitted.probabilities(np.arange(120))).all()


@pytest.mark.parametrize("mode", MODES)
def test_the_direction_of_an_event_does_not_matter_with_one_cell(mode: str) -> None:
    graph = small_graph()
    assert graph.events is not None
    turned = replace(graph, events=replace(graph.events, source=graph.events.target, target=graph.events.source))
    one, other = _network(graph, mode=mode), _network(turned, mode=mode)
    for first, second in zip(_everyone(one), _everyone(other), strict=True):
        assert torch.allclose(first, second, atol=1e-6)
    one, other = _network(graph, mode=mode, tie=False), _network(turned, mode=mode, tie=False)
    assert not torch.allclose(_everyone(one)[0], _everyone(other)[0], atol=1e-6)


def test_predictions_read_features_of_the_step_before() -> None:
    network = _network()
    assert torch.equal(network.features.before(2), network.features.at(1))
    assert not network.features.before(0).any()
    graph = small_graph()
    assert graph.features is not None
    still = _network(graph.with_features(np.array(graph.features[0])))
    assert torch.equal(still.features.before(0), still.features.at(0))
    assert torch.equal(still.features.at(4), still.features.at(0))
    assert not still.features.at(0)[-1].any()


def test_features_are_read_again_where_they_do_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = _trained(_network())
    monkeypatch.setattr(jodie, "available_bytes", lambda: 0)
    tight = _trained(_network())
    assert len(tight.features._kept) == 3
    assert same_weights(whole.module.state_dict(), tight.module.state_dict())


def test_the_mode_is_chosen_by_the_size_of_the_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _network().mode == "tbatch"
    monkeypatch.setattr(jodie, "_MOST_BATCHES", 3)
    assert _network().mode == "snapshot"
    assert _network(mode="tbatch").mode == "tbatch"
    monkeypatch.setattr(jodie, "_MOST_BATCHES", 4096)
    monkeypatch.setattr(jodie, "_MOST_NODES", 100)
    assert _network().mode == "snapshot"


def test_a_run_keeps_its_mode_and_its_clock_on_another_graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings, graph, run = _settings(), small_graph(), RunFolder(tmp_path / "run")
    run.begin("jodie", settings, {"graph": "mine", "name": "mine"}, graph, split_for(graph, settings), overwrite=False)
    fitted = JODIE(settings).fit(make_task(graph, settings, CPU), FitContext(run=run))
    fitted.save(run)
    monkeypatch.setattr(jodie, "_MOST_NODES", 100)
    loaded = JODIE(settings).load(make_task(graph, settings, CPU), run)
    nodes = np.arange(120)
    assert np.array_equal(loaded.probabilities(nodes), fitted.probabilities(nodes))
    slower = small_graph(150, seed=3)
    assert slower.events is not None
    slower = replace(slower, events=replace(slower.events, time=7 * slower.events.time))
    other = JODIE(settings).load(make_task(slower, settings, CPU), run)
    assert cast(Any, other).network.mode == "tbatch"
    mean = cast(Any, fitted).network.module.gap_mean
    assert torch.equal(cast(Any, other).network.module.gap_mean, mean)
    assert not torch.equal(cast(Any, other).network.new_module().gap_mean, mean)
    assert other.probabilities(np.arange(150)).shape == (150, 2)


def test_a_graph_without_events_is_refused() -> None:
    with pytest.raises(GraphError, match="without its events"):
        JODIE(_settings()).check(replace(small_graph(), events=None))


def test_a_run_that_cannot_fit_is_refused_with_a_line() -> None:
    learner = JODIE(_settings(dimension=2**20))
    with pytest.raises(InputError, match=r"Lower dimension \(now 1048576\)"):
        learner.require_memory(small_graph(9000), 0, 10, CPU)
    assert JODIE(_settings()).estimate(small_graph(), 8)["memory_bytes"] > 4 * 120 * 8


@pytest.mark.gpu
@pytest.mark.parametrize("mode", MODES)
def test_a_gpu_learns_what_the_cpu_learns_and_repeats_itself(mode: str) -> None:
    settings, graph = _settings(mode=mode, tie=False, partner_features=True), small_graph()
    one, other, again = (
        JODIENetwork(make_task(graph, settings, torch.device(kind)), settings) for kind in ("cpu", "cuda", "cuda")
    )
    for first, second in zip(_everyone(one), _everyone(other), strict=True):
        assert torch.allclose(first, second, atol=1e-5)
    for network in (one, other, again):
        _trained(network)
    assert same_weights(other.module.state_dict(), again.module.state_dict())
    assert torch.allclose(_everyone(one)[0], _everyone(other)[0], atol=1e-2)
