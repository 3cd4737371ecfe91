"""What a method learns from, independent of the method."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from chronospike.config import Settings
from chronospike.data.attributes import AttributeEncoder
from chronospike.data.graph import DynamicGraph
from chronospike.data.splits import Split, make_split
from chronospike.errors import InputError
from chronospike.training.label_tables import LabelTables
from chronospike.training.node_features import NodeFeatures

Nodes = NDArray[np.integer[Any]]


@dataclass(frozen=True)
class Task:
    """A graph, what each of its labels is for, features, a device and a seed.

    Attributes:
        features: of the nodes; None for a method that reads none.
        last_step: nothing after it is read. By default the graph's last.
    """

    graph: DynamicGraph
    split: Split
    device: torch.device
    seed: int
    features: NodeFeatures | None
    last_step: int

    def labels(self, nodes: Nodes) -> NDArray[np.int64]:
        """`[K]` class indices of `nodes`."""
        assert self.graph.labels is not None
        return np.asarray(self.graph.labels)[nodes].astype(np.int64)

    @cached_property
    def known(self) -> NDArray[np.int64]:
        """The nodes whose labels are known: those to learn from and those to choose by, ascending."""
        return np.union1d(self.split.train, self.split.validation).astype(np.int64)

    @cached_property
    def tables(self) -> LabelTables:
        """What the known labels say of every node."""
        return LabelTables(self)

    def take_over(self, tables: LabelTables) -> None:
        """Use the tables of another task if they are those of this one."""
        if tables.is_same(self.tables):
            self.__dict__["tables"] = tables

    def divided(self, train: Nodes, validation: Nodes, seed: int | None = None, forget: bool = False) -> Task:
        """The same task with its known nodes divided in another way, perhaps some of them left out, or another seed.

        The labels that are read of neighbours stay those of this task's known nodes, unless the others are to be
        forgotten.
        """
        split = replace(self.split, train=train.astype(np.int64), validation=validation.astype(np.int64))
        other = replace(self, split=split, seed=self.seed if seed is None else seed)
        if not forget:
            other.__dict__["tables"] = self.tables
        return other

    def with_all_labels(self) -> Task:
        """The same task with the validation nodes among those to learn from, and none to choose by."""
        return self.divided(self.known, self.split.validation[:0])

    def until(self, last_step: int, to_fit: bool = False) -> Task:
        """The same task as of a step: nothing later is read, and no label of a node not seen by then.

        Args:
            to_fit: the method is fitted again, so there must be nodes to learn from.
        """
        split = seen_part(self.split, self.graph, last_step)
        if to_fit and not len(split.train):
            raise InputError(
                f"by step {last_step} no training node has an edge, so there is nothing to learn from. Use a later date"
            )
        return replace(self, split=split, last_step=last_step)


def seen_part(split: Split, graph: DynamicGraph, last_step: int) -> Split:
    """The split without the training and validation nodes that have no edge by `last_step`."""
    seen = graph.seen_by(last_step)
    return replace(split, train=split.train[seen[split.train]], validation=split.validation[seen[split.validation]])


def split_for(graph: DynamicGraph, settings: Settings) -> Split:
    """The split that the settings ask for; an error says why there can be none."""
    s = settings
    return make_split(graph, s.ratio, s.validation, s.split_seed, s.split_order)


def make_task(
    graph: DynamicGraph,
    settings: Settings,
    device: torch.device,
    split: Split | None = None,
    encoder: AttributeEncoder | None = None,
    needs_features: bool = True,
) -> Task:
    """Put a task together.

    Args:
        split: by default the one that the settings ask for.
        encoder: of the nodes' own attributes, from an earlier fit.
        needs_features: whether to read the features of the graph at all.
    """
    own_features = needs_features and encoder is not None
    graph.require(steps=1, classes=2, features=needs_features, own_features=own_features)
    split = split or split_for(graph, settings)
    features = NodeFeatures(graph, encoder, settings.standardise_over == "all") if needs_features else None
    return Task(graph, split, device, settings.seed, features, graph.num_steps - 1)
