from __future__ import annotations

import os

import torch

from chronospike._version import __version__
from chronospike.training.hardware import device_name, machine, versions


def test_the_machine_is_described() -> None:
    found = machine(torch.device("cpu"))
    assert found["cpus"] == len(os.sched_getaffinity(0))
    assert found["memory_bytes"] > 1e8
    assert found["processor"]
    assert "gpu" not in found


def test_the_versions_that_decide_the_bits_are_named() -> None:
    assert versions()["chronospike"] == __version__
    assert versions()["torch"] == torch.__version__


def test_a_cpu_tells_its_threads() -> None:
    assert device_name(torch.device("cpu")).startswith(f"cpu ({torch.get_num_threads()} thread")
