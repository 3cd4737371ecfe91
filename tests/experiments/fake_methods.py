"""Methods that tell of their fits or misbehave, for cells that run in processes of their own."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from chronospike.config import Settings
from chronospike.errors import InputError
from chronospike.methods.majority import Majority
from chronospike.methods.simple import Answer, SimpleFitted, SimpleLearner
from chronospike.training.learner import FitContext
from chronospike.training.task import Nodes, Task

FAKES = {
    name: f"tests.experiments.fake_methods:{name.capitalize()}"
    for name in ("counted", "slow", "failing", "broken", "killed")
}


class Counted(Majority):
    """The majority, with a line in a file for each fit."""

    def fit(self, task: Task, context: FitContext | None = None) -> SimpleFitted:
        with Path(os.environ["FIT_COUNTER"]).open("a") as file:
            file.write(f"{task.seed}\n")
        return super().fit(task, context)


class _Fake(SimpleLearner[Settings]):
    name = title = summary = "fake"
    needs_features = False


class Slow(_Fake):
    def answer(self, task: Task, known: Nodes) -> Answer:
        time.sleep(600)
        raise AssertionError


class Failing(_Fake):
    def answer(self, task: Task, known: Nodes) -> Answer:
        raise InputError("this graph is too round")


class Broken(_Fake):
    def answer(self, task: Task, known: Nodes) -> Answer:
        raise ValueError("a number\nis odd")


class Killed(_Fake):
    def answer(self, task: Task, known: Nodes) -> Answer:
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError
