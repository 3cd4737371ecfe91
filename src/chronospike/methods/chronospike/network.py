"""ChronoSpike for a task: the sampler, what the network reads of sampled trees, its loss, and inference."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any, Self, cast

import numpy as np
import torch
from torch import Tensor, nn

from chronospike.errors import StorageError, one_line
from chronospike.methods.chronospike.captured_step import CapturedStep
from chronospike.methods.chronospike.inference import firing_rates, infer
from chronospike.methods.chronospike.root_table import RootTable, root_widths
from chronospike.methods.chronospike.settings import ChronoSpikeSettings
from chronospike.methods.chronospike.tree_inputs import LabelInputs, TreeInputs
from chronospike.nn.dispatch import Choice, plan_kernels, product_precision
from chronospike.nn.lif import AdaptiveLIF
from chronospike.nn.losses import Objective
from chronospike.nn.meta_device import meta_device
from chronospike.nn.model import Architecture, ChronoSpike
from chronospike.nn.tree_features import TreeFeatures
from chronospike.rng import stream
from chronospike.sampling.hybrid import HybridSampler
from chronospike.sampling.tree import NeighbourTree
from chronospike.training.bagging import FOLDS
from chronospike.training.learner import Progress
from chronospike.training.network import Network, balanced_class_weights
from chronospike.training.step import Step, StepContext
from chronospike.training.task import Nodes, Task
from chronospike.training.weights import check_fit, description


def architecture(settings: ChronoSpikeSettings, inputs: int, classes: int, directed: bool = False) -> Architecture:
    """The network that the settings describe: every field that they have, by its name."""
    s = settings
    shared = {field.name: getattr(s, field.name) for field in fields(Architecture) if hasattr(s, field.name)}
    met, numbers = root_widths(s, classes, directed)
    return Architecture(inputs + (classes if s.label_inputs else 0), classes, met=met, numbers=numbers, **shared)


def describe(a: Architecture) -> dict[str, Any]:
    """Ready for JSON. Without labels as inputs it is what it was before there were any: weights of then still fit."""
    known = ("met", "numbers", "sequence_channels", "head", "head_dropout")
    fields = {name: value for name, value in asdict(a).items() if name not in known or a.met or a.numbers}
    return {**fields, "hidden": list(a.hidden)}


def rebuild(tensors: Mapping[str, Tensor], metadata: Mapping[str, str], path: Path) -> ChronoSpike | nn.ModuleList:
    """The network that `load_weights` read from `path`, on the CPU, or with folds all of them, without a graph.

    What does not fit its description is named.
    """
    try:
        fields = description(metadata)
        count = int(fields.pop(FOLDS, 0))
        if not 0 <= count <= 100:
            raise ValueError(f"{count} networks")
        a = Architecture(**{**fields, "hidden": tuple(fields["hidden"])})

        def new() -> ChronoSpike | nn.ModuleList:
            return nn.ModuleList(ChronoSpike(a) for _ in range(count)) if count else ChronoSpike(a)

        # Without storage first: a description may ask for any amount of memory, the tensors have a known size.
        with meta_device():
            expected = new().state_dict()
    except (AttributeError, KeyError, RuntimeError, TypeError, ValueError, ZeroDivisionError) as error:
        raise StorageError(f"{path} describes a network that cannot be built ({one_line(error)})") from error
    check_fit(tensors, expected, path)
    with torch.random.fork_rng(devices=[]):
        model = new()
    model.load_state_dict(dict(tensors))
    return model


def objective(settings: ChronoSpikeSettings) -> Objective:
    """The losses that the settings describe."""
    s = settings
    return Objective(s.label_smoothing, s.contrastive, s.view_dropout, s.temperature)


def new_model(
    settings: ChronoSpikeSettings, inputs: int, classes: int, seed: int | None = None, directed: bool = False
) -> ChronoSpike:
    """A network with the initial weights of a seed, by default the settings'; torch's generator is left as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(stream(settings.seed if seed is None else seed, "init"))
        model = ChronoSpike(architecture(settings, inputs, classes, directed))
        if settings.initialisation == "torch":
            for part in model.modules():
                if isinstance(part, nn.Linear):
                    part.reset_parameters()
        return model


def takes_half(settings: ChronoSpikeSettings, device: torch.device) -> bool:
    """Half precision is for GPUs, and there the default."""
    return settings.precision != "single" and device.type == "cuda"


class ChronoSpikeNetwork(Network):
    """The network on sampled trees.

    Args:
        table: `[T, N, D]` to be read instead of the task's features.
        training: without, kernels are tried for inference only.
        soft: `[N, C]` probabilities to learn instead of the labels, on the device.

    Attributes:
        steps: the steps that the network sees, in order; fewer for `static` and as of a step.
        plan: the kernels; its `half` says whether features are held in half precision, too.
    """

    loss_terms = ("classification_loss", "contrastive_loss")

    def __init__(
        self,
        task: Task,
        settings: ChronoSpikeSettings,
        table: Tensor | None = None,
        training: bool = True,
        soft: Tensor | None = None,
    ) -> None:
        s, graph, device = settings, task.graph, task.device
        self.settings, self.objective, self.soft = settings, objective(settings), soft
        self.root_table: RootTable | None = None
        half = takes_half(s, device)
        dtype = torch.float16 if half else torch.float32
        if table is None:
            assert task.features is not None
            self.inputs = TreeInputs(task.features, graph.history.step_offsets[:, -1], device, dtype)
        else:
            self.inputs = TreeInputs.of_table(table)
        self.notes = () if self.inputs.host is None else (self.inputs.host.describe(),)
        self._set_task(task)
        self.plan = plan_kernels(
            self.architecture, device, steps=len(self.steps), fanouts=s.fanouts, half=half, wanted=s.kernels,
            training=training, objective=self.objective if soft is None else None,
            dtype=torch.float32 if s.label_inputs else dtype, dense=s.label_inputs or self.inputs.host is not None,
        )  # fmt: skip
        if soft is not None:
            self.plan = replace(self.plan, losses=Choice("plain", "targets are probabilities"))
        # The last snapshot alone has no history; "split" would take a slot from it whatever p is.
        p, mix = (0.0, "bernoulli") if s.static else (s.p, s.mix)
        backend = self.plan.sampler.implementation
        self.sampler = HybridSampler(graph, s.fanouts, p, s.history, mix, s.replace, s.seed, device, backend)
        self.module = self.new_module()

    def _set_task(self, task: Task) -> None:
        s, self.task = self.settings, task
        last = task.last_step
        self.steps = (last,) if s.static else tuple(range(last + 1))
        self.labels: LabelInputs | None = None
        if s.label_inputs:
            graph, train = task.graph, task.split.train
            labels = np.asarray(graph.labels)
            self.labels = LabelInputs(labels, train, graph.num_classes, s.label_mask, task.seed, task.device)
        if not any(root_widths(s, task.graph.num_classes, task.graph.directed)):
            self.root_table = None
        elif self.root_table is None or self.root_table.tables is not task.tables:
            self.root_table = RootTable(task.tables, s, task.device)
        self.class_weights = balanced_class_weights(task) if s.class_weights == "balanced" else None

    def for_task(self, task: Task) -> Self:
        other = copy.copy(self)
        other._set_task(task)
        return other

    def new_module(self) -> ChronoSpike:
        task = self.task
        graph, inputs = task.graph, self.inputs.width
        model = new_model(self.settings, inputs, graph.num_classes, task.seed, graph.directed).to(task.device)
        if model.standardise is not None:
            assert self.root_table is not None
            model.standardise.fit(self.root_table.known_numbers())
        return model

    def prepare(self, nodes: Nodes, epoch: int) -> TreeFeatures:
        return self.rows(nodes, epoch, training=True)

    def rows(self, roots: Nodes, number: int, training: bool = False) -> TreeFeatures:
        """What the network reads for `roots`: trees of the epoch, or of the sample for inference, `number`."""
        tree = self.sampler.sample(roots, number, self.steps, "sampler" if training else "inference")
        channels = self.labels.channels(tree, number if training else None) if self.labels is not None else None
        return self.with_roots(self._with_labels(tree, channels), torch.from_numpy(roots).to(self.task.device))

    def rows_from_tensors(self, roots: Tensor, tree_key: Tensor, label_key: Tensor | None) -> TreeFeatures:
        """The same from tensors on the device (see `HybridSampler.sample_tensors`): nothing waits."""
        tree = self.sampler.sample_tensors(tree_key, roots, self.steps)
        channels = self.labels.channels_for(tree, label_key) if self.labels is not None else None
        return self.with_roots(self._with_labels(tree, channels), roots)

    def with_roots(self, rows: TreeFeatures, roots: Tensor) -> TreeFeatures:
        """The rows with what is read of their `roots [B]` themselves, if anything is."""
        return rows if self.root_table is None else replace(rows, roots=self.root_table.rows(roots))

    def _with_labels(self, tree: NeighbourTree, channels: list[Tensor] | None) -> TreeFeatures:
        rows = self.inputs.rows(tree, self.plan.fetch.implementation)
        if channels is None:
            return rows
        return TreeFeatures(torch.cat([rows.dense(), torch.cat(channels, dim=1)], dim=-1), rows.sizes)

    def targets(self, nodes: Nodes) -> Tensor:
        """Class indices `[K]` of `nodes [K]`, or the probabilities `[K, C]` to be learned instead, on the device."""
        if self.soft is not None:
            return self.soft[torch.from_numpy(nodes).to(self.task.device)]
        return torch.from_numpy(self.task.labels(nodes)).to(self.task.device)

    def losses(self, module: nn.Module, prepared: TreeFeatures, nodes: Nodes) -> Tensor:
        return self.objective_losses(module, prepared, self.targets(nodes))

    def objective_losses(
        self, module: nn.Module, rows: TreeFeatures, targets: Tensor, valid: Tensor | None = None
    ) -> Tensor:
        """`[3]`: total, classification, contrastive; a mean over the rows that are `valid [B]`, or all."""
        logits, z = module(rows, self.plan)
        return self.objective.losses(logits.float(), z.float(), targets, self.class_weights, valid, self.plan)

    def precision(self) -> AbstractContextManager[None]:
        return product_precision(self.task.device, self.plan.half)

    def infer(self, module: nn.Module, nodes: Nodes, on_nodes: Progress | None = None) -> tuple[Tensor, Tensor]:
        return infer(self, cast(ChronoSpike, module), nodes, on_nodes)

    def new_step(self, context: StepContext) -> Step | None:
        can_be_captured = (
            self.task.device.type == "cuda"
            and self.settings.kernels == "auto"
            and self.settings.accumulate == 1
            and self.plan.sampler.implementation == "triton"
            and (self.inputs.resident or self.inputs.host is not None)
        )
        return CapturedStep(context, self) if can_be_captured else None

    @property
    def architecture(self) -> Architecture:
        graph = self.task.graph
        return architecture(self.settings, self.inputs.width, graph.num_classes, graph.directed)

    def description(self) -> dict[str, Any]:
        return describe(self.architecture)

    def details(self) -> dict[str, Any]:
        rates = firing_rates(self, self.module, self.task.split.test)
        means = [float(np.mean(layer)) for layer in rates]
        return {"firing_rate": means, "firing_rate_per_step": rates, "kernels": self.plan.as_dict()}

    def diagnosis(self) -> str:
        state = neuron_state(cast(ChronoSpike, self.module))
        return f"Lower learning_rate, or use neuron_form=softplus and clip=1.0 ({state})"


def neuron_state(model: ChronoSpike) -> str:
    """The ranges of τ, V_th and α of every layer, in one line."""
    parts = []
    for number, layer in enumerate(model.neurons):
        if isinstance(layer, AdaptiveLIF):
            values = {"tau": layer.tau, "V_th": layer.threshold, "alpha": layer.alpha}
            ranges = ", ".join(f"{name} {v.min().item():.3g}..{v.max().item():.3g}" for name, v in values.items())
            parts.append(f"layer {number + 1}: {ranges}")
    return "; ".join(parts) or "no spiking neurons"
