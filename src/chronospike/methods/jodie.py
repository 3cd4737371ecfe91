"""JODIE (Kumar et al., KDD 2019): a recurrent state for every node, updated by its partners event by event.

An epoch is one pass over time from the initial states. At the end of each span of it the optimiser steps and gradients
stop. The loss of a span: the classes of the training nodes that were active in it, how well each node's next partner is
predicted, and how far states move. The published program is for users and items, whose classes change; ours, for nodes
of one kind whose classes do not, is a reconstruction: what the benchmark ran is not published.

What is classified is a state that was projected to the end, joined with the node's features of the last step. The head
learns from the same: the state after a span, projected to the node's next event or to the end, and features of the last
step. On DBLP, with snapshots and no self-supervised losses, the best validation Micro-F1 of 33 epochs is 68 %, and with
the features of the span's own step that of 40 epochs is 61 % (one seed each).
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, Literal, Self, cast

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from chronospike.config import AtLeastZero, Count, Positive, Width
from chronospike.data.graph import DynamicGraph
from chronospike.memory import available_bytes
from chronospike.methods.jodie_batches import Schedule, Span, batch_schedule, count_batches, span_numbers, step_schedule
from chronospike.methods.jodie_model import JODIEModule, Shape, final_states, pass_span, self_supervised_losses
from chronospike.training.bagging import BagFitted
from chronospike.training.gradient import GradientFitted, GradientLearner
from chronospike.training.learner import Progress
from chronospike.training.network import Network
from chronospike.training.node_features import NodeFeatures
from chronospike.training.run_folder import RunFolder
from chronospike.training.settings import Selection, TrainingSettings
from chronospike.training.step import Step, StepContext
from chronospike.training.task import Nodes, Task
from chronospike.training.weights import description, load_weights

# Up to so many nodes and t-batches an epoch the faithful way takes seconds.
_MOST_NODES, _MOST_BATCHES = 100_000, 4096
# Of an update: its node, partners, times, roles, and where its states are.
_INDEX_BYTES = 60
# Nodes classified at once.
_CHUNK = 65_536
# Steps whose features are needed at once: a step, the one before it and the last.
_LEAST_BLOCKS = 3
# In place of the number of a bad span.
_NONE = 2**62


class JODIESettings(TrainingSettings):
    """JODIE. An epoch is one pass over time, so `batch_size`, `min_batches` and `accumulate` change nothing."""

    epochs: Count = 50
    learning_rate: Positive = 1e-3
    weight_decay: AtLeastZero = 1e-5
    selection: Selection = "micro_f1"
    patience: Count = Field(
        20, description="stop after this many epochs without a better validation score; never in the published program"
    )
    dimension: Width = Field(128, description="length of a node's state")
    mode: Literal["auto", "tbatch", "snapshot"] = Field(
        "auto",
        description="'tbatch': event by event, as published; 'snapshot': one update per node and step; 'auto': tbatch "
        "up to 100,000 nodes and 4,096 t-batches",
    )
    spans: Count = Field(
        500, description="tbatch: optimiser steps per epoch; a span is also cut where a step of the graph begins"
    )
    partner: Literal["mean", "last"] = Field(
        "mean", description="snapshot: what a node reads of its partners in a step, their mean or the last of them"
    )
    tie: bool = Field(
        True, description="one recurrent cell for both ends of an event; if false, one for sources and one for targets"
    )
    partner_features: bool = Field(False, description="an update also reads the partner's features of the step")
    join_features: bool = Field(True, description="classify a node's state together with its features")
    self_supervised: AtLeastZero = Field(
        1.0, description="weight of the self-supervised loss (partner prediction and smoothness)"
    )
    hidden: Width = Field(50, description="hidden units of the classifier")


class FeatureBlocks:
    """The features of all nodes at a step, on a device, with a row of zeros for "no node" at the end."""

    def __init__(self, features: NodeFeatures, device: torch.device) -> None:
        self._features, self._device = features, device
        block = 4 * (features.num_nodes + 1) * features.width
        free = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else available_bytes()
        # All are kept where they fit easily.
        self._most = features.blocks if features.blocks * block <= free / 2 else _LEAST_BLOCKS
        self._kept: dict[int, Tensor] = {}

    def at(self, step: int) -> Tensor:
        """`[N + 1, x]` of `step`."""
        step = 0 if self._features.static else step
        values = self._kept.pop(step, None)
        if values is None:
            while len(self._kept) >= self._most:
                # The one that was used least recently.
                del self._kept[next(iter(self._kept))]
            values = torch.zeros(self._features.num_nodes + 1, self._features.width, device=self._device)
            values[:-1] = torch.from_numpy(self._features.at(step))
        self._kept[step] = values
        return values

    def before(self, step: int) -> Tensor:
        """`[N + 1, x]` as they were before anything happened in `step`: zero before the first."""
        if step == 0 and not self._features.static:
            return torch.zeros(1, self._features.width, device=self._device).expand(self._features.num_nodes + 1, -1)
        return self.at(step if self._features.static else step - 1)


class JODIENetwork(Network):
    """The states of all nodes along the events of a task.

    Attributes:
        mode: tbatch or snapshot.
        schedule: the events up to the task's last step.
    """

    loss_terms = ("classification_loss", "prediction_loss", "smoothness_loss")

    def __init__(self, task: Task, settings: JODIESettings) -> None:
        assert task.features is not None
        self.task, self.settings = task, settings
        self.mode = _mode(task.graph, task.last_step, settings)
        self.features, self.schedule = FeatureBlocks(task.features, task.device), self._new_schedule()
        self.module = self.new_module()

    def _new_schedule(self) -> Schedule:
        task, s = self.task, self.settings
        events = task.graph.require(events=True).events
        assert events is not None
        log, nodes = events.until(task.last_step), task.graph.num_nodes
        if self.mode == "tbatch":
            return batch_schedule(log, nodes, s.spans, task.device)
        return step_schedule(log, nodes, s.partner == "last", task.device)

    def make_module(self) -> JODIEModule:
        return JODIEModule(self._shape, self.schedule.gap_mean, self.schedule.gap_std)

    @property
    def _shape(self) -> Shape:
        """The network that the settings describe."""
        s, features = self.settings, self.task.features
        assert features is not None
        classes, roles = self.task.graph.num_classes, 1 if s.tie else 2
        return Shape(s.dimension, features.width, classes, s.hidden, roles, s.partner_features, s.join_features)

    def for_task(self, task: Task) -> Self:
        other = super().for_task(task)
        if task.last_step != self.task.last_step:
            other.schedule = other._new_schedule()
        return other

    def batch_nodes(self, wanted: int, train: int) -> int:
        return train

    def new_step(self, context: StepContext) -> Step:
        return SpanStep(context, self)

    def losses(self, module: nn.Module, prepared: Any, nodes: Nodes) -> Tensor:
        """Of a whole pass with the weights as they are: means over the spans."""
        model, rows, table = cast(JODIEModule, module), self.training_rows(nodes), self.new_table()
        found = [self.span_losses(model, *one, table) for one in zip(self.schedule.spans, *rows, strict=True)]
        return torch.stack(found).mean(dim=0) if found else table.new_zeros(1 + len(self.loss_terms))

    def new_table(self) -> Tensor:
        """`[N + 1, d]` states at the beginning: zero, see `pass_span`."""
        return torch.zeros(self.task.graph.num_nodes + 1, self.settings.dimension, device=self.task.device)

    def training_rows(self, nodes: Nodes) -> tuple[list[Tensor], list[Tensor]]:
        """For each span which of its active nodes are among `nodes`, and their classes."""
        is_known = np.zeros(self.task.graph.num_nodes, dtype=bool)
        is_known[nodes] = True
        device, rows, classes = self.task.device, [], []
        for span in self.schedule.spans:
            active = span.nodes.cpu().numpy()
            found = np.flatnonzero(is_known[active])
            rows.append(torch.from_numpy(found).to(device))
            classes.append(torch.from_numpy(self.task.labels(active[found])).to(device))
        return rows, classes

    def span_losses(self, module: JODIEModule, span: Span, rows: Tensor, classes: Tensor, table: Tensor) -> Tensor:
        """`[4]`: the total and its parts; the states in `table [N + 1, d]` become those after the span."""
        s = self.settings
        passed = pass_span(module, span, table, self.features.at(span.step) if s.partner_features else None)
        zero = passed.final.new_zeros(())
        classification, others = zero, torch.stack([zero, zero])
        if len(rows):
            states = module.project(passed.final[rows], span.ahead[rows])
            classification = cross_entropy(module.logits(states, self._joined(span.nodes[rows])), classes)
        if s.self_supervised:
            others = self_supervised_losses(module, span, passed, table, self.features.before(span.step))
        table.index_copy_(0, span.nodes, passed.final.detach())
        total = classification + s.self_supervised * others.sum()
        return torch.cat([torch.stack([total, classification]), others])

    def _joined(self, nodes: Tensor) -> Tensor | None:
        """`[K, x]` the features that states of `nodes [K]` are joined with, if they are."""
        return self.features.at(self.task.last_step)[nodes] if self.settings.join_features else None

    @torch.no_grad()
    def infer(self, module: nn.Module, nodes: Nodes, on_nodes: Progress | None = None) -> tuple[Tensor, Tensor]:
        model, table, spans = cast(JODIEModule, module.eval()), self.new_table(), self.schedule.spans
        with self.precision():
            for number, span in enumerate(spans):
                x = self.features.at(span.step) if self.settings.partner_features else None
                table.index_copy_(0, span.nodes, pass_span(model, span, table, x).final)
                if on_nodes is not None:
                    on_nodes(len(nodes) * number // len(spans), len(nodes))
            # Of all nodes in the same chunks, since products of other sizes may differ in the last bit.
            states = final_states(model, self.schedule, table)
            everyone = torch.arange(len(states), device=states.device).split(_CHUNK)
            logits = [model.logits(states[some], self._joined(some)) for some in everyone]
        wanted = torch.from_numpy(np.asarray(nodes, dtype=np.int64)).to(self.task.device)
        if on_nodes is not None:
            on_nodes(len(nodes), len(nodes))
        return torch.cat(logits)[wanted].softmax(dim=1).cpu(), states[wanted].cpu()

    def description(self) -> dict[str, Any]:
        return {"mode": self.mode, **asdict(self._shape)}

    def details(self) -> dict[str, Any]:
        return {"mode": self.mode, "spans": len(self.schedule.spans)}


class SpanStep(Step):
    """A pass over all spans with a step of the optimiser after each; nothing waits for the device before the end."""

    def __init__(self, context: StepContext, network: JODIENetwork) -> None:
        self.context, self.network = context, network
        self._rows = network.training_rows(network.task.split.train)

    def run(self, nodes: Nodes, epoch: int, number: int, prepared: Any = None) -> tuple[Tensor, bool]:
        c, network = self.context, self.network
        module, table = cast(JODIEModule, network.module), network.new_table()
        totals = torch.zeros(1 + len(network.loss_terms), device=table.device)
        first_bad = torch.full((), _NONE, dtype=torch.int64, device=table.device)
        spans = network.schedule.spans
        for place, one in enumerate(zip(spans, *self._rows, strict=True)):
            with network.precision():
                losses = network.span_losses(module, *one, table)
                if losses.requires_grad:
                    losses[0].backward()
                    is_good = torch.isfinite(losses[0].detach() + c.clip())
                    c.optimiser.step(found_inf=(~is_good).float())
                    c.optimiser.zero_grad()
                    first_bad = torch.where(is_good, first_bad, first_bad.clamp(max=place))
            totals += losses.detach()
        if int(first_bad) != _NONE:
            raise c.on_bad("loss or its gradient", int(first_bad))
        return totals / max(1, len(spans)), True


def _mode(graph: DynamicGraph, last_step: int, settings: JODIESettings) -> Literal["tbatch", "snapshot"]:
    if settings.mode != "auto":
        return settings.mode
    if graph.num_nodes > _MOST_NODES:
        return "snapshot"
    events = graph.require(events=True).events
    assert events is not None
    is_short = count_batches(events.until(last_step), graph.num_nodes, settings.spans) <= _MOST_BATCHES
    return "tbatch" if is_short else "snapshot"


class JODIE(GradientLearner[JODIESettings]):
    name = "jodie"
    title = "JODIE"
    summary = "a recurrent state for every node, updated by its partners event by event"
    settings_type = JODIESettings

    def network(self, task: Task, training: bool = True) -> JODIENetwork:
        return JODIENetwork(task, self.settings)

    def load(self, task: Task, run: RunFolder) -> GradientFitted | BagFitted:
        # Weights are those of the mode that was chosen on the graph of the training.
        mode = description(load_weights(run.weights)[1]).get("mode", self.settings.mode)
        return super(JODIE, type(self)(self.settings.change(mode=mode))).load(task, run)

    def check(self, graph: DynamicGraph) -> None:
        super().check(graph)
        graph.require(events=True)

    @property
    def memory_advice(self) -> str:
        return f"Lower dimension (now {self.settings.dimension}), or set mode=snapshot or self_supervised=0"

    def memory(self, graph: DynamicGraph, width: int, static: bool, train: int) -> int:
        s, nodes, log = self.settings, graph.num_nodes, graph.require(events=True).events
        assert log is not None
        if _mode(graph, graph.num_steps - 1, s) == "tbatch":
            updates = 2 * int(np.bincount(span_numbers(log, s.spans)).max())
        else:
            updates = min(2 * int(np.diff(log.step_offsets).max()), nodes)
        # The states, and what is made of them at the end; features of a step, of the one before and of the last.
        tables = nodes * (4 * s.dimension + min(graph.num_steps, _LEAST_BLOCKS) * width)
        # Of every update in a span the states around it and their gradient; what the partner is predicted from and as.
        values = 6 * s.dimension + (7 * (s.dimension + width) if s.self_supervised else 0)
        return 4 * (tables + updates * values) + _INDEX_BYTES * 2 * len(log)
