"""Refusing runs of ChronoSpike that do not fit into memory."""

from __future__ import annotations

import torch

from chronospike.data.graph import DynamicGraph
from chronospike.methods.chronospike.inference import GPU_LANE, LANE
from chronospike.methods.chronospike.network import architecture
from chronospike.methods.chronospike.root_table import root_widths
from chronospike.methods.chronospike.settings import ChronoSpikeSettings
from chronospike.methods.chronospike.tree_inputs import RESIDENT_BYTES
from chronospike.nn.meta_device import meta_device
from chronospike.nn.model import ChronoSpike
from chronospike.sampling.tree import widths
from chronospike.training.memory import COPIES_OF_WEIGHTS, require_device_bytes
from chronospike.training.node_features import input_width, is_static


def require_memory(
    graph: DynamicGraph, settings: ChronoSpikeSettings, to_make: int, train: int, device: torch.device
) -> None:
    """Refuse a run on `train` nodes that needs more memory than there is, whatever happens; nothing is allocated.

    `to_make` feature sets, for every step, are made before training.
    """
    on_gpu = device.type == "cuda"
    width = input_width(graph) + to_make * settings.feature_dimension
    needed = least_bytes(graph, settings, width, train, GPU_LANE if on_gpu else LANE) + known_bytes(graph, settings)
    if on_gpu:
        require_device_bytes(needed, "this run", device, f"{lower_what(settings)}, set precision=half")
        return
    static = is_static(graph) and not to_make
    table = 4 * graph.num_nodes * width * (1 if static else graph.num_steps)
    needed += table if table <= RESIDENT_BYTES else 0
    require_device_bytes(needed, "this run", device, lower_what(settings))


def least_bytes(graph: DynamicGraph, settings: ChronoSpikeSettings, features: int, train: int, lane: int) -> int:
    """What a run takes at the very least: its weights, and of one batch (or lane, at inference) the sampled nodes and
    the first layer's currents and spikes."""
    s = settings
    with meta_device():
        model = ChronoSpike(architecture(s, features, graph.num_classes, graph.directed))
    steps = 1 if s.static else graph.num_steps
    roots = max(min(s.batch_nodes(train), train), lane)
    positions, targets = roots * sum(widths(s.fanouts)), roots * sum(widths(s.fanouts)[:-1])
    weights = COPIES_OF_WEIGHTS * sum(parameter.numel() for parameter in model.parameters())
    return 4 * (weights + steps * (positions + 2 * targets * s.hidden[0]))


def known_bytes(graph: DynamicGraph, settings: ChronoSpikeSettings) -> int:
    """What is kept of all nodes beside their features: labels met at each step, label features, activity."""
    met, numbers = root_widths(settings, graph.num_classes, graph.directed)
    return graph.num_nodes * (2 * graph.num_steps * met + 4 * numbers)


def lower_what(settings: ChronoSpikeSettings) -> str:
    """What to change when memory runs out."""
    s = settings
    return f"Lower batch_size (now {s.batch_size}) or fanouts (now {list(s.fanouts)}) or hidden (now {list(s.hidden)})"
