"""Checking the available memory before much of it is used."""

from __future__ import annotations

import math
import os
from pathlib import Path

from chronospike.errors import InputError

_MEMINFO = "/proc/meminfo"
# The memory that the process' group may use, in the second version of control groups and in the first.
_GROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def available_bytes() -> int:
    """What this process could still get: memory that is free or can be freed and swap, up to its group's limit."""
    return int(min(_free(Path(_MEMINFO)), group_limit()))


def group_limit() -> float:
    """What the process' group may use in all; infinite where nobody set a limit."""
    return min(_limit(Path(place)) for place in _GROUP_LIMITS)


def machine_bytes() -> int:
    """Memory of the machine, or the part of it that this process may use."""
    return int(min(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"), group_limit()))


def require_bytes(needed: float, what: str, way_out: str) -> None:
    """Refuse to begin `what` if it needs more than there is. `needed` should be too low rather than too high."""
    there = available_bytes()
    if needed > there:
        raise InputError(shortage(needed, there, what, "this machine", way_out))


def shortage(needed: float, there: int, what: str, where: str, way_out: str) -> str:
    """One line that says what is short of what, and the way out."""
    return f"{what} needs about {_gigabytes(needed)}, and {where} has {_gigabytes(there)} free. {way_out}"


def _gigabytes(count: float) -> str:
    return f"{count / 1e9:,.1f} GB" if count < 1e18 else f"{count / 1e9:.0e} GB"


def _free(meminfo: Path) -> float:
    try:
        rows = dict(line.split(":", 1) for line in meminfo.read_text(encoding="ascii").splitlines() if ":" in line)
        return 1024 * sum(int(rows[name].split()[0]) for name in ("MemAvailable", "SwapFree"))
    except (OSError, KeyError, ValueError):
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _limit(path: Path) -> float:
    try:
        return int(path.read_text(encoding="ascii"))
    except (OSError, ValueError):
        # No such group, or "max".
        return math.inf
