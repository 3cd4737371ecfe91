"""Validation of the `meta.json` of a graph and of a feature set, with one-line messages."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from chronospike.errors import StorageError

ArrayName = Literal[
    "history_indptr", "history_step_offsets", "history_neighbours",
    "snapshot_indptr", "snapshot_step_offsets", "snapshot_neighbours",
    "ids", "id_bytes", "id_offsets", "step_start", "step_end", "labels", "features",
]  # fmt: skip
Size = Annotated[int, Field(ge=0)]
Positive = Annotated[int, Field(ge=1)]


class _Strict(BaseModel):
    """Nothing is converted; entries that nobody asked for are left alone."""

    model_config = ConfigDict(strict=True)


class ArrayMeta(_Strict):
    """One `.npy` file."""

    dtype: str
    shape: list[Size]
    sha256: str


class Counts(_Strict):
    """What the arrays must add up to."""

    nodes: Size
    steps: Size
    snapshot_edges: Size
    union_edges: Size


class EventsMeta(_Strict):
    """The files of the events; folders of earlier versions have none."""

    source: ArrayMeta
    target: ArrayMeta
    time: ArrayMeta
    step_offsets: ArrayMeta


class GraphMeta(_Strict):
    """A graph folder. An array's name is the name of its file, so that only known ones are taken."""

    directed: bool
    class_names: list[str]
    counts: Counts
    facts: dict[str, Any]
    arrays: dict[ArrayName, ArrayMeta]
    events: EventsMeta | None = None


class FeaturesMeta(_Strict):
    """A feature set `[T, N, d]`, of which as many steps are finished as there are checksums."""

    recipe: dict[str, Any]
    graph_key: str
    shape: Annotated[list[Positive], Field(min_length=3, max_length=3)]
    dtype: Literal["float32", "float16"]
    checksums: list[Size]
    seconds: list[float]


def check_meta(kind: type[BaseModel], content: dict[str, Any], path: Path, way_out: str) -> None:
    """Raise `StorageError` naming the first entry that is missing or not what it should be."""
    try:
        kind.model_validate(content)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"] if part != "[key]")
        what = f"has no entry '{where}'" if first["type"] == "missing" else f"is damaged: {where}: {first['msg']}"
        raise StorageError(f"{path} {what}. {way_out}") from error
