from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from chronospike.data.csr import history_and_snapshot
from chronospike.data.graph import DynamicGraph
from chronospike.data.ids import NodeIds
from chronospike.errors import ChronoSpikeError, InputError, StorageError
from chronospike.nn.model import ChronoSpike
from chronospike.training import gradient, scoring
from chronospike.training.loop import TrainingFailure, Watcher
from chronospike.training.run_folder import RunFolder
from tests.small_runs import begun, break_loss, contents, evaluate, execute, load_run, small_graph


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[DynamicGraph, RunFolder, dict[str, Any]]:
    graph, run = small_graph(), begun(tmp_path_factory.mktemp("runs") / "run", samples=2)
    return graph, run, execute(graph, run, smooth=True)


def test_a_run_leaves_everything_it_promises(finished: tuple[DynamicGraph, RunFolder, dict[str, Any]]) -> None:
    _, run, metrics = finished
    assert set(contents(run.path)) == {
        "config.yaml", "run.json", "metrics.jsonl", "metrics.json", "model.safetensors", "predictions.csv",
        "checkpoint/state.safetensors", "labels.parquet", "attributes.json",
    }  # fmt: skip
    assert run.metrics() == json.loads(json.dumps(metrics))


def test_metrics_hold_what_scripts_read(finished: tuple[DynamicGraph, RunFolder, dict[str, Any]]) -> None:
    _, _, metrics = finished
    for part in ("test", "validation"):
        assert 0 <= metrics[part]["macro_f1"] <= 1
        assert 0 <= metrics[part]["micro_f1"] <= 1
        assert set(metrics[part]["per_class_f1"]) == {"0", "1"}
        assert sum(map(sum, metrics[part]["confusion"])) == metrics[part]["nodes"]
    assert (metrics["test"]["nodes"], metrics["validation"]["nodes"]) == (24, 6)
    assert set(metrics["baselines"]) == {"majority class", "label propagation", "logistic regression"}
    assert metrics["unlabelled"] is None
    wrong = sum(map(sum, metrics["test"]["confusion"])) - sum(
        row[i] for i, row in enumerate(metrics["test"]["confusion"])
    )
    assert len(metrics["confidently_wrong"]) == min(20, wrong)
    assert set(metrics["smoothed"]) == {"macro_f1", "micro_f1", "strengths"}
    assert (metrics["seed"], metrics["epochs"], len(metrics["firing_rate"])) == (0, 2, 2)
    assert metrics["parameters"] > 0
    assert metrics["seconds_per_epoch"] > 0
    assert metrics["device"].startswith("cpu")
    assert {"torch", "chronospike"} <= set(metrics["versions"])


def test_metrics_count_the_classes_predicted_for_nodes_without_a_label(tmp_path: Path) -> None:
    graph = small_graph()
    assert graph.labels is not None
    labels = np.where(np.arange(120) % 3 == 0, -1, graph.labels)
    graph = replace(graph, labels=labels)
    found = execute(graph, begun(tmp_path / "run", graph, epochs=1))["unlabelled"]
    assert found["nodes"] == sum(found["predicted"].values()) == 40


def test_metrics_are_those_of_the_predictions(finished: tuple[DynamicGraph, RunFolder, dict[str, Any]]) -> None:
    graph, run, metrics = finished
    fitted = load_run(graph, run)
    predicted = fitted.probabilities(np.arange(120)).argmax(axis=1)
    test = fitted.split.test
    assert graph.labels is not None
    assert metrics["test"]["micro_f1"] == pytest.approx(float((predicted[test] == graph.labels[test]).mean()))


def test_the_weights_are_those_of_the_best_epoch(
    finished: tuple[DynamicGraph, RunFolder, dict[str, Any]],
) -> None:
    graph, run, metrics = finished
    fitted = load_run(graph, run)
    nodes = fitted.split.validation
    right = fitted.probabilities(nodes).argmax(axis=1) == fitted.task.labels(nodes)
    epochs = [json.loads(line) for line in (run.path / "metrics.jsonl").read_text().splitlines()]
    best = epochs[metrics["best_epoch"]]
    assert best["validation_micro_f1"] == pytest.approx(right.mean())
    assert best["validation_macro_f1"] == max(epoch["validation_macro_f1"] for epoch in epochs)


def test_evaluating_again_finds_the_same_and_keeps_the_facts_of_training(
    finished: tuple[DynamicGraph, RunFolder, dict[str, Any]],
) -> None:
    graph, run, metrics = finished
    again = evaluate(load_run(graph, run), run, smooth=True)
    kept = ("test", "validation", "smoothed", "seconds_per_epoch", "epochs", "best_epoch", "firing_rate", "split")
    assert {name: again[name] for name in kept} == {name: metrics[name] for name in kept}


def test_a_resumed_run_ends_like_one_never_stopped(tmp_path: Path) -> None:
    graph = small_graph()
    whole, stopped = begun(tmp_path / "whole", epochs=3), begun(tmp_path / "stopped", epochs=3)
    execute(graph, whole)

    def interrupt(epoch: int, batch: int, batches: int, loss: float) -> None:
        if (epoch, batch) == (1, 2):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        execute(graph, stopped, watcher=Watcher(on_batch=interrupt))
    assert not stopped.weights.exists()
    # The line of an epoch that was cut off in the middle of being written.
    with (stopped.path / "metrics.jsonl").open("a") as file:
        file.write('{"epoch": 1, "lo')
    trained: list[int] = []
    execute(graph, stopped, resume=True, watcher=Watcher(on_epoch=lambda report: trained.append(report.epoch)))
    assert trained == [1, 2]
    assert stopped.weights.read_bytes() == whole.weights.read_bytes()
    assert (stopped.path / "predictions.csv").read_bytes() == (whole.path / "predictions.csv").read_bytes()
    epochs = [json.loads(line)["epoch"] for line in (stopped.path / "metrics.jsonl").read_text().splitlines()]
    assert epochs == [0, 1, 2]


def test_a_run_interrupted_before_its_first_checkpoint_starts_again(tmp_path: Path) -> None:
    graph, run = small_graph(), begun(tmp_path / "run")

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        execute(graph, run, watcher=Watcher(on_batch=interrupt))
    assert execute(graph, run, resume=True)["epochs"] == 2


def test_a_failure_keeps_the_last_good_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph, run, whole = small_graph(), begun(tmp_path / "run", epochs=3), begun(tmp_path / "whole", epochs=3)
    execute(graph, whole)
    break_loss(monkeypatch, batch=5)
    with pytest.raises(TrainingFailure, match="epoch 1, batch 1"):
        execute(graph, run)
    assert run.checkpoint.is_file()
    execute(graph, run, resume=True)
    assert run.weights.read_bytes() == whole.weights.read_bytes()


def test_epochs_not_saved_yet_are_trained_again_to_the_same_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph, run, whole = small_graph(), begun(tmp_path / "run", epochs=4), begun(tmp_path / "whole", epochs=4)
    execute(graph, whole)
    monkeypatch.setattr(gradient, "_SAVE_EVERY", 1e9)
    # Three batches an epoch: the eleventh is in the last.
    break_loss(monkeypatch, batch=11)
    with pytest.raises(TrainingFailure, match="epoch 3, batch 1"):
        execute(graph, run)
    # Only the first epoch was saved, and only it is said to be done.
    assert (run.path / "metrics.jsonl").read_text().count("\n") == 1
    execute(graph, run, resume=True)
    assert (run.path / "metrics.jsonl").read_text().count("\n") == 4
    assert run.weights.read_bytes() == whole.weights.read_bytes()


def test_a_gpu_out_of_memory_names_the_settings_to_lower(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate\n2 GiB")

    monkeypatch.setattr(ChronoSpike, "forward", full)
    with pytest.raises(ChronoSpikeError, match="Lower batch_size \\(now 32\\) or fanouts \\(now \\[3, 2\\]\\)"):
        execute(small_graph(), begun(tmp_path / "run"))


@pytest.mark.parametrize(
    "error",
    [MemoryError("Unable to allocate 9 TiB"), RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried")],
)
def test_a_machine_out_of_memory_names_the_settings_to_lower(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise error

    monkeypatch.setattr(ChronoSpike, "forward", full)
    with pytest.raises(ChronoSpikeError, match="this machine is out of memory. Lower batch_size"):
        execute(small_graph(), begun(tmp_path / "run"))


def _predicts_at_most(monkeypatch: pytest.MonkeyPatch, nodes: int, times: int) -> None:
    monkeypatch.setattr(scoring, "_PREDICT_ALL", {"cpu": nodes})
    monkeypatch.setattr(scoring, "_PREDICT_EPOCHS", times)


def test_a_graph_too_large_to_predict_whole_gets_the_nodes_it_is_scored_on_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _predicts_at_most(monkeypatch, 100, 1)
    run = begun(tmp_path / "run", epochs=1)
    notes: list[str] = []
    metrics = execute(small_graph(), run, on_note=notes.append)
    assert metrics["inference"]["nodes"] == 30
    assert len((run.path / "predictions.csv").read_text().splitlines()) == 31
    assert metrics["notes"] == notes
    assert notes == [
        "predictions.csv holds the 30 validation and test nodes of 120, since predicting all would take long. "
        f"For all nodes: chronospike predict {run.path} -o predictions.csv"
    ]


@pytest.mark.parametrize(("nodes", "times"), [(120, 0), (0, 2)])
def test_all_nodes_are_predicted_where_they_are_few_or_few_beside_the_training_nodes(
    nodes: int, times: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _predicts_at_most(monkeypatch, nodes, times)
    metrics = execute(small_graph(), begun(tmp_path / "run", epochs=1))
    assert (metrics["inference"]["nodes"], metrics["notes"]) == (120, [])


def test_a_large_graph_is_smoothed_from_what_the_model_says_of_every_node(
    finished: tuple[DynamicGraph, RunFolder, dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    graph, run, metrics = finished
    _predicts_at_most(monkeypatch, 100, 1)
    assert evaluate(load_run(graph, run), run, smooth=True)["smoothed"] == metrics["smoothed"]


def relabelled(graph: DynamicGraph) -> DynamicGraph:
    """The same nodes with the classes swapped, called otherwise, and a class more."""
    assert graph.labels is not None
    return replace(graph, labels=1 - graph.labels, class_names=("zero", "one", "two"))


def test_the_labels_and_the_split_of_a_graph_labelled_otherwise_are_those_of_the_run(
    finished: tuple[DynamicGraph, RunFolder, dict[str, Any]],
) -> None:
    graph, run, metrics = finished
    for other in (relabelled(graph), replace(graph, labels=None, class_names=())):
        again = evaluate(load_run(other, run), run, smooth=True)
        assert again["test"] == metrics["test"]
        assert again["smoothed"] == metrics["smoothed"]


def test_no_training_node_of_a_grown_graph_is_scored(
    finished: tuple[DynamicGraph, RunFolder, dict[str, Any]],
) -> None:
    graph, run, _ = finished
    assert graph.labels is not None
    used = run.known_labels(graph)[1]
    # Three nodes more, whose ids come first, with labels of their own: one of a class that the run does not know.
    rows, steps, neighbours = graph.snapshot.entries()
    source = np.concatenate([rows + 3, [0, 1, 2], [3, 4, 5]])
    target = np.concatenate([neighbours + 3, [3, 4, 5], [0, 1, 2]])
    history, snapshot = history_and_snapshot(source, target, np.append(steps, [4] * 6), 123, 5)
    assert graph.features is not None
    grown = replace(
        graph,
        history=history,
        snapshot=snapshot,
        ids=NodeIds.of([-3, -2, -1, *range(120)]),
        labels=np.concatenate([[0, 1, 2], 1 - graph.labels]),
        class_names=("0", "1", "new"),
        features=np.concatenate([graph.features[:, :3], graph.features], axis=1),
    )
    placed, split = run.known_labels(grown)
    assert split.train.tolist() == (used.train + 3).tolist()
    assert split.test.tolist() == [0, 1, *(used.test + 3).tolist()]
    assert placed.labels is not None
    assert placed.labels[:3].tolist() == [0, 1, -1]
    assert placed.labels[3:].tolist() == graph.labels.tolist()


def test_a_graph_with_other_features_is_refused(finished: tuple[DynamicGraph, RunFolder, dict[str, Any]]) -> None:
    graph, run, _ = finished
    with pytest.raises(InputError, match="needs the attribute 'x5', which the graph does not have"):
        load_run(graph.with_features(np.zeros((120, 5), dtype=np.float32)), run)


def test_a_run_without_weights_says_how_to_go_on(tmp_path: Path) -> None:
    with pytest.raises(
        StorageError, match="is not finished. Unless it still runs, resume with: chronospike train --resume"
    ):
        load_run(small_graph(), begun(tmp_path / "run"))
