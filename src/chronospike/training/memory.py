"""Runs that cannot fit are refused before they take memory, and those that run out of it end with one line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from chronospike.config import Settings
from chronospike.data.graph import DynamicGraph
from chronospike.errors import ChronoSpikeError, InputError
from chronospike.memory import require_bytes, shortage
from chronospike.nn.model import ChronoSpike
from chronospike.sampling.tree import widths
from chronospike.training.inference import GPU_LANE, LANE
from chronospike.training.inputs import RESIDENT_BYTES, input_width
from chronospike.training.problem import architecture, batch_size

# Weights, two moments of AdamW and the best weights so far.
COPIES_OF_WEIGHTS = 4
_ELSEWHERE = "set precision=half, or run with --device cpu"


def require_memory(graph: DynamicGraph, settings: Settings, to_make: int, train: int, device: torch.device) -> None:
    """Refuse a run on `train` nodes that needs more memory than there is, whatever happens; nothing is allocated.

    `to_make` feature sets, for every step, are made before training.
    """
    on_gpu = device.type == "cuda"
    width = input_width(graph) + to_make * settings.feature_dimension
    needed = least_bytes(graph, settings, width, train, GPU_LANE if on_gpu else LANE)
    if on_gpu:
        there = torch.cuda.get_device_properties(device).total_memory
        if needed > there:
            raise InputError(shortage(needed, there, "this run", "the GPU", f"{_lower(settings)}, {_ELSEWHERE}"))
    block = 4 * graph.num_nodes * width
    if to_make:
        # The table that is learned, and on the CPU a second one beside it.
        way_out = f"Lower feature_dimension (now {settings.feature_dimension})"
        made = 4 * graph.num_nodes * settings.feature_dimension
        require_bytes(made if on_gpu else 2 * made, "making the features", way_out)
    if not on_gpu:
        static = graph.features is not None and graph.features.ndim == 2 and not graph.made_features and not to_make
        table = block if static else graph.num_steps * block
        require_bytes(needed + (table if table <= RESIDENT_BYTES else 0), "this run", _lower(settings))


def least_bytes(graph: DynamicGraph, settings: Settings, features: int, train: int, lane: int) -> int:
    """What a run takes at the very least: its weights, and of one batch (or lane, at inference) the sampled nodes and
    the first layer's currents and spikes."""
    s = settings
    with torch.device("meta"):
        model = ChronoSpike(architecture(s, features, graph.num_classes))
    steps = 1 if s.static else graph.num_steps
    roots = max(min(batch_size(s, train), train), lane)
    positions, targets = roots * sum(widths(s.fanouts)), roots * sum(widths(s.fanouts)[:-1])
    weights = COPIES_OF_WEIGHTS * sum(parameter.numel() for parameter in model.parameters())
    return 4 * (weights + steps * (positions + 2 * targets * s.hidden[0]))


@contextmanager
def memory_errors(settings: Settings) -> Iterator[None]:
    """Turn 'out of memory', of the GPU or of the machine, into one line with what to lower."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise ChronoSpikeError(f"the GPU is out of memory. {_lower(settings)}, {_ELSEWHERE}") from error
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and "can't allocate memory" not in str(error):
            raise
        raise ChronoSpikeError(f"this machine is out of memory. {_lower(settings)}") from error


def _lower(settings: Settings) -> str:
    s = settings
    return f"Lower batch_size (now {s.batch_size}) or fanouts (now {list(s.fanouts)}) or hidden (now {list(s.hidden)})"
