"""Probabilities and embeddings of any nodes, the same to the bit whatever else is in the batch.

Matrix products may round differently when their shapes differ, and a spike turns a rounding into a one. So the
network always sees lanes of one fixed size, the last one padded, and each node's trees depend on the seed alone.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from chronospike.nn.dispatch import half_products
from chronospike.nn.model import ChronoSpike
from chronospike.training.problem import Problem

LANE = 256
# A GPU is not filled by fewer.
GPU_LANE = 2048
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
    lane_size = LANE if problem.device.type == "cpu" else GPU_LANE
    probabilities = torch.zeros(len(nodes), model.architecture.classes, device=problem.device)
    embeddings = torch.zeros(len(nodes), width, device=problem.device)
    for start in range(0, len(nodes), lane_size):
        lane = nodes[start : start + lane_size]
        padded = np.pad(lane, (0, lane_size - len(lane)), mode="edge")
        for sample in range(settings.samples):
            with product_precision(problem):
                logits, z = model(problem.rows(padded, _FIRST_SAMPLE + sample))
            rows = slice(start, start + len(lane))
            probabilities[rows] += logits[: len(lane)].float().softmax(dim=-1) / settings.samples
            embeddings[rows] += z[: len(lane)].float() / settings.samples
        if on_nodes is not None:
            on_nodes(start + len(lane), len(nodes))
    model.train(was_training)
    return probabilities.cpu(), embeddings.cpu()


def product_precision(problem: Problem) -> AbstractContextManager[None]:
    """On a GPU with `precision: half`, products of half-precision operands; sums and neurons are single regardless."""
    return half_products(problem.half) if problem.device.type == "cuda" else nullcontext()
