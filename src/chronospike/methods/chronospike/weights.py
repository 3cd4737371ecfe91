"""Rebuilding networks from their weights file, without the graph they were trained on."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from chronospike.errors import StorageError, one_line
from chronospike.nn.meta_device import meta_device
from chronospike.nn.model import Architecture, ChronoSpike
from chronospike.training.bagging import FOLDS
from chronospike.training.weights import check_fit, description


def rebuild(tensors: Mapping[str, Tensor], metadata: Mapping[str, str], path: Path) -> ChronoSpike | nn.ModuleList:
    """The network that `load_weights` read from `path`, on the CPU, or with folds all of them.

    What does not fit its description is named.
    """
    try:
        fields = description(metadata)
        count = int(fields.pop(FOLDS, 0))
        if not 0 <= count <= 100:
            raise ValueError(f"{count} networks")
        architecture = Architecture(**{**fields, "hidden": tuple(fields["hidden"])})

        def new() -> ChronoSpike | nn.ModuleList:
            return (
                nn.ModuleList(ChronoSpike(architecture) for _ in range(count)) if count else ChronoSpike(architecture)
            )

        # Without storage first: a description may ask for any amount of memory, the tensors have a known size.
        with meta_device():
            expected = new().state_dict()
    except (AttributeError, KeyError, RuntimeError, TypeError, ValueError, ZeroDivisionError) as error:
        raise StorageError(f"{path} describes a network that cannot be built ({one_line(error)})") from error
    check_fit(tensors, expected, path)
    with torch.random.fork_rng(devices=[]):
        model = new()
    model.load_state_dict(dict(tensors))
    return model
