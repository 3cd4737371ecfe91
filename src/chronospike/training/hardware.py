"""The machine and the versions that results depend on to the bit."""

from __future__ import annotations

import os
import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from chronospike._version import __version__

_CPU_INFO = Path("/proc/cpuinfo")


def versions() -> dict[str, str]:
    """Of what decides the bits."""
    packages = {name: version(name) for name in ("numpy", "scipy", "scikit-learn")}
    return {
        "chronospike": __version__,
        "torch": torch.__version__,
        **packages,
        "python": platform.python_version(),
    }


def machine(device: torch.device) -> dict[str, Any]:
    """The processor, its CPUs that we may use, the memory, the system, and the GPU if that is the device."""
    facts = {
        "processor": _processor(),
        "cpus": len(os.sched_getaffinity(0)),
        "memory_bytes": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
        "system": f"{platform.system()} {platform.release()}",
    }
    return {**facts, "gpu": torch.cuda.get_device_name(device)} if device.type == "cuda" else facts


def device_name(device: torch.device) -> str:
    """`cpu` with its thread count, or the name of the GPU."""
    if device.type == "cuda":
        return f"{device} ({torch.cuda.get_device_name(device)})"
    threads = torch.get_num_threads()
    return f"cpu ({threads} thread{'' if threads == 1 else 's'})"


def _processor() -> str:
    rows = _CPU_INFO.read_text(encoding="utf-8", errors="replace").splitlines() if _CPU_INFO.is_file() else []
    named = [row.partition(":")[2].strip() for row in rows if row.startswith("model name")]
    return named[0] if named else platform.machine()
