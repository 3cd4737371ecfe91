"""The settings of a run: one flat list of names, each with its range, its default and where that comes from.

`Settings()` is the paper. A preset changes some of them, `--set key=value` others. A name that does not exist
and a value out of range are errors that say the nearest name and the range.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from chronospike.errors import InputError, nearest

Share = Annotated[float, Field(ge=0, le=1)]
Dropout = Annotated[float, Field(ge=0, lt=1)]
Positive = Annotated[float, Field(gt=0)]
AtLeastZero = Annotated[float, Field(ge=0)]
Count = Annotated[int, Field(ge=1, lt=2**31)]
# Nobody needs a million channels, and the product of two widths must fit a tensor.
Width = Annotated[int, Field(ge=1, le=2**20)]
Seed = Annotated[int, Field(ge=0, lt=2**63)]


class Settings(BaseModel):
    """Everything that decides what a run computes. Frozen: change it with `settings.change(...)`."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    # Data
    features: str = Field(
        "auto",
        description="'own', 'deepwalk', 'fastrp' or a set by name; several joined with '+'; 'auto': own, else made",
    )
    feature_method: Literal["deepwalk", "fastrp"] = "deepwalk"
    feature_dimension: Width = 128
    feature_walks: Count = Field(10, description="DeepWalk: walks from each node")
    feature_negatives: Count = Field(1, description="DeepWalk: noise nodes per centre")
    feature_warm_start: bool = Field(False, description="DeepWalk: begin each step from the one before")
    feature_seed: Seed = 0
    standardise_over: Literal["seen", "all"] = Field(
        "seen", description="made features by the nodes seen by each step, or by all as in the paper"
    )
    ratio: Annotated[float, Field(gt=0, lt=1)] = Field(0.8, description="share of labelled nodes that is not test")
    validation: Annotated[float, Field(gt=0, lt=0.5)] = Field(0.05, description="share for validation, out of `ratio`")
    split_seed: Annotated[int, Field(ge=0, lt=2**32)] = Field(42, description="the benchmark's; runs differ by `seed`")
    split_order: Literal["random", "time"] = Field("random", description="or train on the nodes seen first")

    # Sampling (section 4.2)
    fanouts: tuple[Count, ...] = Field((5, 2), min_length=1, max_length=16, description="neighbours sampled per layer")
    p: Share = Field(0.5, description="share of neighbours from the history")
    history: Literal["strict", "inclusive"] = Field("strict", description="edges before t, or up to t")
    mix: Literal["bernoulli", "split"] = Field("bernoulli", description="per slot, or fixed counts as in SpikeNet")
    replace: bool = Field(False, description="sample with replacement")

    # Network (sections 4.2 to 4.4)
    hidden: tuple[Width, ...] = Field((128, 64), min_length=1, max_length=16, description="channels per layer")
    heads: Count = Field(4, description="attention heads over neighbours")
    dropout: Dropout = Field(0.7, description="on the spikes between layers")
    aggregator: Literal["attention", "mean", "sum"] = "attention"
    neuron: Literal["adaptive", "fixed", "relu"] = "adaptive"
    neuron_form: Literal["softplus", "raw"] = Field("softplus", description="'raw' is the paper's bare parameter")
    reset_gradient: Literal["detach", "full", "straight_through"] = "detach"
    temporal: Literal["transformer", "lstm", "mean", "last"] = "transformer"
    temporal_heads: Count = Field(4, description="attention heads over steps")
    feedforward: Width = Field(128, description="width inside the Transformer")
    temporal_dropout: Dropout = 0.1
    positions: Literal["learned", "rotary"] = "learned"
    max_steps: Count = Field(200, description="rows of the position table; gives the paper's parameter count")
    static: bool = Field(False, description="use the last snapshot only (an ablation)")
    label_inputs: bool = Field(False, description="training labels of sampled neighbours as extra inputs")
    label_mask: Share = Field(0.2, description="share of those labels hidden in training")

    # Training (section 4.5, Algorithm 2)
    epochs: Count = 100
    batch_size: Count = Field(1024, description="at most so many nodes a batch")
    min_batches: Count = Field(1, description="at least so many batches an epoch, where that leaves 32 nodes in each")
    accumulate: Count = Field(1, description="batches per step of the optimiser")
    learning_rate: Positive = 5e-3
    weight_decay: AtLeastZero = 1e-4
    schedule: Literal["constant", "cosine"] = "constant"
    clip: AtLeastZero = Field(1.0, description="largest gradient norm; 0 turns clipping off")
    patience: Count = Field(10, description="epochs without a better validation Macro-F1")
    refit: bool = Field(
        False, description="then train again on the validation nodes too, for the best number of epochs"
    )
    contrastive: AtLeastZero = Field(0.1, description="weight λ of the InfoNCE term")
    temperature: Positive = Field(0.5, description="of the InfoNCE term")
    view_dropout: Dropout = Field(0.1, description="makes the two views of the InfoNCE term")
    class_weights: Literal["none", "balanced"] = Field("none", description="'balanced' for skewed labels")
    label_smoothing: Dropout = Field(0.0, description="share of each label given to all classes alike")
    weight_average: Dropout = Field(0.0, description="running mean of the weights: share kept at each step; 0 for none")
    precision: Literal["auto", "single", "half"] = Field(
        "auto", description="of features and products; 'auto' is 'half' on a GPU. Sums and membranes stay single"
    )
    kernels: Literal["auto", "plain"] = Field("auto", description="'plain' leaves the fused kernels aside")

    # Inference
    samples: Count = Field(1, description="sampled neighbourhoods averaged at inference")

    seed: Seed = Field(0, description="of weights, batches, sampling and dropout")

    def change(self, **values: Any) -> Settings:
        """A copy with other values, checked."""
        return make_settings({**self.model_dump(), **values})


def make_settings(values: Mapping[str, Any]) -> Settings:
    """Checked settings from names and values; names left out keep their defaults."""
    unknown = [name for name in values if name not in Settings.model_fields]
    if unknown:
        raise InputError(f"there is no setting '{unknown[0]}'.{nearest(unknown[0], Settings.model_fields)}")
    try:
        settings = Settings(**values)
    except ValidationError as error:
        first = error.errors()[0]
        name, message = str(first["loc"][0]), first["msg"]
        allowed = _range(name) if first["type"].startswith(("greater_than", "less_than")) else ""
        why = f"it must be {allowed}" if allowed else f"{message[0].lower()}{message[1:]}"
        raise InputError(f"setting '{name}' is {values.get(name)!r}: {why}") from None
    return _consistent(settings)


def _range(name: str) -> str:
    """The bounds of a setting, such as `0 <= p <= 1`; empty where the setting itself has none."""
    low = high = ""
    for bound in Settings.model_fields[name].metadata:
        for key, sign in (("ge", "<="), ("gt", "<"), ("le", "<="), ("lt", "<")):
            if hasattr(bound, key) and key.startswith("g"):
                low = f"{getattr(bound, key)} {sign} "
            elif hasattr(bound, key):
                high = f" {sign} {getattr(bound, key)}"
    return f"{low}{name}{high}" if low or high else ""


def _consistent(s: Settings) -> Settings:
    if len(s.fanouts) != len(s.hidden):
        raise InputError(f"fanouts {s.fanouts} and hidden {s.hidden} must have one entry per layer each")
    if s.aggregator == "attention":
        for width in s.hidden:
            if width % s.heads:
                raise InputError(f"hidden width {width} cannot be split into {s.heads} heads")
    if s.temporal == "transformer" and s.hidden[-1] % s.temporal_heads:
        raise InputError(f"the last hidden width {s.hidden[-1]} cannot be split into {s.temporal_heads} temporal heads")
    if s.validation >= s.ratio:
        raise InputError(f"validation {s.validation} must be smaller than ratio {s.ratio}, which it is taken from")
    return s


def parse_assignments(assignments: list[str]) -> dict[str, Any]:
    """`["p=0.3", "fanouts=[10, 5]"]` as names and values; values are read as YAML, safely."""
    values: dict[str, Any] = {}
    for assignment in assignments:
        name, sign, text = assignment.partition("=")
        if not sign:
            raise InputError(f"--set wants key=value, not '{assignment}'")
        try:
            values[name.strip()] = _number_or_value(text)
        except (yaml.YAMLError, ValueError, RecursionError) as error:
            raise InputError(f"--set {assignment}: the value cannot be read ({type(error).__name__})") from error
    return values


def _number_or_value(text: str) -> Any:
    # YAML reads 1e-3 as text; people who set a learning rate mean a number.
    try:
        return int(text) if text.strip().lstrip("+-").isdecimal() else float(text)
    except ValueError:
        return yaml.safe_load(text)


def read_settings(path: Path) -> dict[str, Any]:
    """Names and values of a YAML file."""
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise InputError(f"{path} does not exist") from error
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror})") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise InputError(f"{path} is not valid YAML: {' '.join(str(error).split())}") from error
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise InputError(f"{path} must hold names and values, not a {type(values).__name__}")
    return {str(name): value for name, value in values.items()}


def preset_names() -> list[str]:
    """The presets that come with the package."""
    return sorted(
        entry.name.removesuffix(".yaml")
        for entry in files("chronospike.presets").iterdir()
        if entry.name.endswith(".yaml")
    )


def read_preset(name: str) -> dict[str, Any]:
    """Names and values of a preset, or of a YAML file given by path."""
    if name.endswith((".yaml", ".yml")):
        return read_settings(Path(name))
    names = preset_names()
    if name not in names:
        raise InputError(f"there is no preset '{name}'.{nearest(name, names)} Presets: {', '.join(names)}")
    with files("chronospike.presets").joinpath(f"{name}.yaml").open(encoding="utf-8") as file:
        return dict(yaml.safe_load(file) or {})


def write_settings(settings: Settings) -> str:
    """All settings as YAML text, in their order."""
    return yaml.safe_dump(settings.model_dump(mode="json"), sort_keys=False, default_flow_style=None)
