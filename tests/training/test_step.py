"""Steps of training: what the captured step shares with the plain one is tested everywhere, the rest on a GPU."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from chronospike.training import inputs
from chronospike.training.loop import Trainer, TrainingFailure
from chronospike.training.problem import make_problem, new_model
from chronospike.training.step import CapturedStep, PlainStep
from tests.small_runs import small_graph, small_settings, small_trainer

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
GPU = torch.device("cuda")


def gpu_trainer(**settings: Any) -> Trainer:
    graph, s = small_graph(), small_settings(**settings)
    problem = make_problem(graph, s, GPU)
    return Trainer(new_model(s, problem.inputs.width, graph.num_classes), problem)


def losses(trainer: Trainer, epochs: int = 3) -> list[float]:
    return [report.loss for _, report in zip(range(epochs), trainer.epochs(), strict=False)]


def test_a_batch_prepared_ahead_is_the_batch_itself() -> None:
    one, other = small_trainer(), small_trainer()
    roots = one.problem.split.train[:20]
    one.model.train()
    other.model.train()
    prepared = one.step.prepare(roots, 0)
    assert torch.equal(one.batch(roots, 0, 0, prepared), other.batch(roots, 0, 0))


def test_the_cpu_takes_plain_steps() -> None:
    trainer = small_trainer()
    assert isinstance(trainer.step, PlainStep)
    assert not CapturedStep.fits(trainer.problem)


@needs_gpu
def test_a_captured_step_learns_what_a_plain_one_learns() -> None:
    # The last of the three batches is shorter than the others.
    quiet = {"dropout": 0.0, "temporal_dropout": 0.0, "contrastive": 0.0, "precision": "single", "epochs": 10}
    captured, plain = gpu_trainer(**quiet), gpu_trainer(**quiet, kernels="plain")
    assert isinstance(captured.step, CapturedStep)
    assert isinstance(plain.step, PlainStep)
    np.testing.assert_allclose(losses(captured), losses(plain), rtol=1e-3)


@needs_gpu
def test_two_captured_runs_are_identical_and_two_seeds_differ() -> None:
    assert losses(gpu_trainer(epochs=5)) == losses(gpu_trainer(epochs=5)) != losses(gpu_trainer(epochs=5, seed=1))


@needs_gpu
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


@needs_gpu
def test_features_in_host_memory_train_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    resident = gpu_trainer(epochs=5)
    expected = losses(resident)
    monkeypatch.setattr(inputs, "_GPU_SHARE", 1e-9)
    away = gpu_trainer(epochs=5)
    assert away.problem.inputs.host is not None
    assert isinstance(away.step, CapturedStep)
    np.testing.assert_allclose(losses(away), expected, rtol=1e-3)


@needs_gpu
def test_label_inputs_are_captured_too() -> None:
    trainer = gpu_trainer(label_inputs=True, epochs=4)
    assert isinstance(trainer.step, CapturedStep)
    assert losses(trainer)[-1] < losses(gpu_trainer(label_inputs=True, epochs=4), 1)[0]
