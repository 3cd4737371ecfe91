from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from chronospike.data.graph import DynamicGraph
from chronospike.data.label_propagation import recency_operator
from chronospike.errors import InputError
from chronospike.estimator import ChronoSpikeClassifier
from chronospike.methods.chronospike.learner import ChronoSpikeLearner
from chronospike.training.loop import Trainer, Watcher
from chronospike.training.run_folder import RunFolder
from chronospike.training.smoothing import GRID, choose_and_smooth, correct_and_smooth
from tests.small_runs import (
    SMALL,
    begun,
    evaluate,
    execute,
    load_run,
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


@pytest.mark.parametrize("weight_average", [0.0, 0.9])
def test_the_second_fit_is_one_on_all_labels_for_as_many_epochs_as_were_best(weight_average: float) -> None:
    network = small_network(epochs=4, weight_average=weight_average, refit=True)
    fitted = ChronoSpikeLearner(network.settings).fit(network.task)
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
