"""What HTNE and M2DNE share: the nodes of records, epochs, resuming, and graphs of all kinds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from chronospike.data.graph import DynamicGraph
from chronospike.errors import GraphError
from chronospike.methods import hawkes
from chronospike.methods.hawkes import HawkesEmbedder, joined_batches
from chronospike.methods.htne import HTNEEmbedder
from chronospike.methods.m2dne import M2DNEEmbedder
from chronospike.methods.registry import make_learner
from chronospike.training.learner import FitContext
from chronospike.training.run_folder import RunFolder
from chronospike.training.task import Task, make_task, split_for
from tests.methods.hawkes_reference import (
    as_arrays,
    assert_close,
    event_graph,
    plain_slots,
    random_graph,
    shaken,
    task_of,
)
from tests.small_runs import CPU, same_weights, small_graph, with_other_future

NAMES = ["htne", "m2dne"]
SMALL: dict[str, Any] = {"dimension": 8, "negatives": 2, "history": 2, "batch_size": 32, "epochs": 3}


def _embedder(name: str, graph: DynamicGraph | Task, seed: int = 0, **values: Any) -> HawkesEmbedder:
    own = {key: values.pop(key) for key in ("compiled", "threads") if key in values}
    learner = make_learner(name, {**SMALL, **values})
    task = graph if isinstance(graph, Task) else task_of(graph, seed)
    return (HTNEEmbedder if name == "htne" else M2DNEEmbedder)(task, learner.settings, **own)


def _epochs(embedder: HawkesEmbedder, first: int, last: int) -> HawkesEmbedder:
    for epoch in range(first, last):
        embedder.train_epoch(epoch, lambda *_: None)
    return embedder


@pytest.mark.parametrize("name", NAMES)
def test_both_backends_find_the_nodes_of_a_record(name: str) -> None:
    embedder = _embedder(name, random_graph(1))
    places = np.random.default_rng(0).permutation(len(embedder.records)).astype(np.int32)
    wanted, found = plain_slots(embedder, places, 9), embedder.find_slots(places, 9)
    for one, other in zip(as_arrays(wanted), found, strict=True):
        np.testing.assert_array_equal(one, other)
    device = _embedder(name, random_graph(1), compiled=False).device_records
    there = device.slots(torch.from_numpy(places), 9, embedder.sides, 2, 2)
    for tensor, right in zip(there, wanted, strict=True):
        assert torch.equal(tensor, right)


def test_noise_is_drawn_by_the_number_of_events_to_the_three_quarters() -> None:
    embedder = _embedder("htne", random_graph(0, events=200), negatives=500)
    drawn = embedder.find_slots(np.arange(len(embedder.records), dtype=np.int32), 0).nodes[:, 2:502]
    wanted = embedder.records.degrees() ** 0.75
    shares = np.bincount(drawn.reshape(-1), minlength=12) / drawn.size
    np.testing.assert_allclose(shares, wanted / wanted.sum(), atol=0.004)


def test_initial_embeddings_are_uniform_below_one_over_the_root_of_the_nodes() -> None:
    found = _embedder("htne", random_graph(0, nodes=100, events=300), dimension=64).embeddings()[0]
    assert 0.095 < np.abs(found).max() <= 0.1
    assert found.mean() == pytest.approx(0, abs=0.003)
    assert found.var() == pytest.approx(0.1**2 / 3, rel=0.05)


@pytest.mark.parametrize("name", NAMES)
def test_every_record_is_learned_from_once_an_epoch(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[list[int]] = []
    embedder = _embedder(name, random_graph(0), compiled=False)
    slots = embedder.device_records.slots

    def watched(places: torch.Tensor, *rest: Any) -> Any:
        seen.append(places.tolist())
        return slots(places, *rest)

    monkeypatch.setattr(embedder.device_records, "slots", watched)
    _epochs(embedder, 0, 2)
    assert all(sorted(epoch) == list(range(len(embedder.records))) for epoch in seen)
    assert seen[0] != seen[1]


@pytest.mark.parametrize("name", NAMES)
def test_threads_change_no_bit(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hawkes, "_RECORDS_PER_THREAD", 4)
    one, three = (_epochs(_embedder(name, random_graph(0), threads=count), 0, 2) for count in (1, 3))
    assert same_weights(one.state(), three.state())


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("compiled", [True, False])
def test_nodes_found_ahead_change_no_bit(name: str, compiled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = _epochs(_embedder(name, random_graph(0), compiled=compiled, threads=1), 0, 1)
    monkeypatch.setattr(hawkes, "_CPU_AHEAD" if compiled else "_GPU_AHEAD", 32)
    pieces = _epochs(_embedder(name, random_graph(0), compiled=compiled, threads=1), 0, 1)
    assert same_weights(whole.state(), pieces.state())


@pytest.mark.parametrize("values", [{}, {"train_attention": True}])
@pytest.mark.parametrize("name", NAMES)
def test_a_state_goes_on_as_if_nothing_had_happened(name: str, values: dict[str, Any]) -> None:
    given = values if name == "m2dne" else {}
    whole = _epochs(_embedder(name, random_graph(0), **given), 0, 4)
    first = _epochs(_embedder(name, random_graph(0), **given), 0, 2)
    second = _embedder(name, random_graph(0), **given)
    second.load_state(first.state())
    assert same_weights(whole.state(), _epochs(second, 2, 4).state())


@pytest.mark.parametrize("name", NAMES)
def test_a_state_of_another_size_is_refused(name: str) -> None:
    state = _embedder(name, random_graph(0), dimension=4).state()
    with pytest.raises(ValueError, match="vectors is"):
        _embedder(name, random_graph(0)).load_state(state)


@pytest.mark.parametrize("name", NAMES)
def test_a_run_that_was_stopped_resumes_to_the_same_embeddings(name: str, tmp_path: Path) -> None:
    graph, learner = small_graph(), make_learner(name, SMALL)
    task = make_task(graph, learner.settings, CPU, needs_features=False)
    run = RunFolder(tmp_path / "run")
    place = {"graph": "mine", "name": "mine"}
    run.begin(name, learner.settings, place, graph, split_for(graph, learner.settings), overwrite=False)
    whole = learner.fit(task).embeddings(np.arange(120))
    # The deadline has passed once the first epoch is done.
    assert learner.fit(task, FitContext(run, deadline=0.0)).cost.epochs == 1
    resumed = learner.fit(task, FitContext(run, resume=True))
    assert resumed.cost.epochs == 3
    assert np.array_equal(resumed.embeddings(np.arange(120)), whole)


@pytest.mark.parametrize("name", NAMES)
def test_another_seed_gives_other_embeddings(name: str) -> None:
    one, same, other = (_epochs(_embedder(name, random_graph(0), seed), 0, 1).embeddings() for seed in (0, 0, 1))
    assert np.array_equal(one, same)
    assert not np.isclose(one, other).any(axis=-1).all()


@pytest.mark.parametrize("name", NAMES)
def test_what_comes_after_the_last_step_changes_nothing(name: str) -> None:
    graph = small_graph()
    one, other = (
        _epochs(_embedder(name, task_of(g).until(2)), 0, 1).embeddings() for g in (graph, with_other_future(graph, 2))
    )
    assert np.array_equal(one, other)


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("name", NAMES)
def test_the_loss_falls_and_progress_is_told(name: str, compiled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hawkes, "_TELL_EVERY", 0.0)
    embedder = _embedder(name, small_graph(), compiled=compiled, learning_rate=0.05)
    told: list[tuple[int, int, float]] = []
    losses = [embedder.train_epoch(epoch, lambda *news: told.append(news)) for epoch in range(8)]
    assert losses[-1] < 0.9 * losses[0]
    total = -(-len(embedder.records) // 32)
    assert [news[:2] for news in told[:total]] == [(i, total) for i in range(1, total + 1)]
    assert told[total - 1][2] == pytest.approx(losses[0])


@pytest.mark.parametrize("name", NAMES)
def test_communities_are_told_apart(name: str) -> None:
    learner = make_learner(name, {**SMALL, "learning_rate": 0.05, "epochs": 20})
    task = make_task(small_graph(), learner.settings, CPU, needs_features=False)
    predicted = learner.fit(task).probabilities(task.split.test).argmax(axis=1)
    assert (predicted == task.labels(task.split.test)).mean() > 0.8


DAYS = np.array(["2020-01-01", "2020-02-01", "2021-01-01"], dtype="datetime64[D]")
GRAPHS = {
    "dates": event_graph([0, 1, 2], [1, 2, 3], DAYS),
    "floats": event_graph([0, 1, 2], [1, 2, 3], [0.1, 0.25, 7.5]),
    "one step": event_graph([0, 1, 2], [1, 2, 3], [5, 5, 5]),
    "repeats": event_graph([0, 0, 1, 0], [1, 1, 0, 2], [1, 1, 1, 2]),
    "directed": event_graph([0, 1, 2], [1, 2, 0], [1, 2, 3], directed=True),
    "two nodes": event_graph([0], [1], [0]),
    "an isolated node": event_graph([0, 1, 2], [1, 0, 2], [1, 2, 3]),
    "wide steps": event_graph([0, 1, 2], [1, 2, 3], [1, 2, 30], every=10),
}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("kind", GRAPHS)
def test_graphs_of_all_kinds_are_embedded(name: str, compiled: bool, kind: str) -> None:
    embedder = _embedder(name, GRAPHS[kind], compiled=compiled)
    before = embedder.embeddings()
    assert np.isfinite([embedder.train_epoch(epoch, lambda *_: None) for epoch in range(3)]).all()
    after = embedder.embeddings()
    assert after.shape == (1, GRAPHS[kind].num_nodes, 8)
    assert np.isfinite(after).all()
    seen = ~GRAPHS[kind].isolated
    assert (before != after)[0].any(axis=1)[seen].all()


@pytest.mark.parametrize("name", NAMES)
def test_a_node_without_events_keeps_its_first_embedding(name: str) -> None:
    # Node 0 stands for missing neighbours, so that the isolated one has to be another.
    embedder = _embedder(name, GRAPHS["an isolated node"])
    before = embedder.embeddings()[0, 2].copy()
    assert np.array_equal(_epochs(embedder, 0, 2).embeddings()[0, 2], before)


@pytest.mark.parametrize("name", NAMES)
def test_steps_before_the_first_event_learn_nothing(name: str) -> None:
    graph = event_graph([0, 0, 1], [0, 1, 2], [0, 1, 2])
    embedder = _embedder(name, task_of(graph).until(0))
    before = embedder.embeddings()
    assert embedder.train_epoch(0, lambda *_: None) == 0
    assert np.array_equal(embedder.embeddings(), before)


@pytest.mark.parametrize("name", NAMES)
def test_a_graph_without_its_events_is_refused(name: str) -> None:
    with pytest.raises(GraphError, match="without its events"):
        make_learner(name, SMALL).check(replace(small_graph(), events=None))


@pytest.mark.parametrize("name", NAMES)
def test_memory_is_that_of_tables_records_and_a_batch(name: str) -> None:
    graph, learner = small_graph(), make_learner(name, {**SMALL, "dimension": 128})
    assert graph.events is not None
    batch = 32 * (6 if name == "htne" else 10) * 128
    wanted = 2 * 4 * 120 * 130 + 2 * len(graph.events) * 5 * 4 + 4 * batch
    assert learner.estimate(graph, 0)["memory_bytes"] == wanted


def test_batches_are_joined_on_large_graphs_only() -> None:
    assert joined_batches(28_085, 14, 1000) == 1
    assert joined_batches(28_085, 22, 100) == 1
    assert joined_batches(2_738_012, 14, 1000) == 12
    assert joined_batches(2_738_012, 22, 100) == 64


@pytest.mark.parametrize("name", NAMES)
def test_steps_of_few_records_are_left_to_the_cpu(name: str) -> None:
    task = task_of(random_graph(0))
    elsewhere = replace(task, device=torch.device("meta"))
    here, there = (_epochs(_embedder(name, one), 0, 2) for one in (task, elsewhere))
    assert there.compiled
    assert same_weights(here.state(), there.state())


@pytest.mark.parametrize("name", NAMES)
def test_joined_batches_are_a_larger_batch(name: str) -> None:
    """But for the macro part of M2DNE, which is the mean over each of them."""
    values = {"compiled": False} if name == "htne" else {"compiled": False, "epsilon": 0.0}
    graph = random_graph(0, nodes=400, events=200)
    one = _embedder(name, graph, batch_size=64, gpu_batches=2, **values)
    other = _embedder(name, graph, batch_size=128, gpu_batches=1, **values)
    for embedder in (one, other):
        shaken(embedder, 0)
    slots = one.device_records.slots(torch.arange(128), 3, one.sides, 2, 2)
    # Missing neighbours would make node 0 occur more often than is allowed.
    slots = slots._replace(nodes=torch.where(slots.nodes == 0, 1 + torch.arange(128)[:, None], slots.nodes))
    one.torch_step(slots)
    other.torch_step(slots)
    torch.testing.assert_close(one.vectors, other.vectors, rtol=1e-5, atol=1e-6)


def test_a_row_moves_no_further_in_joined_batches_than_in_one_of_nothing_else() -> None:
    embedder = _embedder("htne", random_graph(0), compiled=False, batch_size=2, gpu_batches=4)
    before = embedder.vectors.clone()
    embedder.add_to_vectors(torch.tensor([[1, 1, 1, 1], [1, 2, 3, 3]]), torch.ones(2, 4, 8))
    moved = (embedder.vectors - before)[:, 0]
    assert moved[:5].tolist() == pytest.approx([0, 2, 1, 2, 0], abs=1e-6)
    assert embedder.visits.count_nonzero() == 0


@pytest.mark.gpu
@pytest.mark.parametrize("name", NAMES)
def test_a_gpu_learns_what_the_cpu_learns(name: str) -> None:
    task = task_of(small_graph())
    devices = (torch.device(kind) for kind in ("cpu", "cuda"))
    one, other = (_embedder(name, replace(task, device=device), gpu_batches=1) for device in devices)
    assert (one.compiled, other.compiled) == (True, False)
    before = one.state()
    losses = [embedder.train_epoch(0, lambda *_: None) for embedder in (one, other)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)
    assert_close(other.state(), one.state(), before, rtol=1e-2, atol=1e-4)
