from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from chronospike import memory
from chronospike.config import make_settings
from chronospike.data.csr import history_and_snapshot
from chronospike.data.graph import DynamicGraph
from chronospike.errors import InputError
from chronospike.methods.temporal_neighbours import Hop
from chronospike.methods.tgat import (
    TGAT,
    TemporalAttention,
    TGATModule,
    TGATNetwork,
    TGATSettings,
    TimeEncoding,
)
from chronospike.training.learner import Fitted
from chronospike.training.scoring import score_nodes
from chronospike.training.task import Task, make_task
from tests.methods.test_triads import graph_of
from tests.small_runs import CPU, dated_graph, same_weights, saved_graph, small_graph, with_other_future, worked

SMALL: dict[str, Any] = {"epochs": 2, "batch_size": 32, "neighbours": 4}


def _settings(**values: Any) -> TGATSettings:
    return make_settings(TGATSettings, {**SMALL, **values})


def _task(graph: DynamicGraph | None = None, device: torch.device = CPU, **values: Any) -> Task:
    return make_task(graph or small_graph(), _settings(**values), device)


def _network(graph: DynamicGraph | None = None, last_step: int | None = None, **values: Any) -> TGATNetwork:
    task = _task(graph, **values)
    return TGATNetwork(task if last_step is None else task.until(last_step), _settings(**values))


def _embeddings(network: TGATNetwork, nodes: list[int] | None = None) -> Tensor:
    some = np.arange(network.task.graph.num_nodes) if nodes is None else np.array(nodes)
    return network.infer(network.module, some)[1]


def _everyone(fitted: Fitted) -> NDArray[Any]:
    return fitted.probabilities(np.arange(120))


# One layer against plain forms of it.


def dense_layer(layer: TemporalAttention, rows: Tensor, hop: Hop, time: Tensor) -> Tensor:
    """Section 4 of the paper as it stands there: all keys and values are computed. Without dropout."""
    own, (targets, count) = rows[hop.own], hop.gaps.shape
    query = torch.cat([own, own.new_zeros(targets, layer.edge), time[:1].expand(targets, -1)], dim=1)
    edges = own.new_zeros(targets, count, layer.edge)
    met = torch.cat([rows[hop.neighbours], edges, time[hop.gaps]], dim=2)
    q = layer.query(query).view(targets, 1, layer.heads, -1)
    k, v = (part(met).view(targets, count, layer.heads, -1) for part in (layer.key, layer.value))
    scores = (q * k).sum(dim=3) / math.sqrt(q.shape[3])
    shares = scores.masked_fill(~hop.present[:, :, None], -1e10).softmax(dim=1) * hop.present[:, :, None]
    heads = (shares[:, :, :, None] * v).sum(dim=1).flatten(1)
    o = layer.norm(layer.out(heads) + query)
    merged: Tensor = layer.merge(torch.cat([o, own], dim=1))
    return merged


def _random_layer(width: int, outputs: int, heads: int, edge: int, seed: int) -> TemporalAttention:
    torch.manual_seed(seed)
    layer = TemporalAttention(width, outputs, outputs, edge, heads, dropout=0.0)
    nn.init.normal_(layer.out.bias)
    nn.init.normal_(layer.norm.weight)
    return layer


def _random_hop(rows: int, targets: int, count: int, offsets: int) -> Hop:
    """Some targets have no neighbour, some a few, some as many as there is room for."""
    present = torch.arange(count) < torch.randint(0, count + 1, (targets, 1))
    present[0], present[1] = False, True
    gaps = torch.randint(1, offsets, (targets, count)) * present
    return Hop(torch.randint(rows, (targets,)), torch.randint(rows, (targets, count)), gaps, present)


def _gradients(output: Tensor, inputs: list[Tensor], seed: int = 0) -> tuple[Tensor, ...]:
    torch.manual_seed(seed)
    scalar = (output * torch.randn(output.shape).to(output)).sum()
    return torch.autograd.grad(scalar, inputs, retain_graph=True)


@pytest.mark.parametrize(
    ("width", "outputs", "heads", "edge"), [(8, 8, 2, 0), (16, 16, 4, 16), (5, 7, 3, 0), (3, 4, 1, 2), (128, 128, 2, 0)]
)
def test_the_factored_layer_is_the_dense_one_in_values_and_gradients(
    width: int, outputs: int, heads: int, edge: int
) -> None:
    layer = _random_layer(width, outputs, heads, edge, seed=width)
    encoding = TimeEncoding(outputs)
    rows, hop = torch.randn(40, width, requires_grad=True), _random_hop(40, 30, 20, 28)
    time = encoding(torch.arange(28.0))
    one, other = layer(rows, hop, time), dense_layer(layer, rows, hop, time)
    torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)
    inputs = [rows, *layer.parameters(), *encoding.parameters()]
    for a, b in zip(_gradients(one, inputs), _gradients(other, inputs), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5 * max(1.0, float(b.abs().max())))


def test_in_double_precision_the_factored_layer_is_the_dense_one_to_twelve_digits() -> None:
    layer = _random_layer(8, 8, 2, 8, seed=3).double()
    rows, hop = torch.randn(40, 8, dtype=torch.double, requires_grad=True), _random_hop(40, 30, 20, 12)
    time = TimeEncoding(8).double()(torch.arange(12.0, dtype=torch.double))
    one, other = layer(rows, hop, time), dense_layer(layer, rows, hop, time)
    torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)
    inputs = [rows, *layer.parameters()]
    for a, b in zip(_gradients(one, inputs), _gradients(other, inputs), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-11, atol=1e-11)


def test_the_attention_is_that_of_torch() -> None:
    layer, count = _random_layer(8, 8, 2, 0, seed=1), 6
    rows, hop = torch.randn(20, 8), _random_hop(20, 9, count, 5)
    hop = hop._replace(present=hop.present | (torch.arange(count) == 0))
    hop = hop._replace(gaps=hop.gaps.clamp(min=1) * hop.present)
    time = TimeEncoding(8)(torch.arange(5.0))
    theirs = nn.MultiheadAttention(16, 2, bias=False, batch_first=True)
    weights = [layer.query.weight, layer.key.weight, layer.value.weight]
    theirs.load_state_dict({"in_proj_weight": torch.cat(weights), "out_proj.weight": layer.out.weight})
    own = rows[hop.own]
    query = torch.cat([own, time[:1].expand(9, -1)], dim=1)
    met = torch.cat([rows[hop.neighbours], time[hop.gaps]], dim=2)
    attended = theirs(query[:, None], met, met, key_padding_mask=~hop.present)[0][:, 0] + layer.out.bias
    wanted = layer.merge(torch.cat([layer.norm(attended + query), own], dim=1))
    torch.testing.assert_close(layer(rows, hop, time), wanted, rtol=1e-5, atol=1e-5)


def _weights(layer: TemporalAttention, rows: Tensor, hop: Hop, time: Tensor) -> Tensor:
    offsets = functional.one_hot(hop.gaps, len(time)).to(rows)
    return layer.weights(rows[hop.own], rows[hop.neighbours], offsets, hop.present, time)


def test_one_neighbour_has_weight_exactly_one_in_every_head() -> None:
    layer, rows, time = _random_layer(8, 8, 4, 0, seed=2), torch.randn(10, 8), TimeEncoding(8)(torch.arange(6.0))
    hop = _random_hop(10, 7, 5, 6)._replace(present=(torch.arange(5) == 3).expand(7, 5))
    weights = _weights(layer, rows, hop, time)
    assert torch.equal(weights[:, :, 3], torch.ones(7, 4))
    assert not weights[:, :, [0, 1, 2, 4]].any()


def test_without_neighbours_nothing_is_attended_to() -> None:
    layer, rows, time = _random_layer(8, 8, 2, 0, seed=2), torch.randn(10, 8), TimeEncoding(8)(torch.arange(6.0))
    hop = _random_hop(10, 7, 5, 6)
    hop = hop._replace(present=torch.zeros_like(hop.present))
    assert not _weights(layer, rows, hop, time).any()
    elsewhere = hop._replace(neighbours=(hop.neighbours + 1) % 10)
    assert torch.equal(layer(rows, hop, time), layer(rows, elsewhere, time))
    rows.requires_grad_()
    assert all(x.isfinite().all() for x in _gradients(layer(rows, hop, time), [rows, *layer.parameters()]))


def test_the_order_of_neighbours_changes_nothing() -> None:
    layer, rows, time = _random_layer(8, 8, 2, 0, seed=4), torch.randn(30, 8), TimeEncoding(8)(torch.arange(6.0))
    hop, order = _random_hop(30, 25, 20, 6), torch.randperm(20)
    mixed = Hop(hop.own, *(field[:, order] for field in hop[1:]))
    torch.testing.assert_close(layer(rows, hop, time), layer(rows, mixed, time), rtol=1e-5, atol=1e-5)


# Time, sizes, initial values.


def test_time_is_encoded_as_worked_out_by_hand() -> None:
    encoding = TimeEncoding(4)
    assert encoding.frequency.tolist() == pytest.approx([1, 1e-3, 1e-6, 1e-9])
    zero, two = encoding(torch.tensor([0.0, 2.0]))
    assert zero.tolist() == [1, 1, 1, 1]
    assert two.tolist() == pytest.approx([-0.416147, 0.999998, 1, 1], abs=1e-6)


@pytest.mark.parametrize(("edge_block", "count"), [(False, 668_904), (True, 1_357_800)])
def test_the_network_has_as_many_parameters_as_the_published_one(edge_block: bool, count: int) -> None:
    module = TGATModule(128, 10, _settings(edge_block=edge_block, head="mlp"))
    assert sum(parameter.numel() for parameter in module.parameters()) == count


def test_projections_have_the_published_spread_at_first() -> None:
    layer = cast(TemporalAttention, TGATModule(128, 10, _settings()).layers[0])
    for projection in (layer.query, layer.key, layer.value):
        assert float(projection.weight.detach().var()) == pytest.approx(2 / (256 + 128), rel=0.02)
    # Xavier: 2 / (inputs + outputs).
    assert float(layer.out.weight.detach().var()) == pytest.approx(2 / 512, rel=0.02)


def test_heads_that_do_not_divide_the_width_are_refused() -> None:
    with pytest.raises(InputError, match="heads=3 does not divide the 16 inputs of the attention"):
        _network(heads=3)


def test_layers_may_be_wider_than_the_features() -> None:
    network = _network(dimension=12)
    assert _embeddings(network).shape == (120, 12)


# What a node may know.

# The last one sees to it that there are always as many steps.
EDGES = [(0, 1, 2), (1, 3, 0), (0, 4, 0), (2, 3, 1), (4, 3, 3), (10, 11, 5)]


# Of a graph with few nodes, most of them isolated.
HALF: dict[str, Any] = {"ratio": 0.6, "validation": 0.2}


def _little(edges: list[tuple[int, int, int]], static: bool = False) -> DynamicGraph:
    """A graph with features that are the same however many steps there are."""
    graph, features = graph_of(edges, 12), np.random.default_rng(0).normal(size=(8, 12, 6)).astype(np.float32)
    labelled = graph.with_labels(np.arange(12) % 2, ("a", "b"))
    return labelled.with_features(features[0] if static else features[: graph.num_steps])


def _root(edges: list[tuple[int, int, int]], sampling: str) -> Tensor:
    """The embedding of node 0 as of step 3, with the same weights every time."""
    task = replace(_task(_little(edges), **HALF), last_step=3)
    return _embeddings(TGATNetwork(task, _settings(sampling=sampling, neighbours=9)), [0])


@pytest.mark.parametrize("sampling", ["uniform", "recent"])
@pytest.mark.parametrize("event", [(0, 2, 4), (1, 5, 2), (1, 5, 3), (4, 5, 0), (1, 5, 4)])
def test_an_event_at_or_after_the_query_changes_nothing(sampling: str, event: tuple[int, int, int]) -> None:
    # Node 0 is asked after step 3, node 1 at step 2, when 0 met it, node 4 at step 0.
    assert torch.equal(_root([*EDGES, event], sampling), _root(EDGES, sampling))


@pytest.mark.parametrize("sampling", ["uniform", "recent"])
@pytest.mark.parametrize("event", [(0, 2, 3), (0, 5, 0), (1, 5, 1), (1, 5, 0)])
def test_an_event_before_the_query_changes_the_embedding(sampling: str, event: tuple[int, int, int]) -> None:
    assert (_root([*EDGES, event], sampling) - _root(EDGES, sampling)).abs().max() > 1e-4


@pytest.mark.parametrize("sampling", ["uniform", "recent"])
def test_shifting_all_times_changes_nothing(sampling: str) -> None:
    found = []
    for shift in (0, 2):
        graph = _little([(u, v, t + shift) for u, v, t in EDGES], static=True)
        network = _network(graph, sampling=sampling, **HALF)
        found.append(_embeddings(network))
    torch.testing.assert_close(*found, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("sampling", ["uniform", "recent"])
def test_nothing_after_the_last_step_is_read(sampling: str) -> None:
    task, settings = _task(), _settings(sampling=sampling)
    assert task.features is not None
    # How attributes are encoded is what an earlier fit has found.
    later = make_task(with_other_future(task.graph, 2), settings, CPU, task.split, task.features.encoder)
    one, other = (TGAT(settings).fit(each.until(2)) for each in (task, later))
    assert np.array_equal(_everyone(one), _everyone(other))


def test_as_of_a_step_the_tables_are_shared() -> None:
    network = _network()
    earlier = network.for_task(network.task.until(2))
    assert earlier._table is network._table
    assert earlier._neighbours is network._neighbours
    assert torch.equal(_embeddings(earlier), _embeddings(_network(last_step=2)))
    assert not torch.equal(_embeddings(earlier), _embeddings(network))


def test_nodes_in_another_order_have_the_same_embeddings() -> None:
    graph, order = small_graph(), np.random.default_rng(1).permutation(120)
    place = np.argsort(order)
    rows, steps, neighbours = graph.snapshot.entries()
    history, snapshot = history_and_snapshot(place[rows], place[neighbours], steps, 120, 5)
    assert graph.features is not None
    assert graph.labels is not None
    moved = replace(graph, history=history, snapshot=snapshot, features=graph.features[:, order], events=None)
    moved = moved.with_labels(graph.labels[order], graph.class_names)
    # All events fit: which of many are sampled depends on the order of a row.
    most = int(graph.snapshot.degrees().max())
    one, other = (_embeddings(_network(g, sampling="recent", neighbours=most)) for g in (graph, moved))
    torch.testing.assert_close(one[order], other, rtol=1e-4, atol=1e-5)


# Through the protocol.


def test_it_learns_two_communities() -> None:
    task = _task()
    fitted = TGAT(_settings(epochs=30)).fit(task)
    assert score_nodes(fitted, task.split.test).micro_f1 > 0.9


def test_two_fits_with_the_same_seed_agree_to_the_bit() -> None:
    one, other = (TGAT(_settings(neighbours=20)).fit(_task()) for _ in range(2))
    assert same_weights(one.network.module.state_dict(), other.network.module.state_dict())  # type: ignore[union-attr]
    assert np.array_equal(_everyone(one), _everyone(other))


@pytest.mark.parametrize("width", [3, 8, 13])
@pytest.mark.parametrize("head", ["mlp", "linear"])
def test_a_node_has_the_same_bits_whatever_it_is_asked_with(width: int, head: str) -> None:
    features = np.random.default_rng(0).normal(size=(5, 120, width)).astype(np.float32)
    network = _network(small_graph().with_features(features), head=head)
    together = network.infer(network.module, np.arange(120))
    parts = [network.infer(network.module, np.arange(120)[low : low + 7]) for low in range(0, 120, 7)]
    for whole, pieces in zip(together, zip(*parts, strict=True), strict=True):
        assert torch.equal(whole, torch.cat(pieces))


def test_lanes_and_whole_batches_agree() -> None:
    network = _network()
    network.module.eval()
    around = network.prepare(np.arange(120), epoch=0)
    with torch.no_grad():
        whole, lanes = (network.module(network._table, around, lane) for lane in (None, 50))
    for a, b in zip(whole, lanes, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


def test_the_seed_of_a_fold_does_not_change_what_is_inferred() -> None:
    network = _network()
    other = network.for_task(network.task.divided(network.task.split.train, network.task.split.validation, seed=9))
    assert torch.equal(_embeddings(network), _embeddings(other))
    assert not torch.equal(*(n.prepare(np.arange(120), 0).hops[-1].neighbours for n in (network, other)))


def test_no_nodes_have_no_embeddings() -> None:
    network = _network()
    probabilities, embeddings = network.infer(network.module, np.arange(0))
    assert probabilities.shape == (0, 2)
    assert embeddings.shape == (0, 8)


def test_weights_belong_to_widths_and_not_to_a_graph() -> None:
    assert _network().description() == _network(small_graph(nodes=60)).description()
    assert _network().description() != _network(dimension=12).description()


def _directed() -> DynamicGraph:
    graph = small_graph()
    rows, steps, neighbours = graph.snapshot.entries()
    kept = rows < neighbours
    history, snapshot = history_and_snapshot(rows[kept], neighbours[kept], steps[kept], 120, 5)
    return replace(graph, history=history, snapshot=snapshot, directed=True, events=None)


def test_the_direction_of_edges_does_not_matter() -> None:
    assert torch.equal(_embeddings(_network(_directed())), _embeddings(_network()))


def test_attributes_of_all_steps_are_held_once() -> None:
    graph = small_graph()
    assert graph.features is not None
    static = _network(graph.with_features(graph.features[0]))
    repeated = _network(graph.with_features(np.repeat(graph.features[:1], 5, axis=0)))
    assert static._table.shape == (120, 8)
    assert repeated._table.shape == (600, 8)
    torch.testing.assert_close(_embeddings(static), _embeddings(repeated), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ["one step", "dates", "isolated"])
def test_unusual_graphs_are_learned(kind: str) -> None:
    graph = {
        "one step": _little([(u, v, 0) for u, v, _ in EDGES]),
        "dates": dated_graph(),
        "isolated": _little(EDGES),
    }[kind]
    fitted = TGAT(_settings()).fit(_task(graph, **HALF))
    found = fitted.probabilities(np.arange(graph.num_nodes))
    assert np.isfinite(found).all()
    assert found.sum(axis=1) == pytest.approx(np.ones(graph.num_nodes), abs=1e-5)


def test_a_bag_predicts_after_loading_what_it_predicted_before(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    graph, run = saved_graph(tmp_path / "graph"), tmp_path / "run"
    settings = [part for value in ("epochs=2", "folds=2") for part in ("--set", value)]
    worked(capsys, "train", graph, "--method", "tgat", "-o", run, "--device", "cpu", *settings)
    worked(capsys, "predict", run, "--graph", graph, "-o", tmp_path / "found.csv", "--device", "cpu")
    assert (tmp_path / "found.csv").read_text() == (run / "predictions.csv").read_text()


# Memory.


def test_memory_counts_the_features_of_all_steps_once_if_they_are_the_same() -> None:
    graph, settings = small_graph(), _settings()
    static, moving = (TGAT(settings).memory(graph, 8, static, 60) for static in (True, False))
    assert moving - static == 4 * 4 * 120 * 8


def test_more_neighbours_and_larger_batches_need_more_memory() -> None:
    graph = small_graph()
    base = TGAT(_settings()).memory(graph, 8, False, 90)
    assert TGAT(_settings(neighbours=20)).memory(graph, 8, False, 90) > base
    assert TGAT(_settings(batch_size=90)).memory(graph, 8, False, 90) > base


def test_a_graph_that_does_not_fit_is_refused_in_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    learner, graph = TGAT(_settings()), small_graph()
    learner.require_memory(graph, 0, 60, CPU)
    monkeypatch.setattr(memory, "available_bytes", lambda: 10_000)
    with pytest.raises(InputError, match="tgat on this graph needs about .* Lower batch_size .* feature_dimension"):
        learner.require_memory(graph, 0, 60, CPU)


def test_a_dry_run_says_memory_first() -> None:
    graph = small_graph()
    found = TGAT(_settings()).estimate(graph, 8)
    assert found["memory_bytes"] == TGAT(_settings()).memory(graph, 8, False, 90)


@pytest.mark.gpu
def test_a_gpu_computes_what_the_cpu_does_and_the_same_twice() -> None:
    device, settings = torch.device("cuda"), _settings(neighbours=20, dropout=0.0, head_dropout=0.0)
    networks = [TGATNetwork(_task(device=kind), settings) for kind in (CPU, device)]
    arounds = [network.prepare(np.arange(120), epoch=1) for network in networks]
    for one, other in zip(arounds[0].hops, arounds[1].hops, strict=True):
        assert all(torch.equal(a, b.cpu()) for a, b in zip(one, other, strict=True))
    for a, b in zip(*(network.infer(network.module, np.arange(120)) for network in networks), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
    fitted, again = (TGAT(settings).fit(_task(device=device)) for _ in range(2))
    assert np.array_equal(_everyone(fitted), _everyone(again))
    pieces = [fitted.probabilities(np.arange(120)[low : low + 7]) for low in range(0, 120, 7)]
    assert np.array_equal(_everyone(fitted), np.concatenate(pieces))
