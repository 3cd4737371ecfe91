"""A trained network in one safetensors file: tensors and text, nothing executable.

The metadata is one JSON object under one name. safetensors writes several names in an order that changes from
process to process; with one name the same network always gives the same bytes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from chronospike.errors import StorageError, one_line
from chronospike.files import atomic_file, require_readable

FORMAT = "chronospike-model"
VERSION = "1"
_ENTRY = "chronospike"


def save_weights(module: nn.Module, path: Path, description: Mapping[str, Any], class_names: Sequence[Any]) -> str:
    """Write the network to `path`, all or nothing; returns the checksum that `load_weights` gives as `sha256`.

    Args:
        description: what the weights belong to, ready for JSON.
        class_names: the classes in the order of the outputs: text, numbers or truth values.
    """
    return save_tensors(module.state_dict(), path, description, class_names)


def save_tensors(
    tensors: Mapping[str, Tensor], path: Path, description: Mapping[str, Any], class_names: Sequence[Any]
) -> str:
    """The same for tensors by name."""
    tensors = {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
    metadata = {
        "format": FORMAT,
        "version": VERSION,
        "architecture": json.dumps(dict(description)),
        "class_names": json.dumps(list(class_names), ensure_ascii=False),
    }
    metadata["sha256"] = _digest(tensors, metadata)
    # Our own write, because a full disk is then an OSError that `atomic_file` can explain.
    content = save(dict(tensors), {_ENTRY: json.dumps(metadata, sort_keys=True, ensure_ascii=False)})
    with atomic_file(path) as partial:
        partial.write_bytes(content)
    return metadata["sha256"]


def load_weights(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors by name, on the CPU, and the metadata, both checked against the file's checksum."""
    if not path.is_file():
        raise StorageError(f"{path} does not exist, so there are no weights to read")
    require_readable(path)
    try:
        with safe_open(path, framework="pt") as file:
            content = json.loads((file.metadata() or {}).get(_ENTRY, "{}"))
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError) as error:
        raise StorageError(f"{path} is damaged or not a weights file ({one_line(error)}). Use another copy") from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise StorageError(f"{path} is damaged or not a weights file: it does not say '{FORMAT}'. Use another file")
    if content.get("version") != VERSION:
        raise StorageError(
            f"{path} is a weights file of version {content.get('version')!r}, and this chronospike reads {VERSION!r}. "
            "Update chronospike"
        )
    metadata = {name: str(value) for name, value in content.items()}
    found = metadata.pop("sha256", None)
    if found is None or found != _digest(tensors, metadata):
        raise StorageError(
            f"{path} is damaged or not a weights file as it was written: its checksum is wrong. Use another copy"
        )
    return tensors, {**metadata, "sha256": found}


def description(metadata: Mapping[str, str]) -> dict[str, Any]:
    """What `save_weights` was told the weights belong to."""
    return dict(json.loads(metadata["architecture"]))


def class_names(metadata: Mapping[str, str]) -> list[Any]:
    """The classes that `save_weights` was given."""
    return list(json.loads(metadata["class_names"]))


def check_fit(tensors: Mapping[str, Tensor], expected: Mapping[str, Tensor], path: Path) -> None:
    """Raise where the tensors of `path` are not those, by name and shape, that a network expects."""
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
