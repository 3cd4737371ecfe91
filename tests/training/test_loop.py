from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from chronospike.data.graph import DynamicGraph
from chronospike.data.splits import Split
from chronospike.methods.chronospike.network import ChronoSpikeNetwork, neuron_state
from chronospike.rng import stream
from chronospike.training.loop import EpochReport, State, Trainer, TrainingFailure, Watcher, seconds_per_epoch
from chronospike.training.metrics import Scores, score_predictions
from chronospike.training.network import balanced_class_weights
from chronospike.training.task import make_task
from tests.small_runs import (
    CPU,
    READS,
    break_loss,
    same_weights,
    small_graph,
    small_network,
    small_settings,
    small_trainer,
)


def weights(trainer: Trainer) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in trainer.model.state_dict().items()}


def with_scores(trainer: Trainer, macro: list[float], monkeypatch: pytest.MonkeyPatch) -> list[dict[str, torch.Tensor]]:
    """Let validation find these scores, epoch after epoch; returns the weights at the end of each."""
    seen: list[dict[str, torch.Tensor]] = []

    def validate() -> Scores:
        seen.append(weights(trainer))
        return Scores(macro[len(seen) - 1], 0.0, (), ())

    monkeypatch.setattr(trainer, "validate", validate)
    return seen


def test_the_loss_goes_down_on_an_easy_graph() -> None:
    trainer = small_trainer(epochs=8, batch_size=16)
    trainer.run()
    losses = [report.terms["classification_loss"] for report in trainer.state.history]
    assert losses[-1] < 0.7 * losses[0]
    assert trainer.validate().micro_f1 > 0.8


def test_it_stops_after_patience_and_returns_the_best_epochs_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = small_trainer(epochs=10, patience=2)
    seen = with_scores(trainer, [0.3, 0.5, 0.4, 0.5, 0.9], monkeypatch)
    model = trainer.run()
    # An equal score is no better one: epochs 2 and 3 are the two that were waited.
    assert [report.best for report in trainer.state.history] == [True, True, False, False]
    assert (trainer.state.best_epoch, trainer.state.best_score) == (1, 0.5)
    assert same_weights(model.state_dict(), seen[1])
    assert not same_weights(model.state_dict(), seen[3])


def test_a_better_epoch_starts_the_wait_again(monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = small_trainer(epochs=5, patience=2)
    with_scores(trainer, [0.3, 0.2, 0.4, 0.3, 0.5], monkeypatch)
    trainer.run()
    assert trainer.state.epoch == 5


def test_training_ends_with_the_last_epoch_or_with_patience() -> None:
    settings = small_settings(epochs=3, patience=2)
    assert not State(epoch=2, waited=1).finished(settings)
    assert State(epoch=3).finished(settings)
    assert State(epoch=1, waited=2).finished(settings)


def test_a_batch_has_a_stream_of_dropout_of_its_own() -> None:
    trainer = small_trainer(seed=7)
    trainer.batch(trainer.network.task.split.train[:8], epoch=3, number=1)
    assert torch.initial_seed() == stream(7, "dropout", 3, 1)


def test_one_seed_gives_the_same_bits_and_another_does_not() -> None:
    first, again, other = (small_trainer(seed=seed).run().state_dict() for seed in (0, 0, 1))
    assert same_weights(first, again)
    assert not same_weights(first, other)


def test_the_callers_random_numbers_do_not_matter() -> None:
    first = small_trainer(epochs=1)
    torch.manual_seed(1)
    first.run()
    second = small_trainer(epochs=1)
    torch.manual_seed(2)
    second.run()
    assert same_weights(weights(first), weights(second))


def descent(**values: Any) -> Any:
    """A trainer that takes plain gradient steps, with nothing random in the network and no thresholds."""
    trainer = small_trainer(dropout=0.0, temporal_dropout=0.0, contrastive=0.0, neuron="relu", epochs=1, **values)
    trainer.optimiser = torch.optim.SGD(trainer.model.parameters(), lr=trainer.settings.learning_rate)
    trainer.step.context = replace(trainer.context, optimiser=trainer.optimiser)
    return trainer


def test_two_accumulated_half_batches_are_one_batch() -> None:
    # 90 training nodes: five batches of 18, or ten of 9 taken two at a time.
    sizes: list[dict[str, Any]] = [{"batch_size": 18}, {"batch_size": 9, "accumulate": 2}, {"batch_size": 9}]
    whole, halves, alone = (descent(clip=0.0, **size).run().state_dict() for size in sizes)
    for name in whole:
        torch.testing.assert_close(whole[name], halves[name], rtol=1e-4, atol=1e-5)
    assert any(not torch.allclose(whole[name], alone[name], rtol=1e-4, atol=1e-5) for name in whole)


def test_a_clipped_step_is_no_longer_than_asked() -> None:
    trainer = descent(clip=0.01, batch_size=1024, learning_rate=1.0)
    before = weights(trainer)
    trainer.run()
    moved = math.sqrt(sum(float((before[name] - value).square().sum()) for name, value in weights(trainer).items()))
    assert moved == pytest.approx(0.01, rel=1e-3)


def test_balanced_class_weights_are_inverse_frequencies() -> None:
    graph = small_graph()
    labels = np.full(120, -1)
    labels[:4] = [0, 0, 0, 1]
    split = Split(np.arange(4), np.arange(4), np.arange(0))
    settings = small_settings(class_weights="balanced")
    task = make_task(graph.with_labels(labels, ("a", "b", "c")), settings, CPU, split)
    found = balanced_class_weights(task)
    # Four nodes over three classes: 4 / (3 · 3), 4 / (3 · 1), and no node of "c" that could weigh anything.
    assert found.tolist()[:2] == pytest.approx([4 / 9, 4 / 3])
    used = ChronoSpikeNetwork(task, settings).class_weights
    assert used is not None
    assert torch.equal(used, found)
    assert small_network().class_weights is None


def first_loss(graph: DynamicGraph, **values: Any) -> float:
    """One batch of a network that gives class 0 a probability of 1/4 and class 1 one of 3/4, whatever it reads."""
    trainer = small_trainer(graph, epochs=1, batch_size=1000, min_batches=1, **values)
    with torch.no_grad():
        trainer.model.classifier.weight.zero_()
        trainer.model.classifier.bias.copy_(torch.tensor([0.0, math.log(3)]))
    return float(next(trainer.epochs()).terms["classification_loss"])


def one_in_three() -> tuple[DynamicGraph, float]:
    """A graph whose classes are skewed, and the share of class 0 among its training nodes."""
    graph = small_graph()
    skewed = graph.with_labels(np.where(np.arange(120) % 3 == 0, 0, 1), graph.class_names)
    task = small_network(skewed).task
    return skewed, float((task.labels(task.split.train) == 0).mean())


def test_balanced_class_weights_let_both_classes_count_the_same() -> None:
    graph, share = one_in_three()
    plain, balanced = (first_loss(graph, class_weights=name) for name in ("none", "balanced"))
    assert 0.3 < share < 0.4
    assert plain == pytest.approx(share * math.log(4) + (1 - share) * math.log(4 / 3))
    assert balanced == pytest.approx((math.log(4) + math.log(4 / 3)) / 2)


def test_label_smoothing_spreads_its_share_over_all_classes() -> None:
    graph, share = one_in_three()
    first, second = 0.7 * share + 0.15, 0.7 * (1 - share) + 0.15
    assert first_loss(graph, label_smoothing=0.3) == pytest.approx(first * math.log(4) + second * math.log(4 / 3))


def test_the_cosine_schedule_falls_from_the_learning_rate_to_nearly_nothing() -> None:
    trainer = small_trainer(epochs=4, batch_size=45, schedule="cosine", patience=9)
    rates: list[float] = []
    trainer.run(Watcher(on_batch=lambda *_: rates.append(trainer.optimiser.learning_rate)))
    # Two batches an epoch: cosines of 0, 1/8, …, 7/8 of a half turn.
    assert rates == pytest.approx([0.01 * (1 + math.cos(math.pi * k / 8)) for k in range(8)])
    assert rates[0] == 0.02
    assert rates[-1] < 0.05 * rates[0]


def test_a_constant_schedule_stays() -> None:
    trainer = small_trainer()
    trainer.run()
    assert [report.learning_rate for report in trainer.state.history] == [0.02, 0.02]


def test_without_the_contrastive_term_its_loss_is_zero() -> None:
    trainer = small_trainer(contrastive=0.0, epochs=1)
    trainer.run()
    report = trainer.state.history[0]
    assert report.terms["contrastive_loss"] == 0
    assert report.loss == report.terms["classification_loss"]


def test_the_loss_is_the_sum_of_its_parts() -> None:
    trainer = small_trainer(contrastive=0.3, epochs=1)
    trainer.run()
    report = trainer.state.history[0]
    assert report.loss == pytest.approx(report.terms["classification_loss"] + 0.3 * report.terms["contrastive_loss"])


def test_where_nothing_is_held_out_the_training_nodes_choose_the_epoch() -> None:
    graph = small_graph()
    split = Split(np.arange(60), np.arange(0), np.arange(60, 120))
    settings = small_settings(epochs=6, batch_size=16)
    network = ChronoSpikeNetwork(make_task(graph, settings, CPU, split), settings)
    trainer = Trainer(network, settings)
    predicted = network.infer(trainer.run(), split.train)[0].argmax(dim=1)
    reached = score_predictions(network.targets(split.train), predicted, 2).macro_f1
    assert trainer.state.best_score == reached == max(report.validation_macro_f1 for report in trainer.state.history)


def test_a_loss_that_is_not_finite_stops_with_epoch_batch_and_neurons(monkeypatch: pytest.MonkeyPatch) -> None:
    break_loss(monkeypatch, batch=5)
    trainer = small_trainer()
    with pytest.raises(TrainingFailure) as caught:
        trainer.run()
    # Three batches an epoch, counted from 0.
    assert str(caught.value).startswith("the loss is not finite at epoch 1, batch 1; the last good checkpoint is kept")
    assert "layer 1: tau " in str(caught.value)
    assert "V_th" in str(caught.value)
    assert "alpha" in str(caught.value)
    assert "layer 2" in str(caught.value)
    assert "learning_rate" in str(caught.value)
    assert trainer.state.epoch == 1


def test_a_gradient_that_is_not_finite_never_reaches_the_weights() -> None:
    trainer = small_trainer()
    before = weights(trainer)
    trainer.model.classifier.bias.register_hook(lambda gradient: gradient * math.inf)
    with pytest.raises(TrainingFailure, match="the gradient is not finite at epoch 0, batch 0; .*layer 1"):
        trainer.run()
    assert same_weights(weights(trainer), before)


def test_a_last_step_after_which_predictions_are_not_finite_is_a_failure() -> None:
    with pytest.raises(TrainingFailure, match="the prediction is not finite at epoch 0; the last good checkpoint is"):
        small_trainer(epochs=1, batch_size=1024, learning_rate=1e30).run()


def test_the_state_of_neurons_names_their_ranges() -> None:
    trainer = small_trainer()
    assert neuron_state(trainer.model).startswith("layer 1: tau 1..1, V_th 1..1, alpha 1..1; layer 2: tau 1..1")
    assert neuron_state(small_trainer(neuron="relu").model) == "no spiking neurons"


def test_watchers_hear_of_every_batch_and_epoch() -> None:
    trainer = small_trainer()
    batches: list[tuple[int, int, int]] = []
    epochs: list[int] = []
    trainer.run(
        Watcher(
            on_batch=lambda epoch, batch, count, loss: batches.append((epoch, batch, count)),
            on_epoch=lambda report: epochs.append(report.epoch),
        )
    )
    assert batches == [(0, 1, 3), (0, 2, 3), (0, 3, 3), (1, 1, 3), (1, 2, 3), (1, 3, 3)]
    assert epochs == [0, 1]


def test_the_running_mean_of_the_weights_after_two_steps_by_hand() -> None:
    """The share kept grows as n / (n + 10) up to the setting: 1/11 at the first step, 2/12 at the second."""
    trainer = small_trainer(epochs=1, weight_average=0.5, batch_size=1000, accumulate=1)
    seen = [trainer.model.classifier.weight.detach().clone()]
    for epoch in range(2):
        trainer.state.epoch = epoch
        trainer._epoch(Watcher())
        seen.append(trainer.model.classifier.weight.detach().clone())
    after_one = seen[0] / 11 + seen[1] * 10 / 11
    torch.testing.assert_close(trainer.ema_model.classifier.weight.detach(), after_one / 6 + seen[2] * 5 / 6)


def test_without_averaging_the_model_itself_is_judged() -> None:
    trainer = small_trainer()
    assert trainer.ema_model is trainer.model


def test_more_epochs_let_a_run_that_stopped_early_wait_again() -> None:
    before = small_settings(epochs=20, patience=3)
    state = State(epoch=9, waited=3)
    state.extend(before, small_settings(epochs=20, patience=3))
    assert state.finished(before)
    longer = small_settings(epochs=30, patience=3)
    state.extend(before, longer)
    assert not state.finished(longer)


def test_more_epochs_leave_the_count_of_a_run_that_did_not_stop_early() -> None:
    state = State(epoch=20, waited=2)
    state.extend(small_settings(epochs=20, patience=3), small_settings(epochs=30, patience=3))
    assert state.waited == 2


def test_seconds_per_epoch_leave_out_the_first() -> None:
    def epoch(seconds: float) -> EpochReport:
        return EpochReport(0, 0.0, 0.0, 0.0, 0.0, seconds, False)

    assert seconds_per_epoch([epoch(9.0), epoch(1.0), epoch(3.0), epoch(2.0)]) == 2.0
    assert seconds_per_epoch([epoch(9.0)]) == 9.0
    assert seconds_per_epoch([]) == 0.0


def test_the_selection_metric_decides_which_epoch_is_best(monkeypatch: pytest.MonkeyPatch) -> None:
    scores = [Scores(0.9, 0.1, (), ()), Scores(0.1, 0.9, (), ())]
    for selection, best in (("macro_f1", 0), ("micro_f1", 1)):
        trainer, told = small_trainer(selection=selection), iter(scores)
        monkeypatch.setattr(trainer, "validate", lambda told=told: next(told))
        trainer.run()
        assert trainer.state.best_epoch == best


def test_with_selection_last_no_epoch_is_chosen_and_patience_does_not_matter() -> None:
    settings = small_settings(epochs=3, patience=1, selection="last")
    assert not State(epoch=2, waited=2).finished(settings)
    assert State(epoch=3, waited=3).finished(settings)


def test_where_nobody_validates_and_the_last_epoch_is_taken_there_are_no_scores() -> None:
    network = small_network(epochs=2)
    trainer = Trainer(network.for_task(network.task.with_all_labels()), network.settings, stop_after=2)
    trainer.run()
    assert all(math.isnan(report.validation_macro_f1) for report in trainer.state.history)
    assert [report.best for report in trainer.state.history] == [False, True]


@pytest.mark.parametrize("weight_average", [0.0, 0.9])
def test_what_numbers_are_standardised_by_is_not_trained(weight_average: float) -> None:
    trainer = small_trainer(**READS, epochs=1, weight_average=weight_average)
    before = {name: value.clone() for name, value in trainer.model.standardise.state_dict().items()}
    trainer.run()
    assert same_weights(trainer.model.standardise.state_dict(), before)
    assert same_weights(trainer.ema_model.standardise.state_dict(), before)
