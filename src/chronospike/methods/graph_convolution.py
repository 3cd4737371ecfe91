"""The base of methods that convolve all nodes of every step: normalised adjacencies, their product, the loop.

The adjacency of step t is Â_t = D^-1/2 (A_t + I) D^-1/2 (Kipf and Welling, 2017). What the first layer reads of it,
Â_t X_t, has no weights in it: it is computed once and kept.
"""

from __future__ import annotations

import math
import warnings
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Generic, Literal, Self, TypeVar, cast

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

from chronospike.config import AtLeastZero, Count, Positive
from chronospike.data.graph import DynamicGraph
from chronospike.methods.step_graphs import Kind, StepGraphs, step_graphs
from chronospike.training.gradient import GradientLearner
from chronospike.training.lanes import evaluating
from chronospike.training.learner import Progress
from chronospike.training.network import Network
from chronospike.training.node_features import NodeFeatures, input_width, is_static
from chronospike.training.settings import Selection, TrainingSettings
from chronospike.training.task import Nodes, Task

# Activations up to this size are kept for the backward pass. A constant, so that all machines compute the same.
RECOMPUTE_ABOVE = 6 * 1024**3
_INT32 = 2**31


class FullGraphSettings(TrainingSettings):
    """What methods on the full graph share."""

    epochs: Count = Field(200, description="an epoch is one step on all training nodes")
    batch_size: Count = Field(1024, description="not used: every step uses all training nodes")
    learning_rate: Positive = 1e-3
    weight_decay: AtLeastZero = 0.0
    selection: Selection = "micro_f1"
    patience: Count = Field(50, description="stop after this many epochs without a better validation score")
    graphs: Kind = Field(
        "cumulative", description="edges of all steps so far, or, with 'evolving', only of the step itself"
    )
    recompute: Literal["auto", "always", "never"] = Field(
        "auto",
        description="recompute activations in the backward pass; 'auto': beyond 6 GB, if that halves memory",
    )


Kinds = TypeVar("Kinds", bound=FullGraphSettings)
Call = Callable[..., Any]


def normalised_adjacency(graphs: StepGraphs, neighbours: Tensor, step: int) -> Tensor:
    """`[N, N]` Â of a step, sparse by rows; a node without edges has a 1 on the diagonal and no more.

    `neighbours` are those of the graphs, on the device that the matrix is for.
    """
    nodes, device = graphs.num_nodes, neighbours.device
    first = torch.tensor(graphs.indptr[:-1] + graphs.offsets[:, step], device=device)
    degrees = torch.tensor(graphs.offsets[:, step + 1] - graphs.offsets[:, step], device=device)
    starts, everyone = _starts(degrees), torch.arange(nodes, device=device)
    edges = int(starts[-1])
    entry, row = torch.arange(edges, device=device), everyone.repeat_interleave(degrees, output_size=edges)
    neighbour = neighbours[entry + (first - starts[:-1])[row]].long()
    # Each row begins one entry later than without the diagonal, and its own node takes the place that is left free.
    owner = everyone.repeat_interleave(degrees + 1, output_size=edges + nodes)
    columns = owner.index_copy(0, entry + row + (neighbour > row), neighbour)
    scale = (degrees + 1).double().rsqrt()
    values = (scale[owner] * scale[columns]).float()
    kind = torch.int32 if edges + nodes < _INT32 else torch.int64
    with warnings.catch_warnings():
        # Torch tells every user that such tensors are new, and some releases that they are not checked.
        warnings.filterwarnings("ignore", message="Sparse (CSR tensor support|invariant checks)")
        return torch.sparse_csr_tensor(
            _starts(degrees + 1).to(kind), columns.to(kind), values, (nodes, nodes), check_invariants=False
        )


def _starts(sizes: Tensor) -> Tensor:
    return nn.functional.pad(sizes.cumsum(0), (1, 0))


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, adjacency: Tensor, x: Tensor) -> Tensor:
        ctx.adjacency = adjacency
        return adjacency @ x

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, Tensor]:
        # The matrix is its own transpose, which torch would make.
        return None, ctx.adjacency @ gradients[0].contiguous()


def product(adjacency: Tensor, x: Tensor) -> Tensor:
    """`[N, F]` Â x of a symmetric Â; the gradient reaches `x` alone."""
    return cast(Tensor, _Product.apply(adjacency, x))  # type: ignore[no-untyped-call]


def recomputed(function: Callable[..., Any], *inputs: Any) -> Any:
    """`function(*inputs)` that keeps none of its activations: they are computed again, with the same random bits."""
    from torch.utils.checkpoint import checkpoint

    return checkpoint(function, *inputs, use_reentrant=False)


def kept(function: Callable[..., Any], *inputs: Any) -> Any:
    """`function(*inputs)`, with activations kept for the gradient: the plain twin of `recomputed`."""
    return function(*inputs)


@dataclass(frozen=True)
class StepInputs:
    """What the layers read of all nodes at T steps, on the device.

    Attributes:
        adjacency: Â_t of each step, `[N, N]` sparse.
        first_hop: `[T, N, F]` Â_t X_t.
        features: `[T, N, F]` X_t, if they were asked for.
    """

    adjacency: tuple[Tensor, ...]
    first_hop: Tensor
    features: Tensor | None

    @classmethod
    def of(cls, task: Task, kind: Kind, with_features: bool) -> StepInputs:
        """Those of a task up to its last step."""
        assert task.features is not None
        graphs, steps = step_graphs(task.graph, task.last_step, kind), task.last_step + 1
        neighbours = torch.tensor(graphs.neighbours, device=task.device)
        table = torch.empty((steps, graphs.num_nodes, task.features.width), device=task.device)
        kept_steps = (1 if task.features.static else steps) if with_features else 0
        features = torch.empty((kept_steps, *table.shape[1:]), device=task.device)
        adjacency, x = [], torch.empty(0)
        for step in range(steps):
            if step == 0 or not task.features.static:
                x = features_at(task.features, step, task.device)
                if with_features:
                    features[step] = x
            adjacency.append(normalised_adjacency(graphs, neighbours, step))
            table[step] = adjacency[-1] @ x
        return cls(tuple(adjacency), table, features.expand(table.shape) if with_features else None)

    @property
    def num_steps(self) -> int:
        return len(self.adjacency)

    def until(self, last_step: int) -> StepInputs:
        """The same tensors, seen up to a step: none depends on a later one."""
        features = None if self.features is None else self.features[: last_step + 1]
        return replace(
            self,
            adjacency=self.adjacency[: last_step + 1],
            first_hop=self.first_hop[: last_step + 1],
            features=features,
        )


def features_at(features: NodeFeatures, step: int, device: torch.device) -> Tensor:
    """`[N, F]` of all nodes at a step."""
    return torch.from_numpy(np.ascontiguousarray(features.at(step), dtype=np.float32)).to(device)


def input_bytes(graph: DynamicGraph, width: int, kind: Kind, with_features: bool) -> int:
    """Bytes of `StepInputs` of all steps of a graph with `width` inputs a node."""
    steps, nodes, ways = graph.num_steps, graph.num_nodes, 2 if graph.directed else 1
    if kind == "cumulative":
        edges = sum(int(graph.history.step_offsets[:, step + 1].sum(dtype=np.int64)) for step in range(steps))
    else:
        edges = len(graph.snapshot.neighbours)
    blocks = (1 if is_static(graph) and width == input_width(graph) else steps) if with_features else 0
    return 8 * (ways * edges + steps * nodes) + 4 * steps * nodes + 4 * (steps + blocks) * nodes * width


class FullGraphNetwork(Network, Generic[Kinds]):
    """A network that reads all nodes of all steps for every training step.

    Args:
        recompute: keep fewer activations; see `call`, by which a module is to call its layers.
        with_features: whether it reads X_t beside Â_t X_t.
    """

    def __init__(self, task: Task, settings: Kinds, recompute: bool = False, with_features: bool = False) -> None:
        self.settings, self.with_features = settings, with_features
        self.call: Call = recomputed if recompute else kept
        self.inputs = StepInputs.of(task, settings.graphs, self.with_features)
        self.set_task(task)
        self.module = self.new_module()

    @abstractmethod
    def outputs(self, module: nn.Module, nodes: Nodes) -> tuple[Tensor, Tensor]:
        """Logits `[K, C]` and embeddings `[K, d]` of `nodes`, whatever else is asked for; without gradient."""

    @property
    def width(self) -> int:
        """Inputs per node."""
        return self.inputs.first_hop.shape[2]

    def set_task(self, task: Task) -> None:
        """Take another split, seed or last step; `inputs` are those of the task already."""
        self.task = task

    def for_task(self, task: Task) -> Self:
        other = super().for_task(task)
        if task.last_step < self.inputs.num_steps:
            other.inputs = self.inputs.until(task.last_step)
        else:
            other.inputs = StepInputs.of(task, self.settings.graphs, self.with_features)
        other.set_task(task)
        return other

    def batch_nodes(self, wanted: int, train: int) -> int:
        return train

    @torch.no_grad()
    def infer(self, module: nn.Module, nodes: Nodes, on_nodes: Progress | None = None) -> tuple[Tensor, Tensor]:
        with evaluating(module), self.precision():
            logits, embeddings = self.outputs(module, nodes)
        if on_nodes is not None:
            on_nodes(len(nodes), len(nodes))
        return logits.softmax(dim=1).cpu(), embeddings.cpu()

    def indices(self, nodes: Nodes) -> Tensor:
        """`[K]` on the device."""
        return torch.from_numpy(nodes.astype(np.int64)).to(self.task.device)

    def labels(self, nodes: Nodes) -> Tensor:
        """`[K]` class indices on the device."""
        return torch.from_numpy(self.task.labels(nodes)).to(self.task.device)


class FullGraphLearner(GradientLearner[Kinds]):
    """A method that brings a `FullGraphNetwork`, and counts what it needs before it takes it."""

    network_type: ClassVar[type[FullGraphNetwork[Any]]]

    def network(self, task: Task, training: bool = True) -> FullGraphNetwork[Kinds]:
        assert task.features is not None
        recompute = self.recomputes(task.graph, task.features.width, len(task.split.train))
        return self.network_type(task, self.settings, recompute)

    @abstractmethod
    def activation_bytes(self, graph: DynamicGraph, width: int, train: int, recompute: bool) -> int:
        """Bytes of a training step on `train` nodes beside the inputs, gradients included."""

    @abstractmethod
    def inputs_bytes(self, graph: DynamicGraph, width: int) -> int:
        """Bytes that are kept from step to step."""

    def recomputes(self, graph: DynamicGraph, width: int, train: int) -> bool:
        """Whether activations are computed twice."""
        if self.settings.recompute != "auto":
            return self.settings.recompute == "always"
        once, twice = (self.activation_bytes(graph, width, train, recompute) for recompute in (False, True))
        return once > RECOMPUTE_ABOVE and 2 * twice < once

    def memory(self, graph: DynamicGraph, width: int, static: bool, train: int) -> int:
        again = self.recomputes(graph, width, train)
        return self.inputs_bytes(graph, width) + self.activation_bytes(graph, width, train, again)

    def estimate(self, graph: DynamicGraph, width: int) -> dict[str, Any]:
        train = math.ceil(len(graph.labelled) * (self.settings.ratio - self.settings.validation))
        return {"epochs": self.settings.epochs, "memory_bytes": self.memory(graph, width, False, train)}
