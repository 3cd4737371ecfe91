"""What a run works on: a graph, its split, the sampler and the inputs, put together once from the settings."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from chronospike.config import Settings
from chronospike.data.attributes import AttributeEncoder
from chronospike.data.graph import DynamicGraph
from chronospike.data.splits import Split, make_split
from chronospike.nn.losses import Objective
from chronospike.nn.model import Architecture, ChronoSpike
from chronospike.nn.tree_features import TreeFeatures
from chronospike.rng import derive
from chronospike.sampling.hybrid import HybridSampler
from chronospike.sampling.tree import NeighbourTree
from chronospike.training.inputs import LabelInputs, TreeInputs


def architecture(settings: Settings, inputs: int, classes: int) -> Architecture:
    """The network that the settings describe."""
    s = settings
    return Architecture(
        inputs=inputs + (classes if s.label_inputs else 0),
        classes=classes,
        hidden=s.hidden,
        heads=s.heads,
        dropout=s.dropout,
        aggregator=s.aggregator,
        neuron=s.neuron,
        neuron_form=s.neuron_form,
        reset_gradient=s.reset_gradient,
        temporal=s.temporal,
        temporal_heads=s.temporal_heads,
        feedforward=s.feedforward,
        temporal_dropout=s.temporal_dropout,
        positions=s.positions,
        max_steps=s.max_steps,
    )


def objective(settings: Settings) -> Objective:
    """The losses that the settings describe."""
    s = settings
    return Objective(s.label_smoothing, s.contrastive, s.view_dropout, s.temperature)


def batch_size(settings: Settings, train: int) -> int:
    """Nodes a batch: the setting, or fewer where a small training set would make too few batches an epoch."""
    return min(settings.batch_size, max(32, -(-train // settings.min_batches)))


def new_model(settings: Settings, inputs: int, classes: int) -> ChronoSpike:
    """A network with the seed's initial weights; the global generator is left as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive(settings.seed, 0x1417) % 2**63)
        model = ChronoSpike(architecture(settings, inputs, classes))
    model.kernels = settings.kernels
    return model


@dataclass
class Problem:
    """A graph ready to be learned from.

    Attributes:
        steps: the steps that the network sees, in order; fewer for `static` and for an embedding as of a step.
        half: whether features are held, and products taken, in half precision.
    """

    graph: DynamicGraph
    split: Split
    settings: Settings
    sampler: HybridSampler
    inputs: TreeInputs
    labels: LabelInputs | None
    device: torch.device
    steps: tuple[int, ...]
    half: bool = False

    def rows(self, roots: NDArray[np.integer], sample: int, training_epoch: int | None = None) -> TreeFeatures:
        """What the network reads for `roots`: the trees number `sample`, with labels as allowed."""
        tree = self.sampler.sample(roots, epoch=sample, steps=self.steps)
        channels = self.labels.channels(tree, training_epoch) if self.labels is not None else None
        return self._with_labels(tree, channels)

    def rows_from_tensors(self, roots: Tensor, tree_key: Tensor, label_key: Tensor | None) -> TreeFeatures:
        """The same from tensors on the device (see `HybridSampler.sample_tensors`): nothing waits."""
        tree = self.sampler.sample_tensors(tree_key, roots, self.steps)
        channels = self.labels.channels_for(tree, label_key) if self.labels is not None else None
        return self._with_labels(tree, channels)

    def _with_labels(self, tree: NeighbourTree, channels: list[Tensor] | None) -> TreeFeatures:
        rows = self.inputs.rows(tree)
        if channels is None:
            return rows
        return TreeFeatures(torch.cat([rows.dense(), torch.cat(channels, dim=1)], dim=-1), rows.sizes)

    def with_all_labels(self) -> Problem:
        """The same problem with the validation nodes among those it learns from, and none to choose an epoch."""
        train, validation = self.split.train, self.split.validation
        split = replace(self.split, train=np.union1d(train, validation), validation=validation[:0])
        return replace(self, split=split, labels=_label_inputs(self.graph, split, self.settings, self.device))

    def until(self, last_step: int) -> Problem:
        """The same problem as of a step: nothing later is read, and no label of a node not seen by then."""
        seen = self.graph.seen_by(last_step)
        s = self.split
        split = replace(s, train=s.train[seen[s.train]], validation=s.validation[seen[s.validation]])
        return replace(self, split=split, steps=_steps(self.settings, last_step))

    def targets(self, nodes: NDArray[np.integer]) -> Tensor:
        """Class indices of `nodes`, on the device."""
        assert self.graph.labels is not None
        # A copy: labels may be mapped read-only from disk, and torch shares the memory it is given.
        return torch.from_numpy(np.array(self.graph.labels[nodes])).to(self.device)


def takes_half(settings: Settings, device: torch.device) -> bool:
    """Half precision is for GPUs, and there the default."""
    return settings.precision != "single" and device.type == "cuda"


def split_for(graph: DynamicGraph, settings: Settings) -> Split:
    """The split that the settings ask for; an error says why there can be none."""
    s = settings
    return make_split(graph, s.ratio, s.validation, s.split_seed, s.split_order)


def make_problem(
    graph: DynamicGraph,
    settings: Settings,
    device: torch.device,
    split: Split | None = None,
    table: Tensor | None = None,
    encoder: AttributeEncoder | None = None,
) -> Problem:
    """Put a problem together.

    Args:
        table: stands for the graph's features.
        encoder: of the nodes' own attributes, from an earlier fit.
    """
    graph.require(steps=1, classes=2, features=table is None)
    s = settings
    split = split or split_for(graph, s)
    sampler = HybridSampler(graph, s.fanouts, s.p, s.history, s.mix, s.replace, s.seed, device)
    half = takes_half(s, device)
    return Problem(
        graph=graph,
        split=split,
        settings=s,
        sampler=sampler,
        inputs=TreeInputs(
            graph, device, torch.float16 if half else torch.float32, table, encoder, s.standardise_over == "all"
        ),
        labels=_label_inputs(graph, split, s, device),
        device=device,
        steps=_steps(s, graph.num_steps - 1),
        half=half,
    )


def _steps(settings: Settings, last: int) -> tuple[int, ...]:
    return (last,) if settings.static else tuple(range(last + 1))


def _label_inputs(graph: DynamicGraph, split: Split, settings: Settings, device: torch.device) -> LabelInputs | None:
    if not settings.label_inputs:
        return None
    assert graph.labels is not None
    labels = np.asarray(graph.labels)
    return LabelInputs(labels, split.train, graph.num_classes, settings.label_mask, settings.seed, device)
