"""ChronoSpike, in the order of the paper's section 4: aggregate, spike, integrate over time, classify."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from chronospike.nn.aggregate import (
    Aggregator,
    AttentiveAggregator,
    MeanAggregator,
    SumAggregator,
    aggregate_tree,
)
from chronospike.nn.dispatch import Implementation, KernelPlan, plan_kernels
from chronospike.nn.lif import AdaptiveLIF, ResetGradient
from chronospike.nn.roots import NOTHING, RootInputs, SequenceReader, Standardise, sequences
from chronospike.nn.temporal import LastStep, LSTMOverSteps, MeanOverSteps, TemporalTransformer
from chronospike.nn.tree_features import TreeFeatures


@dataclass(frozen=True)
class Architecture:
    """What the network is made of; the defaults are the paper's.

    Attributes:
        met: kinds of neighbours counted at each step of a root (`RootInputs.counts`); 0 for none.
        numbers: width of `RootInputs.numbers`. With either the classifier is a head with one hidden layer.
    """

    inputs: int
    classes: int
    met: int = 0
    numbers: int = 0
    sequence_channels: int = 128
    head: int = 256
    head_dropout: float = 0.5
    hidden: tuple[int, ...] = (128, 64)
    heads: int = 4
    dropout: float = 0.7
    aggregator: Literal["attention", "mean", "sum"] = "attention"
    neuron: Literal["adaptive", "fixed", "relu"] = "adaptive"
    neuron_form: Literal["softplus", "raw"] = "softplus"
    reset_gradient: ResetGradient = "detach"
    temporal: Literal["transformer", "lstm", "mean", "last"] = "transformer"
    temporal_heads: int = 4
    feedforward: int = 128
    temporal_dropout: float = 0.1
    positions: Literal["learned", "rotary"] = "learned"
    max_steps: int = 200


@dataclass
class Record:
    """What an analysis may want to see of one forward pass; every list has one entry per layer.

    Attributes:
        spikes, membranes: `[T, n, C]`, the batch's roots first; the membranes are those before the reset.
        neighbour_attention: `[T, B, S, H]` of the roots.
        time_attention: `[B, H, T, T]` (query, key).
    """

    spikes: list[Tensor] = field(default_factory=list)
    membranes: list[Tensor] = field(default_factory=list)
    neighbour_attention: list[Tensor] = field(default_factory=list)
    time_attention: Tensor | None = None


class ChronoSpike(nn.Module):
    """Classifies and embeds nodes from their sampled neighbourhoods at T steps."""

    def __init__(self, architecture: Architecture) -> None:
        super().__init__()
        self.architecture = a = architecture
        widths = (a.inputs, *a.hidden)
        self.aggregators = nn.ModuleList(_aggregator(a, *pair) for pair in pairwise(widths))
        self.neurons = nn.ModuleList(_neuron(a, width) for width in a.hidden)
        self.temporal = _temporal(a)
        width = a.hidden[-1]
        self.readout = nn.Sequential(_linear(width, width), nn.Tanh(), _linear(width, width))
        self.classifier = _linear(width, a.classes)
        # What is known of a root itself: the labels met at each step go to the temporal encoder and, read by a
        # recurrent unit, to a head beside the classifier; numbers go to the head.
        self.met = self.reader = self.standardise = self.head = None
        known = width + a.numbers
        if a.met:
            steps = 2 * (a.met + 1)
            self.met = nn.Sequential(_linear(steps, width), nn.ReLU(), _linear(width, width))
            self.reader = SequenceReader(steps, a.sequence_channels)
            known += 2 * a.sequence_channels
        if a.numbers:
            self.standardise = Standardise(a.numbers)
        if a.met or a.numbers:
            hidden = (_linear(known, a.head), nn.ReLU(), nn.Dropout(a.head_dropout))
            self.head = nn.Sequential(*hidden, _linear(a.head, a.classes))

    def forward(
        self, x: TreeFeatures, plan: KernelPlan | None = None, record: Record | None = None
    ) -> tuple[Tensor, Tensor]:
        """Logits `[B, classes]` and embeddings z `[B, C]`.

        Args:
            x: features of the sampled trees.
            plan: which kernels to take; by default the fastest that fit the inputs, in single precision.
            record: filled with what happened inside, if given.
        """
        plan = plan or plan_kernels(
            self.architecture, x.values.device, steps=x.steps, fanouts=x.fanouts, training=torch.is_grad_enabled(),
            dtype=x.values.dtype, dense=x.nodes is None,
        )  # fmt: skip
        return self.read(self.spike_sequence(x, plan, record), plan, record, x.roots)

    def spike_sequence(self, x: TreeFeatures, plan: KernelPlan, record: Record | None = None) -> Tensor:
        """Layer by layer, every step at once: the roots' last spikes `[T, B, C]` (sections 4.2 and 4.3)."""
        if len(x.sizes) != len(self.aggregators) + 1:
            raise ValueError(
                f"{len(self.aggregators)} layers need {len(self.aggregators) + 1} hops, not {len(x.sizes)}"
            )
        for layer, (aggregate, neuron) in enumerate(zip(self.aggregators, self.neurons, strict=True)):
            assert isinstance(aggregate, Aggregator)
            currents = aggregate_tree(aggregate, x, plan)
            is_last = layer + 1 == len(self.neurons)
            dropout = self.architecture.dropout if self.training and not is_last else 0.0
            spikes, membranes = neuron(currents, dropout, plan.neurons.implementation, record is not None)
            if record is not None:
                record.spikes.append((spikes > 0).to(spikes.dtype) if dropout else spikes)
                record.membranes.append(membranes)
                if isinstance(aggregate, AttentiveAggregator):
                    record.neighbour_attention.append(aggregate.root_weights(x))
            x = TreeFeatures(spikes, x.sizes[:-1])
        return x.values

    def read(
        self, spikes: Tensor, plan: KernelPlan, record: Record | None = None, roots: RootInputs = NOTHING
    ) -> tuple[Tensor, Tensor]:
        """Logits and embeddings from the roots' last spikes `[T, B, C]` (sections 4.4 and 4.5)."""
        parts = []
        if self.met is not None and self.reader is not None:
            assert roots.counts is not None
            met = sequences(roots.counts)
            spikes = spikes + self.met(met)
            parts.append(self.reader(met))
        if self.standardise is not None:
            assert roots.numbers is not None
            parts.append(self.standardise(roots.numbers))
        if record is None and plan.readout.implementation == "triton":
            from chronospike.nn.kernels.readout import read

            assert isinstance(self.temporal, TemporalTransformer)
            logits, z = read(self.temporal, self.readout, self.classifier, spikes, plan.half)
        else:
            z = self.readout(self._over_time(spikes, plan, record))
            logits = self.classifier(z)
        return logits if self.head is None else logits + self.head(torch.cat([z, *parts], dim=-1)), z

    def _over_time(self, spikes: Tensor, plan: KernelPlan, record: Record | None) -> Tensor:
        """One vector per root, `[B, C]` (section 4.4)."""
        if not isinstance(self.temporal, TemporalTransformer):
            result: Tensor = self.temporal(spikes)
            return result
        if record is None and plan.readout.implementation == "folded":
            return self.temporal.forward_folded(spikes)
        last, attention = self.temporal.forward_with_attention(spikes)
        if record is not None:
            record.time_attention = attention
        return last

    def parameter_count(self) -> int:
        """Trainable parameters."""
        return sum(parameter.numel() for parameter in self.parameters() if parameter.requires_grad)


class ReLUNeuron(nn.Module):
    """No spikes and no memory: the ablation "w/o SNN (ReLU)"."""

    def forward(
        self, h: Tensor, dropout: float = 0.0, implementation: Implementation = "plain", wants_membranes: bool = True
    ) -> tuple[Tensor, Tensor]:
        del implementation, wants_membranes
        return F.dropout(F.relu(h), dropout), h.detach()


def _linear(inputs: int, outputs: int) -> nn.Linear:
    linear = nn.Linear(inputs, outputs)
    nn.init.xavier_uniform_(linear.weight)
    nn.init.zeros_(linear.bias)
    return linear


def _aggregator(a: Architecture, inputs: int, channels: int) -> Aggregator:
    if a.aggregator == "attention":
        return AttentiveAggregator(inputs, channels, a.heads)
    return {"mean": MeanAggregator, "sum": SumAggregator}[a.aggregator](inputs, channels)


def _neuron(a: Architecture, channels: int) -> nn.Module:
    if a.neuron == "relu":
        return ReLUNeuron()
    return AdaptiveLIF(channels, form=a.neuron_form, reset_gradient=a.reset_gradient, learn=a.neuron == "adaptive")


def _temporal(a: Architecture) -> nn.Module:
    width = a.hidden[-1]
    if a.temporal == "transformer":
        return TemporalTransformer(width, a.temporal_heads, a.feedforward, a.temporal_dropout, a.max_steps, a.positions)
    if a.temporal == "lstm":
        return LSTMOverSteps(width)
    return MeanOverSteps() if a.temporal == "mean" else LastStep()
