from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from torch import Tensor

from chronospike.data.graph import DynamicGraph
from chronospike.data.ids import NodeIds
from chronospike.errors import InputError, StorageError
from chronospike.methods import embedding
from chronospike.methods.embedding import Embedder, EmbeddingLearner, EmbeddingSettings, OnBatch, Table
from chronospike.methods.logistic import Classifier
from chronospike.training.learner import FitContext
from chronospike.training.loop import Watcher
from chronospike.training.run_folder import RunFolder
from chronospike.training.task import Task, make_task, split_for
from tests.small_runs import CPU, small_graph


class Drifting(Embedder):
    """Degrees so far in two columns, to which every epoch adds something drawn by its number and what is there."""

    def __init__(self, task: Task, dimension: int) -> None:
        degrees = task.graph.history.step_offsets[:, task.last_step + 1]
        self.values = torch.tensor(np.tile(degrees[:, None], (1, dimension)), dtype=torch.float32)
        self.parameters = self.values.numel()

    def train_epoch(self, epoch: int, on_batch: OnBatch) -> float:
        noise = torch.randn(self.values.shape, generator=torch.Generator().manual_seed(epoch))
        self.values = 0.9 * self.values + noise
        on_batch(1, 1, 0.5)
        return float(self.values.square().mean())

    def embeddings(self) -> Table:
        found: Table = self.values[None].numpy()
        return found

    def state(self) -> dict[str, Tensor]:
        return {"values": self.values}

    def load_state(self, state: dict[str, Tensor]) -> None:
        self.values = state["values"]


class DriftingLearner(EmbeddingLearner[EmbeddingSettings]):
    name = "drifting"
    title = "drifting"
    summary = "for tests"
    settings_type = EmbeddingSettings

    def embedder(self, task: Task) -> Embedder:
        return Drifting(task, self.settings.dimension)

    def memory(self, graph: DynamicGraph) -> int:
        return 4 * graph.num_nodes * self.settings.dimension


def learner(epochs: int = 3, **values: Any) -> DriftingLearner:
    return DriftingLearner(EmbeddingSettings(epochs=epochs, dimension=4, **values))


def task(graph: DynamicGraph | None = None) -> Task:
    return make_task(graph or small_graph(), EmbeddingSettings(), CPU, needs_features=False)


def begun(path: Path, one: DriftingLearner) -> RunFolder:
    graph, run = small_graph(), RunFolder(path)
    facts = {"graph": "small", "folder": str(path), "features": "none"}
    run.begin(one.name, one.settings, facts, graph, split_for(graph, one.settings), overwrite=False)
    return run


def test_the_regression_is_scikit_learns() -> None:
    """BASELINES: the gradient vanishes to 1e-4, and the log-loss is the same to 1e-3, on 2,000 rows."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 5, 2000)
    rows = (rng.normal(size=(2000, 16)) + rng.normal(size=(5, 16))[labels]).astype(np.float32)
    limits = embedding._ITERATIONS, embedding._TOLERANCE
    found = Classifier(rows, labels, 1.0, CPU, None, *limits)
    theirs = LogisticRegression(tol=1e-6, max_iter=1000).fit(rows, labels)
    ours = found.probabilities(rows)
    assert log_loss(labels, ours) == pytest.approx(log_loss(labels, theirs.predict_proba(rows)), abs=1e-3)
    padded = np.concatenate([rows, np.ones((2000, 1))], axis=1)
    penalty = found.weights.numpy() / 2000
    penalty[:, -1] = 0
    gradient = (ours - np.eye(5)[labels]).T @ padded / 2000 + penalty
    assert np.linalg.norm(gradient) < 1e-4


def test_an_interrupted_fit_resumes_to_the_same_bits(tmp_path: Path) -> None:
    whole = learner(5).fit(task())
    run = begun(tmp_path / "run", learner(5))

    def stop(epoch: int, batch: int, batches: int, loss: float) -> None:
        if epoch == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        learner(5).fit(task(), FitContext(run, watcher=Watcher(on_batch=stop)))
    resumed = learner(5).fit(task(), FitContext(run, resume=True))
    assert np.array_equal(resumed.values, whole.values)
    assert resumed.cost.epochs == 5
    assert len((run.path / "metrics.jsonl").read_text().splitlines()) == 5


def test_a_finished_run_trains_for_longer(tmp_path: Path) -> None:
    run = begun(tmp_path / "run", learner(2))
    learner(2).fit(task(), FitContext(run))
    longer = learner(4)
    assert learner(2).is_finished(run)
    assert not longer.is_finished(run)
    found = longer.fit(task(), FitContext(run, resume=True))
    assert np.array_equal(found.values, learner(4).fit(task()).values)
    assert run.settings(EmbeddingSettings).epochs == 4


def test_what_was_saved_predicts_and_embeds_the_same(tmp_path: Path) -> None:
    run, fitted = RunFolder(tmp_path), learner().fit(task())
    fitted.save(run)
    loaded = learner().load(task(), run)
    assert np.array_equal(loaded.probabilities(np.arange(120)), fitted.probabilities(np.arange(120)))
    assert np.array_equal(loaded.embeddings(np.arange(120)), fitted.embeddings(np.arange(120)))


def test_on_another_graph_embeddings_are_found_by_the_ids_of_the_nodes(tmp_path: Path) -> None:
    fitted = learner().fit(task())
    fitted.save(RunFolder(tmp_path))
    backwards = replace(small_graph(), ids=NodeIds.of(list(range(119, -1, -1))))
    loaded = learner().load(task(backwards), RunFolder(tmp_path))
    assert np.array_equal(loaded.embeddings(np.arange(120)), fitted.embeddings(np.arange(120))[::-1])


def test_a_node_that_was_not_trained_on_is_named(tmp_path: Path) -> None:
    learner().fit(task()).save(RunFolder(tmp_path))
    other = task(replace(small_graph(), ids=NodeIds.of([*range(119), 500])))
    with pytest.raises(InputError, match="only the nodes that it was trained on, and 1 of this graph .* 500. Train"):
        learner().load(other, RunFolder(tmp_path))


def test_embeddings_of_another_method_are_refused(tmp_path: Path) -> None:
    learner().fit(task()).save(RunFolder(tmp_path))

    class Other(DriftingLearner):
        name = "other"

    with pytest.raises(StorageError, match="holds no embeddings of other"):
        Other(EmbeddingSettings()).load(task(), RunFolder(tmp_path))


def test_a_damaged_checkpoint_is_one_line(tmp_path: Path) -> None:
    run = begun(tmp_path / "run", learner(2))
    learner(2).fit(task(), FitContext(run))
    run.checkpoint.write_bytes(run.checkpoint.read_bytes()[:-20])
    with pytest.raises(StorageError, match="damaged"):
        learner(2).fit(task(), FitContext(run, resume=True))


def test_as_of_a_step_it_learns_again_from_what_was_there() -> None:
    early = learner().fit(task()).until(1)
    assert np.array_equal(early.values, learner().fit(task().until(1)).values)


def test_as_of_a_step_before_all_training_nodes_it_says_so() -> None:
    given = task()
    late = given.split.train[~given.graph.seen_by(0)[given.split.train]]
    with pytest.raises(InputError, match="by step 0 no training node has an edge"):
        learner().fit(replace(given, split=replace(given.split, train=late))).until(0)


def test_the_validation_nodes_are_held_out_of_the_first_fit_only() -> None:
    fitted = learner().fit(task())
    assert len(fitted.task.split.validation) == 0
    held_out = fitted.held_out()
    assert len(held_out.task.split.validation) > 0
    assert not np.array_equal(held_out.probabilities(np.arange(9)), fitted.probabilities(np.arange(9)))
    assert np.array_equal(held_out.values, fitted.values)


def test_a_loss_that_is_not_finite_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Drifting, "train_epoch", lambda self, epoch, on_batch: float("nan"))
    with pytest.raises(InputError, match="the loss of epoch 0 is not finite. Lower learning_rate"):
        learner().fit(task())


def test_a_graph_beyond_the_memory_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = small_graph()
    monkeypatch.setattr("chronospike.memory.available_bytes", lambda: 4 * 120 * 4 - 1)
    with pytest.raises(InputError, match=r"drifting on this graph needs about .* Lower dimension \(now 4\)"):
        learner().require_memory(graph, 0, 80, CPU)
