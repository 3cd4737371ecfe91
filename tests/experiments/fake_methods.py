"""Methods that tell of their fits or misbehave, for cells that run in processes of their own."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from chronospike.config import Settings
from chronospike.errors import InputError
from chronospike.methods.deepwalk import DeepWalkLearner, SkipGramEmbedder
from chronospike.methods.embedding import EmbeddingFitted, OnBatch
from chronospike.methods.majority import Majority
from chronospike.methods.simple import Answer, SimpleFitted, SimpleLearner
from chronospike.training.learner import FitContext
from chronospike.training.task import Nodes, Task

FAKES = {
    name: f"tests.experiments.fake_methods:{name.capitalize()}"
    for name in ("counted", "slow", "failing", "broken", "killed", "walking", "endless")
}


def _tell(line: str) -> None:
    with Path(os.environ["FIT_COUNTER"]).open("a") as file:
        file.write(f"{line}\n")


class Counted(Majority):
    """The majority, with a line in a file for each fit."""

    def fit(self, task: Task, context: FitContext | None = None) -> SimpleFitted:
        _tell(str(task.seed))
        return super().fit(task, context)


class _Fake(SimpleLearner[Settings]):
    name = title = summary = "fake"
    needs_features = False


class Walking(DeepWalkLearner):
    """DeepWalk, with a line in a file for each time that embeddings are learned, and when it begins and ends a fit."""

    def fit(self, task: Task, context: FitContext | None = None) -> EmbeddingFitted:
        _tell(f"begin {task.seed}")
        found = super().fit(task, context)
        _tell(f"end {task.seed}")
        return found

    def embedder(self, task: Task) -> SkipGramEmbedder:
        found = super().embedder(task)
        learn = found.train_epoch

        def train_epoch(epoch: int, on_batch: OnBatch) -> float:
            _tell(f"learn {task.seed}")
            return learn(epoch, on_batch)

        found.train_epoch = train_epoch  # type: ignore[method-assign]
        return found


class Endless(DeepWalkLearner):
    def embedder(self, task: Task) -> SkipGramEmbedder:
        time.sleep(600)
        raise AssertionError


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
