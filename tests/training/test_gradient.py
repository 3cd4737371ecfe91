from __future__ import annotations

import shutil
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml

from chronospike.data.graph import DynamicGraph
from chronospike.data.label_propagation import recency_operator
from chronospike.errors import InputError, StorageError
from chronospike.estimator import ChronoSpikeClassifier
from chronospike.methods.chronospike.learner import ChronoSpikeLearner
from chronospike.methods.registry import learner_of
from chronospike.training import runs
from chronospike.training.calibration import fit_temperature
from chronospike.training.checkpoint import read_state
from chronospike.training.gradient import GradientFitted
from chronospike.training.learner import FitContext
from chronospike.training.loop import Trainer, TrainingFailure, Watcher
from chronospike.training.run_folder import RunFolder
from chronospike.training.smoothing import GRID, choose_and_smooth, correct_and_smooth
from chronospike.training.weights import description, load_weights, save_weights
from tests.small_runs import (
    BAG,
    READS,
    SMALL,
    begun,
    evaluate,
    execute,
    load_run,
    noisy_graph,
    same_weights,
    small_graph,
    small_network,
    small_settings,
    small_trainer,
)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[DynamicGraph, RunFolder, dict[str, Any]]:
    graph, run = small_graph(), begun(tmp_path_factory.mktemp("runs") / "run", refit=True, epochs=3)
    return graph, run, execute(graph, run, smooth=True)


def test_predictions_that_are_not_finite_are_not_given_out() -> None:
    network = small_network(epochs=1)
    fitted = ChronoSpikeLearner(network.settings).fit(network.task)
    assert isinstance(fitted, GradientFitted)
    with torch.no_grad():
        for weights in fitted.network.module.parameters():
            weights.fill_(torch.nan)
    with pytest.raises(TrainingFailure, match="the predictions are not finite. Lower learning_rate"):
        fitted.probabilities(np.arange(3))


@pytest.mark.parametrize("weight_average", [0.0, 0.9])
def test_the_second_fit_is_one_on_all_labels_for_as_many_epochs_as_were_best(weight_average: float) -> None:
    network = small_network(epochs=4, weight_average=weight_average, refit=True)
    fitted = ChronoSpikeLearner(network.settings).fit(network.task)
    assert isinstance(fitted, GradientFitted)
    split = network.task.split
    assert set(fitted.task.split.train) == set(split.train) | set(split.validation)
    assert not set(fitted.task.split.train) & set(split.test)
    first = small_trainer(epochs=4, weight_average=weight_average)
    first.run()
    assert fitted.first is not None
    assert same_weights(fitted.first.module.state_dict(), first.model.state_dict())

    other = network.for_task(network.task.with_all_labels())
    by_hand = Trainer(other, network.settings)
    for _, _ in zip(range(first.state.best_epoch + 1), by_hand.epochs(), strict=False):
        pass
    assert same_weights(fitted.network.module.state_dict(), by_hand.ema_model.state_dict())


def test_validation_scores_are_those_of_the_model_that_has_not_seen_the_labels(
    finished: tuple[DynamicGraph, RunFolder, dict[str, Any]], tmp_path: Path
) -> None:
    graph, _, metrics = finished
    without = execute(graph, begun(tmp_path / "plain", epochs=3))
    assert metrics["validation"] == without["validation"]
    assert metrics["refit"] == {"nodes": 96}
    assert without["refit"] is None
    assert metrics["split"] == without["split"]


def test_the_saved_model_is_the_second_one_and_is_scored_again_alike(
    finished: tuple[DynamicGraph, RunFolder, dict[str, Any]],
) -> None:
    graph, run, metrics = finished
    fitted = load_run(graph, run)
    assert fitted.first is not None
    assert not same_weights(fitted.network.module.state_dict(), fitted.first.module.state_dict())
    predicted = fitted.probabilities(fitted.split.test).argmax(axis=1)
    assert graph.labels is not None
    right = (predicted == graph.labels[fitted.split.test]).mean()
    assert metrics["test"]["micro_f1"] == pytest.approx(float(right))
    again = evaluate(fitted, run, smooth=True)
    kept = ("test", "validation", "smoothed", "refit", "baselines", "epochs", "best_epoch")
    assert {name: again[name] for name in kept} == {name: metrics[name] for name in kept}


def test_without_the_first_checkpoint_its_score_is_kept_and_smoothing_is_refused(
    finished: tuple[DynamicGraph, RunFolder, dict[str, Any]], tmp_path: Path
) -> None:
    graph, run, metrics = finished
    copy = RunFolder(shutil.copytree(run.path, tmp_path / "copy"))
    shutil.rmtree(copy.path / "checkpoint")
    fitted = load_run(graph, copy)
    assert evaluate(fitted, copy)["validation"] == metrics["validation"]
    with pytest.raises(InputError, match="needs the checkpoint of its first fit"):
        evaluate(fitted, copy, smooth=True)


def test_a_run_stopped_in_the_second_fit_ends_like_one_never_stopped(tmp_path: Path) -> None:
    graph = small_graph()
    whole, stopped = (begun(tmp_path / name, refit=True, epochs=3) for name in ("whole", "stopped"))
    execute(graph, whole)
    calls = [0]

    def interrupt(*_: Any) -> None:
        calls[0] += 1
        # Three epochs of three batches are the first fit.
        if calls[0] == 9 + 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        execute(graph, stopped, watcher=Watcher(on_batch=interrupt))
    assert not stopped.weights.exists()
    trained: list[int] = []
    execute(graph, stopped, resume=True, watcher=Watcher(on_epoch=lambda report: trained.append(report.epoch)))
    assert trained == []
    assert stopped.weights.read_bytes() == whole.weights.read_bytes()
    assert (stopped.path / "metrics.jsonl").read_text().count("\n") == 3


def test_where_nothing_is_held_out_there_is_one_fit() -> None:
    task = small_network().task
    alone = replace(task, split=replace(task.split, validation=task.split.validation[:0]))
    for refit, given, was_refitted in ((True, task, True), (False, task, False), (True, alone, False)):
        fitted = ChronoSpikeLearner(small_settings(refit=refit, epochs=1)).fit(given)
        assert isinstance(fitted, GradientFitted)
        assert fitted.was_refitted is was_refitted
        assert (fitted.first is not None) is was_refitted


def test_strengths_are_chosen_by_the_first_model_and_all_labels_are_spread() -> None:
    graph = small_graph()
    split = small_network(graph).task.split
    generator = np.random.default_rng(0)
    second, first = generator.dirichlet([1, 1], (2, graph.num_nodes))
    values, strengths = choose_and_smooth(graph, second, split.train, split.validation, first)
    _, alone = choose_and_smooth(graph, first, split.train, split.validation)
    assert strengths == alone
    chosen = next(s for s in GRID if (s.correct, s.smooth, s.recency) == tuple(list(strengths.values())[:3]))
    known = np.union1d(split.train, split.validation)
    assert graph.labels is not None
    expected = correct_and_smooth(recency_operator(graph, chosen.recency), second, graph.labels, known, chosen)
    np.testing.assert_allclose(values, expected)


@pytest.mark.parametrize("label_inputs", [False, True])
def test_a_refitted_classifier_is_saved_with_its_first_model(tmp_path: Path, label_inputs: bool) -> None:
    graph = small_graph()
    fitted = ChronoSpikeClassifier(graph, preset=None, **SMALL, refit=True, label_inputs=label_inputs)
    fitted.fit(graph.labelled[:90])
    loaded = ChronoSpikeClassifier.load(fitted.save(tmp_path / "model"), graph)
    for smooth in (False, True):
        np.testing.assert_array_equal(fitted.predict_proba(smooth=smooth), loaded.predict_proba(smooth=smooth))
    np.testing.assert_array_equal(fitted.embed(), loaded.embed())
    assert fitted.first_model_ is not None
    assert not same_weights(fitted.model_.state_dict(), fitted.first_model_.state_dict())


CALIBRATED: dict[str, Any] = {"calibrate": True, "validation": 0.3, "epochs": 1}


@pytest.fixture(scope="module")
def calibrated(tmp_path_factory: pytest.TempPathFactory) -> tuple[DynamicGraph, RunFolder, dict[str, Any]]:
    graph = noisy_graph(200)
    run = begun(tmp_path_factory.mktemp("runs") / "run", graph, **CALIBRATED)
    return graph, run, execute(graph, run)


def test_the_temperature_of_one_network_is_that_of_its_validation_nodes(
    calibrated: tuple[DynamicGraph, RunFolder, dict[str, Any]],
) -> None:
    graph, run, metrics = calibrated
    fitted = load_run(graph, run)
    nodes = fitted.split.validation
    found = fitted.network.infer(fitted.network.module, nodes)[0].numpy().astype(np.float64)
    assert metrics["calibration"]["temperature"] == fit_temperature(
        found, fitted.task.labels(nodes), doubt=1 / (60 + 2)
    )
    assert metrics["calibration"]["chosen_on"] == "validation"
    assert metrics["calibration"]["chosen_nodes"] == len(nodes) == 60


def test_a_temperature_changes_probabilities_and_no_class(
    calibrated: tuple[DynamicGraph, RunFolder, dict[str, Any]], tmp_path: Path
) -> None:
    graph, run, metrics = calibrated
    plain = begun(tmp_path / "plain", graph, **{**CALIBRATED, "calibrate": False})
    assert execute(graph, plain)["test"] == metrics["test"]
    assert plain.weights.read_bytes() == run.weights.read_bytes()
    one, other = (load_run(graph, each).probabilities(np.arange(120)) for each in (plain, run))
    assert not np.allclose(one, other, atol=1e-3)
    assert not plain.final_stage.exists()


def test_of_few_validation_nodes_no_temperature_is_guessed(tmp_path: Path) -> None:
    run = begun(tmp_path / "run", calibrate=True, epochs=1)
    assert "calibration" not in execute(small_graph(), run)
    assert not run.final_stage.exists()


def test_after_a_refit_the_temperature_is_that_of_the_first_model() -> None:
    network = small_network(noisy_graph(200), **CALIBRATED, refit=True)
    fitted = ChronoSpikeLearner(network.settings).fit(network.task)
    alone = ChronoSpikeLearner(small_settings(**CALIBRATED)).fit(network.task)
    assert fitted.final.temperature == alone.final.temperature != 1.0


def test_selection_last_takes_the_last_epoch_whatever_the_scores() -> None:
    network = small_network(selection="last", epochs=4, patience=1)
    fitted = ChronoSpikeLearner(network.settings).fit(network.task)
    assert (fitted.cost.epochs, fitted.cost.best_epoch) == (4, None)


@pytest.mark.parametrize("weight_average", [0.0, 0.9])
def test_selection_last_cut_short_keeps_what_was_trained(weight_average: float) -> None:
    network = small_network(selection="last", epochs=5, weight_average=weight_average)
    context = FitContext(deadline=time.monotonic() - 1)
    fitted = ChronoSpikeLearner(network.settings).fit(network.task, context)
    by_hand = small_trainer(selection="last", epochs=5, weight_average=weight_average)
    next(by_hand.epochs())
    assert isinstance(fitted, GradientFitted)
    assert fitted.cost.epochs == 1
    assert same_weights(fitted.network.module.state_dict(), by_hand.ema_model.state_dict())


@pytest.mark.parametrize("count", [0, 2, 4, -1, "3", 10**9])
def test_weights_of_another_number_of_folds_are_refused(
    bagged: tuple[DynamicGraph, RunFolder, dict[str, Any]], tmp_path: Path, count: Any
) -> None:
    graph, run, _ = bagged
    copy = RunFolder(shutil.copytree(run.path, tmp_path / "copy"))
    tensors, metadata = load_weights(run.weights)
    described = {**description(metadata), "folds": count}
    save_weights(_Holder(tensors), copy.weights, described, graph.class_names)
    with pytest.raises(StorageError, match=r"model\.safetensors") as caught:
        load_run(graph, copy)
    assert "\n" not in str(caught.value)


class _Holder(torch.nn.Module):
    """Tensors under the names they are to be saved by."""

    def __init__(self, tensors: dict[str, torch.Tensor]) -> None:
        super().__init__()
        self.tensors = tensors

    def state_dict(self, *_: Any, **__: Any) -> Any:
        return self.tensors


@pytest.fixture(scope="module")
def bagged(tmp_path_factory: pytest.TempPathFactory) -> tuple[DynamicGraph, RunFolder, dict[str, Any]]:
    graph = noisy_graph()
    run = begun(tmp_path_factory.mktemp("runs") / "bag", graph, **BAG)
    return graph, run, execute(graph, run)


@pytest.mark.parametrize("name", ["final_stage.safetensors", "out_of_fold.parquet"])
@pytest.mark.parametrize("content", [None, b"", b"PAR1 nothing of the kind"])
def test_a_damaged_file_of_a_bag_is_named(
    bagged: tuple[DynamicGraph, RunFolder, dict[str, Any]], tmp_path: Path, name: str, content: bytes | None
) -> None:
    graph, run, _ = bagged
    copy = RunFolder(shutil.copytree(run.path, tmp_path / "copy"))
    (copy.path / name).unlink()
    if content is not None:
        (copy.path / name).write_bytes(content)
    with pytest.raises(StorageError, match=f"{name} is damaged") as caught:
        load_run(graph, copy)
    assert "\n" not in str(caught.value)


def test_settings_with_folds_and_the_weights_of_one_network_are_those_of_too_few_labels(
    finished: tuple[DynamicGraph, RunFolder, dict[str, Any]], tmp_path: Path
) -> None:
    graph, run, _ = finished
    copy = RunFolder(shutil.copytree(run.path, tmp_path / "copy"))
    config = copy.path / "config.yaml"
    config.write_text(config.read_text().replace("folds: 0", "folds: 3"))
    found, expected = (load_run(graph, one) for one in (copy, run))
    assert isinstance(found, GradientFitted)
    assert np.array_equal(found.probabilities(np.arange(20)), expected.probabilities(np.arange(20)))


def test_a_saved_bag_says_the_same_bits(bagged: tuple[DynamicGraph, RunFolder, dict[str, Any]]) -> None:
    graph, run, metrics = bagged
    again = evaluate(load_run(graph, run), run)
    kept = ("test", "validation", "estimate", "calibration", "split", "baselines", "epochs", "parameters")
    assert {name: again[name] for name in kept} == {name: metrics[name] for name in kept}


def test_a_run_of_before_there_were_folds_still_loads(
    finished: tuple[DynamicGraph, RunFolder, dict[str, Any]], tmp_path: Path
) -> None:
    graph, run, metrics = finished
    copy = RunFolder(shutil.copytree(run.path, tmp_path / "copy"))
    new = {"folds", "second_stage", "calibrate", *READS, "head_dropout"}
    before = yaml.safe_load((copy.path / "config.yaml").read_text())
    assert new <= set(before)
    (copy.path / "config.yaml").write_text(yaml.safe_dump({k: v for k, v in before.items() if k not in new}))
    described = description(load_weights(copy.weights)[1])
    assert not (new | {"met", "numbers"}) & set(described)
    assert evaluate(load_run(graph, copy), copy)["test"] == metrics["test"]


def _checkpoints(run: RunFolder) -> list[int]:
    """Epochs of each network."""
    return [read_state(run.fold_checkpoint(fold)).epoch for fold in range(3)]


def _same(one: RunFolder, other: RunFolder, *more: str) -> bool:
    names = ("model.safetensors", "final_stage.safetensors", "out_of_fold.parquet", "predictions.csv", *more)
    return all((one.path / name).read_bytes() == (other.path / name).read_bytes() for name in names)


@pytest.mark.parametrize("stopped_in", [0, 1, 2])
def test_a_bag_stopped_in_any_fold_ends_like_one_never_stopped(
    bagged: tuple[DynamicGraph, RunFolder, dict[str, Any]], tmp_path: Path, stopped_in: int
) -> None:
    graph, whole, _ = bagged
    run = begun(tmp_path / "run", graph, **BAG)

    def interrupt(epoch: int, batch: int, *_: Any) -> None:
        # Two epochs of each network, counted on.
        if (epoch, batch) == (2 * stopped_in + 1, 2):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        execute(graph, run, watcher=Watcher(on_batch=interrupt))
    assert not run.weights.exists()
    execute(graph, run, resume=True)
    assert _same(run, whole)
    assert (run.path / "metrics.jsonl").read_text().count("\n") == 2


def test_a_finished_bag_has_nothing_left_to_do(bagged: tuple[DynamicGraph, RunFolder, dict[str, Any]]) -> None:
    _, run, metrics = bagged
    assert metrics["epochs"] == 6
    assert runs.is_finished(run, learner_of(run))
    assert not runs.is_finished(run, learner_of(run, epochs=3))


def test_a_bag_without_one_of_its_checkpoints_is_not_finished(
    bagged: tuple[DynamicGraph, RunFolder, dict[str, Any]], tmp_path: Path
) -> None:
    _, run, _ = bagged
    copy = RunFolder(shutil.copytree(run.path, tmp_path / "copy"))
    copy.fold_checkpoint(1).unlink()
    assert not runs.is_finished(copy, learner_of(copy))


@pytest.mark.parametrize("selection", ["macro_f1", "last"])
def test_a_bag_trained_for_longer_ends_like_one_trained_so_at_once(tmp_path: Path, selection: str) -> None:
    graph, values = noisy_graph(), {**BAG, "patience": 9, "schedule": "constant", "selection": selection}
    run, whole = begun(tmp_path / "run", graph, **values, epochs=1), begun(tmp_path / "w", graph, **values, epochs=3)
    execute(graph, run)
    execute(graph, whole)
    assert _checkpoints(run) == [1, 1, 1]
    execute(graph, run, resume=True, changes={"epochs": 3})
    assert _checkpoints(run) == [3, 3, 3]
    assert _same(run, whole, "config.yaml")
    assert runs.is_finished(run, learner_of(run))


def test_every_network_of_a_bag_that_stopped_early_trains_on_with_more_epochs(tmp_path: Path) -> None:
    graph = noisy_graph()
    run = begun(tmp_path / "run", graph, **{**BAG, "second_stage": "none"}, epochs=20, patience=1)
    execute(graph, run)
    before = _checkpoints(run)
    assert max(before) < 20
    calls = [0]

    def interrupt(*_: Any) -> None:
        calls[0] += 1
        if calls[0] == 2:
            raise KeyboardInterrupt

    # The second time nothing but the run itself knows that it is to be longer than it was.
    with pytest.raises(KeyboardInterrupt):
        execute(graph, run, resume=True, changes={"epochs": 21}, watcher=Watcher(on_batch=interrupt))
    execute(graph, run, resume=True)
    assert all(after > earlier for after, earlier in zip(_checkpoints(run), before, strict=True))
