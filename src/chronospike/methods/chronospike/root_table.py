"""Inputs of the network about a root itself, for all nodes: label sequences, label features, activity."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from chronospike.data.activity import profile_width
from chronospike.methods.chronospike.settings import ChronoSpikeSettings
from chronospike.nn.roots import RootInputs
from chronospike.training.label_tables import LabelTables, features_width

# Where rows are not a multiple of so many numbers long, a matrix product may round by their place in the batch.
_MULTIPLE = 4


def root_widths(settings: ChronoSpikeSettings, classes: int, directed: bool = False) -> tuple[int, int]:
    """Kinds of neighbours that are counted at each step, and numbers of a node. The last snapshot alone has neither."""
    if settings.static:
        return 0, 0
    met = classes + 1 if settings.label_sequences else 0
    around = features_width(classes, directed) if settings.label_features else 0
    numbers = around + (profile_width(directed) if settings.activity else 0)
    return met, -(-numbers // _MULTIPLE) * _MULTIPLE


class RootTable:
    """The parts of `tables` that the settings ask for, then zeros up to a width of `root_widths`."""

    def __init__(self, tables: LabelTables, settings: ChronoSpikeSettings, device: torch.device) -> None:
        self.tables = tables
        self.counts = torch.from_numpy(tables.counts).to(device) if settings.label_sequences else None
        parts = [tables.features] if settings.label_features else []
        parts += [tables.activity] if settings.activity else []
        self.numbers = None
        if parts:
            numbers = np.concatenate(parts, axis=1)
            self.numbers = torch.from_numpy(np.pad(numbers, ((0, 0), (0, -numbers.shape[1] % _MULTIPLE)))).to(device)

    def known_numbers(self) -> Tensor:
        """`[K, F]` of the nodes whose labels are known."""
        assert self.numbers is not None
        return self.numbers[torch.from_numpy(self.tables.known).to(self.numbers.device)]

    def rows(self, roots: Tensor) -> RootInputs:
        """Of `roots [B]` on the device."""
        counts = None if self.counts is None else self.counts[roots]
        return RootInputs(counts, None if self.numbers is None else self.numbers[roots])
