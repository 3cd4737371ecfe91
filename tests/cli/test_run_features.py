"""`train --features RUN`: embeddings of one run as the inputs of another."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from chronospike.data.feature_store import list_features, open_features
from chronospike.data.storage import save_graph
from chronospike.methods.embedding import EmbeddingFitted
from tests.small_runs import SMALL, command, refused, saved_graph, small_graph, worked

SETTINGS = [part for name, value in SMALL.items() for part in ("--set", f"{name}={value}")]


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved_graph(tmp_path_factory.mktemp("run_features") / "graph")


@pytest.fixture
def embedded(graph: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """A run of a method that reads no labels."""
    run = tmp_path / "walks"
    settings = ["--set", "dimension=8", "--set", "length=10", "--set", "walks=2"]
    worked(capsys, "train", graph, "--method", "deepwalk", "-o", run, "--device", "cpu", *settings)
    return run


def test_a_run_of_embeddings_trains_for_longer(graph: Path, embedded: Path, capsys: pytest.CaptureFixture[str]) -> None:
    worked(capsys, "train", "--resume", "-o", embedded, "--epochs", "2", "--device", "cpu")
    assert len((embedded / "metrics.jsonl").read_text().splitlines()) == 2


def test_the_embeddings_of_a_run_are_the_features_of_another(
    graph: Path, embedded: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    worked(capsys, "train", graph, "--features", embedded, "-o", tmp_path / "run", "--device", "cpu", *SETTINGS)
    worked(capsys, "embed", embedded, "-o", tmp_path / "z.npy", "--device", "cpu")
    (name,) = [found.name for found in list_features(graph) if found.recipe["method"] == "run"]
    assert name.startswith("deepwalk-")
    values = open_features(graph, name)
    assert values.shape == (5, 120, 8)
    for step in range(5):
        assert np.array_equal(values[step], np.load(tmp_path / "z.npy"))
    # From here on it is a run like any other.
    worked(capsys, "predict", tmp_path / "run", "-o", tmp_path / "classes.csv", "--device", "cpu")
    assert command(capsys, "train", "--resume", "-o", tmp_path / "run", "--device", "cpu").code == 0


def test_each_step_has_its_own_where_the_method_has_steps(
    graph: Path, embedded: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = np.random.default_rng(0).random((5, 120, 3), dtype=np.float32)
    monkeypatch.setattr(EmbeddingFitted, "step_embeddings", lambda self: drawn)
    worked(capsys, "train", graph, "--features", embedded, "-o", tmp_path / "run", "--device", "cpu", *SETTINGS)
    (name,) = [found.name for found in list_features(graph) if found.shape[2] == 3]
    assert np.array_equal(open_features(graph, name), drawn)


def test_they_stand_beside_other_features(
    graph: Path, embedded: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = f"own+{embedded}"
    told = worked(capsys, "train", graph, "--features", names, "-o", tmp_path / "run", "--device", "cpu", *SETTINGS)
    assert "features own+deepwalk-" in told


def test_a_date_is_refused_because_embeddings_know_all_steps(
    graph: Path, embedded: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    worked(capsys, "train", graph, "--features", embedded, "-o", run, "--device", "cpu", *SETTINGS)
    found = refused(capsys, "predict", run, "--as-of", "2", "-o", tmp_path / "early.csv", "--device", "cpu")
    assert "learned from all steps" in found


def test_embeddings_learned_from_labels_of_test_nodes_are_refused(
    graph: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    teacher, run = tmp_path / "teacher", tmp_path / "run"
    worked(capsys, "train", graph, "-o", teacher, "--device", "cpu", *SETTINGS)
    given: list[str | Path] = ["train", graph, "--features", teacher, "-o", run, "--device", "cpu", *SETTINGS]
    found = command(capsys, *given, "--set", "split_seed=1")
    assert found.code == 2
    assert "has learned from the labels of" in found.err
    assert not run.exists()
    worked(capsys, *given)


def test_embeddings_of_another_graph_are_refused(
    embedded: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other, run = save_graph(small_graph(seed=1), tmp_path / "other"), tmp_path / "run"
    found = refused(capsys, "train", other, "--features", embedded, "-o", run, "--device", "cpu", *SETTINGS)
    assert "was trained on other edges" in found
