"""The interpreter takes more than the compiler does: every kernel is compiled too, which needs no GPU."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton")
KERNELS = {
    "project_kernel", "mix_kernel", "mix_back_kernel", "weights_kernel", "inputs_kernel", "finish_kernel",
    "_forward_kernel", "_backward_kernel", "fold_kernel", "pool_kernel", "read_kernel", "read_back_kernel",
    "pool_back_kernel", "fold_back_kernel", "_views_kernel", "_rows_kernel", "_finish_kernel", "_back_kernel",
    "_add_up_kernel", "_fetch_kernel", "_hop_kernel",
}  # fmt: skip


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """The kernels compiled for a first graph, and those compiled again for one of other steps and classes."""
    # Not in this process, where kernels may be interpreted.
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment["TRITON_CACHE_DIR"] = str(tmp_path_factory.mktemp("triton"))
    script = Path(__file__).with_name("compile_kernels.py")
    done = subprocess.run([sys.executable, script], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    lines = (line.split() for line in done.stdout.splitlines())
    return {name: kernels for name, *kernels in lines}


def test_every_kernel_compiles_and_needs_no_more_shared_memory_than_any_recent_gpu_has(
    compiled: dict[str, list[str]],
) -> None:
    assert set(compiled["first"]) == KERNELS
    assert set(compiled["adaptive"]) >= {"_forward_kernel", "_backward_kernel"}


def test_other_numbers_of_steps_and_classes_compile_nothing_again(compiled: dict[str, list[str]]) -> None:
    assert compiled["again"] == []
