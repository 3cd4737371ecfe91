"""A trained network in one file, in the safetensors format: tensors and text, nothing that is ever executed.

The metadata is one JSON object under one name. safetensors writes several names in an order that changes from
process to process; with one name the same network always gives the same bytes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from chronospike.errors import StorageError
from chronospike.files import atomic_file
from chronospike.nn.model import Architecture, ChronoSpike

FORMAT = "chronospike-model"
VERSION = "1"
_ENTRY = "chronospike"
_OWN = ("format", "version", "architecture", "class_names", "sha256")


def save_weights(
    model: ChronoSpike, path: Path, extra: Mapping[str, str] | None = None, class_names: Sequence[Any] = ()
) -> None:
    """Write the network to `path`, all or nothing.

    Args:
        extra: further metadata; the names in `format`, `version`, `architecture`, `class_names`, `sha256` are taken.
        class_names: the classes in the order of the outputs: text, numbers or truth values.
    """
    taken = sorted(set(extra or {}).intersection(_OWN))
    if taken:
        raise ValueError(f"extra metadata cannot be named {taken[0]!r}")
    tensors = {name: value.detach().cpu().contiguous() for name, value in model.state_dict().items()}
    metadata = {
        **(extra or {}),
        "format": FORMAT,
        "version": VERSION,
        "architecture": json.dumps(asdict(model.architecture)),
        "class_names": json.dumps(list(class_names), ensure_ascii=False),
    }
    metadata["sha256"] = _digest(tensors, metadata)
    # Our own write, because a full disk is then an OSError that `atomic_file` can explain.
    content = save(tensors, {_ENTRY: json.dumps(metadata, sort_keys=True, ensure_ascii=False)})
    with atomic_file(path) as partial:
        partial.write_bytes(content)


def load_weights(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors by name, on the CPU, and the metadata, both checked against the file's checksum."""
    if not path.is_file():
        raise StorageError(f"{path} does not exist, so there are no weights to read")
    try:
        with safe_open(path, framework="pt") as file:
            content = json.loads((file.metadata() or {}).get(_ENTRY, "{}"))
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError) as error:
        raise StorageError(f"{path} is damaged or not a weights file ({_one_line(error)}). Use another copy") from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise StorageError(f"{path} is damaged or not a weights file: it does not say '{FORMAT}'. Use another file")
    if content.get("version") != VERSION:
        raise StorageError(
            f"{path} is a weights file of version {content.get('version')!r}, and this chronospike reads {VERSION!r}. "
            "Update chronospike"
        )
    metadata = {name: str(value) for name, value in content.items()}
    if metadata.pop("sha256", None) != _digest(tensors, metadata):
        raise StorageError(
            f"{path} is damaged or not a weights file as it was written: its checksum is wrong. Use another copy"
        )
    return tensors, metadata


def read_model(path: Path) -> ChronoSpike:
    """The network of a weights file, on the CPU."""
    return rebuild(*load_weights(path), path)


def rebuild(tensors: Mapping[str, Tensor], metadata: Mapping[str, str], path: Path) -> ChronoSpike:
    """The network that `load_weights` read from `path`; what does not fit its description is named."""
    try:
        fields = json.loads(metadata["architecture"])
        architecture = Architecture(**{**fields, "hidden": tuple(fields["hidden"])})
        # Without storage first: a description may ask for any amount of memory, the tensors have a known size.
        with torch.device("meta"):
            expected = ChronoSpike(architecture).state_dict()
    except (AttributeError, KeyError, RuntimeError, TypeError, ValueError, ZeroDivisionError) as error:
        raise StorageError(f"{path} describes a network that cannot be built ({_one_line(error)})") from error
    _check_fit(tensors, expected, path)
    with torch.random.fork_rng(devices=[]):
        model = ChronoSpike(architecture)
    model.load_state_dict(dict(tensors))
    return model


def class_names(metadata: Mapping[str, str]) -> list[Any]:
    """The classes that `save_weights` was given."""
    return list(json.loads(metadata["class_names"]))


def _check_fit(tensors: Mapping[str, Tensor], expected: Mapping[str, Tensor], path: Path) -> None:
    for name in sorted({*tensors, *expected}):
        if name not in tensors:
            raise StorageError(f"{path} lacks the tensor '{name}' that its network needs")
        if name not in expected:
            raise StorageError(f"{path} holds the tensor '{name}', which its network does not have")
        have, want = list(tensors[name].shape), list(expected[name].shape)
        if have != want:
            raise StorageError(f"{path}: tensor '{name}' has shape {have}, and its network needs {want}")


def _digest(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> str:
    """SHA-256 over the metadata and every tensor's name, type, shape and bytes."""
    digest = hashlib.sha256(json.dumps(dict(metadata), sort_keys=True).encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"\n{name} {tensor.dtype} {list(tensor.shape)}\n".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]
