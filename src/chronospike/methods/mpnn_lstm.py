"""MPNN-LSTM (Panagopoulos, Nikolentzos and Vazirgiannis, 2021): graph convolutions of every step, two LSTMs over them.

Published for forecasts of a number per node; here a softmax over the classes takes the place of the last ReLU, the
window is all steps up to the last, and of the inputs only those of the last step skip the layers: theirs were single
counts, and ours are whole embeddings.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

from chronospike.config import Count, Dropout, Width
from chronospike.data.graph import DynamicGraph
from chronospike.errors import InputError
from chronospike.methods.graph_convolution import (
    Call,
    FullGraphLearner,
    FullGraphNetwork,
    FullGraphSettings,
    StepInputs,
    features_at,
    input_bytes,
    kept,
    product,
)
from chronospike.training.task import Nodes, Task

# Inference gives the recurrent layers this many nodes at a time, the last of them padded: products of other shapes may
# round differently, and the result for a node must not depend on the other nodes of a batch.
LANE, GPU_LANE = 1024, 16384


class MPNNLSTMSettings(FullGraphSettings):
    epochs: Count = Field(200, description="an epoch is one step on all training nodes; published: 300")
    patience: Count = Field(
        50, description="stop after this many epochs without a better validation score; published: 100"
    )
    hidden: Width = Field(64, description="width of every layer")
    dropout: Dropout = 0.5
    skip: Literal["last", "full", "none"] = Field(
        "last", description="skip connection from the inputs: of the last step, of all (published), or none"
    )
    chunk: Count = Field(100_000, description="nodes that the LSTMs process at a time; affects memory, not results")

    def check(self) -> None:
        super().check()
        if self.weight_average:
            raise InputError("weight_average must be 0: batch normalisation keeps statistics that it does not average")


class Convolution(nn.Module):
    """Of Â_t H the next H: a product with weights, ReLU, and batch normalisation over the rows of all steps.

    Steps come one at a time, so the statistics do too.
    """

    def __init__(self, inputs: int, hidden: int) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(inputs, hidden), nn.BatchNorm1d(hidden)
        nn.init.xavier_uniform_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)

    def forward(self, hop: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
        """`[N, h]` of `hop [N, F]`, with these statistics."""
        scale = self.norm.weight * (variance + self.norm.eps).rsqrt()
        return torch.relu(self.linear(hop)) * scale + (self.norm.bias - mean * scale)

    def moments(self, hop: Tensor) -> tuple[Tensor, Tensor]:
        """Variance and mean `[h]` of what is normalised at one step."""
        return torch.var_mean(torch.relu(self.linear(hop)), dim=0, correction=0)

    def statistics(self, hops: Sequence[Tensor], call: Call) -> tuple[Tensor, Tensor]:
        """Mean and variance `[h]` of all steps, which are remembered; those remembered where nothing is trained."""
        norm = self.norm
        assert norm.running_mean is not None
        assert norm.running_var is not None
        assert norm.momentum is not None
        assert norm.num_batches_tracked is not None
        if not self.training:
            return norm.running_mean, norm.running_var
        moments = zip(*(call(self.moments, hop) for hop in hops), strict=True)
        variances, means = (torch.stack(values) for values in moments)
        mean, variance = means.mean(dim=0), variances.mean(dim=0) + means.var(dim=0, correction=0)
        rows = len(hops) * len(hops[0])
        with torch.no_grad():
            norm.running_mean.lerp_(mean, norm.momentum)
            norm.running_var.lerp_(variance * (rows / max(rows - 1, 1)), norm.momentum)
            norm.num_batches_tracked += 1
        return mean, variance


class MPNNLSTM(nn.Module):
    """The network.

    Args:
        skip: how many inputs of a node reach the dense layer as they are.
    """

    def __init__(self, inputs: int, hidden: int, classes: int, dropout: float, skip: int) -> None:
        super().__init__()
        self.first, self.second = Convolution(inputs, hidden), Convolution(hidden, hidden)
        self.lstm_1, self.lstm_2 = nn.LSTM(2 * hidden, hidden), nn.LSTM(hidden, hidden)
        self.dense = nn.Linear(2 * hidden + skip, hidden)
        self.classify = nn.Linear(hidden, classes)
        self.dropout = nn.Dropout(dropout)
        self.skip = skip

    def forward(
        self, inputs: StepInputs, raw: Tensor, rows: Tensor, chunk: int, call: Call = kept
    ) -> tuple[Tensor, Tensor]:
        """Logits `[K, C]` and embeddings `[K, h]` of the nodes `rows [K]`, after the last step.

        Args:
            raw: `[S, N, F]` what skips the layers, of the last S steps.
            chunk: nodes that the LSTMs take at a time.
            call: `recomputed` keeps fewer activations.
        """
        # `split` has one gradient for all chunks; a slice for each would have a whole table of zeros each.
        steps = [part.split(chunk) for part in self.convolve(inputs, rows, call)]
        parts = zip(rows.split(chunk), *steps, strict=True)
        z = torch.cat([call(self.read_out, raw, *part) for part in parts])
        return torch.cat([self.classify(part) for part in self.dropout(z).split(chunk)]), z

    def convolve(self, inputs: StepInputs, rows: Tensor, call: Call = kept) -> list[Tensor]:
        """`[K, h]` of the nodes `rows`: H1 of every step, then H2 of every step."""
        known = self.first.statistics(inputs.first_hop.unbind(), call)
        pairs = zip(inputs.first_hop, inputs.adjacency, strict=True)
        near, hops = zip(*(call(self._near, hop, adjacency, rows, *known) for hop, adjacency in pairs), strict=True)
        known = self.second.statistics(hops, call)
        return [*near, *(call(self._far, hop, rows, *known) for hop in hops)]

    # Rows are taken of all nodes' values, not computed alone: no bit depends on which nodes are asked for.

    def _near(self, hop: Tensor, adjacency: Tensor, rows: Tensor, *statistics: Tensor) -> tuple[Tensor, Tensor]:
        """H1 of `rows` at a step, and `[N, h]` Â H1."""
        h = self.dropout(self.first(hop, *statistics))
        return h.index_select(0, rows), product(adjacency, h)

    def _far(self, hop: Tensor, rows: Tensor, *statistics: Tensor) -> Tensor:
        """H2 of `rows` at a step."""
        h: Tensor = self.dropout(self.second(hop, *statistics))
        return h.index_select(0, rows)

    def read_out(self, raw: Tensor, rows: Tensor, *steps: Tensor) -> Tensor:
        """`[B, h]` of the nodes `rows [B]`; `steps` are `[B, h]` each, as `convolve` gives them."""
        half = len(steps) // 2
        q = torch.cat([torch.stack(steps[:half]), torch.stack(steps[half:])], dim=2)
        states, _ = self.lstm_1(q)
        last = self.lstm_2(states)[0][-1]
        skipped = raw.index_select(1, rows).transpose(0, 1).flatten(1)
        # As of an earlier step the window is not full yet.
        skipped = nn.functional.pad(skipped, (self.skip - skipped.shape[1], 0))
        z: Tensor = self.dense(torch.cat([states[-1], last, skipped], dim=1))
        return z.relu()


@contextmanager
def _exact_rnn() -> Iterator[None]:
    """No TF32 in a GPU's recurrent layers, which have a switch of their own; before torch 2.9 it had another name."""
    cudnn = torch.backends.cudnn
    place, name, exact = (
        (cudnn.rnn, "fp32_precision", "ieee") if hasattr(cudnn, "rnn") else (cudnn, "allow_tf32", False)
    )
    before = getattr(place, name)
    setattr(place, name, exact)
    try:
        yield
    finally:
        setattr(place, name, before)


class MPNNLSTMNetwork(FullGraphNetwork[MPNNLSTMSettings]):
    def __init__(self, task: Task, settings: MPNNLSTMSettings, recompute: bool = False) -> None:
        super().__init__(task, settings, recompute, with_features=settings.skip == "full")

    def set_task(self, task: Task) -> None:
        super().set_task(task)
        assert task.features is not None
        if self.settings.skip == "full":
            assert self.inputs.features is not None
            self.raw = self.inputs.features
        elif self.settings.skip == "last":
            self.raw = features_at(task.features, task.last_step, task.device)[None]
        else:
            self.raw = self.inputs.first_hop[:0]

    @property
    def skip_width(self) -> int:
        return {"last": 1, "full": self.task.graph.num_steps, "none": 0}[self.settings.skip] * self.width

    def make_module(self) -> MPNNLSTM:
        s = self.settings
        return MPNNLSTM(self.width, s.hidden, self.task.graph.num_classes, s.dropout, self.skip_width)

    def prepare(self, nodes: Nodes, epoch: int) -> tuple[Tensor, Tensor]:
        # A full batch has no order of its own, and ascending rows are read faster.
        nodes = np.sort(nodes)
        return self.indices(nodes), self.labels(nodes)

    def losses(self, module: nn.Module, prepared: tuple[Tensor, Tensor], nodes: Nodes) -> Tensor:
        rows, labels = prepared
        logits, _ = module(self.inputs, self.raw, rows, self.settings.chunk, self.call)
        return nn.functional.cross_entropy(logits, labels).view(1)

    def outputs(self, module: nn.Module, nodes: Nodes) -> tuple[Tensor, Tensor]:
        lane = LANE if self.task.device.type == "cpu" else GPU_LANE
        padded = np.zeros(max(1, -(-len(nodes) // lane)) * lane, dtype=np.int64)
        padded[: len(nodes)] = nodes
        logits, z = module(self.inputs, self.raw, self.indices(padded), lane)
        return logits[: len(nodes)], z[: len(nodes)]

    @contextmanager
    def precision(self) -> Iterator[None]:
        with super().precision(), _exact_rnn() if self.task.device.type == "cuda" else nullcontext():
            yield

    def description(self) -> dict[str, Any]:
        return {
            "method": "mpnn-lstm",
            "inputs": self.width,
            "hidden": self.settings.hidden,
            "skip": self.skip_width,
            "classes": self.task.graph.num_classes,
        }


class MPNNLSTMLearner(FullGraphLearner[MPNNLSTMSettings]):
    name = "mpnn-lstm"
    title = "MPNN-LSTM"
    summary = "two graph convolutions of every step, and two LSTMs over the steps"
    settings_type = MPNNLSTMSettings
    network_type = MPNNLSTMNetwork

    @property
    def memory_advice(self) -> str:
        return f"Lower hidden (now {self.settings.hidden}) or chunk (now {self.settings.chunk:,}), or merge steps"

    def inputs_bytes(self, graph: DynamicGraph, width: int) -> int:
        last = 4 * graph.num_nodes * width if self.settings.skip == "last" else 0
        return last + input_bytes(graph, width, self.settings.graphs, self.settings.skip == "full")

    def activation_bytes(self, graph: DynamicGraph, width: int, train: int, recompute: bool) -> int:
        s, steps, nodes = self.settings, graph.num_steps, graph.num_nodes
        # In rows of h numbers, measured with both LSTMs on a CPU: a node's gates, cells, states and their gradients.
        held = 48 * steps * (min(s.chunk, train) if recompute else train)
        # Of the training nodes H1 and H2 of every step and their gradients; of all nodes Â H1 of every step, with its
        # gradient later on, or whatever both layers keep.
        chosen = 4 * steps * train
        if recompute:
            rows = max(nodes * (steps + 2) + chosen + held, nodes * (2 * steps + 6) + chosen // 2)
        else:
            rows = 6 * steps * nodes + chosen + held
        return 4 * s.hidden * rows
