"""Everything a stopped run needs to resume exactly: one safetensors file, replaced by a rename.

Tensors: `model.*` (current weights), `best.*` (those of the best epoch), `mean.*` (their running mean, if it is
kept), `optimiser.*` (AdamW's moments).
The rest of the state is JSON in the file's metadata. Nothing in it is ever executed.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from chronospike.errors import StorageError, one_line
from chronospike.files import atomic_file, require_readable
from chronospike.training.loop import EpochReport, State, Trainer

FORMAT = "chronospike-checkpoint"
VERSION = "1"


def save_checkpoint(trainer: Trainer, path: Path) -> None:
    """Write the trainer's state after an epoch."""
    tensors: dict[str, Tensor] = {}
    groups = [("model", trainer.model.state_dict()), ("best", trainer.best)]
    if trainer.ema_model is not trainer.model:
        groups.append(("mean", trainer.ema_model.state_dict()))
    groups.append(("optimiser", trainer.optimiser.state_dict()))
    for prefix, weights in groups:
        tensors |= {f"{prefix}.{name}": value.detach().cpu().contiguous() for name, value in weights.items()}
    # safetensors refuses two names for one tensor, which the first epoch's best weights could be.
    tensors = {name: value.clone() for name, value in tensors.items()}
    state = json.dumps(asdict(trainer.state))
    metadata = {"format": FORMAT, "version": VERSION, "state": state, "sha256": _digest(tensors, state)}
    # Our own write, because a full disk is then an OSError that `atomic_file` can explain.
    content = save(tensors, metadata)
    with atomic_file(path) as partial:
        partial.write_bytes(content)


def load_checkpoint(trainer: Trainer, path: Path) -> None:
    """Bring a new trainer of the same settings to where the checkpoint was written."""
    tensors, metadata = _read(path)
    groups: dict[str, dict[str, Tensor]] = {"model": {}, "best": {}, "mean": {}, "optimiser": {}}
    try:
        for name, value in tensors.items():
            prefix, _, rest = name.partition(".")
            groups[prefix][rest] = value
        trainer.model.load_state_dict(groups["model"])
        if trainer.ema_model is not trainer.model:
            trainer.ema_model.load_state_dict(groups["mean"])
        trainer.best = {name: value.to(trainer.network.task.device) for name, value in groups["best"].items()}
        trainer.optimiser.load_state_dict(groups["optimiser"])
        trainer.state = _state(json.loads(metadata["state"]))
    except (RuntimeError, KeyError, TypeError, ValueError) as error:
        raise StorageError(f"{path} does not fit this run: {one_line(error)}") from error


def read_state(path: Path) -> State:
    """Where training stood when the checkpoint was written."""
    _, metadata = _read(path)
    try:
        return _state(json.loads(metadata["state"]))
    except (KeyError, TypeError, ValueError) as error:
        raise StorageError(
            f"{path} is not a checkpoint this chronospike can read. Start again with --overwrite"
        ) from error


def best_weights(path: Path) -> dict[str, Tensor]:
    """The weights of the best epoch in a checkpoint."""
    tensors, _ = _read(path)
    return {name.removeprefix("best."): value for name, value in tensors.items() if name.startswith("best.")}


def _read(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors and the metadata, both checked."""
    if not path.is_file():
        raise StorageError(f"{path} does not exist: there is nothing to resume. Start the run without --resume")
    require_readable(path)
    try:
        with safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            metadata = dict(file.metadata() or {})
    except (SafetensorError, OSError, ValueError) as error:
        raise StorageError(f"{path} is damaged ({one_line(error)}). Start again with --overwrite") from error
    if metadata.get("format") != FORMAT or metadata.get("version") != VERSION:
        raise StorageError(f"{path} is not a checkpoint this chronospike can read. Start again with --overwrite")
    if metadata.get("sha256") != _digest(tensors, metadata.get("state", "")):
        raise StorageError(f"{path} is damaged: its checksum is wrong. Start again with --overwrite")
    return tensors, metadata


def _digest(tensors: dict[str, Tensor], state: str) -> str:
    """SHA-256 over the state and every tensor's name and bytes."""
    digest = hashlib.sha256(state.encode())
    for name in sorted(tensors):
        digest.update(f"\n{name}\n".encode())
        digest.update(tensors[name].reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _state(values: dict[str, Any]) -> State:
    history = [_report(dict(report)) for report in values.pop("history")]
    return State(**values, history=history)


def _report(values: dict[str, Any]) -> EpochReport:
    known = {field.name: values.pop(field.name) for field in fields(EpochReport) if field.name in values}
    # Earlier versions wrote the parts of the loss beside it.
    return EpochReport(**{"terms": values, **known})
