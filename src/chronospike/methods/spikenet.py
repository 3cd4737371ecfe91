"""SpikeNet (Li et al., AAAI 2023): spiking neurons over sampled neighbourhoods, with a joint readout of all steps.

At every step t each root samples neighbours and neighbours of these. Layer l, for the mean over sampled neighbours u:

    I_t     = W_l h_v + b_l + W_r mean(h_u) + b_r          h of layer 0: the features of step t
    v_t     = v_{t-1} + (I_t - v_{t-1}) / τ                τ = 1 by default: v_t = I_t, a membrane without memory
    s_t     = 1 if v_t > θ_t, else 0                       then v_t is reset to 0
    θ_{t+1} = 0.7 θ_t + 0.2 s_t                            θ_1 = 1

A root's embedding are the spikes of the last layer at all steps, side by side, and a linear layer reads the class from
them. Steps are coupled by the neurons alone, so each layer takes all steps at once: one product, one scan over time.
A sampled neighbour is another node at every step; as in the published program, a neuron belongs to its place in the
tree and not to the node.

What differs from the published program: inference draws one fixed sample for a node, where that one draws another at
every evaluation. As of an earlier step, the spikes of later ones are zeros.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, TypeVar, cast

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional

from chronospike.config import AtLeastZero, Count, Dropout, Positive, Share, Width
from chronospike.data.graph import DynamicGraph
from chronospike.errors import InputError
from chronospike.methods.spikenet_model import SpikeNetModule, TreeRows, tree_rows
from chronospike.methods.spikenet_sampler import OfficialSampler, sampler_bytes, undirected
from chronospike.nn.meta_device import meta_device
from chronospike.nn.surrogate import Surrogate
from chronospike.sampling.hybrid import HybridSampler, SamplingSettings
from chronospike.sampling.tree import widths
from chronospike.training.bagging import BagFitted
from chronospike.training.gradient import GradientFitted, GradientLearner
from chronospike.training.lanes import aligned_width, evaluating, in_lanes
from chronospike.training.learner import Progress
from chronospike.training.memory import COPIES_OF_WEIGHTS
from chronospike.training.network import Network
from chronospike.training.run_folder import RunFolder
from chronospike.training.settings import Selection, TrainingSettings
from chronospike.training.task import Nodes, Task
from chronospike.training.weights import description, load_weights

# Inference sees so many roots at a time: see `lanes`.
LANE, GPU_LANE = 256, 2048


class SpikeNetSettings(TrainingSettings):
    """SpikeNet, as published for DBLP.

    Published for Tmall are hidden=[512, 10] and p=1; for Patent also batch_size=2048, but p=0.5 at ratio 0.8.
    """

    fanouts: tuple[Count, ...] = Field((5, 2), min_length=1, max_length=16, description="neighbours sampled per layer")
    p: Share = Field(0.5, description="share of neighbours from all steps so far; the rest are from the step itself")
    sampler: Literal["official", "uniform"] = Field(
        "official", description="'official': with the published sampler's bias against the last neighbours of a node"
    )
    hidden: tuple[Width, ...] = Field((128, 10), min_length=1, max_length=16, description="channels per layer")
    dropout: Dropout = Field(0.7, description="dropout on the spikes between layers")
    neuron: Literal["lif", "if", "plif"] = Field(
        "lif", description="'if': no leak and a fixed threshold; 'plif': τ is learned, one for each layer"
    )
    tau: Positive = Field(1.0, description="time constant; with 1 only the threshold has a memory")
    surrogate: Surrogate = Field("sigmoid", description="gradient of the spike; kernels know 'sigmoid' and 'rational'")
    alpha: Positive = Field(1.0, description="slope of the surrogate")
    threshold_decay: Annotated[float, Field(ge=0, le=1)] = 0.7
    threshold_jump: AtLeastZero = Field(0.2, description="increase of the threshold after a spike")
    standardise_over: Literal["seen", "all"] = Field(
        "all", description="standardise computed features over the nodes seen by each step, or over all as in the paper"
    )
    weight_decay: AtLeastZero = 0.01
    clip: AtLeastZero = Field(0.0, description="maximum gradient norm; 0 turns clipping off")
    selection: Selection = "micro_f1"
    patience: Count = Field(100, description="stop after this many epochs without a better validation score")

    def check(self) -> None:
        super().check()
        if len(self.hidden) != len(self.fanouts):
            raise InputError(
                f"hidden {list(self.hidden)} and fanouts {list(self.fanouts)} must have a number for each layer"
            )

    def sampling(self) -> SamplingSettings:
        """What either sampler draws."""
        return SamplingSettings(self.fanouts, self.p, "inclusive", "split", False, self.seed)


class SpikeNetNetwork(Network):
    """SpikeNet for a task. Features of all steps and the neighbours lie on its device."""

    module_type: ClassVar[type[SpikeNetModule]] = SpikeNetModule
    settings: SpikeNetSettings

    def __init__(self, task: Task, settings: SpikeNetSettings, training: bool = True) -> None:
        assert task.features is not None
        s, graph, device = settings, task.graph, task.device
        self.task, self.settings = task, settings
        self.inputs, self._static = task.features.width, task.features.static
        # `[T N, F]`, step after step, or `[N, F]` where all steps are the same; with zeros behind rows, see `aligned`.
        self._table = task.features.table(device, width=aligned_width(self.inputs)).flatten(0, 1)
        self._sampler: OfficialSampler | HybridSampler
        if s.sampler == "official":
            self._sampler = OfficialSampler(graph, s.sampling(), device)
        else:
            self._sampler = HybridSampler(
                undirected(graph), s.fanouts, s.p, "inclusive", "split", seed=s.seed, device=device
            )
        self.module = self.new_module()
        self.kernels = cast(SpikeNetModule, self.module).kernels(device, training)

    def make_module(self) -> SpikeNetModule:
        graph = self.task.graph
        return self.module_type(self.inputs, graph.num_classes, graph.num_steps, self.settings)

    def prepare(self, nodes: Nodes, epoch: int) -> TreeRows:
        return self.rows(nodes, epoch, "sampler")

    def rows(self, roots: Nodes, number: int, purpose: str) -> TreeRows:
        """What the network reads for `roots`, in the sample `number` for a purpose."""
        tree = self._sampler.sample(roots, number, range(self.task.last_step + 1), purpose)
        return tree_rows(self._table, tree, 0 if self._static else self.task.graph.num_nodes)

    def losses(self, module: nn.Module, prepared: TreeRows, nodes: Nodes) -> Tensor:
        return functional.cross_entropy(module(prepared, self.kernels)[0], self.labels(nodes)).view(1)

    def labels(self, nodes: Nodes) -> Tensor:
        """`[K]` on the device."""
        return torch.from_numpy(self.task.labels(nodes)).to(self.task.device, non_blocking=True)

    def infer(self, module: nn.Module, nodes: Nodes, on_nodes: Progress | None = None) -> tuple[Tensor, Tensor]:
        model = cast(SpikeNetModule, module)
        lane = LANE if self.task.device.type == "cpu" else GPU_LANE

        def answer(some: Nodes) -> tuple[Tensor, Tensor]:
            logits, z, _ = model(self.rows(some, 0, "inference"), self.kernels)
            return logits.softmax(dim=1), z

        with evaluating(model), self.precision():
            return in_lanes(answer, nodes, lane, (model.classes, model.width), on_nodes)

    def description(self) -> dict[str, Any]:
        s, graph = self.settings, self.task.graph
        sizes = {"inputs": self.inputs, "classes": graph.num_classes, "steps": graph.num_steps}
        return {**sizes, "hidden": list(s.hidden), "neuron": s.neuron}

    @torch.no_grad()
    def details(self) -> dict[str, Any]:
        model, nodes = cast(SpikeNetModule, self.module), self.task.split.test
        if not len(nodes):
            return {"firing_rate": [], "firing_rate_per_step": []}
        some = nodes[np.linspace(0, len(nodes) - 1, min(LANE, len(nodes))).astype(int)]
        model.eval()
        with self.precision():
            spikes = model.spikes(self.rows(some, 0, "inference"), self.kernels)
        rates = [layer.mean(dim=(1, 2)).tolist() for layer in spikes]
        return {"firing_rate": [float(np.mean(layer)) for layer in rates], "firing_rate_per_step": rates}


Kind = TypeVar("Kind", bound=SpikeNetSettings)


class SpikingLearner(GradientLearner[Kind]):
    """SpikeNet and what is built on it: counts what it needs before it takes it.

    Attributes:
        held: floats held of each row, channel and step of a layer at the peak of a training step.
    """

    network_type: ClassVar[type[SpikeNetNetwork]] = SpikeNetNetwork
    held: ClassVar[int] = 6

    def network(self, task: Task, training: bool = True) -> SpikeNetNetwork:
        return self.network_type(task, self.settings, training)

    def memory(self, graph: DynamicGraph, width: int, static: bool, train: int) -> int:
        """The features, the neighbours, and one batch of training."""
        s, steps = self.settings, graph.num_steps
        with meta_device():
            module = self.network_type.module_type(width, graph.num_classes, steps, s)
        parameters = sum(parameter.numel() for parameter in module.parameters())
        width = aligned_width(width)
        table = (1 if static else steps) * graph.num_nodes * width
        roots, hops = min(s.batch_nodes(train), train), widths(s.fanouts)
        # Two batches of rows, since one is prepared while another trains; 8 bytes for what is drawn, several times.
        rows = roots * sum(hops[:-1])
        batch = steps * (4 * rows * width + 12 * roots * sum(hops))
        # Neurons without a kernel keep what each of their operations needs.
        held = self.held if s.surrogate in ("sigmoid", "rational") else self.held + 8
        for number, channels in enumerate(s.hidden):
            batch += steps * held * channels * roots * sum(hops[: len(hops) - 1 - number])
        shared = graph.history.nbytes + graph.snapshot.nbytes
        neighbours = sampler_bytes(graph) if s.sampler == "official" else shared
        return 4 * (COPIES_OF_WEIGHTS * parameters + table + batch) + neighbours

    @property
    def memory_advice(self) -> str:
        s = self.settings
        return (
            f"Lower batch_size (now {s.batch_size}) or hidden (now {list(s.hidden)}), or merge steps or lower "
            f"feature_dimension (now {s.feature_dimension}): the features of all steps are held in memory"
        )

    def load(self, task: Task, run: RunFolder) -> GradientFitted | BagFitted:
        steps, found = description(load_weights(run.weights)[1]).get("steps"), task.graph.num_steps
        if isinstance(steps, int) and steps != found:
            raise InputError(
                f"{self.title} was trained on {steps} steps and has weights for each of them, but this graph has "
                f"{found}. Import it with --steps {steps}, or train on it"
            )
        return super().load(task, run)


class SpikeNet(SpikingLearner[SpikeNetSettings]):
    name = "spikenet"
    title = "SpikeNet"
    summary = "spiking neurons over sampled neighbours, with a linear readout of the spikes of all steps"
    settings_type = SpikeNetSettings
