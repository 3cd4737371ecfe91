"""Where most nodes meet no known label, the network reads none; a run and a saved model know that of themselves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from chronospike.data.graph import DynamicGraph
from chronospike.data.label_sequences import share_near_known
from chronospike.data.storage import open_graph, save_graph
from chronospike.data.synthetic import synthetic_graph
from chronospike.estimator import ChronoSpikeClassifier
from chronospike.methods.chronospike.learner import ChronoSpikeLearner
from chronospike.training.bagging import BagFitted
from chronospike.training.learner import FitContext
from chronospike.training.loop import Trainer
from chronospike.training.run_folder import RunFolder
from chronospike.training.task import Task, make_task
from chronospike.training.weights import description, load_weights
from tests.small_runs import (
    BAG,
    CPU,
    READS,
    SMALL,
    begin,
    command,
    contents,
    load_run,
    small_graph,
    small_network,
    small_settings,
    worked,
)

NOTE = "of the nodes have a neighbour with a known label: the network reads no labels"
WITH: dict[str, Any] = {**READS, "epochs": 1}


def sparse_graph(directed: bool = False, degree: float = 0.5) -> DynamicGraph:
    """Of 300 nodes that meet `degree` others at each of four steps, every tenth has a label."""
    graph = synthetic_graph(
        nodes=300, steps=4, classes=2, degree=degree, feature_dim=4, timing=0.0, structure=0.9, directed=directed
    )
    labels = np.where(np.arange(300) % 10 == 0, np.asarray(graph.labels), -1)
    return graph.with_labels(labels, graph.class_names)


def sparse_task(directed: bool = False) -> Task:
    return make_task(sparse_graph(directed), small_settings(**WITH), CPU)


def trained(run: RunFolder) -> dict[str, Any]:
    """What the weights file says of its network."""
    return description(load_weights(run.weights)[1])


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("reads", [("label_sequences",), ("label_features",), ("label_sequences", "label_features")])
def test_where_few_nodes_are_near_a_known_label_none_is_read(directed: bool, reads: tuple[str, ...]) -> None:
    task = sparse_task(directed)
    notes: list[str] = []
    share = share_near_known(task.graph, task.known)
    assert 0 < share < 0.5
    values = {**WITH, "label_sequences": False, "label_features": False, **dict.fromkeys(reads, True)}
    fitted: Any = ChronoSpikeLearner(small_settings(**values)).fit(task, FitContext(on_note=notes.append))
    assert notes == [f"only {share:.0%} {NOTE}"]
    found = fitted.network.settings
    assert (found.label_sequences, found.label_features, found.activity) == (False, False, True)
    network = fitted.network.module.architecture
    assert (network.met, network.numbers) == (0, 172 if directed else 88)


def test_the_last_snapshot_alone_is_read_without_labels_and_activity_and_a_note_says_so() -> None:
    task = make_task(small_graph(), small_settings(**WITH, static=True), CPU)
    notes: list[str] = []
    fitted: Any = ChronoSpikeLearner(small_settings(**WITH, static=True)).fit(task, FitContext(on_note=notes.append))
    assert notes == ["with static=true the network reads none of label_sequences, label_features, activity"]
    found = fitted.network.settings
    assert (found.label_sequences, found.label_features, found.activity) == (False, False, False)
    plain: dict[str, Any] = {**WITH, **dict.fromkeys(("label_sequences", "label_features", "activity"), False)}
    ChronoSpikeLearner(small_settings(**plain, static=True)).fit(task, FitContext(on_note=notes.append))
    assert len(notes) == 1


def test_where_most_nodes_are_near_a_known_label_it_is_read() -> None:
    network = small_network(**WITH)
    notes: list[str] = []
    assert share_near_known(network.task.graph, network.task.known) >= 0.5
    fitted: Any = ChronoSpikeLearner(network.settings).fit(network.task, FitContext(on_note=notes.append))
    assert notes == []
    assert fitted.network.settings == network.settings


def test_a_network_that_was_to_read_no_labels_is_told_nothing() -> None:
    notes: list[str] = []
    settings = small_settings(epochs=1, activity=True)
    ChronoSpikeLearner(settings).fit(sparse_task(), FitContext(on_note=notes.append))
    assert notes == []


def test_a_second_stage_still_reads_what_the_networks_do_not() -> None:
    learner = ChronoSpikeLearner(small_settings(**{**BAG, "epochs": 1}))
    fitted = learner.fit(sparse_task())
    assert isinstance(fitted, BagFitted)
    assert list(fitted.final.stages) == ["stack: logistic"]
    np.testing.assert_allclose(fitted.probabilities(np.arange(300)).sum(axis=1), 1)


@pytest.fixture(scope="module", params=["one network", "one network, directed", "bag"])
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a graph `g` and a finished run `run` on it, which every test leaves as it was."""
    from chronospike.cli import run as run_command

    folder = tmp_path_factory.mktemp("sparse")
    save_graph(sparse_graph("directed" in request.param), folder / "g")
    values = {**(BAG if request.param == "bag" else READS), "epochs": 2, "refit": True, "min_batches": 1}
    assert run_command([str(part) for part in begin(folder / "g", folder / "run", **values)]) == 0
    return folder


def test_a_run_without_labels_keeps_its_settings_and_predicts_what_it_wrote(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = RunFolder(place / "run")
    directed = open_graph(place / "g").directed
    assert (trained(run).get("met"), trained(run).get("numbers")) == (0, 172 if directed else 88)
    config = (place / "run" / "config.yaml").read_text()
    assert "label_sequences: true\n" in config
    worked(capsys, "predict", place / "run", "-o", tmp_path / "out.csv", "--device", "cpu")
    assert (tmp_path / "out.csv").read_bytes() == (place / "run" / "predictions.csv").read_bytes()


def test_resuming_a_finished_run_without_labels_touches_nothing(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = contents(place / "run")
    assert "is finished" in worked(capsys, "train", "--resume", "-o", place / "run", "--device", "cpu")
    assert contents(place / "run") == before


def test_a_loaded_run_does_without_labels_where_most_nodes_are_near_one_by_now(place: Path) -> None:
    """It is the weights that tell, not the graph."""
    run = RunFolder(place / "run")
    denser = sparse_graph(open_graph(place / "g").directed, degree=8.0)
    fitted = load_run(denser, run)
    assert share_near_known(denser, fitted.task.known) > 0.5
    network: Any = fitted.networks[0] if isinstance(fitted, BagFitted) else fitted.network
    assert not network.settings.label_sequences
    assert not network.settings.label_features
    np.testing.assert_allclose(fitted.probabilities(np.arange(300)).sum(axis=1), 1, rtol=1e-5)


@pytest.mark.parametrize("values", [READS, BAG], ids=["one network", "bag"])
def test_an_interrupted_run_without_labels_resumes_to_the_same_bits_with_its_own_settings(
    values: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    save_graph(sparse_graph(), tmp_path / "g")
    given = {**values, "epochs": 3, "refit": True}
    worked(capsys, *begin(tmp_path / "g", tmp_path / "whole", **given))
    train_batch, calls = Trainer.batch, [0]

    def interrupted(*arguments: Any) -> Any:
        calls[0] += 1
        if calls[0] == 3:
            raise KeyboardInterrupt
        return train_batch(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "batch", interrupted)
        assert command(capsys, *begin(tmp_path / "g", tmp_path / "run", **given)).code == 130
    assert NOTE in worked(capsys, "train", "--resume", "-o", tmp_path / "run", "--device", "cpu")
    found, expected = contents(tmp_path / "run"), contents(tmp_path / "whole")
    for name in ("model.safetensors", "predictions.csv", "config.yaml"):
        assert found[name] == expected[name]
    assert "--resume" not in json.loads((tmp_path / "run" / "run.json").read_text())["command"]


@pytest.mark.parametrize("values", [READS, BAG], ids=["one network", "bag"])
def test_a_run_without_labels_trains_for_longer_with_its_own_settings(
    values: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save_graph(sparse_graph(), tmp_path / "g")
    worked(capsys, *begin(tmp_path / "g", tmp_path / "run", **{**values, "epochs": 1}))
    worked(capsys, "train", "--resume", "-o", tmp_path / "run", "--device", "cpu", "--epochs", "2")
    config = (tmp_path / "run" / "config.yaml").read_text()
    assert "epochs: 2\n" in config
    assert "label_sequences: true\n" in config
    said = json.loads((tmp_path / "run" / "run.json").read_text())["command"]
    assert said.endswith(f"--resume -o {tmp_path / 'run'} --set epochs=2")
    worked(capsys, "predict", tmp_path / "run", "-o", tmp_path / "out.csv", "--device", "cpu")


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("values", [READS, BAG], ids=["one network", "bag"])
def test_a_saved_classifier_without_labels_gives_the_same_bits(
    values: dict[str, Any], directed: bool, tmp_path: Path
) -> None:
    graph = sparse_graph(directed)
    model = ChronoSpikeClassifier(graph, device="cpu", **{**SMALL, **values, "epochs": 1}).fit()
    assert not model.settings_.label_sequences
    assert model.settings_.activity
    found = ChronoSpikeClassifier.load(model.save(tmp_path / "model"), graph, device="cpu")
    np.testing.assert_array_equal(found.predict_proba(), model.predict_proba())
    np.testing.assert_array_equal(found.embed(), model.embed())
    np.testing.assert_array_equal(found.predict_proba(as_of=2), model.predict_proba(as_of=2))


def test_a_classifier_fitted_where_labels_are_near_reads_them() -> None:
    model = ChronoSpikeClassifier(small_graph(), device="cpu", **{**SMALL, **WITH}).fit()
    assert model.settings_.label_sequences
