"""A network rebuilt from its weights file alone, without the graph it was trained on."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from chronospike.errors import StorageError
from chronospike.nn.meta_device import meta_device
from chronospike.nn.model import Architecture, ChronoSpike
from chronospike.training.weights import check_fit, description


def rebuild(tensors: Mapping[str, Tensor], metadata: Mapping[str, str], path: Path) -> ChronoSpike:
    """The network that `load_weights` read from `path`, on the CPU; what does not fit its description is named."""
    try:
        fields = description(metadata)
        architecture = Architecture(**{**fields, "hidden": tuple(fields["hidden"])})
        # Without storage first: a description may ask for any amount of memory, the tensors have a known size.
        with meta_device():
            expected = ChronoSpike(architecture).state_dict()
    except (AttributeError, KeyError, RuntimeError, TypeError, ValueError, ZeroDivisionError) as error:
        why = " ".join(str(error).split())[:200]
        raise StorageError(f"{path} describes a network that cannot be built ({why})") from error
    check_fit(tensors, expected, path)
    with torch.random.fork_rng(devices=[]):
        model = ChronoSpike(architecture)
    model.load_state_dict(dict(tensors))
    return model
