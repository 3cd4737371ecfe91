"""The settings of ChronoSpike; the defaults are the paper's."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from chronospike.config import AtLeastZero, Count, Dropout, Positive, Share, Width
from chronospike.errors import InputError
from chronospike.training.settings import TrainingSettings

# The quality levels: the changes they make to the settings of a preset.
QUALITIES: dict[str, dict[str, Any]] = {
    # Two networks on half of the labels each, which take as long as one on all of them, on features that are made in
    # seconds. On generated graphs the second stage gains up to four points over one network.
    "fast": {
        "epochs": 10,
        "refit": False,
        "samples": 1,
        "folds": 2,
        "second_stage": "auto",
        "feature_method": "fastrp",
    },
    # What the preset says; the default's five networks on five folds and a second stage on top of them.
    "good": {},
    # Twice as many networks, each on more of the labels, and more sampled neighbourhoods.
    "best": {"folds": 10, "second_stage": "auto", "samples": 5},
}


class ChronoSpikeSettings(TrainingSettings):
    """Sampling, network and objective."""

    # Sampling (section 4.2)
    fanouts: tuple[Count, ...] = Field((5, 2), min_length=1, max_length=16, description="neighbours sampled per layer")
    p: Share = Field(0.5, description="share of neighbours from the history")
    history: Literal["strict", "inclusive"] = Field(
        "strict", description="edges before step t, or up to and including it"
    )
    mix: Literal["bernoulli", "split"] = Field(
        "bernoulli", description="draw p for each slot, or use fixed counts as in SpikeNet"
    )
    replace: bool = Field(False, description="sample with replacement")

    # Network (sections 4.2 to 4.4)
    hidden: tuple[Width, ...] = Field((128, 64), min_length=1, max_length=16, description="channels per layer")
    heads: Count = Field(4, description="attention heads over neighbours")
    dropout: Dropout = Field(0.7, description="dropout on the spikes between layers")
    aggregator: Literal["attention", "mean", "sum"] = "attention"
    neuron: Literal["adaptive", "fixed", "relu"] = "adaptive"
    neuron_form: Literal["softplus", "raw"] = Field(
        "softplus", description="'raw': unconstrained parameters, as in the paper"
    )
    reset_gradient: Literal["detach", "full", "straight_through"] = Field(
        "detach",
        description="gradient of the reset: none, through the surrogate, or as if there were no reset",
    )
    initialisation: Literal["xavier", "torch"] = Field(
        "xavier", description="of linear layers: Xavier with zero biases as in the paper, or PyTorch's default"
    )
    temporal: Literal["transformer", "lstm", "mean", "last"] = "transformer"
    temporal_heads: Count = Field(4, description="attention heads over steps")
    feedforward: Width = Field(128, description="width inside the Transformer")
    temporal_dropout: Dropout = 0.1
    positions: Literal["learned", "rotary"] = "learned"
    max_steps: Count = Field(
        200, description="size of the position table; the default gives the paper's parameter count"
    )
    static: bool = Field(
        False,
        description="use the last snapshot only, without the history before it, known labels or activity (an ablation)",
    )
    label_inputs: bool = Field(False, description="training labels of sampled neighbours as extra inputs")
    label_mask: Share = Field(0.2, description="share of those labels hidden in training")

    # What is read of a node itself, beside its trees; not with `static`
    label_sequences: bool = Field(
        False, description="inputs: known labels of the neighbours at each step, read by a recurrent unit"
    )
    label_features: bool = Field(
        False, description="inputs of the head: known labels one and two hops away, and diffused"
    )
    activity: bool = Field(False, description="inputs of the head: degrees and events over time, triangles")
    sequence_channels: Width = Field(128, description="channels of the recurrent unit")
    head: Width = Field(256, description="hidden channels of the head")
    head_dropout: Dropout = Field(0.5, description="dropout in the head")

    # Objective (section 4.5)
    class_weights: Literal["none", "balanced"] = Field(
        "none", description="'balanced': a higher weight for rare classes"
    )
    label_smoothing: Dropout = Field(0.0, description="share of each label spread evenly over all classes")
    contrastive: AtLeastZero = Field(0.1, description="weight λ of the InfoNCE term")
    temperature: Positive = Field(0.5, description="temperature of the InfoNCE term")
    view_dropout: Dropout = Field(0.1, description="dropout that creates the two views of the InfoNCE term")

    # Computing
    precision: Literal["auto", "single", "half"] = Field(
        "auto",
        description="of features and matrix products; 'auto': half on a GPU. Sums and membranes are always single",
    )
    kernels: Literal["auto", "plain"] = Field("auto", description="'plain' turns compiled kernels off")
    samples: Count = Field(1, description="sampled neighbourhoods averaged at inference")

    def check(self) -> None:
        super().check()
        if len(self.fanouts) != len(self.hidden):
            raise InputError(f"fanouts {self.fanouts} and hidden {self.hidden} must have one entry per layer each")
        if self.aggregator == "attention":
            for width in self.hidden:
                if width % self.heads:
                    raise InputError(f"hidden width {width} cannot be split into {self.heads} heads")
        if self.temporal == "transformer" and self.hidden[-1] % self.temporal_heads:
            raise InputError(
                f"the last hidden width {self.hidden[-1]} cannot be split into {self.temporal_heads} temporal heads"
            )
