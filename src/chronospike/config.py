"""Settings: flat names, each with its range, its default and where that comes from.

`Settings` holds what every method shares: the features, the split and the seed. A method adds its own in a class that
derives from this one. A preset changes some of them, `--set key=value` others. A name that does not exist and a value
out of range are errors that say the nearest name and the range.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar

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
    """What every method shares. Frozen: change it with `settings.change(...)`."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    # Data
    features: str = Field(
        "auto",
        description="'own', 'deepwalk', 'fastrp', 'svd', 'activity', a set; joined with '+'; 'auto': own, else made",
    )
    feature_method: Literal["deepwalk", "fastrp", "svd", "activity"] = "deepwalk"
    feature_dimension: Width = 128
    feature_walks: Count = Field(10, description="DeepWalk: walks from each node")
    feature_negatives: Count = Field(1, description="DeepWalk: negative samples per centre")
    feature_warm_start: bool = Field(False, description="DeepWalk: initialise each step from the one before")
    feature_seed: Seed = 0
    standardise_over: Literal["seen", "all"] = Field(
        "seen",
        description="standardise computed features over the nodes seen by each step, or over all as in the paper",
    )
    ratio: Annotated[float, Field(gt=0, lt=1)] = Field(
        0.8, description="share of labelled nodes for training and validation"
    )
    validation: Annotated[float, Field(gt=0, lt=0.5)] = Field(
        0.05, description="share for validation, taken from `ratio`"
    )
    split_seed: Annotated[int, Field(ge=0, lt=2**32)] = Field(
        42, description="seed of the split; the default is the benchmark's"
    )
    split_order: Literal["random", "time"] = Field("random", description="'time': train on the nodes seen first")

    seed: Seed = Field(0, description="seed of everything random except the split and the features")

    def change(self, **values: Any) -> Self:
        """A copy with other values, checked."""
        return make_settings(type(self), {**self.model_dump(), **values})

    def check(self) -> None:
        """Raise `InputError` where settings contradict one another; a method adds its own rules."""
        if self.validation >= self.ratio:
            raise InputError(
                f"validation {self.validation} must be smaller than ratio {self.ratio}, which it is taken from"
            )


Kind = TypeVar("Kind", bound=Settings)


def make_settings(kind: type[Kind], values: Mapping[str, Any]) -> Kind:
    """Checked settings of a method from names and values; names left out keep their defaults."""
    unknown = [name for name in values if name not in kind.model_fields]
    if unknown:
        raise InputError(f"there is no setting '{unknown[0]}'.{nearest(unknown[0], kind.model_fields)}")
    try:
        settings = kind(**values)
    except ValidationError as error:
        first = error.errors()[0]
        name, message = str(first["loc"][0]), first["msg"]
        allowed = _range(kind, name) if first["type"].startswith(("greater_than", "less_than")) else ""
        why = f"it must be {allowed}" if allowed else f"{message[0].lower()}{message[1:]}"
        raise InputError(f"setting '{name}' is {values.get(name)!r}: {why}") from None
    settings.check()
    return settings


def _range(kind: type[Settings], name: str) -> str:
    """The bounds of a setting, such as `0 <= p <= 1`; empty where the setting itself has none."""
    low = high = ""
    for bound in kind.model_fields[name].metadata:
        for key, sign in (("ge", "<="), ("gt", "<"), ("le", "<="), ("lt", "<")):
            if hasattr(bound, key) and key.startswith("g"):
                low = f"{getattr(bound, key)} {sign} "
            elif hasattr(bound, key):
                high = f" {sign} {getattr(bound, key)}"
    return f"{low}{name}{high}" if low or high else ""


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


class _Loader(yaml.SafeLoader):
    """Refuses a name that is given twice, of which YAML would keep the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        names = [key.value for key, _ in node.value]
        for place, name in enumerate(names):
            if name in names[:place]:
                mark = node.value[place][0].start_mark
                raise yaml.constructor.ConstructorError(problem=f"'{name}' is given twice", problem_mark=mark)
        return super().construct_mapping(node, deep)


def read_settings(path: Path) -> dict[str, Any]:
    """Names and values of a YAML file."""
    try:
        values = yaml.load(path.read_text(encoding="utf-8"), _Loader)
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


def read_preset(preset: str | Path) -> dict[str, Any]:
    """Names and values of a preset, or of a YAML file given by path."""
    name = str(preset)
    if name.endswith((".yaml", ".yml")):
        return read_settings(Path(name))
    names = preset_names()
    if name not in names:
        raise InputError(f"there is no preset '{name}'.{nearest(name, names)} Presets: {', '.join(names)}")
    with files("chronospike.presets").joinpath(f"{name}.yaml").open(encoding="utf-8") as file:
        return dict(yaml.safe_load(file) or {})


def write_settings(settings: Settings) -> str:
    """All settings as YAML text, in their order."""
    return yaml.safe_dump(settings.model_dump(mode="json"), sort_keys=False)
