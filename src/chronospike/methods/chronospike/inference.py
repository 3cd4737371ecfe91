"""Probabilities and embeddings of any nodes, bit-identical in any batch.

Matrix products may round differently when their shapes differ, and a spike turns a rounding into a one. So the
network always sees lanes of one fixed size, the last one padded, and each node's trees depend on the seed alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from chronospike.nn.model import ChronoSpike, Record
from chronospike.training.lanes import evaluating, in_lanes
from chronospike.training.learner import Progress
from chronospike.training.task import Nodes

if TYPE_CHECKING:
    from chronospike.methods.chronospike.network import ChronoSpikeNetwork

LANE = 256
# A GPU is not filled by fewer.
GPU_LANE = 2048


def infer(
    network: ChronoSpikeNetwork, model: ChronoSpike, nodes: Nodes, on_nodes: Progress | None = None
) -> tuple[Tensor, Tensor]:
    """Class probabilities `[K, classes]` and embeddings `[K, C]` of `nodes [K]`, on the CPU.

    Both are means over `settings.samples` sampled neighbourhoods. `on_nodes(done, total)` is called with the progress.
    """
    samples, device = network.settings.samples, network.task.device

    def answer(some: Nodes) -> tuple[Tensor, Tensor]:
        probabilities = embeddings = torch.zeros((), device=device)
        for sample in range(samples):
            with network.precision():
                logits, z = model(network.rows(some, sample), network.plan)
            probabilities = probabilities + logits.float().softmax(dim=-1) / samples
            embeddings = embeddings + z.float() / samples
        return probabilities, embeddings

    widths = (model.architecture.classes, model.architecture.hidden[-1])
    with evaluating(model):
        return in_lanes(answer, nodes, LANE if device.type == "cpu" else GPU_LANE, widths, on_nodes)


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
