from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from chronospike.config import make_settings
from chronospike.data.build import build_graph
from chronospike.data.events import Events, Steps
from chronospike.data.graph import DynamicGraph
from chronospike.data.ids import NodeIds
from chronospike.errors import InputError
from chronospike.features.deepwalk import CpuTrainer
from chronospike.features.skipgram import initial_tables
from chronospike.methods import deepwalk
from chronospike.methods.deepwalk import DeepWalkLearner, DeepWalkSettings, SkipGramEmbedder
from chronospike.methods.embedding import EmbeddingLearner
from chronospike.rng import stream
from chronospike.training.learner import FitContext
from chronospike.training.task import Task, make_task
from tests.path_of_four import path_of_four
from tests.six_nodes import six_nodes
from tests.small_runs import CPU, small_graph, with_other_future

SMALL: dict[str, Any] = {"dimension": 8, "walks": 3, "length": 12, "window": 3, "negatives": 2, "threads": 1}


def nothing(*_: object) -> None:
    """Watches nothing."""


def settings(**values: Any) -> DeepWalkSettings:
    return make_settings(DeepWalkSettings, {**SMALL, **values})


def labelled(graph: DynamicGraph) -> DynamicGraph:
    """Two classes by turns."""
    return graph.with_labels(np.arange(graph.num_nodes) % 2, ("a", "b"))


def task_of(graph: DynamicGraph, **values: Any) -> Task:
    """With every node to learn from, and a few of them again as test nodes."""
    chosen = settings(**values)
    split = replace(
        make_task(small_graph(), chosen, CPU, needs_features=False).split,
        train=np.arange(graph.num_nodes),
        validation=np.arange(0),
        test=np.arange(2),
    )
    return make_task(labelled(graph), chosen, CPU, split, needs_features=False)


def embedder(graph: DynamicGraph, **values: Any) -> SkipGramEmbedder:
    return DeepWalkLearner(settings(**values)).embedder(task_of(graph, **values))


def trained(graph: DynamicGraph, **values: Any) -> SkipGramEmbedder:
    found = embedder(graph, **values)
    for epoch in range(found.settings.epochs):
        found.train_epoch(epoch, nothing)
    return found


def same(one: SkipGramEmbedder, other: SkipGramEmbedder) -> bool:
    first, second = one.state(), other.state()
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


def test_the_defaults_are_those_of_node2vec() -> None:
    found = DeepWalkSettings()
    assert (found.dimension, found.walks, found.length, found.window, found.negatives) == (128, 10, 80, 10, 5)
    assert (found.epochs, found.learning_rate, found.min_learning_rate) == (1, 0.025, 1e-4)
    assert found.objective == "negative"


def test_communities_are_told_apart() -> None:
    graph = small_graph()
    task = make_task(graph, settings(), CPU, needs_features=False)
    fitted = DeepWalkLearner(settings(dimension=16, walks=20, length=20, learning_rate=0.1, negatives=5)).fit(task)
    predicted = fitted.probabilities(task.split.test).argmax(axis=1)
    assert (predicted == task.labels(task.split.test)).mean() > 0.9


@pytest.mark.parametrize("objective", ["negative", "hierarchical", "both"])
def test_one_thread_gives_the_same_bits_again(objective: str) -> None:
    assert same(trained(small_graph(), objective=objective), trained(small_graph(), objective=objective))


@pytest.mark.parametrize("objective", ["negative", "both"])
def test_a_resumed_embedder_ends_as_one_that_was_not_stopped(objective: str) -> None:
    graph, values = small_graph(), {"objective": objective, "epochs": 3}
    straight, first, second = trained(graph, **values), embedder(graph, **values), embedder(graph, **values)
    losses = [first.train_epoch(epoch, nothing) for epoch in range(2)]
    second.load_state({name: table.clone() for name, table in first.state().items()})
    losses.append(second.train_epoch(2, nothing))
    assert same(second, straight)
    assert len(set(losses)) == 3


def test_a_state_of_another_shape_is_refused() -> None:
    graph = small_graph()
    with pytest.raises(ValueError, match="inputs has shape"):
        embedder(graph).load_state(embedder(graph, dimension=9).state())


def test_another_seed_gives_other_embeddings() -> None:
    graph, one = small_graph(), trained(small_graph())
    other = SkipGramEmbedder(replace(task_of(graph), seed=1), settings())
    other.train_epoch(0, nothing)
    assert not np.isclose(one.embeddings(), other.embeddings()).any(axis=2).all()


def test_another_epoch_walks_other_walks() -> None:
    one, other = embedder(small_graph(), epochs=2), embedder(small_graph(), epochs=2)
    one.train_epoch(0, nothing)
    other.train_epoch(1, nothing)
    assert not np.allclose(one.embeddings(), other.embeddings())


def test_the_learning_rate_falls_over_all_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[float] = []

    def train_pass(self: CpuTrainer, starts: Any, schedule: Any, *_: Any) -> None:
        seen.extend(schedule.rate - schedule.drop * walk for walk in range(len(starts)))

    monkeypatch.setattr(CpuTrainer, "train_pass", train_pass)
    trained(six_nodes(), epochs=2, walks=2, learning_rate=0.5, min_learning_rate=0.1)
    # Five nodes have a neighbour: 20 walks.
    assert seen == pytest.approx([0.5 - 0.4 * walk / 20 for walk in range(20)])


def test_the_loss_begins_at_ln_2_per_output() -> None:
    """But for the few negatives that equal the centre and are skipped."""
    found = embedder(small_graph(), learning_rate=1e-9, min_learning_rate=1e-9, negatives=5)
    loss = found.train_epoch(0, nothing)
    assert 0.95 * 6 * math.log(2) < loss < 6 * math.log(2)


def test_the_loss_falls() -> None:
    found = embedder(small_graph(), learning_rate=0.1, epochs=8)
    losses = [found.train_epoch(epoch, nothing) for epoch in range(8)]
    assert losses[-1] < losses[0] - 0.1


def test_losses_of_two_objectives_add_up() -> None:
    values = {"learning_rate": 1e-9, "min_learning_rate": 1e-9}
    kinds = ("negative", "hierarchical", "both")
    one, other, both = (embedder(small_graph(), objective=kind, **values).train_epoch(0, nothing) for kind in kinds)
    # Without negatives the windows are those of other draws.
    assert one + other == pytest.approx(both, rel=0.02)


def test_progress_ends_at_all_walks() -> None:
    seen: list[tuple[int, int, float]] = []
    loss = embedder(small_graph()).train_epoch(0, lambda *told: seen.append(told))
    assert seen[-1] == (3 * 120, 3 * 120, loss)
    assert [done for done, _, _ in seen] == sorted({done for done, _, _ in seen})


@pytest.mark.parametrize(("objective", "tables"), [("negative", 2), ("hierarchical", 2), ("both", 3)])
def test_parameters_are_those_of_the_tables(objective: str, tables: int) -> None:
    found = embedder(small_graph(), objective=objective)
    inner = 0 if objective == "negative" else 8
    assert found.parameters == 120 * 8 * tables - inner
    assert found.parameters == sum(table.numel() for table in found.state().values())


def test_a_node_without_an_edge_keeps_its_initial_row() -> None:
    found = trained(six_nodes(), learning_rate=0.1)
    begun, _ = initial_tables(six_nodes().node_keys, 8, stream(0, "skip-gram tables"))
    assert (found.embeddings()[0, 5] == begun[5]).all()
    assert not np.isclose(found.embeddings()[0, :5], begun[:5]).all(axis=1).any()


def test_without_an_edge_there_is_nothing_to_learn() -> None:
    times = np.arange(2)
    events = Events(np.array([2, 0]), np.array([2, 1]), times, NodeIds.range(3))
    graph = build_graph(events, Steps(times.astype(np.int32), times, times))
    found = SkipGramEmbedder(task_of(graph).until(0), settings())
    before = found.embeddings().copy()
    assert found.train_epoch(0, nothing) == 0
    assert (found.embeddings() == before).all()


@pytest.mark.parametrize("objective", ["negative", "hierarchical", "both"])
def test_two_nodes_are_enough(objective: str) -> None:
    events = Events(np.array([0]), np.array([1]), np.array([0.5]), NodeIds.range(2))
    graph = build_graph(events, Steps(np.zeros(1, np.int32), np.array([0.5]), np.array([0.5])))
    assert np.isfinite(trained(graph, objective=objective).embeddings()).all()


def test_a_directed_graph_is_walked_against_its_edges() -> None:
    assert np.isfinite(trained(path_of_four(directed=True), objective="both").embeddings()).all()


def test_later_edges_change_nothing() -> None:
    graph = small_graph()
    one, other = (SkipGramEmbedder(task_of(each).until(2), settings()) for each in (graph, with_other_future(graph, 2)))
    assert one.train_epoch(0, nothing) == other.train_epoch(0, nothing)
    assert same(one, other)


def test_hierarchical_softmax_is_trained_on_the_cpu_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    learner, notes = DeepWalkLearner(settings(objective="both")), list[str]()
    task = replace(task_of(small_graph()), device=torch.device("cuda"))
    trainer = learner.embedder(task).trainer
    assert isinstance(trainer, CpuTrainer)
    assert trainer.tree is not None
    monkeypatch.setattr(EmbeddingLearner, "fit", nothing)
    learner.fit(task, FitContext(on_note=notes.append))
    assert notes == ["hierarchical softmax is trained on the CPU; on a GPU there is only objective=negative"]


def test_the_trainer_of_a_gpu_resumes_too(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("triton", reason="triton is not installed")
    gpu = pytest.importorskip("chronospike.features.gpu")
    device = "cuda" if torch.cuda.is_available() else "cpu"

    def make_trainer(snapshot: Any, tables: Any, length: int, _: str, __: Any, bias: Any, key: int) -> Any:
        return gpu.GpuTrainer(snapshot, tables, length, device, bias, key)

    graph, values = six_nodes(), {"walks": 1, "length": 5, "epochs": 2}
    plain = embedder(graph, **values)
    monkeypatch.setattr(deepwalk, "make_trainer", make_trainer)
    first, second = embedder(graph, **values), embedder(graph, **values)
    # One walk in 32 is measured, which here is the first of a pass, before anything is learned.
    assert first.train_epoch(0, nothing) == pytest.approx(plain.train_epoch(0, nothing), rel=1e-6)
    second.load_state(first.state())
    assert math.isfinite(second.train_epoch(1, nothing))
    assert second.embeddings().shape == (1, 6, 8)
    assert not np.allclose(second.embeddings(), first.embeddings())


def test_rates_must_not_rise() -> None:
    with pytest.raises(InputError, match="min_learning_rate 0.1 must not be above learning_rate 0.05"):
        settings(learning_rate=0.05, min_learning_rate=0.1)


def test_memory_is_that_of_the_tables_and_the_edges() -> None:
    graph = small_graph()
    entries = len(graph.history.neighbours)
    assert DeepWalkLearner(settings()).memory(graph) == 4 * 120 * 8 * 2 + 4 * entries + 8 * 120
