"""Memory checks before a fit, and one-line errors that say what to lower."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from chronospike.config import Settings
from chronospike.errors import ChronoSpikeError, InputError
from chronospike.memory import require_bytes, shortage

# Weights, two moments of AdamW and the best weights so far.
COPIES_OF_WEIGHTS = 4
_ELSEWHERE = "or run with --device cpu"


@contextmanager
def memory_errors(advice: str) -> Iterator[None]:
    """Turn 'out of memory', of the GPU or of the machine, into one line with the method's `advice`."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise ChronoSpikeError(f"the GPU is out of memory. {advice}, {_ELSEWHERE}") from error
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and "can't allocate memory" not in str(error):
            raise
        raise ChronoSpikeError(f"this machine is out of memory. {advice}") from error


def require_device_bytes(needed: float, what: str, device: torch.device, advice: str) -> None:
    """Refuse to begin `what` if it needs more memory than its device has."""
    if device.type != "cuda":
        require_bytes(needed, what, advice)
        return
    there = torch.cuda.get_device_properties(device).total_memory
    if needed > there:
        raise InputError(shortage(needed, there, what, "the GPU", f"{advice}, {_ELSEWHERE}"))


def require_feature_memory(nodes: int, settings: Settings, device: torch.device) -> None:
    """Refuse to make a feature set for so many nodes where one step of it does not fit."""
    # The table that is learned, and on the CPU a second one beside it.
    table = 4 * nodes * settings.feature_dimension
    way_out = f"Lower feature_dimension (now {settings.feature_dimension})"
    require_bytes(table if device.type == "cuda" else 2 * table, "making the features", way_out)
