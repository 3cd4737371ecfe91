"""Steps of training: what the captured step shares with the plain one is tested everywhere, the rest on a GPU."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from chronospike.methods.chronospike import tree_inputs
from chronospike.methods.chronospike.captured_step import CapturedStep
from chronospike.methods.chronospike.learner import ChronoSpikeLearner
from chronospike.nn.dropout import keep_mask, new_key, scale
from chronospike.training.loop import Trainer, TrainingFailure
from chronospike.training.step import PlainStep
from tests.small_runs import BAG, READS, same_weights, small_network, small_trainer

GPU = torch.device("cuda")


def gpu_trainer(**settings: Any) -> Any:
    return small_trainer(device=GPU, **settings)


def losses(trainer: Trainer, epochs: int = 3) -> list[float]:
    return [report.loss for _, report in zip(range(epochs), trainer.epochs(), strict=False)]


@contextmanager
def callers_precision(precision: str) -> Iterator[None]:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


@pytest.mark.parametrize("kernels", ["auto", "plain"])
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_the_callers_precision_of_products_changes_nothing(device: str, kernels: str) -> None:
    found = []
    for precision in ("highest", "high", "medium"):
        with callers_precision(precision):
            trainer = small_trainer(device=torch.device(device), kernels=kernels)
            loss = losses(trainer, 1)
            found.append((loss, *trainer.network.infer(trainer.model, np.arange(20))))
            assert torch.get_float32_matmul_precision() == precision
    for loss, probabilities, z in found[1:]:
        assert loss == found[0][0]
        assert torch.equal(probabilities, found[0][1])
        assert torch.equal(z, found[0][2])


def test_a_batch_prepared_ahead_is_the_batch_itself() -> None:
    one, other = small_trainer(), small_trainer()
    roots = one.network.task.split.train[:20]
    one.model.train()
    other.model.train()
    prepared = one.step.prepare(roots, 0)
    assert torch.equal(one.batch(roots, 0, 0, prepared), other.batch(roots, 0, 0))


def test_the_cpu_takes_plain_steps() -> None:
    assert isinstance(small_trainer().step, PlainStep)


@pytest.mark.gpu
def test_a_captured_step_learns_what_a_plain_one_learns() -> None:
    # The last of the three batches is shorter than the others.
    quiet = {"dropout": 0.0, "temporal_dropout": 0.0, "contrastive": 0.0, "precision": "single", "epochs": 10}
    captured, plain = gpu_trainer(**quiet), gpu_trainer(**quiet, kernels="plain")
    assert isinstance(captured.step, CapturedStep)
    assert isinstance(plain.step, PlainStep)
    np.testing.assert_allclose(losses(captured), losses(plain), rtol=1e-3)


@pytest.mark.gpu
def test_a_captured_step_drops_and_contrasts_as_a_plain_one_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels hash a key to their masks, the one number they draw; the plain step is given the same masks here.

    A mask depends on the size of the batch, so all are of one size. The readout's kernel draws four keys at once, and
    is held to its masks by a test of its own: none of its dropout here.
    """

    def hashed(x: Tensor, p: float = 0.5, training: bool = True) -> Tensor:
        if not training or p == 0:
            return x
        return x * keep_mask(new_key(x.device), x.shape, p) * scale(p)

    noisy = {
        "dropout": 0.5, "temporal_dropout": 0.0, "contrastive": 0.5, "view_dropout": 0.2, "precision": "single",
        "epochs": 10, "batch_size": 45, "min_batches": 1,
    }  # fmt: skip
    captured, plain = gpu_trainer(**noisy), gpu_trainer(**noisy, kernels="plain")
    assert isinstance(captured.step, CapturedStep)
    assert isinstance(plain.step, PlainStep)
    assert len(captured.network.task.split.train) == 2 * captured.batch_nodes
    found = losses(captured)
    monkeypatch.setattr(torch.nn.functional, "dropout", hashed)
    np.testing.assert_allclose(found, losses(plain), rtol=1e-3)
    # Masks decide: without them the losses are others.
    assert not np.allclose(found, losses(gpu_trainer(**{**noisy, "dropout": 0.0}, kernels="plain")), rtol=1e-3)


@pytest.mark.gpu
def test_two_captured_runs_are_identical_and_two_seeds_differ() -> None:
    assert losses(gpu_trainer(epochs=5)) == losses(gpu_trainer(epochs=5)) != losses(gpu_trainer(epochs=5, seed=1))


@pytest.mark.gpu
def test_a_captured_step_that_is_not_finite_changes_no_weight_and_names_its_batch() -> None:
    trainer = gpu_trainer(epochs=5)
    losses(trainer, 2)
    with torch.no_grad():
        trainer.model.classifier.bias.fill_(math.nan)
    before = [value.clone() for value in trainer.model.parameters()]
    with pytest.raises(TrainingFailure, match="not finite at epoch 2, batch 0"):
        losses(trainer, 1)
    for one, other in zip(before, trainer.model.parameters(), strict=True):
        assert torch.equal(one.nan_to_num(), other.nan_to_num())


@pytest.mark.gpu
def test_features_in_host_memory_train_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    resident = gpu_trainer(epochs=5)
    expected = losses(resident)
    monkeypatch.setattr(tree_inputs, "_GPU_SHARE", 1e-9)
    away = gpu_trainer(epochs=5)
    assert away.network.inputs.host is not None
    assert isinstance(away.step, CapturedStep)
    np.testing.assert_allclose(losses(away), expected, rtol=1e-3)


@pytest.mark.gpu
def test_label_inputs_are_captured_too() -> None:
    trainer = gpu_trainer(label_inputs=True, epochs=4)
    assert isinstance(trainer.step, CapturedStep)
    assert losses(trainer)[-1] < losses(gpu_trainer(label_inputs=True, epochs=4), 1)[0]


QUIET: dict[str, Any] = {
    "dropout": 0.0, "temporal_dropout": 0.0, "head_dropout": 0.0, "contrastive": 0.0, "precision": "single",
    "epochs": 10,
}  # fmt: skip


@pytest.mark.gpu
@pytest.mark.parametrize("weight_average", [0.0, 0.9])
def test_a_captured_step_reads_labels_of_roots_as_a_plain_one_does(weight_average: float) -> None:
    values = {**QUIET, **READS, "weight_average": weight_average}
    captured, plain = gpu_trainer(**values), gpu_trainer(**values, kernels="plain")
    assert isinstance(captured.step, CapturedStep)
    assert isinstance(plain.step, PlainStep)
    np.testing.assert_allclose(losses(captured), losses(plain), rtol=1e-3)
    nodes = np.arange(120)
    one, other = (trainer.network.infer(trainer.ema_model, nodes)[0] for trainer in (captured, plain))
    # A membrane within rounding of its threshold may fall on either side, rarely.
    assert ((one - other).abs().amax(dim=1) < 0.02).float().mean() > 0.95


@pytest.mark.gpu
@pytest.mark.parametrize("away", [False, True])
def test_labels_of_roots_are_captured_wherever_the_features_are(away: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = losses(gpu_trainer(**{**QUIET, **READS}, kernels="plain"))
    if away:
        monkeypatch.setattr(tree_inputs, "_GPU_SHARE", 1e-9)
    trainer = gpu_trainer(**{**QUIET, **READS})
    assert (trainer.network.inputs.host is not None) is away
    assert isinstance(trainer.step, CapturedStep)
    np.testing.assert_allclose(losses(trainer), expected, rtol=1e-3)


@pytest.mark.gpu
def test_two_captured_runs_with_labels_of_roots_are_identical() -> None:
    values = {**READS, "epochs": 5, "weight_average": 0.9}
    one, other = gpu_trainer(**values), gpu_trainer(**values)
    assert losses(one) == losses(other)
    assert same_weights(one.ema_model.state_dict(), other.ema_model.state_dict())


@pytest.mark.gpu
def test_half_precision_reads_labels_of_roots_nearly_as_single_does() -> None:
    values = {**QUIET, **READS}
    single, half = gpu_trainer(**values), gpu_trainer(**{**values, "precision": "half"})
    np.testing.assert_allclose(losses(half), losses(single), rtol=0.05)


@pytest.mark.gpu
@pytest.mark.parametrize("selection", ["macro_f1", "last"])
def test_a_bag_of_captured_networks_is_that_of_plain_ones(selection: str) -> None:
    found = []
    for kernels in ("auto", "plain"):
        network = small_network(
            device=GPU, **{**QUIET, **BAG}, selection=selection, patience=10, weight_average=0.9, kernels=kernels
        )
        fitted = ChronoSpikeLearner(network.settings).fit(network.task)
        found.append(fitted.probabilities(np.arange(120)))
    assert (np.abs(found[0] - found[1]).max(axis=1) < 0.05).mean() > 0.9
