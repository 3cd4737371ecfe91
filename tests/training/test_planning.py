from __future__ import annotations

import time
from typing import Any

import pytest
import torch

from chronospike.methods.chronospike.learner import ChronoSpikeLearner
from chronospike.methods.chronospike.settings import QUALITIES
from chronospike.training import planning
from chronospike.training.planning import Rates, plan, plans, seconds, time_batches, time_tables
from chronospike.training.task import Task
from tests.small_runs import SMALL, small_network, small_settings

BEST: dict[str, Any] = {
    "epochs": 20, "folds": 10, "second_stage": "auto", "refit": True, "selection": "last", "samples": 1,
}  # fmt: skip


@pytest.fixture(scope="module")
def task() -> Task:
    """90 training and 6 validation nodes of 120."""
    return small_network().task


def steps(**values: Any) -> list[tuple[int, str, bool, int]]:
    return [(s.folds, s.second_stage, s.refit, s.epochs) for s in plans(small_settings(**{**BEST, **values}))]


def test_plans_leave_out_ever_more() -> None:
    assert steps() == [
        (10, "auto", True, 20),
        (5, "auto", True, 20),
        (3, "auto", True, 20),
        (2, "auto", True, 20),
        (2, "auto", True, 10),
        (2, "logistic", True, 10),
        (0, "none", False, 10),
        (0, "none", False, 5),
        (0, "none", False, 2),
        (0, "none", False, 1),
    ]


def test_what_is_not_asked_for_is_not_left_out_twice() -> None:
    assert steps(folds=0, second_stage="none", refit=False, epochs=2) == [(0, "none", False, 2), (0, "none", False, 1)]
    assert steps(folds=3, second_stage="logistic", epochs=1) == [
        (3, "logistic", True, 1),
        (2, "logistic", True, 1),
        (0, "none", False, 1),
    ]
    assert steps(folds=0, second_stage="none", epochs=1) == [(0, "none", True, 1), (0, "none", False, 1)]
    assert steps(folds=0, second_stage="none", refit=False, epochs=1) == [(0, "none", False, 1)]


def test_more_samples_are_left_out_before_networks() -> None:
    found = [s.model_dump(include={"folds", "samples"}) for s in plans(small_settings(**{**BEST, "samples": 5}))]
    assert [tuple(one.values()) for one in found[:4]] == [(10, 5), (5, 5), (5, 1), (3, 1)]


def test_label_features_are_timed_where_they_are_read() -> None:
    task = small_network().task
    assert time_tables(small_settings(second_stage="none"), task) == 0
    assert "features" not in task.tables.__dict__
    assert time_tables(small_settings(second_stage="none", label_features=True), task) > 0
    assert "features" in task.tables.__dict__


def test_the_tables_are_made_again_for_each_fold_of_a_second_stage(task: Task) -> None:
    quick, slow = Rates(batch=1.0, node=0.01), Rates(batch=1.0, node=0.01, tables=10.0)
    with_, without = (small_settings(**{**BEST, "second_stage": stage}) for stage in ("auto", "none"))
    assert seconds(with_, task, slow) - seconds(with_, task, quick) == pytest.approx(50)
    assert seconds(without, task, slow) - seconds(without, task, quick) == pytest.approx(3)


def test_nodes_that_will_not_be_predicted_take_no_time(task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    settings, rates = small_settings(**{**BEST, "folds": 0, "second_stage": "none"}), Rates(batch=1.0, node=0.01)
    everyone = seconds(settings, task, rates)
    monkeypatch.setattr("chronospike.training.scoring._PREDICT_ALL", {"cpu": 0})
    monkeypatch.setattr("chronospike.training.scoring._PREDICT_EPOCHS", 1)
    scored = len(task.split.validation) + len(task.split.test)
    assert everyone - seconds(settings, task, rates) == pytest.approx((120 - scored) * 0.01)


def test_the_seconds_of_one_network_by_hand(task: Task) -> None:
    """90 nodes in batches of 32 are 3 batches: 20 epochs take 60 s; then 6 nodes an epoch, and 120 + 96 in the end."""
    settings = small_settings(**{**BEST, "folds": 0, "second_stage": "none", "refit": False, "selection": "macro_f1"})
    found = seconds(settings, task, Rates(batch=1.0, node=0.01))
    assert found == pytest.approx(60 + 20 * 6 * 0.01 + (120 + 96) * 0.01 + 5)
    # The second fit is on 96 nodes, 3 batches as well.
    again = seconds(settings.change(refit=True), task, Rates(batch=1.0, node=0.01))
    assert again == pytest.approx(found + 60)


def test_the_seconds_of_folds_by_hand(task: Task) -> None:
    """Three networks on 64 nodes each, which are 2 batches; all predict 120 nodes, and one each of 96 out of fold."""
    settings = small_settings(**{**BEST, "folds": 3, "second_stage": "none"})
    found = seconds(settings, task, Rates(batch=1.0, node=0.01))
    assert found == pytest.approx(3 * 20 * 2 + (3 * 120 + 96) * 0.01 + 5)


def test_the_seconds_of_a_second_stage_by_hand(task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    """96 nodes, 26 + 85 + 2 columns and 8 attributes twice, 2 classes, 5 folds whatever those of the networks."""
    monkeypatch.setattr(planning, "_STAGE", {"auto": 1.0, "none": 0.0})
    monkeypatch.setattr(planning, "default_threads", lambda: 4)
    without, with_ = (small_settings(**{**BEST, "folds": 3, "second_stage": stage}) for stage in ("none", "auto"))
    rates = Rates(batch=1.0, node=0.01)
    found = seconds(with_, task, rates) - seconds(without, task, rates)
    assert found == pytest.approx(96 * (26 + 85 + 2 + 2 * 8) * 2 * 5 / 4)


@pytest.mark.parametrize("number", range(10))
def test_the_first_plan_that_fits_is_taken(number: int, task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    rates = Rates(batch=1.0, node=0.01)
    monkeypatch.setattr(planning, "time_batches", lambda *_: rates)
    monkeypatch.setattr(planning, "_STAGE", {"auto": 1e-3, "logistic": 1e-4, "none": 0.0})
    learner = ChronoSpikeLearner(small_settings(**BEST))
    each = list(plans(learner.settings))
    needed = [seconds(one, task, rates) for one in each]
    assert needed == sorted(needed, reverse=True)
    found, took = plan(learner, task, needed[number] / planning._SHARE + 0.1)
    assert (found, took) == (each[number], needed[number])


@pytest.mark.parametrize("limit", [1.0, 0.0, -20.0])
def test_where_none_fits_the_quickest_is_taken(limit: float, task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "time_batches", lambda *_: Rates(batch=1.0, node=0.01))
    learner = ChronoSpikeLearner(small_settings(**BEST))
    found, took = plan(learner, task, limit)
    assert (found.folds, found.second_stage, found.refit, found.epochs) == (0, "none", False, 1)
    assert took > limit


def test_what_timing_takes_counts(task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    def timed(seconds: float) -> Any:
        def answer(*_: Any) -> Rates:
            time.sleep(seconds)
            return Rates(0.0, 0.0)

        return answer

    learner = ChronoSpikeLearner(small_settings(epochs=4))
    # 0.7 s are within 80 % of the second, and not of what half a second leaves of it.
    monkeypatch.setattr(planning, "_REST", 0.7)
    monkeypatch.setattr(planning, "time_batches", timed(0.0))
    assert plan(learner, task, 1.0)[0].epochs == 4
    monkeypatch.setattr(planning, "time_batches", timed(0.5))
    assert plan(learner, task, 1.0)[0].epochs == 1


def test_timing_leaves_the_generator_alone_and_changes_no_fit(task: Task) -> None:
    before = torch.random.get_rng_state()
    rates = time_batches(ChronoSpikeLearner(small_settings()), task)
    assert rates.batch > 0
    assert rates.node > 0
    assert torch.equal(torch.random.get_rng_state(), before)


def test_every_quality_is_made_of_settings_that_go_together() -> None:
    for values in QUALITIES.values():
        small_settings(**{**SMALL, **values})
