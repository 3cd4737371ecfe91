"""Probabilities and embeddings of any nodes, the same to the bit whatever else is in the batch.

Matrix products may round differently when their shapes differ, and a spike turns a rounding into a one. So the
network always sees lanes of one fixed size, the last one padded, and each node's trees depend on the seed alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from chronospike.nn.model import ChronoSpike, Record
from chronospike.training.learner import Progress
from chronospike.training.task import Nodes

if TYPE_CHECKING:
    from chronospike.methods.chronospike.network import ChronoSpikeNetwork

LANE = 256
# A GPU is not filled by fewer.
GPU_LANE = 2048


@torch.no_grad()
def infer(
    network: ChronoSpikeNetwork, model: ChronoSpike, nodes: Nodes, on_nodes: Progress | None = None
) -> tuple[Tensor, Tensor]:
    """Class probabilities `[K, classes]` and embeddings `[K, C]` of `nodes [K]`, on the CPU.

    Both are means over `settings.samples` sampled neighbourhoods. `on_nodes(done, total)` is told of progress.
    """
    settings, device = network.settings, network.task.device
    was_training = model.training
    model.eval()
    width = model.architecture.hidden[-1]
    lane_size = LANE if device.type == "cpu" else GPU_LANE
    probabilities = torch.zeros(len(nodes), model.architecture.classes, device=device)
    embeddings = torch.zeros(len(nodes), width, device=device)
    for start in range(0, len(nodes), lane_size):
        lane = nodes[start : start + lane_size]
        padded = np.pad(lane, (0, lane_size - len(lane)), mode="edge")
        for sample in range(settings.samples):
            with network.precision():
                logits, z = model(network.rows(padded, sample), network.plan)
            rows = slice(start, start + len(lane))
            probabilities[rows] += logits[: len(lane)].float().softmax(dim=-1) / settings.samples
            embeddings[rows] += z[: len(lane)].float() / settings.samples
        if on_nodes is not None:
            on_nodes(start + len(lane), len(nodes))
    model.train(was_training)
    return probabilities.cpu(), embeddings.cpu()


@torch.no_grad()
def firing_rates(network: ChronoSpikeNetwork, model: nn.Module, nodes: Nodes) -> list[list[float]]:
    """Share of neurons that fire, per layer and step, over up to 256 of `nodes`; nothing for ReLU."""
    if network.settings.neuron == "relu" or len(nodes) == 0:
        return []
    some = nodes[np.linspace(0, len(nodes) - 1, min(LANE, len(nodes))).astype(int)]
    record = Record()
    model.eval()
    with network.precision():
        model(network.rows(some, 0), network.plan, record)
    return [spikes.mean(dim=(1, 2)).tolist() for spikes in record.spikes]
