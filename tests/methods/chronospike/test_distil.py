from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from chronospike.config import read_preset
from chronospike.errors import InputError, StorageError
from chronospike.methods.chronospike.distil import (
    SoftTargets,
    Student,
    check_student,
    read_targets,
    soft_targets,
    student_settings,
)
from chronospike.methods.chronospike.network import new_model
from chronospike.methods.chronospike.root_table import root_widths
from chronospike.methods.registry import make_learner
from chronospike.training.loop import Trainer
from chronospike.training.step import PlainStep
from chronospike.training.task import Task, make_task
from tests.small_runs import CPU, SMALL, same_weights, small_graph, small_network, small_settings

DEFAULT = make_learner("chronospike", {}).settings


@dataclass
class Teacher:
    """Knows every class, and says another thing of nodes that it has not learned from."""

    task: Task
    sure: float = 0.9

    @property
    def split(self) -> Any:
        return self.task.split

    def held_out(self) -> Teacher:
        return Teacher(self.task, 0.6)

    def probabilities(self, nodes: NDArray[np.int64], on_nodes: object = None) -> NDArray[np.float64]:
        truth = np.asarray(small_graph().labels)[nodes]
        return np.where(np.arange(2) == truth[:, None], self.sure, 1 - self.sure)


def task(**settings: Any) -> Task:
    return make_task(small_graph(), small_settings(**settings), CPU)


def targets_of(given: Task, share: float = 0.5) -> SoftTargets:
    return soft_targets(Teacher(given), share)  # type: ignore[arg-type]


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_training_nodes_mix_in_their_label_and_known_nodes_are_held_out(share: float) -> None:
    given = task()
    graph, split = given.graph, given.split
    targets = targets_of(given, share)
    assert targets.nodes.tolist() == np.flatnonzero(~graph.isolated).tolist()
    found = targets.table(graph.num_nodes, CPU)[np.arange(graph.num_nodes), np.asarray(graph.labels)].numpy()
    np.testing.assert_allclose(found[split.test], 0.9)
    np.testing.assert_allclose(found[split.validation], 0.6)
    np.testing.assert_allclose(found[split.train], 0.6 * (1 - share) + share, rtol=1e-6)
    np.testing.assert_allclose(targets.probabilities.sum(axis=1), 1, rtol=1e-6)


def test_a_student_learns_a_teacher_that_knows_and_keeps_the_split() -> None:
    given, settings = task(), small_settings(epochs=8)
    fitted = Student(settings, targets_of(given)).fit(given)
    assert fitted.split is given.split
    assert fitted.task is given
    test = given.split.test
    assert (fitted.probabilities(test).argmax(axis=1) == given.labels(test)).mean() > 0.95


def test_all_nodes_with_an_edge_are_learned_and_the_loss_says_why_it_is_plain() -> None:
    given, settings = task(), small_settings()
    seen = []

    class Watching(Student):
        def network(self, task: Task, training: bool = True) -> Any:
            seen.append(task.split.train)
            return super().network(task, training)

    network: Any = Watching(settings, targets_of(given)).fit(given).network
    assert len(seen[0]) == (~given.graph.isolated).sum() > len(given.known)
    assert network.plan.losses.why == "targets are probabilities"


def test_labels_of_test_nodes_change_no_bit() -> None:
    given, settings = task(), small_settings(calibrate=True)
    labels = np.array(given.graph.labels)
    labels[given.split.test] = 1 - labels[given.split.test]
    other = replace(given, graph=given.graph.with_labels(labels, given.graph.class_names))
    teacher = make_learner("chronospike", {**SMALL, "folds": 2, "label_features": True})
    students = []
    for one in (given, other):
        targets = soft_targets(teacher.fit(one), 0.5)
        students.append(Student(settings, targets).fit(one).network.module.state_dict())
    assert same_weights(*students)


def test_one_hot_targets_teach_what_labels_teach() -> None:
    graph = small_graph()
    one_hot = torch.eye(2)[torch.from_numpy(np.asarray(graph.labels).astype(np.int64))]
    hard, soft = small_network(graph), small_network(graph)
    soft.soft = one_hot
    reports = [next(Trainer(network, network.settings).epochs()) for network in (hard, soft)]
    assert reports[0].loss == pytest.approx(reports[1].loss, rel=1e-5)


@pytest.mark.gpu
def test_a_captured_step_learns_probabilities_as_a_plain_one_does() -> None:
    from chronospike.methods.chronospike.captured_step import CapturedStep

    quiet = {"dropout": 0.0, "temporal_dropout": 0.0, "contrastive": 0.0, "precision": "single", "epochs": 10}
    found = []
    for kernels, kind in (("auto", CapturedStep), ("plain", PlainStep)):
        settings = small_settings(**quiet, kernels=kernels)
        given = make_task(small_graph(), settings, torch.device("cuda"))
        student = Student(settings, targets_of(given))
        network = student.network(given.divided(student.targets.nodes, given.split.validation))
        trainer = Trainer(network, settings)
        assert isinstance(trainer.step, kind)
        found.append([report.loss for _, report in zip(range(3), trainer.epochs(), strict=False)])
    np.testing.assert_allclose(found[0], found[1], rtol=1e-3)


@pytest.mark.parametrize("classes", [2, 10])
@pytest.mark.parametrize("preset", ["default", "dblp", "pubmed"])
def test_the_network_has_the_papers_size_whatever_the_teacher_reads(classes: int, preset: str) -> None:
    values = {"label_features": True, "label_sequences": True, "activity": True, "folds": 5, "hidden": (64, 32)}
    settings = student_settings(DEFAULT.change(**values), read_preset(preset), {})
    assert new_model(settings, 128, classes).parameter_count() == 105_088 + 65 * classes
    assert root_widths(settings, classes) == (0, 0)
    assert not settings.folds


def test_data_and_split_are_the_teachers_and_what_is_given_comes_last() -> None:
    teacher = DEFAULT.change(fanouts=(7, 3), p=0.4, ratio=0.6, features="own", seed=5)
    settings = student_settings(teacher, {"weight_decay": 0.01}, {"epochs": 3})
    assert (settings.fanouts, settings.p, settings.ratio, settings.features) == ((10, 5), 0.4, 0.6, "own")
    assert (settings.weight_decay, settings.epochs, settings.seed, settings.calibrate) == (0.01, 3, 0, True)
    other = student_settings(make_learner("majority", {}).settings, {}, {})
    assert (other.fanouts, other.p) == ((10, 5), 0.2)


@pytest.mark.parametrize(("name", "value"), [("label_inputs", True), ("folds", 5), ("refit", True), ("ratio", 0.5)])
def test_what_would_need_labels_or_another_split_is_refused(name: str, value: object) -> None:
    with pytest.raises(InputError, match=name):
        student_settings(DEFAULT, {}, {name: value})


def test_without_validation_nodes_the_last_epoch_is_taken_or_nothing() -> None:
    given = task()
    split = replace(given.split, validation=given.split.validation[:0])
    with pytest.raises(InputError, match="selection=last"):
        check_student(small_settings(), given.graph, split)
    check_student(small_settings(selection="last"), given.graph, split)
    last = replace(given, split=split)
    fitted = Student(small_settings(selection="last"), targets_of(last)).fit(last)
    assert np.isfinite(fitted.probabilities(split.test)).all()


def test_targets_are_read_as_they_were_written_and_damage_is_noticed(tmp_path: Path) -> None:
    given = task()
    targets, path = targets_of(given), tmp_path / "targets.parquet"
    targets.save(path, given.graph)
    found = read_targets(path, given.graph)
    assert np.array_equal(found.nodes, targets.nodes)
    assert np.array_equal(found.probabilities, targets.probabilities)
    content = bytearray(path.read_bytes())
    content[len(content) // 3] ^= 255
    path.write_bytes(content)
    with pytest.raises(StorageError, match="is damaged"):
        read_targets(path, given.graph)
    path.unlink()
    with pytest.raises(StorageError, match="is missing"):
        read_targets(path, given.graph)
