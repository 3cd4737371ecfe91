"""Shared fixtures. Real data is optional: tests that want it skip with a message where it is absent."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
import torch
from hypothesis import settings

# Without a GPU the Triton kernels run in its interpreter, which has to be asked for before Triton is imported.
if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")

# Two workers on two cores: more threads than cores would spend their time waiting for each other.
torch.set_num_threads(1)
# How long an example takes says more about the machine than about the code.
settings.register_profile("any machine", deadline=None)
settings.load_profile("any machine")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if torch.cuda.is_available():
        return
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))


@pytest.fixture(scope="session", autouse=True)
def interrupts() -> None:
    """Tests that interrupt others, or themselves, work in the background of a script too, where Ctrl-C is ignored."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def data_root() -> Path:
    """The folder with `dblp/` and `patent12k/`, from CHRONOSPIKE_DATA or beside the checkout."""
    given = os.environ.get("CHRONOSPIKE_DATA")
    root = Path(given) if given else Path(__file__).resolve().parents[2] / "shared" / "data"
    if not (root / "dblp" / "dblp.txt").is_file():
        pytest.skip(f"no real data at {root}: set CHRONOSPIKE_DATA to the folder that holds dblp/dblp.txt")
    return root
