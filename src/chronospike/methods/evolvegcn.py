"""EvolveGCN (Pareja and others, 2020): graph convolutions whose weights a recurrent cell updates at every step.

The state of the cell is the weight matrix Q_t of a layer. It reads the matrix itself (-O), or of the layer's inputs the
rows that a learned score puts first (-H). Weights move before they are used: those of the first step are not Q_0.

Published with labels of their own at every step, here a node has one label: the loss of step t is taken over the
training nodes that have an edge by then. At the last step all of them count, as all nodes are classified there.

It learns slowly. On DBLP at 80 %, one seed, up to 600 epochs, test Micro-F1 (validation): -O 72.7 % (73.8), -H 68.6 %
(68.8); after 200 epochs they had 65 and 63 % of the validation nodes. A learning rate of 0.02 ends at 30 and 60 %, the
mean over steps of -O at 67 %. -O with the loss at the last step alone, which is a static network, reaches 76 % sooner.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple, cast

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

from chronospike.config import Count, Positive, Width
from chronospike.data.graph import DynamicGraph
from chronospike.methods.graph_convolution import (
    Call,
    FullGraphLearner,
    FullGraphNetwork,
    FullGraphSettings,
    StepInputs,
    input_bytes,
    kept,
    product,
)
from chronospike.training.task import Nodes, Task

Variant = Literal["h", "o"]
# Between which the slope of a negative input is drawn.
_SLOPES = 1 / 8, 1 / 3
_LAST_ALONE = (
    "EvolveGCN-O with objective=last and readout=last reads only the last graph: its weights are updated without "
    "reading any graph. Use objective=rolling or variant=h"
)


class EvolveGCNSettings(FullGraphSettings):
    epochs: Count = Field(800, description="an epoch is one step on all training nodes")
    learning_rate: Positive = Field(5e-3, description="published for Elliptic: 0.001")
    patience: Count = Field(100, description="stop after this many epochs without a better validation score")
    variant: Variant = Field(
        "o", description="what the weights are updated from: 'h': also node embeddings, 'o': only the weights"
    )
    hidden: Width = Field(128, description="width of both layers; published for Elliptic: 76 (h), 256 (o)")
    head: Width = Field(128, description="hidden width of the classifier; published for Elliptic: 510 (h), 307 (o)")
    objective: Literal["rolling", "last"] = Field(
        "rolling", description="loss at every step, a mean over steps, or at the last alone"
    )
    readout: Literal["last", "mean"] = Field(
        "last", description="what is classified: the output of a step, or the mean of those up to it"
    )


def matrix_gru(state: Tensor, x: Tensor, weights: Tensor, recurrent: Tensor, bias: Tensor) -> Tensor:
    """`[in, out]` a GRU on the columns of a matrix, with a bias for each entry.

    Args:
        state, x: `[in, out]`.
        weights, recurrent: `[3, in, in]` of the reset gate, the update gate and the candidate; they stand to the left.
        bias: `[3, in, out]`.
    """
    read = weights @ x + bias
    reset, update = torch.sigmoid(read[:2] + recurrent[:2] @ state).unbind()
    candidate = torch.tanh(read[2] + recurrent[2] @ (reset * state))
    return (1 - update) * state + update * candidate


def top_rows(x: Tensor, scorer: Tensor, k: int, inactive: Tensor, active: int) -> Tensor:
    """`[in, k]` the rows of `x [N, in]` with the highest scores x·p/‖p‖, each times tanh of its score, as columns.

    Args:
        scorer: `[in]` p.
        inactive: `[N]` True for rows that are never taken; `active` is how many are not.
    """
    if not active:
        return x.new_zeros(x.shape[1], k)
    direction = scorer / scorer.norm()
    with torch.no_grad():
        best = (x @ direction).masked_fill(inactive, -torch.inf).topk(min(k, active)).indices
    # The others have no part in the gradient; where there are too few, the last is repeated.
    best = torch.cat([best, best[-1:].expand(k - len(best))])
    rows = x[best]
    return (rows * torch.tanh(rows @ direction)[:, None]).T


def rrelu(x: Tensor, training: bool) -> Tensor:
    """`x`, times a slope where it is negative: drawn for each entry in training, else their mean.

    Not `torch.nn.functional.rrelu`, whose gradients are undefined where activations are recomputed (torch 2.13).
    """
    if not training:
        return nn.functional.leaky_relu(x, sum(_SLOPES) / 2)
    with torch.no_grad():
        factor = torch.empty_like(x).uniform_(*_SLOPES).masked_fill_(x >= 0, 1.0)
    return x * factor


class EvolvingLayer(nn.Module):
    """The weights of a convolution `[in, out]` before the first step, and the cell that moves them."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.first = nn.Parameter(torch.empty(inputs, outputs))
        self.weights = nn.Parameter(torch.empty(3, inputs, inputs))
        self.recurrent = nn.Parameter(torch.empty(3, inputs, inputs))
        self.bias = nn.Parameter(torch.zeros(3, inputs, outputs))
        self.scorer = nn.Parameter(torch.empty(inputs))
        for parameter in (self.first, self.weights, self.recurrent, self.scorer):
            bound = parameter.shape[-1] ** -0.5
            nn.init.uniform_(parameter, -bound, bound)

    def evolve(self, state: Tensor, x: Tensor) -> Tensor:
        """Q_t of Q_{t-1}."""
        return matrix_gru(state, x, self.weights, self.recurrent, self.bias)

    def summary(self, x: Tensor, inactive: Tensor, active: int) -> Tensor:
        """`[in, out]` of the layer's inputs `x [N, in]`."""
        return top_rows(x, self.scorer, self.first.shape[1], inactive, active)


class Seen(NamedTuple):
    """Which nodes have an edge by each step.

    Attributes:
        first: `[N]` the step of the first edge.
        counts: nodes that have one by each step.
    """

    first: Tensor
    counts: tuple[int, ...]

    def inactive(self, step: int) -> tuple[Tensor, int]:
        """`[N]` True for nodes without an edge so far, and how many have one."""
        return self.first > step, self.counts[step]


class EvolveGCN(nn.Module):
    def __init__(self, inputs: int, hidden: int, head: int, classes: int, variant: Variant) -> None:
        super().__init__()
        self.one, self.two = EvolvingLayer(inputs, hidden), EvolvingLayer(hidden, hidden)
        self.head = nn.Sequential(nn.Linear(hidden, head), nn.ReLU(), nn.Linear(head, classes))
        self.variant = variant

    def forward(
        self, inputs: StepInputs, seen: Seen, rows: Tensor | None, steps: range, call: Call = kept
    ) -> Iterator[Tensor]:
        """Yields `[K, d]` outputs of the second layer for the nodes `rows [K]`, or all, at the `steps` asked for.

        Args:
            call: `recomputed` keeps fewer activations.
        """
        states = (self.one.first, self.two.first)
        for step in range(inputs.num_steps):
            *states, output = call(self._step, step, step in steps, inputs, seen, rows, *states)
            if output is not None:
                yield output

    def _step(
        self, step: int, is_wanted: bool, inputs: StepInputs, seen: Seen, rows: Tensor | None, *states: Tensor
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Q_t of both layers, and the output of the step if it is wanted."""
        reads, one, two = self.variant == "h", self.one, self.two
        inactive, active = seen.inactive(step)
        x = states[0]
        if reads:
            assert inputs.features is not None
            x = one.summary(inputs.features[step], inactive, active)
        first = one.evolve(states[0], x)
        if not is_wanted and not reads:
            return first, two.evolve(states[1], states[1]), None
        h = rrelu(inputs.first_hop[step] @ first, self.training)
        second = two.evolve(states[1], two.summary(h, inactive, active) if reads else states[1])
        if not is_wanted:
            return first, second, None
        hop = product(inputs.adjacency[step], h)
        return first, second, rrelu((hop if rows is None else hop.index_select(0, rows)) @ second, self.training)


class Batch(NamedTuple):
    """Training nodes in the order of their first edges.

    Attributes:
        rows, labels: `[K]`.
        counts: how many are seen by each step.
    """

    rows: Tensor
    labels: Tensor
    counts: tuple[int, ...]


class EvolveGCNNetwork(FullGraphNetwork[EvolveGCNSettings]):
    def __init__(self, task: Task, settings: EvolveGCNSettings, recompute: bool = False) -> None:
        super().__init__(task, settings, recompute, with_features=settings.variant == "h")
        s = settings
        if (s.variant, s.objective, s.readout) == ("o", "last", "last") and task.last_step > 0:
            self.notes = (_LAST_ALONE,)

    def set_task(self, task: Task) -> None:
        super().set_task(task)
        first = task.graph.first_steps
        counts = np.bincount(first, minlength=task.graph.num_steps + 1).cumsum()
        self.seen = Seen(torch.from_numpy(np.array(first)).to(task.device), tuple(counts.tolist()))

    def make_module(self) -> EvolveGCN:
        s = self.settings
        return EvolveGCN(self.width, s.hidden, s.head, self.task.graph.num_classes, s.variant)

    def prepare(self, nodes: Nodes, epoch: int) -> Batch:
        # Those seen by a step are then the first ones, and nobody has to look for them.
        first = np.minimum(self.task.graph.first_steps[nodes], self.task.last_step)
        order = np.lexsort((nodes, first))
        counts = np.searchsorted(first[order], np.arange(self.task.last_step + 1), side="right")
        return Batch(self.indices(nodes[order]), self.labels(nodes[order]), tuple(counts.tolist()))

    def losses(self, module: nn.Module, prepared: Batch, nodes: Nodes) -> Tensor:
        model, (rows, labels, counts) = cast(EvolveGCN, module), prepared
        is_rolling = self.settings.objective == "rolling"
        steps = self._steps(is_rolling)
        found = list(self._read_out(model(self.inputs, self.seen, rows, steps, self.call)))
        if not is_rolling:
            return nn.functional.cross_entropy(model.head(found[-1]), labels).view(1)
        losses = [
            nn.functional.cross_entropy(model.head(z[:count]), labels[:count])
            for z, count in zip(found, counts, strict=True)
            if count
        ]
        return torch.stack(losses).mean().view(1)

    def outputs(self, module: nn.Module, nodes: Nodes) -> tuple[Tensor, Tensor]:
        model = cast(EvolveGCN, module)
        (z,) = deque(self._read_out(model(self.inputs, self.seen, None, self._steps())), maxlen=1)
        rows = self.indices(nodes)
        return model.head(z)[rows], z[rows]

    def _steps(self, is_rolling: bool = False) -> range:
        """The steps whose outputs are read."""
        last = self.task.last_step
        return range(0 if is_rolling or self.settings.readout == "mean" else last, last + 1)

    def _read_out(self, outputs: Iterator[Tensor]) -> Iterator[Tensor]:
        """What is classified at each step: its output, or the mean of all up to it."""
        total: Tensor | None = None
        for count, output in enumerate(outputs, start=1):
            if self.settings.readout == "last":
                yield output
                continue
            total = output if total is None else total + output
            yield total / count

    def description(self) -> dict[str, Any]:
        s = self.settings
        return {
            "method": "evolvegcn",
            "variant": s.variant,
            "inputs": self.width,
            "hidden": s.hidden,
            "head": s.head,
            "classes": self.task.graph.num_classes,
        }


class EvolveGCNLearner(FullGraphLearner[EvolveGCNSettings]):
    name = "evolvegcn"
    title = "EvolveGCN"
    summary = "graph convolutions whose weights a recurrent cell moves from step to step"
    settings_type = EvolveGCNSettings
    network_type = EvolveGCNNetwork

    @property
    def memory_advice(self) -> str:
        return f"Lower hidden (now {self.settings.hidden}), use recompute=always, or merge steps"

    def inputs_bytes(self, graph: DynamicGraph, width: int) -> int:
        return input_bytes(graph, width, self.settings.graphs, self.settings.variant == "h")

    def activation_bytes(self, graph: DynamicGraph, width: int, train: int, recompute: bool) -> int:
        s, nodes = self.settings, graph.num_nodes
        read = graph.num_steps if s.objective == "rolling" or s.readout == "mean" else 1
        made = graph.num_steps if s.variant == "h" else read
        # Of all nodes the slopes of every step, and what one step works with. Of the training nodes what the second
        # layer reads, its slopes and its outputs, of every step, and what the head keeps.
        wide = nodes * (4 if recompute else made + 4)
        return 4 * (s.hidden * (wide + train * read * (1 if recompute else 3)) + s.head * train * read)
