"""Probabilities and embeddings of any nodes, the same to the bit whatever else is in the batch.

Matrix products may round differently when their shapes differ, and a spike turns a rounding into a one. So the
network always sees lanes of one fixed size, the last one padded, and each node's trees depend on the seed alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from chronospike.nn.model import ChronoSpike
from chronospike.training.problem import Problem

LANE = 256
# Trees drawn for inference are numbered from here, far above any epoch of training.
_FIRST_SAMPLE = 2**40

Progress = Callable[[int, int], None]


@torch.no_grad()
def infer(
    model: ChronoSpike, problem: Problem, nodes: NDArray[np.integer[Any]], on_nodes: Progress | None = None
) -> tuple[Tensor, Tensor]:
    """Class probabilities `[K, classes]` and embeddings `[K, C]` of `nodes [K]`, on the CPU.

    Both are means over `settings.samples` sampled neighbourhoods. `on_nodes(done, total)` is told of progress.
    """
    settings = problem.settings
    was_training = model.training
    model.eval()
    width = model.architecture.hidden[-1]
    probabilities = torch.zeros(len(nodes), model.architecture.classes)
    embeddings = torch.zeros(len(nodes), width)
    for start in range(0, len(nodes), LANE):
        lane = nodes[start : start + LANE]
        padded = np.pad(lane, (0, LANE - len(lane)), mode="edge")
        for sample in range(settings.samples):
            with autocast(problem):
                logits, z = model(problem.hops(padded, _FIRST_SAMPLE + sample))
            rows = slice(start, start + len(lane))
            probabilities[rows] += logits[: len(lane)].float().softmax(dim=-1).cpu() / settings.samples
            embeddings[rows] += z[: len(lane)].float().cpu() / settings.samples
        if on_nodes is not None:
            on_nodes(start + len(lane), len(nodes))
    model.train(was_training)
    return probabilities, embeddings


def autocast(problem: Problem) -> torch.autocast:
    """Half precision on a GPU where the settings ask for it; the neurons compute in single precision regardless."""
    half = problem.settings.precision == "half" and problem.device.type == "cuda"
    return torch.autocast(problem.device.type, dtype=torch.bfloat16, enabled=half)
