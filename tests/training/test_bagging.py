from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from numpy.typing import NDArray

from chronospike.data.label_features import stratified_folds
from chronospike.data.synthetic import synthetic_graph
from chronospike.errors import StorageError
from chronospike.methods.chronospike.learner import ChronoSpikeLearner
from chronospike.methods.chronospike.network import ChronoSpikeNetwork
from chronospike.methods.labels import Labels, LabelsSettings
from chronospike.rng import stream
from chronospike.training import bagging
from chronospike.training.bagging import (
    BagFitted,
    Folds,
    fold_task,
    loaded_bag,
    make_folds,
    out_of_fold_table,
    prediction_interval,
    read_out_of_fold,
)
from chronospike.training.calibration import fit_temperature, with_temperature
from chronospike.training.final_stage import log_probabilities, softmax, stage_rows
from chronospike.training.gradient import GradientFitted
from chronospike.training.learner import FitContext
from chronospike.training.loop import TrainingFailure
from chronospike.training.run_folder import RunFolder
from chronospike.training.second_stage import BASES, cross_validate
from chronospike.training.task import Task, make_task
from tests.small_runs import (
    BAG,
    CPU,
    READS,
    noisy_graph,
    same_weights,
    small_network,
    small_settings,
    small_stages,
    with_other_future,
)


def bag(context: FitContext | None = None, graph: Any = None, **values: Any) -> BagFitted:
    network = small_network(graph or noisy_graph(), **{**BAG, **values})
    fitted = ChronoSpikeLearner(network.settings).fit(network.task, context)
    assert isinstance(fitted, BagFitted)
    return fitted


@pytest.fixture(scope="module")
def fitted() -> BagFitted:
    return bag()


@pytest.fixture(scope="module")
def task() -> Task:
    return small_network(noisy_graph()).task


def relabelled(task: Task, labels: NDArray[np.int64], names: tuple[str, ...] = ("a", "b", "c")) -> Task:
    """The task with these labels of its known nodes."""
    everyone = np.zeros(task.graph.num_nodes, dtype=np.int64)
    everyone[task.known] = labels
    return replace(task, graph=task.graph.with_labels(everyone, names))


def folds_of(task: Task, wanted: int) -> tuple[Folds, str]:
    """Of a task with enough labelled nodes."""
    folds, note = make_folds(task, wanted)
    assert folds is not None
    return folds, note


def test_every_known_node_is_in_one_fold_and_no_test_node_in_any(task: Task) -> None:
    folds, note = folds_of(task, 5)
    members = [folds.members(fold) for fold in range(5)]
    assert (folds.count, note) == (5, "")
    assert sorted(np.concatenate(members).tolist()) == task.known.tolist()
    assert not np.isin(np.concatenate(members), task.split.test).any()


def test_folds_hold_every_class_in_proportion(task: Task) -> None:
    folds, _ = folds_of(task, 4)
    shares = [np.bincount(task.labels(folds.members(fold)), minlength=2) for fold in range(4)]
    assert np.ptp(shares, axis=0).max() <= 1


@pytest.mark.parametrize("nodes", [2, 3])
def test_every_network_learns_a_class_of_fewer_nodes_than_folds(task: Task, nodes: int) -> None:
    labels = np.arange(len(task.known)) % 2
    labels[:nodes] = 2
    of = relabelled(task, labels)
    folds, note = folds_of(of, 5)
    assert (folds.count, note) == (5, "")
    for fold in range(5):
        assert np.count_nonzero(of.labels(fold_task(of, folds, fold, small_settings()).known) == 2) >= nodes - 1


@pytest.mark.parametrize(
    ("nodes", "told"), [(1, "class 'c' has one"), (2, "2 classes, such as 'c', have one")], ids=["one", "two"]
)
def test_classes_of_one_node_are_named(task: Task, nodes: int, told: str) -> None:
    labels = np.arange(len(task.known)) % 2
    labels[:nodes] = [2, 3][:nodes]
    folds, note = folds_of(relabelled(task, labels, ("a", "b", "c", "d")), 5)
    assert folds.count == 5
    assert note == f"{told} labelled node, which cannot be both learned and predicted out of fold"


def test_there_are_no_more_folds_than_nodes(task: Task) -> None:
    few = task.divided(task.known[:9], task.known[:0])
    assert folds_of(relabelled(few, np.arange(9) % 2), 20)[0].count == 9


@pytest.mark.parametrize("labels", [[0, 1, 1], [0, 1, 0, 1, 0, 1, 0], [1] * 20])
def test_too_few_labels_for_folds_make_none_and_are_counted(task: Task, labels: list[int]) -> None:
    few = task.divided(task.known[: len(labels)], task.known[:0])
    folds, note = make_folds(relabelled(few, np.array(labels)), 5)
    assert folds is None
    assert note == f"training one network: {len(labels)} labelled nodes are too few for 5 folds"


def test_eight_labelled_nodes_of_two_classes_are_enough(task: Task) -> None:
    few = task.divided(task.known[:8], task.known[:0])
    assert folds_of(relabelled(few, np.arange(8) % 2), 3)[0].count == 3


def test_where_labelled_nodes_are_too_few_one_network_is_trained_and_loaded(task: Task, tmp_path: Path) -> None:
    notes: list[str] = []
    few = task.divided(task.known[:7], task.known[:0])
    learner, run = ChronoSpikeLearner(small_settings(**BAG, selection="last")), RunFolder(tmp_path)
    fitted = learner.fit(few, FitContext(on_note=notes.append))
    assert isinstance(fitted, GradientFitted)
    assert "training one network: 7 labelled nodes are too few for 3 folds" in notes
    fitted.save(run)
    again = learner.load(few, run)
    assert isinstance(again, GradientFitted)
    assert np.array_equal(again.probabilities(np.arange(120)), fitted.probabilities(np.arange(120)))


@pytest.mark.parametrize("selection", ["macro_f1", "last"])
def test_a_network_learns_from_all_known_nodes_but_its_fold(task: Task, selection: str) -> None:
    folds, _ = folds_of(task, 3)
    for fold in range(3):
        part = fold_task(task, folds, fold, small_settings(selection=selection)).split
        both = np.concatenate([part.train, part.validation])
        assert sorted(both.tolist()) == np.setdiff1d(task.known, folds.members(fold)).tolist()
        # 6 of the 96 known nodes validate, and so do as many of each 64; nobody where no epoch is chosen.
        assert len(part.validation) == (4 if selection == "macro_f1" else 0)
        assert part.test.tolist() == task.split.test.tolist()


def test_where_nobody_validates_nobody_does_in_a_fold(task: Task) -> None:
    alone = task.with_all_labels()
    part = fold_task(alone, folds_of(alone, 3)[0], 0, small_settings()).split
    assert (len(part.train), len(part.validation)) == (64, 0)


def test_networks_have_seeds_of_their_own_and_read_the_same_labels_where_these_are_many(
    task: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bagging, "STRICT_NODES", 96)
    folds, _ = folds_of(task, 3)
    parts = [fold_task(task, folds, fold, small_settings()) for fold in range(3)]
    assert len({part.seed for part in parts} | {task.seed}) == 4
    assert all(part.tables is task.tables for part in parts)


def test_where_labels_are_few_a_network_does_not_read_those_of_its_fold(task: Task) -> None:
    folds, _ = folds_of(task, 3)
    for fold in range(3):
        part = fold_task(task, folds, fold, small_settings())
        assert part.tables.known.tolist() == np.setdiff1d(task.known, folds.members(fold)).tolist()


@pytest.mark.parametrize("selection", ["macro_f1", "last"])
def test_no_network_meets_a_label_of_its_fold(selection: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is trained on or validated on while a network is trained, none of it is in its fold."""
    learned: dict[int, set[int]] = {}
    labels = Task.labels

    def of_nodes(self: Task, nodes: Any) -> Any:
        learned.setdefault(self.seed, set()).update(nodes.tolist())
        return labels(self, nodes)

    monkeypatch.setattr(Task, "labels", of_nodes)
    found = bag(selection=selection, second_stage="none", calibrate=False, epochs=1)
    for fold in range(3):
        met = learned[stream(found.given.seed, "bag", fold) >> 1]
        assert met == set(found.given.known.tolist()) - set(found.folds.members(fold).tolist())


def test_out_of_fold_is_what_a_nodes_own_network_says_of_it() -> None:
    found = bag(second_stage="none", calibrate=False, epochs=1)
    for fold, network in enumerate(found.networks):
        members = found.folds.members(fold)
        own = network.infer(network.module, members)[0].numpy()
        assert np.array_equal(found.out_of_fold[found.folds.number == fold], softmax(log_probabilities(own)))
        other = found.networks[fold - 1]
        assert not np.array_equal(own, other.infer(other.module, members)[0].numpy())


def test_a_network_that_diverged_in_its_last_step_is_a_failure(fitted: BagFitted) -> None:
    networks = [network.for_task(network.task) for network in fitted.networks]
    networks[1].module = networks[1].new_module()
    with torch.no_grad():
        list(networks[1].module.parameters())[-1].fill_(torch.nan)
    with pytest.raises(TrainingFailure, match="network 2 are not finite"):
        bagging.finish(fitted.given, networks, fitted.folds, small_settings(**BAG), fitted.cost)


def test_a_bag_is_the_normalised_product_of_its_networks() -> None:
    found = bag(second_stage="none", calibrate=False, epochs=1)
    nodes = np.arange(20)
    each = np.stack([network.infer(network.module, nodes)[0].numpy() for network in found.networks])
    product = np.prod(each.astype(np.float64), axis=0) ** (1 / 3)
    np.testing.assert_allclose(found.probabilities(nodes), product / product.sum(axis=1, keepdims=True), rtol=1e-5)
    assert not np.array_equal(each[0], each[1])


def test_probabilities_do_not_depend_on_what_else_is_asked_for(fitted: BagFitted) -> None:
    everyone = fitted.probabilities(np.arange(120))
    other = BagFitted(fitted.given, fitted.networks, fitted.folds, fitted.final, fitted.out_of_fold, fitted.cost)
    assert np.array_equal(other.probabilities(np.array([7, 50, 7])), everyone[[7, 50, 7]])


def test_the_second_stage_is_cross_validated_on_out_of_fold_probabilities(fitted: BagFitted) -> None:
    labels = fitted.given.labels(fitted.folds.nodes)
    logs = np.empty((len(labels), 2))
    for fold, network in enumerate(fitted.networks):
        here = fitted.folds.number == fold
        logs[here] = log_probabilities(network.infer(network.module, fitted.folds.nodes[here])[0].numpy())

    def rows_without(left_out: NDArray[np.bool_]) -> dict[str, NDArray[np.float32]]:
        rest = fitted.folds.nodes[~left_out]
        around = fitted.given.divided(rest, rest[:0], forget=True).tables
        assert around.known.tolist() == sorted(rest.tolist())
        rows = stage_rows(logs, fitted.given, fitted.folds.nodes, around.features)
        rows[left_out] = stage_rows(logs, fitted.given, fitted.folds.nodes)[left_out]
        return {"it": rows}

    folds = stratified_folds(labels, 5, stream(fitted.given.seed, "stage folds"))
    found = cross_validate(rows_without, {"it": "logistic"}, labels, 2, folds, fitted.given.seed)
    assert found is not None
    values = found["it"]
    assert fitted.final.temperature == fit_temperature(values, labels, doubt=1 / (96 + 2))
    assert np.array_equal(fitted.out_of_fold, with_temperature(values, fitted.final.temperature))
    assert fitted.final.held_out["network"]["micro_f1"] == pytest.approx((logs.argmax(axis=1) == labels).mean())


MEMBERS = ["network", "stack: logistic"]
MEMBERS += ["labels alone: logistic", "labels alone: trees", "labels alone: boosting", "features alone: logistic"]


def test_the_ensemble_is_weighted_by_what_is_said_out_of_fold_and_predicts(monkeypatch: pytest.MonkeyPatch) -> None:
    small_stages(monkeypatch)
    asked: dict[str, Any] = {}
    weights = {"network": 0.52, "stack: logistic": 0.2, "labels alone: boosting": 0.28}
    monkeypatch.setattr(bagging, "ensemble_weights", lambda members, labels: asked.update(members) or weights)
    monkeypatch.setattr(bagging, "are_better", lambda *compared: True)
    found = bag(second_stage="auto", epochs=1, calibrate=False)
    assert list(asked) == MEMBERS
    expected = sum(weight * asked[name] for name, weight in weights.items())
    np.testing.assert_allclose(found.out_of_fold, expected, atol=1e-15)
    nodes = found.split.test
    logs = found.bagged(nodes)
    rows, stages = stage_rows(logs, found.task, nodes), found.final.stages
    stack = stages["stack: logistic"].probabilities(rows)
    alone = stages["labels alone: boosting"].probabilities(rows[:, 2:])
    said = 0.52 * softmax(logs) + 0.2 * stack + 0.28 * alone
    np.testing.assert_allclose(found.probabilities(nodes), said, atol=1e-12)
    parts = {part["name"]: part for part in found.details()["parts"]}
    assert list(parts) == ["network", "bag", *MEMBERS[1:], "labels alone", "ensemble"]
    mean = sum(asked[name] for name in MEMBERS[2:5]) / 3
    assert parts["labels alone"]["held_out"] == bagging.f1(mean, found.task.labels(found.folds.nodes))
    assert [name for name, part in parts.items() if part["chosen"]] == ["ensemble"]
    assert parts["ensemble"]["test"] == bagging.f1(said, found.task.labels(nodes))
    shares = {"stack: logistic": ", weight 20 %", "labels alone: boosting": ", weight 28 %"}
    assert [parts[name]["title"] for name in MEMBERS[1:]] == [name + shares.get(name, "") for name in MEMBERS[1:]]
    assert parts["bag"]["title"].endswith("weight 52 %")


def test_networks_that_add_nothing_leave_the_prediction_to_the_method_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[Any] = []

    def never(*given: Any) -> bool:
        compared.append(given)
        return False

    monkeypatch.setattr(bagging, "are_better", never)
    graph = noisy_graph()
    # Made features, since the method `labels` does not read a node's own attributes.
    made = np.asarray(graph.features)
    found = bag(
        graph=graph.with_features(None).with_made_features(made), second_stage="auto", epochs=1, calibrate=False
    )
    assert found.final.weights == dict.fromkeys(MEMBERS[2:5], 1 / 3)
    values, others, labels = compared[0]
    np.testing.assert_allclose(found.out_of_fold, others, atol=1e-15)
    assert labels.tolist() == found.task.labels(found.folds.nodes).tolist()
    assert not np.array_equal(values, others)
    simple = Labels(LabelsSettings()).fit(found.given)
    everyone = np.arange(120)
    np.testing.assert_allclose(found.probabilities(everyone), simple.probabilities(everyone), atol=1e-12)
    assert [part["name"] for part in found.details()["parts"] if part["chosen"]] == ["labels alone"]


def test_what_does_not_read_the_networks_is_cross_validated_without_them(monkeypatch: pytest.MonkeyPatch) -> None:
    small_stages(monkeypatch)
    widths: dict[str, int] = {}

    def watched(rows_without: Any, kinds: Any, labels: Any, *rest: Any, **more: Any) -> Any:
        widths.update({name: rows.shape[1] for name, rows in rows_without(labels == labels).items()})
        return cross_validate(rows_without, kinds, labels, *rest, **more)

    monkeypatch.setattr(bagging, "cross_validate", watched)
    found = bag(second_stage="auto", epochs=1)
    width = found.final.stages["stack: logistic"].width
    expected = {MEMBERS[1]: width, **dict.fromkeys(MEMBERS[2:5], width - 2), MEMBERS[5]: 8}
    assert widths == expected
    assert {name: stage.width for name, stage in found.final.stages.items()} == expected


def test_who_foretells_a_label_has_not_met_it_and_reads_all_others(
    fitted: BagFitted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nodes that are learned from read no label that is left out, and a node that is left out all but its own."""
    kept: list[Any] = []

    def watched(rows_without: Any, *rest: Any, **more: Any) -> Any:
        kept.append(rows_without)
        return cross_validate(rows_without, *rest, **more)

    monkeypatch.setattr(bagging, "cross_validate", watched)
    graph, folds = fitted.given.graph, fitted.folds
    logs, left_out = np.zeros((len(folds.nodes), 2)), np.arange(len(folds.nodes)) % 4 == 0

    def rows(changed: Any) -> Any:
        labels = np.array(graph.labels)
        labels[changed] = 1 - labels[changed]
        task = replace(fitted.given, graph=graph.with_labels(labels, graph.class_names))
        bagging._second_stage(task, logs, folds, "logistic", {}, None, None)
        return kept[-1](left_out)["stack: logistic"]

    before, after = rows([]), rows(folds.nodes[left_out])
    assert np.array_equal(before[~left_out], after[~left_out])
    assert not np.array_equal(before[left_out], after[left_out])
    for place in np.flatnonzero(left_out)[:5]:
        assert np.array_equal(before[place], rows(folds.nodes[place])[place])


def test_the_mean_has_equal_weights_and_leaves_the_networks_out(monkeypatch: pytest.MonkeyPatch) -> None:
    small_stages(monkeypatch)
    found = bag(second_stage="mean", epochs=1)
    assert found.final.weights == {f"stack: {kind}": 1 / 3 for kind in BASES}
    assert found.cost.complete


@pytest.mark.parametrize("folds", [0, 4])
def test_when_it_gets_late_before_the_last_fold_the_networks_predict(
    folds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_stages(monkeypatch)
    whole = bag(second_stage="none", epochs=1, calibrate=False)
    tasks = [fold_task(whole.given, whole.folds, fold, small_settings()) for fold in range(3)]
    asked = iter(range(100))
    found = bagging.finish(
        whole.given,
        [one.for_task(task) for one, task in zip(whole.networks, tasks, strict=True)],
        whole.folds,
        small_settings(folds=3, second_stage="auto"),
        whole.cost,
        is_late=lambda: next(asked) >= folds,
    )
    assert (found.final.stages, found.final.weights) == ({}, {"network": 1.0})
    assert whole.cost.complete
    assert not found.cost.complete
    assert np.array_equal(found.probabilities(np.arange(9)), whole.probabilities(np.arange(9)))


def test_an_interval_by_hand_where_all_folds_agree() -> None:
    """Five folds of 0.8 each over 100 nodes, 25 to come: t(4) = 2.776 times 0.0904."""
    low, high = prediction_interval([0.8] * 5, 100, 25)
    # 81 of 102: √(0.7941 · 0.2059 · (1 / 100 + 1 / 25)).
    assert low == pytest.approx(0.8 - 2.77645 * 0.0904130, abs=1e-5)
    assert high == 1.0
    low, high = prediction_interval([0.5] * 5, 1000, 1000)
    assert (low, high) == pytest.approx((0.5 - 2.77645 * np.sqrt(0.25 / 500), 0.5 + 2.77645 * np.sqrt(0.25 / 500)))


def test_where_all_are_right_the_interval_is_not_a_point() -> None:
    low, high = prediction_interval([1.0] * 5, 100, 25)
    assert low == pytest.approx(1 - 2.77645 * np.sqrt(101 / 102**2 * 0.05))
    assert high == 1.0


def test_folds_that_differ_more_than_chance_decide_the_interval() -> None:
    """Two folds of 0.4 and 0.6 over 1,000 nodes: their variance of 0.02 is that of a node divided by 500, 10."""
    low, high = prediction_interval([0.4, 0.6], 1000, 1000)
    assert (low, high) == (0.0, 1.0)
    low, high = prediction_interval([0.49, 0.5, 0.51, 0.5, 0.5], 100_000, 100_000)
    # The variance of the folds is 5e-5, of a node 1: t(4) sqrt(1 · 2e-5).
    assert high - low == pytest.approx(2 * 2.77645 * np.sqrt(2e-5), rel=1e-5)


def test_fewer_nodes_to_come_make_the_interval_wider() -> None:
    widths = [np.ptp(prediction_interval([0.48, 0.5, 0.52], 3000, test)) for test in (10_000, 1000, 300, 100)]
    assert widths == sorted(widths)
    assert len(set(widths)) == 4


@pytest.mark.parametrize("test", [0, 10, 1000])
def test_one_fold_says_nothing_of_an_interval(test: int) -> None:
    assert prediction_interval([0.9], 100, test) == (0.0, 1.0)


def test_a_graph_without_test_nodes_has_an_interval_too() -> None:
    low, high = prediction_interval([0.9, 0.8], 100, 0)
    assert 0 <= low < high <= 1


def test_parts_name_one_that_is_chosen_and_its_scores_are_those_of_the_predictions(fitted: BagFitted) -> None:
    parts = fitted.details()["parts"]
    test = fitted.split.test
    right = fitted.probabilities(test).argmax(axis=1) == fitted.task.labels(test)
    assert [part["name"] for part in parts] == ["network", "bag", "stack: logistic"]
    assert [part["test"]["micro_f1"] for part in parts if part["chosen"]] == [pytest.approx(right.mean())]


def test_the_estimate_is_the_score_of_what_is_said_out_of_fold(fitted: BagFitted) -> None:
    labels, number = fitted.given.labels(fitted.folds.nodes), fitted.folds.number
    right = fitted.out_of_fold.argmax(axis=1) == labels
    found = fitted.details()["estimate"]
    assert (found["on"], found["nodes"], found["folds"]) == ("out-of-fold", 96, 3)
    assert found["micro_f1"] == pytest.approx(right.mean())
    each = [float(right[number == fold].mean()) for fold in range(3)]
    interval = prediction_interval(each, 96, len(fitted.split.test))
    assert (found["micro_f1_low"], found["micro_f1_high"]) == pytest.approx(interval)
    assert found["micro_f1_std"] == pytest.approx(np.std([right[number == fold].mean() for fold in range(3)], ddof=1))


def test_labels_drawn_at_random_are_not_foretold_out_of_fold() -> None:
    """300 labelled nodes: five standard deviations of a share of a half are 14 points."""
    graph = synthetic_graph(nodes=375, steps=4, classes=2, degree=3.0, feature_dim=4, timing=0.0, structure=0.0)
    graph = graph.with_labels(np.random.default_rng(1).integers(0, 2, 375), graph.class_names)
    found = bag(graph=graph, epochs=3, batch_size=64, learning_rate=0.02)
    labels = found.given.labels(found.given.known)
    most = max(np.bincount(labels)) / len(labels)
    estimate = found.details()["estimate"]
    assert estimate["nodes"] == 300
    assert estimate["micro_f1"] < most + 5 * np.sqrt(0.25 / 300)


def test_the_same_seed_gives_the_same_bits_and_another_does_not(fitted: BagFitted) -> None:
    again, other = bag(), bag(seed=1)
    for one, two in zip(fitted.networks, again.networks, strict=True):
        assert same_weights(one.module.state_dict(), two.module.state_dict())
    assert np.array_equal(again.out_of_fold, fitted.out_of_fold)
    assert np.array_equal(again.probabilities(np.arange(120)), fitted.probabilities(np.arange(120)))
    assert not np.array_equal(other.probabilities(np.arange(120)), fitted.probabilities(np.arange(120)))


def test_a_fit_leaves_the_callers_generator_alone() -> None:
    before = torch.random.get_rng_state()
    bag(epochs=1)
    assert torch.equal(torch.random.get_rng_state(), before)


@pytest.mark.parametrize("selection", ["macro_f1", "last"])
def test_when_time_is_up_there_is_one_trained_network_and_an_estimate_of_its_fold(selection: str) -> None:
    notes: list[str] = []
    context = FitContext(deadline=time.monotonic() - 1, on_note=notes.append)
    late = bag(context, selection=selection, epochs=4, second_stage="auto", validation=0.25)
    assert len(late.networks) == 1
    assert "stopped early: 1 of 3 networks are trained" in notes
    assert late.final.stages == {}
    assert late.final.weights == {"network": 1.0}
    np.testing.assert_allclose(late.probabilities(np.arange(120)).sum(axis=1), 1)
    estimate = late.details()["estimate"]
    assert (estimate["nodes"], estimate["micro_f1_low"], estimate["micro_f1_high"]) == (32, 0, 1)
    # Of the validation nodes, only those that the one network has not learned from validate it.
    assert late.split.validation.tolist() == np.intersect1d(late.given.split.validation, late.folds.nodes).tolist()
    assert 0 < len(late.split.validation) < len(late.given.split.validation)
    initial = late.networks[0].new_module().state_dict()
    first = fold_task(late.given, folds_of(late.given, 3)[0], 0, small_settings(selection=selection, validation=0.25))
    untrained = late.networks[0].for_task(first).new_module().state_dict()
    assert not same_weights(late.networks[0].module.state_dict(), initial)
    assert not same_weights(late.networks[0].module.state_dict(), untrained)


def test_embeddings_of_all_networks_stand_side_by_side(fitted: BagFitted) -> None:
    found = fitted.embeddings(np.arange(5))
    last = fitted.networks[2].infer(fitted.networks[2].module, np.arange(5))[1].numpy()
    assert found.shape == (5, 24)
    assert np.array_equal(found[:, 16:], last)


def test_held_out_is_out_of_fold_for_known_nodes_and_the_bag_for_others(fitted: BagFitted) -> None:
    nodes = np.arange(120)
    found, test = fitted.held_out().probabilities(nodes), fitted.split.test
    assert np.array_equal(found[fitted.folds.nodes], fitted.out_of_fold)
    assert np.array_equal(found[test], fitted.probabilities(test))


def test_as_of_a_step_nothing_later_matters(fitted: BagFitted) -> None:
    given, nodes = fitted.given, np.arange(120)
    assert given.features is not None
    settings, later = small_settings(**BAG), with_other_future(given.graph, 2)
    moved = make_task(later, settings, CPU, given.split, given.features.encoder)
    modules, table = [network.module for network in fitted.networks], out_of_fold_table(fitted)
    twin = loaded_bag(moved, ChronoSpikeNetwork(moved, settings), modules, fitted.final, table, Path("table"))
    assert np.array_equal(fitted.until(2).probabilities(nodes), twin.until(2).probabilities(nodes))
    assert np.array_equal(fitted.until(2).embeddings(nodes), twin.until(2).embeddings(nodes))
    assert not np.array_equal(fitted.probabilities(nodes), twin.probabilities(nodes))


def test_as_of_a_step_all_networks_share_one_table_of_roots(fitted: BagFitted) -> None:
    networks: list[Any] = list(fitted.until(2).networks)
    assert networks[0].root_table.tables.last_step == 2
    assert all(network.root_table is networks[0].root_table for network in networks)


def test_progress_counts_the_nodes_of_all_networks(fitted: BagFitted) -> None:
    told: list[tuple[int, int]] = []
    fitted.embeddings(np.arange(90), lambda done, total: told.append((done, total)))
    assert told == [(30, 90), (60, 90), (90, 90)]


def _damaged(table: Any, what: str) -> Any:
    columns = {name: table[name] for name in table.column_names}
    if what == "a fold too many":
        columns["fold"] = pa.array(np.where(np.arange(len(table)) == 0, 3, table["fold"].to_numpy()))
    elif what == "a fold too few":
        columns["fold"] = pa.array(np.zeros(len(table), dtype=np.int64))
    elif what == "text for folds":
        columns["fold"] = pa.array(["x"] * len(table))
    elif what == "missing folds":
        columns["fold"] = pa.array([None] * len(table), pa.int64())
    elif what == "no such number":
        columns["probability 0"] = pa.array(np.full(len(table), np.nan))
    elif what == "no class":
        del columns["probability 1"]
    elif what == "no nodes":
        del columns["node"]
    elif what == "nodes of another kind":
        columns["node"] = pa.array([[1]] * len(table))
    else:
        return table.slice(0, 0)
    return pa.table(columns)


@pytest.mark.parametrize(
    "what",
    [
        "a fold too many",
        "a fold too few",
        "text for folds",
        "missing folds",
        "no such number",
        "no class",
        "no nodes",
        "nodes of another kind",
        "no rows",
    ],
)
def test_a_damaged_table_of_folds_gives_one_line(fitted: BagFitted, what: str, tmp_path: Path) -> None:
    table, path = _damaged(out_of_fold_table(fitted), what), tmp_path / "out_of_fold.parquet"
    modules = [network.module for network in fitted.networks]
    with pytest.raises(StorageError, match=r"out_of_fold.parquet is damaged \(.*\). Train the run again") as caught:
        loaded_bag(fitted.given, fitted.networks[0], modules, fitted.final, table, path)
    assert "\n" not in str(caught.value)


def test_a_changed_bit_of_the_table_of_folds_is_noticed(fitted: BagFitted, tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    fitted.save(run)
    content = bytearray(run.out_of_fold.read_bytes())
    content[content.index(fitted.out_of_fold[0, :1].tobytes())] ^= 1
    run.out_of_fold.write_bytes(content)
    with pytest.raises(StorageError, match=r"out_of_fold.parquet is damaged"):
        read_out_of_fold(run.out_of_fold)


def test_a_final_stage_of_other_networks_is_refused(fitted: BagFitted, tmp_path: Path) -> None:
    run, learner = RunFolder(tmp_path), ChronoSpikeLearner(small_settings(**BAG))
    fitted.save(run)
    learner.load(fitted.given, run)
    fitted.final.save(run.final_stage, "those of other weights")
    with pytest.raises(StorageError, match="belongs to other weights"):
        learner.load(fitted.given, run)


def test_a_graph_without_any_of_the_labelled_nodes_has_no_estimate(fitted: BagFitted) -> None:
    nobody = fitted.given.known[:0]
    task = fitted.given.divided(nobody, nobody)
    other = BagFitted(task, fitted.networks, Folds(nobody, nobody), fitted.final, np.zeros((0, 2)), fitted.cost)
    assert other.details()["estimate"] is None


def test_networks_without_labels_of_roots_are_bagged_too() -> None:
    plain: dict[str, Any] = dict.fromkeys(("label_sequences", "label_features", "activity"), False)
    found = bag(**plain, epochs=1)
    assert READS.keys() >= plain.keys()
    assert list(found.final.stages) == ["stack: logistic"]
    np.testing.assert_allclose(found.probabilities(np.arange(120)).sum(axis=1), 1)
