"""The embeddings of a run as input features of another, stored as a feature set."""

from __future__ import annotations

from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from chronospike.data.feature_store import RUN, StepMaker, write_features
from chronospike.data.splits import Split
from chronospike.data.storage import graph_key, open_graph
from chronospike.errors import InputError
from chronospike.locks import Tell
from chronospike.training.learner import Learner
from chronospike.training.run_folder import RunFolder
from chronospike.training.runs import load_run


class _Steps(StepMaker):
    """What is there already: `[S, N, d]`, S = 1 for one that all steps share."""

    def __init__(self, values: NDArray[np.float32]) -> None:
        self.values = values

    def make_step(self, step: int) -> NDArray[np.float32]:
        return np.asarray(self.values[min(step, len(self.values) - 1)])


def store_embeddings(
    folder: Path, learner: Learner[Any], run: RunFolder, device: torch.device, tell: Tell | None = None
) -> str:
    """The embeddings of a finished run as a feature set of a graph folder; its name, which tells method and contents.

    A method with an embedding for each step gives each step its own.
    """
    facts = run.facts("folder", "features")
    key = graph_key(folder)
    if facts.get("edges") not in (None, key):
        raise InputError(f"{run.path} was trained on other edges ({facts['folder']}) than those of {folder}")
    fitted = load_run(learner, open_graph(folder, features=facts["features"]), run, device)
    values = fitted.step_embeddings()
    if values is None:
        values = fitted.embeddings(np.arange(fitted.task.graph.num_nodes))[None]
    name = f"{learner.name}-{blake2b(np.ascontiguousarray(values).data, digest_size=4).hexdigest()}"
    graph = fitted.task.graph
    shape = (graph.num_steps, graph.num_nodes, values.shape[2])
    write_features(folder, name, {"method": RUN, "of": learner.name}, key, shape, np.float32, _Steps(values), tell=tell)
    return name


def check_labels_of(run: RunFolder, learner: Learner[Any], folder: Path, split: Split) -> None:
    """Refuse embeddings that have been learned from labels of nodes that are test nodes now."""
    if not learner.learns_from_labels:
        return
    known = run.known_labels(open_graph(folder, features="none", verify=False))[1]
    seen = np.intersect1d(np.union1d(known.train, known.validation), split.test)
    if len(seen):
        raise InputError(
            f"{run.path} has learned from the labels of {len(seen):,} of this run's test nodes, so that scores would "
            "be too good. Use the same ratio and split_seed, or embeddings of a method that reads no labels"
        )
