"""TGAT (Xu et al., ICLR 2020): attention over sampled earlier neighbours, with a learned encoding of time.

Layer l for node v at query time t, with sampled events (u_i, t_i) before t and φ(Δ) = cos(ω Δ + b):

    q   = [h_v ; 0 ; φ(0)],  k_i = v_i = [h_{u_i}(t_i) ; 0 ; φ(t - t_i)]         (h of layer l - 1; 0: no edge features)
    o   = LayerNorm(Dropout(Linear(MultiHead(q, k, v))) + q)
    h_v = Linear(ReLU(Linear([o ; h_v])))

An event is an edge at a step. Roots are queried after the last step, neighbours at the step at which they were met,
and h of layer 0 are the features of that step. The published program learns to predict links first; this one learns
from the labels alone. Its head, for two classes, loses some of ten: on DBLP with DeepWalk features and ratio 0.4 the
best of the first 14 epochs has a validation Micro/Macro-F1 of 67/45 % with it and 73/72 % with a linear one (one seed).

Keys and values are never computed. Time offsets are few, so a key is a linear map of `[h ; one-hot of the offset]`.
All projections are linear and have no bias, so that of the keys can be moved to the query, and that of the values
behind the weighted sum: a neighbour costs a gather and two short products. That changes nothing but rounding.

A node without history attends to nothing: its sum is zero. The published program has it attend to node 0 instead.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal, cast

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional

from chronospike.config import AtLeastZero, Count, Dropout, Positive
from chronospike.data.graph import DynamicGraph
from chronospike.errors import InputError
from chronospike.methods.temporal_neighbours import Hop, Neighbourhood, TemporalNeighbours
from chronospike.nn.meta_device import meta_device
from chronospike.rng import stream
from chronospike.training.gradient import GradientLearner
from chronospike.training.lanes import aligned, aligned_width, evaluating, in_lanes
from chronospike.training.learner import Progress
from chronospike.training.memory import COPIES_OF_WEIGHTS
from chronospike.training.network import Network
from chronospike.training.settings import Selection, TrainingSettings
from chronospike.training.task import Nodes, Task

# Inference sees so many targets at a time, always: products of other shapes may round differently.
LANE, GPU_LANE = 512, 4096
# Of the published head.
_HEAD_WIDTHS = (80, 10)
_MASKED = -1e10


class TGATSettings(TrainingSettings):
    """TGAT. Learning rate, batch and epochs are for learning from labels; the published ones are for links."""

    layers: Annotated[int, Field(ge=1, le=4)] = 2
    heads: Count = 2
    neighbours: Count = Field(20, description="events sampled per node and layer")
    sampling: Literal["uniform", "recent"] = Field(
        "uniform", description="events before the query: drawn with replacement, or the most recent ones"
    )
    dimension: Annotated[int, Field(ge=0, le=2**20)] = Field(
        0, description="width of the layers and of the time encoding; 0: the number of features"
    )
    edge_block: bool = Field(
        False, description="width of edge features, which are zero: gives the published parameter count"
    )
    dropout: Dropout = 0.1
    head: Literal["linear", "mlp"] = Field(
        "linear", description="'mlp': layers of 80 and 10 as published, where the last is narrow for ten classes"
    )
    head_dropout: Dropout = Field(0.3, description="inside the published head")
    learning_rate: Positive = 1e-3
    weight_decay: AtLeastZero = 0.0
    selection: Selection = "micro_f1"


class Linear(nn.Linear):
    def forward(self, rows: Tensor) -> Tensor:
        return functional.linear(aligned(rows), aligned(self.weight), self.bias)


class TimeEncoding(nn.Module):
    """φ(Δ) = cos(ω Δ + b); ω falls from 1 to 1e-9 at first."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.frequency = nn.Parameter(10.0 ** -torch.linspace(0, 9, width))
        self.phase = nn.Parameter(torch.zeros(width))

    def forward(self, gaps: Tensor) -> Tensor:
        """`[G]` to `[G, d]`."""
        return torch.cos(gaps[:, None] * self.frequency + self.phase)


class TemporalAttention(nn.Module):
    """One layer.

    Args:
        inputs, outputs: widths of h before and after.
        time, edge: widths of φ and of the block of zeros.
    """

    def __init__(self, inputs: int, outputs: int, time: int, edge: int, heads: int, dropout: float) -> None:
        super().__init__()
        width = inputs + edge + time
        if width % heads:
            raise InputError(
                f"heads={heads} does not divide the {width} inputs of the attention. Change heads, or set dimension"
            )
        self.inputs, self.edge, self.heads = inputs, edge, heads
        self.query, self.key, self.value = (nn.Linear(width, width, bias=False) for _ in range(3))
        self.out, self.norm, self.dropout = nn.Linear(width, width), nn.LayerNorm(width), nn.Dropout(dropout)
        self.merge = nn.Sequential(Linear(width + inputs, outputs), nn.ReLU(), Linear(outputs, outputs))
        for projection in (self.query, self.key, self.value):
            nn.init.normal_(projection.weight, std=math.sqrt(2 / (width + width // heads)))
        for linear in (self.out, self.merge[0], self.merge[2]):
            nn.init.xavier_normal_(cast(nn.Linear, linear).weight)

    def forward(self, rows: Tensor, hop: Hop, time: Tensor) -> Tensor:
        """`[U, outputs]` of `rows [R, inputs]` and φ of all offsets, `time [G, d]`."""
        # An embedding's gradient is summed in a fixed order, on all devices; that of an index is not.
        own, neighbours = functional.embedding(hop.own, rows), aligned(functional.embedding(hop.neighbours, rows))
        offsets = (hop.gaps[:, :, None] == torch.arange(len(time), device=time.device)).to(time.dtype)
        weights = self.weights(own, neighbours, offsets, hop.present, time)
        met = torch.cat([torch.bmm(weights, neighbours), torch.bmm(weights, offsets)], dim=2)
        attended = functional.linear(met.flatten(1), self._answers(time), self.out.bias)
        zeros = own.new_zeros(len(own), self.edge)
        query = torch.cat([own, zeros, time[:1].expand(len(own), -1)], dim=1)
        o = self.norm(self.dropout(attended) + query)
        merged: Tensor = self.merge(torch.cat([o, own], dim=1))
        return merged

    def weights(self, own: Tensor, neighbours: Tensor, offsets: Tensor, present: Tensor, time: Tensor) -> Tensor:
        """Attention `[U, H, n]`, after dropout, of `own [U, d]` to `neighbours [U, n, d]` and `offsets [U, n, G]`."""
        own = aligned(own)

        def ask(questions: Tensor) -> Tensor:
            product = functional.linear(own, questions[:, :, :-1].flatten(0, 1), questions[:, :, -1].flatten())
            return product.view(len(own), self.heads, -1)

        node, gap = map(ask, self._questions(time).split([neighbours.shape[2], len(time)], dim=1))
        scores = torch.bmm(node, neighbours.transpose(1, 2)) + torch.bmm(gap, offsets.transpose(1, 2))
        shares = scores.masked_fill(~present[:, None], _MASKED).softmax(dim=2)
        found: Tensor = self.dropout(shares * present[:, None])
        return found

    def _by_offset(self, projection: nn.Linear, time: Tensor) -> Tensor:
        """`[H, m / H, d + G]`: a projection of `[h ; 0 ; φ(Δ)]` as one of `[h ; one-hot of Δ]`, h aligned."""
        node, gap = aligned(projection.weight[:, : self.inputs]), projection.weight[:, -time.shape[1] :] @ time.T
        return torch.stack(torch.cat([node, gap], dim=1).chunk(self.heads))

    def _questions(self, time: Tensor) -> Tensor:
        """`[H, d + G, d + 1]`: what `[h_v ; 1]` asks of `[h ; one-hot of Δ]`, queries and keys in one."""
        keys, queries = self._by_offset(self.key, time), self._by_offset(self.query, time[:1])
        return keys.transpose(1, 2) @ queries / math.sqrt(keys.shape[1])

    def _answers(self, time: Tensor) -> Tensor:
        """`[m, H (d + G)]`: the values' projection and the one behind the heads in one."""
        values = self._by_offset(self.value, time)
        out = self.out.weight.view(-1, self.heads, values.shape[1]).transpose(0, 1)
        return (out @ values).transpose(0, 1).flatten(1)


class TGATModule(nn.Module):
    """All layers and the head, for `inputs` features a node."""

    def __init__(self, inputs: int, classes: int, settings: TGATSettings) -> None:
        super().__init__()
        s, width = settings, settings.dimension or inputs
        self.width, self.classes = width, classes
        self.time = TimeEncoding(width)
        self.layers = nn.ModuleList(
            TemporalAttention(before, width, width, width if s.edge_block else 0, s.heads, s.dropout)
            for before in (inputs, *[width] * (s.layers - 1))
        )
        first, second = _HEAD_WIDTHS
        self.head: nn.Module = Linear(width, classes)
        if s.head == "mlp":
            self.head = nn.Sequential(
                Linear(width, first), nn.ReLU(), nn.Dropout(s.head_dropout),
                Linear(first, second), nn.ReLU(), nn.Dropout(s.head_dropout),
                Linear(second, classes),
            )  # fmt: skip
        for part in self.head.modules():
            if isinstance(part, nn.Linear):
                nn.init.xavier_normal_(part.weight)

    def forward(self, table: Tensor, around: Neighbourhood, lane: int | None = None) -> tuple[Tensor, Tensor]:
        """Logits `[B, C]` and embeddings `[B, d]` of the roots, in lanes of so many targets or all at once.

        `table` are the features that the first hop has rows of.
        """
        count = aligned_width(around.offsets)
        time = self.time(torch.arange(count, device=table.device, dtype=table.dtype))
        h = table
        for layer, hop in zip(self.layers, around.hops, strict=True):
            if lane is None:
                h = layer(h, hop, time)
            else:
                h = torch.cat([layer(h, part, time) for part in hop.parts(lane)])[: len(hop.own)]
        return self.head(h), h


class TGATNetwork(Network):
    """TGAT for a task. Features of all steps and the events lie on its device."""

    def __init__(self, task: Task, settings: TGATSettings) -> None:
        assert task.features is not None
        self.task, self.settings = task, settings
        self.inputs, self._static = task.features.width, task.features.static
        # `[T N, F]`, step after step; `[N, F]` where all steps are the same.
        self._table = task.features.table(task.device).flatten(0, 1)
        self._neighbours = TemporalNeighbours(task.graph, task.device)
        self.module = self.new_module()

    def make_module(self) -> TGATModule:
        return TGATModule(self.inputs, self.task.graph.num_classes, self.settings)

    def prepare(self, nodes: Nodes, epoch: int) -> Neighbourhood:
        return self._around(nodes, stream(self.task.seed, "temporal neighbours", epoch))

    def _around(self, nodes: Nodes, key: int) -> Neighbourhood:
        s, roots = self.settings, torch.from_numpy(nodes.astype(np.int64)).to(self.task.device)
        return self._neighbours.hops(
            roots, self.task.last_step, s.layers, s.neighbours, key, s.sampling == "recent", self._static
        )

    def losses(self, module: nn.Module, prepared: Neighbourhood, nodes: Nodes) -> Tensor:
        labels = torch.from_numpy(self.task.labels(nodes)).to(self.task.device)
        return functional.cross_entropy(module(self._table, prepared)[0], labels).view(1)

    def infer(self, module: nn.Module, nodes: Nodes, on_nodes: Progress | None = None) -> tuple[Tensor, Tensor]:
        model = cast(TGATModule, module)
        # Not the task's seed: the networks of several folds have their own when they are trained, and one when loaded.
        key = stream(self.settings.seed, "temporal neighbours, inference")
        lane = LANE if self.task.device.type == "cpu" else GPU_LANE

        def answer(some: Nodes) -> tuple[Tensor, Tensor]:
            logits, z = model(self._table, self._around(some, key), lane)
            return logits.softmax(dim=1), z

        with evaluating(model), self.precision():
            return in_lanes(answer, nodes, lane, (model.classes, model.width), on_nodes)

    def description(self) -> dict[str, Any]:
        s = self.settings
        sizes = {"inputs": self.inputs, "classes": self.task.graph.num_classes, "dimension": s.dimension}
        return {**sizes, "layers": s.layers, "heads": s.heads, "edge_block": s.edge_block, "head": s.head}


class TGAT(GradientLearner[TGATSettings]):
    name = "tgat"
    title = "TGAT"
    summary = "attention over sampled earlier neighbours with a learned encoding of time"
    settings_type = TGATSettings

    def network(self, task: Task, training: bool = True) -> TGATNetwork:
        return TGATNetwork(task, self.settings)

    @property
    def memory_advice(self) -> str:
        s = self.settings
        return (
            f"Lower batch_size (now {s.batch_size}) or neighbours (now {s.neighbours}), or merge steps or lower "
            f"feature_dimension (now {s.feature_dimension}): the features of all steps are held in memory"
        )

    def memory(self, graph: DynamicGraph, width: int, static: bool, train: int) -> int:
        """At the least: the features, the events, and one batch of training."""
        s, entries, nodes, steps = self.settings, len(graph.snapshot.neighbours), graph.num_nodes, graph.num_steps
        with meta_device():
            module = TGATModule(width, graph.num_classes, s)
        weights = COPIES_OF_WEIGHTS * sum(parameter.numel() for parameter in module.parameters())
        table = (1 if static else steps) * nodes * width
        events = 2 * entries * (2 if graph.directed else 1) + nodes * (steps + 1) + 4 * nodes
        # A root draws some of its events more than once, and what follows is computed for each target once.
        degrees = np.maximum(graph.snapshot.degrees(), 1).astype(np.float64)
        distinct = float(np.mean(degrees * (1 - (1 - 1 / degrees) ** s.neighbours))) if nodes else 0.0
        targets = min(s.batch_nodes(train), train) * (1 + distinct) ** (s.layers - 1)
        read, hidden = width + steps + 1, s.dimension or width
        attention = width + hidden * (2 if s.edge_block else 1)
        # Neighbours with their offsets, what is asked of them and the sum, weights and masks, what the merge keeps.
        batch = targets * (s.neighbours * read + 3 * s.heads * (read + s.neighbours) + 5 * attention + 4 * width)
        return int(4 * (weights + table + events + batch))
