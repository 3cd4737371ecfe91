"""Everything a stopped run needs to go on exactly: one safetensors file, replaced by a rename.

Tensors: `model.*` (current weights), `best.*` (weights of the best epoch), `optimiser.*` (AdamW's moments).
The rest of the state is JSON in the file's metadata. Nothing in it is ever executed.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from chronospike.errors import StorageError
from chronospike.files import atomic_file
from chronospike.training.loop import EpochReport, State, Trainer

FORMAT = "chronospike-checkpoint"
VERSION = "1"


def save_checkpoint(trainer: Trainer, path: Path) -> None:
    """Write the trainer's state after an epoch."""
    tensors: dict[str, Tensor] = {}
    for prefix, weights in (("model", trainer.model.state_dict()), ("best", trainer.best)):
        tensors |= {f"{prefix}.{name}": value.detach().cpu().contiguous() for name, value in weights.items()}
    for number, moments in trainer.optimiser.state_dict()["state"].items():
        tensors |= {f"optimiser.{number}.{name}": value.detach().cpu() for name, value in moments.items()}
    # safetensors refuses two names for one tensor, which the first epoch's best weights could be.
    tensors = {name: value.clone() for name, value in tensors.items()}
    metadata = {"format": FORMAT, "version": VERSION, "state": json.dumps(asdict(trainer.state))}
    with atomic_file(path) as partial:
        save_file(tensors, partial, metadata)


def load_checkpoint(trainer: Trainer, path: Path) -> None:
    """Bring a new trainer of the same settings to where the checkpoint was written."""
    tensors, metadata = _read(path)
    if metadata.get("format") != FORMAT or metadata.get("version") != VERSION:
        raise StorageError(f"{path} is not a checkpoint this chronospike can read. Start again with --overwrite")
    groups: dict[str, dict[str, Tensor]] = {"model": {}, "best": {}, "optimiser": {}}
    for name, value in tensors.items():
        prefix, _, rest = name.partition(".")
        groups[prefix][rest] = value
    try:
        trainer.model.load_state_dict(groups["model"])
        trainer.best = {name: value.to(trainer.problem.device) for name, value in groups["best"].items()}
        trainer.optimiser.load_state_dict(_optimiser_state(trainer, groups["optimiser"]))
        trainer.state = _state(json.loads(metadata["state"]))
    except (RuntimeError, KeyError, TypeError, ValueError) as error:
        raise StorageError(f"{path} does not fit this run: {' '.join(str(error).split())[:200]}") from error


def _read(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    if not path.is_file():
        raise StorageError(f"{path} does not exist: there is nothing to resume. Start the run without --resume")
    try:
        with safe_open(path, framework="pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}, dict(file.metadata() or {})  # noqa: SIM118
    except (SafetensorError, OSError, ValueError) as error:
        raise StorageError(f"{path} is damaged ({error}). Start again with --overwrite") from error


def _optimiser_state(trainer: Trainer, tensors: dict[str, Tensor]) -> dict[str, Any]:
    state: dict[int, dict[str, Tensor]] = {}
    for name, value in tensors.items():
        number, _, moment = name.partition(".")
        state.setdefault(int(number), {})[moment] = value
    return {"state": state, "param_groups": trainer.optimiser.state_dict()["param_groups"]}


def _state(values: dict[str, Any]) -> State:
    history = [EpochReport(**report) for report in values.pop("history")]
    return State(**values, history=history)


def seconds_per_epoch(state: State) -> float:
    """Median training time of the epochs after the first, which pays for warming up."""
    times = [report.seconds for report in state.history]
    return float(torch.tensor(times[1:] or times).median()) if times else 0.0
