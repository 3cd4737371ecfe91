"""Dy-SIGN (Yin and others, 2024): spiking graph layers at an equilibrium of their firing rates, without unrolling.

The authors have published no code; beyond what their abstract says, this is our reconstruction. The rates of two layers
with feedback, at step i, with P_i = Â_i X_i and threshold V, are the fixed point of

    a1 = clamp((P_i F1 + b1 + Â_i a2 W + Â_i a2*_{i-1} W_p) / V, 0, 1)
    a2 = clamp((Â_i a1 F2 + b2 + P_i Fc) / V, 0, 1)

Fc is the information compensation: the inputs as they are, beside what spikes have left of them. A contraction forgets
where it began, so the step before enters as an input, by W_p. W is scaled down where ‖F2‖ ‖W‖ / V² would exceed 0.9;
since ‖Â‖ is 1, the two equations then are a contraction. Gradients are those of the fixed point (`equilibrium`), and
reach earlier steps through a2*_{i-1}.

a1 is a function of a2, so that a2 alone is iterated and kept. Contracting by 0.9 takes 90 iterations to a change of
1e-4; networks seen in practice take 5 to 10, and `equilibrium_residual` of a run says how far they came.

What is classified are the rates of the last step. On DBLP at 80 %, one seed, the mean over all steps with dropout 0.5
and a learning rate of 0.005 has 64 % of the validation nodes after 200 epochs; the defaults have 76 % at the best of
200, and mode=local with a learning rate of 0.005 has 74 % after some 20 epochs of mini-batches.

mode=local leaves Â out of all three sums over rates: a node then needs nothing but its own rows of P.
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, cast

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

from chronospike.config import AtLeastZero, Count, Dropout, Positive, Width
from chronospike.data.graph import DynamicGraph
from chronospike.methods.equilibrium import Iteration, SpectralNorm, equilibrium, iterate, rate, residual
from chronospike.methods.graph_convolution import (
    FullGraphLearner,
    FullGraphNetwork,
    FullGraphSettings,
    input_bytes,
    product,
)
from chronospike.nn import dropout
from chronospike.training.lanes import aligned, in_lanes
from chronospike.training.task import Nodes

Adjacency = Sequence[Tensor | None]
# The largest ‖F2‖ ‖W‖ / V².
CONTRACTION = 0.9
# Inference of mode=local takes this many nodes at a time: see `lanes`.
LANE = 1024


class DySIGNSettings(FullGraphSettings):
    batch_size: Count = Field(1024, description="for mode=local; mode=graph uses all training nodes in every step")
    learning_rate: Positive = 2e-2
    recompute: Literal["auto", "always", "never"] = Field("auto", description="not used: layers are always recomputed")
    hidden: Width = Field(128, description="neurons of the first layer")
    width: Width = Field(64, description="neurons of the second layer, whose rates are the embedding")
    threshold: Positive = Field(1.0, description="firing threshold V")
    dropout: Dropout = Field(0.2, description="dropout on the inputs of a step and on the readout")
    forward: Literal["rate", "spike"] = Field(
        "rate", description="firing rates by iterating their equation, or by simulating spikes"
    )
    iterations: Count = Field(30, description="maximum number, for the rates and for their gradient")
    tolerance: AtLeastZero = Field(
        1e-4, description="change, relative to the largest, at which iteration stops; 0: never"
    )
    latency: Count = Field(8, description="forward=spike: simulated time steps in every step of the graph")
    leak: Annotated[float, Field(gt=0, le=1)] = Field(
        1.0, description="forward=spike: fraction of the membrane potential that is kept; 1: no leak"
    )
    compensation: bool = Field(True, description="the second layer reads the inputs, too")
    detach_time: bool = Field(False, description="no gradient through the rates of the step before")
    readout: Literal["last", "mean", "concat"] = Field(
        "last",
        description="what is classified: the rates of the last step, the mean of all, or all side by side (weights "
        "then belong to a number of steps)",
    )
    mode: Literal["graph", "local"] = Field(
        "graph", description="'local': neighbours exchange inputs but no spikes; mini-batches"
    )


def spread(adjacency: Tensor | None, x: Tensor, weight: Tensor, base: Tensor) -> Tensor:
    """`[N, out]` base + Â x W in the cheaper order; base + x W where there is no Â."""
    if adjacency is None:
        return base + nn.functional.linear(aligned(x), aligned(weight.T))
    if weight.shape[0] > weight.shape[1]:
        return base + product(adjacency, x @ weight)
    return torch.addmm(base, product(adjacency, x), weight)


@dataclass(frozen=True)
class StepMap:
    """Φ of a step, in units of the threshold.

    Attributes:
        adjacency: `[N, N]` Â; None where spikes stay at their node.
        first, second: `[N, h]`, `[N, o]` what drives the layers whatever the state.
        feedback: `[o, h]` W.
        forward: `[h, o]` F2.
    """

    adjacency: Tensor | None
    first: Tensor
    second: Tensor
    feedback: Tensor
    forward: Tensor

    def hidden(self, state: Tensor) -> Tensor:
        """`[N, h]` a1 of a2."""
        return rate(spread(self.adjacency, state, self.feedback, self.first))

    def __call__(self, state: Tensor) -> Tensor:
        """`[N, o]` a2 of a2."""
        return rate(spread(self.adjacency, self.hidden(state), self.forward, self.second))

    def new_state(self) -> Tensor:
        """`[N, o]` zeros."""
        return self.first.new_zeros(len(self.first), self.forward.shape[1])


def simulate(phi: StepMap, latency: int, leak: float) -> tuple[Tensor, Tensor]:
    """Mean spikes `[N, h]` and `[N, o]` of both layers over `latency` time steps, each weighing `leak` of the next."""
    s1, s2 = torch.zeros_like(phi.first), phi.new_state()
    (u1, a1), (u2, a2), weight = (s1, s1), (s2, s2), 0.0
    for _ in range(latency):
        u1 = leak * (u1 - s1) + spread(phi.adjacency, s2, phi.feedback, phi.first)
        s1 = (u1 >= 1).to(u1)
        u2 = leak * (u2 - s2) + spread(phi.adjacency, s1, phi.forward, phi.second)
        s2 = (u2 >= 1).to(u2)
        a1, a2, weight = leak * a1 + s1, leak * a2 + s2, leak * weight + 1
    return a1 / weight, a2 / weight


def dropped(x: Tensor, share: float, key: int | None) -> Tensor:
    """`x` with a share of its entries zero, the same ones whenever the key is the same; `x` itself without a key."""
    if key is None:
        return x
    # Sixteen random bits an entry: a quarter of the draws.
    words = torch.empty(-(-x.numel() // 4), dtype=torch.int64, device=x.device)
    words.random_(-(2**63), None, generator=torch.Generator(x.device).manual_seed(key))
    keep = words.view(torch.int16)[: x.numel()].view(x.shape) >= dropout.limit(share) - 2**15
    return (x * keep).mul_(dropout.scale(share))


class DySIGN(nn.Module):
    """The network.

    Args:
        steps: whose rates are classified side by side; 0 to classify the mean of all.
    """

    def __init__(self, inputs: int, classes: int, settings: DySIGNSettings, steps: int = 0) -> None:
        super().__init__()
        self.settings, self.steps, s = settings, steps, settings
        self.first, self.second = nn.Linear(inputs, s.hidden), nn.Linear(s.hidden, s.width)
        self.feedback = nn.Linear(s.width, s.hidden, bias=False)
        self.memory = nn.Linear(s.width, s.hidden, bias=False)
        self.compensation = nn.Linear(inputs, s.width, bias=False) if s.compensation else None
        self.classify = nn.Linear(max(steps, 1) * s.width, classes)
        self.dropout = nn.Dropout(s.dropout)
        self.feedback_norm, self.second_norm = SpectralNorm(self.feedback.weight), SpectralNorm(self.second.weight)

    def forward(self, hops: Tensor, adjacency: Adjacency, rule: Iteration | None = None) -> Tensor:
        """`[N, d]` what is classified.

        Args:
            hops: `[T, N, F]` P.
            adjacency: Â of each step, or None.
            rule: by default that of the settings.
        """
        found = self.equilibria(hops, adjacency, rule)
        if self.steps:
            # As of an earlier step nothing has fired yet in those that follow.
            return nn.functional.pad(torch.cat(list(found), dim=1), (0, (self.steps - len(hops)) * self.settings.width))
        if self.settings.readout == "last":
            return deque(found, maxlen=1)[0]
        return functools.reduce(torch.add, found) / len(hops)

    def logits(self, z: Tensor) -> Tensor:
        """`[K, C]` of `z [K, d]`."""
        read = self.classify
        return nn.functional.linear(aligned(self.dropout(z)), aligned(read.weight), read.bias)

    def equilibria(self, hops: Tensor, adjacency: Adjacency, rule: Iteration | None = None) -> Iterator[Tensor]:
        """a2* `[N, o]` of every step."""
        s, weights, previous = self.settings, self.weights(), None
        rule = rule or Iteration(s.iterations, s.tolerance)
        for hop, matrix in zip(hops, adjacency, strict=True):
            # Of the host's generator, so that nothing waits for a GPU.
            key = int(torch.randint(2**62, ())) if self.training and s.dropout else None
            before = None if previous is None else previous.detach()
            previous = equilibrium(
                functools.partial(self.step_map, hop, matrix, key),
                functools.partial(self._solve, start=before, rule=rule),
                rule,
                before if s.detach_time else previous,
                *weights,
            )
            yield previous

    @torch.no_grad()
    def rates(self, hops: Tensor, adjacency: Adjacency) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """a1 `[N, h]` and a2 `[N, o]` of every step, without dropout, and how far a2 is from the equilibrium."""
        s, weights, previous = self.settings, self.weights(), None
        for hop, matrix in zip(hops, adjacency, strict=True):
            phi = self.step_map(hop, matrix, None, previous, *weights)
            if s.forward == "spike":
                hidden, previous = simulate(phi, s.latency, s.leak)
            else:
                previous = self._solve(phi, previous, Iteration(s.iterations, s.tolerance))
                hidden = phi.hidden(previous)
            yield hidden, previous, residual(phi(previous), previous)

    def weights(self) -> tuple[Any, ...]:
        """F1, b1, F2, b2, Fc, W_p and the scaled W, as `step_map` takes them."""
        most = CONTRACTION * self.settings.threshold**2
        size = self.feedback_norm(self.feedback.weight) * self.second_norm(self.second.weight)
        return (
            self.first.weight,
            self.first.bias,
            self.second.weight,
            self.second.bias,
            None if self.compensation is None else self.compensation.weight,
            self.memory.weight,
            self.feedback.weight * (most / size.clamp(min=most)),
        )

    def step_map(
        self, hop: Tensor, adjacency: Tensor | None, key: int | None, previous: Tensor | None,
        f1: Tensor, b1: Tensor, f2: Tensor, b2: Tensor, fc: Tensor | None, w_p: Tensor, w: Tensor,
    ) -> StepMap:  # fmt: skip
        """Φ of a step with inputs `hop [N, F]`; `key` is that of their dropout."""
        x, v = dropped(hop, self.settings.dropout, key), self.settings.threshold
        x, f1 = aligned(x), aligned(f1)
        first = nn.functional.linear(x, f1, b1)
        if previous is not None:
            first = spread(adjacency, previous, w_p.T, first)
        second = b2 if fc is None else nn.functional.linear(x, aligned(fc), b2)
        return StepMap(adjacency, first / v, second / v, w.T / v, f2.T / v)

    def _solve(self, phi: StepMap, start: Tensor | None, rule: Iteration) -> Tensor:
        """a2*; `start` is where to begin, which changes how long it takes, not what is found."""
        s = self.settings
        if s.forward == "spike":
            return simulate(phi, s.latency, s.leak)[1]
        return iterate(phi, phi.new_state() if start is None else start, rule)


class DySIGNNetwork(FullGraphNetwork[DySIGNSettings]):
    @property
    def is_local(self) -> bool:
        return self.settings.mode == "local"

    @property
    def readout_steps(self) -> int:
        return self.task.graph.num_steps if self.settings.readout == "concat" else 0

    def make_module(self) -> DySIGN:
        return DySIGN(self.width, self.task.graph.num_classes, self.settings, self.readout_steps)

    def batch_nodes(self, wanted: int, train: int) -> int:
        return min(wanted, train) if self.is_local else train

    def prepare(self, nodes: Nodes, epoch: int) -> tuple[Tensor, Tensor]:
        # Ascending rows are read faster.
        nodes = np.sort(nodes)
        return self.indices(nodes), self.labels(nodes)

    def losses(self, module: nn.Module, prepared: tuple[Tensor, Tensor], nodes: Nodes) -> Tensor:
        model, (rows, labels) = cast(DySIGN, module), prepared
        z = model(*self._read(rows)) if self.is_local else model(*self._read()).index_select(0, rows)
        return nn.functional.cross_entropy(model.logits(z), labels).view(1)

    def outputs(self, module: nn.Module, nodes: Nodes) -> tuple[Tensor, Tensor]:
        model = cast(DySIGN, module)
        if not self.is_local:
            z, rows = model(*self._read()), self.indices(nodes)
            return model.logits(z)[rows], z[rows]
        # All iterations: when to stop early would depend on the other nodes.
        rule = Iteration(self.settings.iterations, 0.0)

        def answer(some: Nodes) -> tuple[Tensor, Tensor]:
            z = model(*self._read(self.indices(some)), rule)
            return model.logits(z), z

        return in_lanes(answer, nodes, LANE, (self.task.graph.num_classes, model.classify.in_features))

    def _read(self, rows: Tensor | None = None) -> tuple[Tensor, Adjacency]:
        """P of all steps, of `rows` or all nodes, and Â where spikes travel."""
        hops = self.inputs.first_hop if rows is None else self.inputs.first_hop.index_select(1, rows)
        return hops, (None,) * len(hops) if self.is_local else self.inputs.adjacency

    def details(self) -> dict[str, Any]:
        test = self.task.split.test
        if not len(test):
            return {}
        rows = self.indices(test[np.linspace(0, len(test) - 1, min(LANE, len(test))).astype(int)])
        model, steps = cast(DySIGN, self.module.eval()), []
        with self.precision():
            for *rates, distance in model.rates(*self._read(rows if self.is_local else None)):
                means = [(a if self.is_local else a[rows]).mean() for a in rates]
                steps.append(torch.stack([*means, distance]))
        *layers, distances = torch.stack(steps, dim=1).cpu()
        return {
            "firing_rate": [float(layer.mean()) for layer in layers],
            "firing_rate_per_step": [layer.tolist() for layer in layers],
            "equilibrium_residual": float(distances.max()),
        }

    def description(self) -> dict[str, Any]:
        s = self.settings
        return {
            "method": "dy-sign",
            "inputs": self.width,
            "hidden": s.hidden,
            "width": s.width,
            "compensation": s.compensation,
            "mode": s.mode,
            "readout_steps": self.readout_steps,
            "classes": self.task.graph.num_classes,
        }


class DySIGNLearner(FullGraphLearner[DySIGNSettings]):
    name = "dy-sign"
    title = "Dy-SIGN"
    summary = "spiking graph layers at an equilibrium of their firing rates, by implicit differentiation"
    settings_type = DySIGNSettings
    network_type = DySIGNNetwork

    @property
    def memory_advice(self) -> str:
        s = self.settings
        return f"Lower hidden (now {s.hidden}) or width (now {s.width}), use mode=local, or merge steps"

    def inputs_bytes(self, graph: DynamicGraph, width: int) -> int:
        return input_bytes(graph, width, self.settings.graphs, with_features=False)

    def activation_bytes(self, graph: DynamicGraph, width: int, train: int, recompute: bool) -> int:
        s, steps = self.settings, graph.num_steps
        is_local, is_concat = s.mode == "local", s.readout == "concat"
        # Numbers a node, measured: its inputs under dropout with their mask, one application of Φ with its gradient or
        # the membranes of a simulation, the rates of all steps, and those side by side with their gradient.
        read = (1.25 + (steps if is_local else 0)) * width
        states = max(steps + 6, 3.25 * steps if is_concat else 0)
        row = read + (7 if s.forward == "spike" else 3.3) * s.hidden + states * s.width
        if not is_local:
            return round(4 * graph.num_nodes * row)
        # Inference holds what was found for all nodes.
        return round(4 * (min(s.batch_size, train) * row + graph.num_nodes * (steps if is_concat else 1) * s.width))
