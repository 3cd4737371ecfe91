"""SpikeNet's network, all steps at once, and what it reads of sampled trees. The equations are those of `spikenet`."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from chronospike.nn.dispatch import Implementation, neuron_kernel
from chronospike.nn.lif import LIFParameters, lif_sequence
from chronospike.sampling.tree import NeighbourTree, widths
from chronospike.training.lanes import aligned

if TYPE_CHECKING:
    from chronospike.methods.spikenet import SpikeNetSettings

# An integrate-and-fire neuron is a leaky one whose leak is lost in rounding, with inputs scaled up by as much.
_NO_LEAK = 2.0**40


class TreeRows(NamedTuple):
    """What the first layer reads for B roots: R rows a step, those of all hops but the last.

    Attributes:
        own, mean: `[T, R, F]` features of the rows' nodes, and the mean of their sampled neighbours'.
        roots: B.
    """

    own: Tensor
    mean: Tensor
    roots: int


class SAGELayer(nn.Module):
    """The currents I_t of a layer."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.own, self.neighbours = nn.Linear(inputs, outputs), nn.Linear(inputs, outputs)

    def forward(self, own: Tensor, mean: Tensor, delay: nn.Module | None = None) -> Tensor:
        """`[T, R, outputs]` of rows `[T, R, inputs]` and their neighbours' means; messages may be delayed."""
        steps, bias = len(own), self.own.bias + self.neighbours.bias
        current = functional.linear(aligned(own.flatten(0, 1)), aligned(self.own.weight), bias)
        message = functional.linear(aligned(mean.flatten(0, 1)), aligned(self.neighbours.weight))
        if delay is not None:
            message = delay(message.view(steps, -1, message.shape[1])).flatten(0, 1)
        # In place, since on a CPU new memory costs more than the sum; of a view autograd would copy all of it.
        return current.add_(message).view(steps, -1, current.shape[1])


class SpikingNeurons(nn.Module):
    """The neurons of a layer. Only τ may be learned."""

    tau: Tensor
    threshold: Tensor
    alpha: Tensor

    def __init__(self, channels: int, settings: SpikeNetSettings) -> None:
        super().__init__()
        s = self.settings = settings
        self.channels = channels
        tau = torch.full((), _NO_LEAK if s.neuron == "if" else s.tau)
        if s.neuron == "plif":
            self.tau = nn.Parameter(tau)
        else:
            self.register_buffer("tau", tau, persistent=False)
        self.register_buffer("threshold", torch.ones(channels), persistent=False)
        self.register_buffer("alpha", torch.full((channels,), s.alpha), persistent=False)

    def current_parameters(self) -> LIFParameters:
        """The values that the neurons compute with."""
        s, adapts = self.settings, self.settings.neuron != "if"
        return LIFParameters(
            self.tau.expand(self.channels).contiguous(), self.threshold, self.alpha, reset_gradient="full",
            threshold_decay=s.threshold_decay if adapts else 1.0, threshold_jump=s.threshold_jump if adapts else 0.0,
            surrogate=s.surrogate, strict=True,
        )  # fmt: skip

    def forward(self, currents: Tensor, dropout: float, implementation: Implementation) -> Tensor:
        """Spikes `[T, R, C]`, after dropout, of currents `[T, R, C]`."""
        if self.settings.neuron == "if":
            currents = currents * _NO_LEAK
        return lif_sequence(
            currents, self.current_parameters(), dropout=dropout, implementation=implementation, wants_membranes=False
        )[0]


class SpikeNetModule(nn.Module):
    """All layers and the readout, for `inputs` features a node and at most `steps` steps."""

    def __init__(self, inputs: int, classes: int, steps: int, settings: SpikeNetSettings) -> None:
        super().__init__()
        self.settings, self.classes, self.steps = settings, classes, steps
        hidden = settings.hidden
        self.layers = nn.ModuleList(map(SAGELayer, (inputs, *hidden[:-1]), hidden))
        self.neurons = nn.ModuleList(SpikingNeurons(channels, settings) for channels in hidden)
        self.readout = nn.Linear(self.width, classes)

    @property
    def width(self) -> int:
        """Of the embeddings."""
        return self.steps * self.settings.hidden[-1]

    def kernels(self, device: torch.device, training: bool) -> tuple[Implementation, ...]:
        """What the neurons of each layer are computed with."""
        drops, found = training and self.settings.dropout > 0, list[Implementation]()
        for number, layer in enumerate(self.neurons, start=1):
            assert isinstance(layer, SpikingNeurons)
            values, is_last = layer.current_parameters(), number == len(self.neurons)
            found.append(neuron_kernel(device, layer.channels, values, drops and not is_last, training).implementation)
        return tuple(found)

    def delay(self, layer: int) -> nn.Module | None:
        """What the messages of a layer pass through."""
        return None

    def pool(self, spikes: Tensor) -> Tensor:
        """`[B, width]` of the last layer's spikes `[T, B, C]`; steps that are not there have none."""
        steps, roots, channels = spikes.shape
        side_by_side = spikes.transpose(0, 1).reshape(roots, steps * channels)
        return functional.pad(side_by_side, (0, self.width - steps * channels))

    def spikes(self, rows: TreeRows, kernels: tuple[Implementation, ...]) -> list[Tensor]:
        """`[T, R, C]` of each layer, after dropout; the last one's are of the roots alone and have none."""
        (own, mean, roots), fanouts, found = rows, self.settings.fanouts, list[Tensor]()
        for number, (layer, neurons, kernel) in enumerate(zip(self.layers, self.neurons, kernels, strict=True)):
            inner = fanouts[: len(fanouts) - 1 - number]
            dropout = self.settings.dropout if self.training and inner else 0.0
            found.append(neurons(layer(own, mean, self.delay(number)), dropout, kernel))
            if inner:
                own, mean = neighbour_means(found[-1], roots, inner)
        return found

    def forward(self, rows: TreeRows, kernels: tuple[Implementation, ...]) -> tuple[Tensor, Tensor, Tensor]:
        """Logits `[B, classes]`, embeddings `[B, width]` and the last layer's spikes `[T, B, C]`."""
        spikes = self.spikes(rows, kernels)[-1]
        z = self.pool(spikes)
        return functional.linear(aligned(z), aligned(self.readout.weight), self.readout.bias), z, spikes


def neighbour_means(rows: Tensor, roots: int, fanouts: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """Of `rows [T, R, C]`, hop after hop, those of all hops but the last, and the means of their neighbours."""
    # Split once: the gradients of parts are put together in one piece.
    hops = rows.split([roots * width for width in widths(fanouts)], dim=1)
    means = [hop.unflatten(1, (-1, fanout)).mean(dim=2) for hop, fanout in zip(hops[1:], fanouts, strict=True)]
    if len(means) == 1:
        return hops[0], means[0]
    return torch.cat(hops[:-1], dim=1), torch.cat(means, dim=1)


def tree_rows(table: Tensor, tree: NeighbourTree, stride: int) -> TreeRows:
    """The rows of a tree. In the table a step is `stride` rows after the one before, or the same if that is 0."""
    steps, roots = len(tree.steps), tree.batch_size
    step = torch.tensor(tree.steps).to(table.device, non_blocking=True)
    index = tree.nodes.long() + stride * step[:, None]
    sizes = [roots * width for width in widths(tree.fanouts)]
    own = functional.embedding(index[:, : sum(sizes[:-1])], table)
    # The neighbours of the rows are all that follows the roots, in the same order: where each one's begin.
    begins, first = [], 0
    for size, following, fanout in zip(sizes, sizes[1:], tree.fanouts, strict=False):
        begins.append(torch.arange(size, device=table.device) * fanout + first)
        first += following
    offsets = torch.cat(begins) + first * torch.arange(steps, device=table.device)[:, None]
    mean = functional.embedding_bag(index[:, roots:].flatten(), table, offsets.flatten(), mode="mean")
    return TreeRows(own, mean.view_as(own), roots)
