"""What a command imports: packages that take long to load are left alone by commands that do not need them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from chronospike.cli import run
from tests.small_runs import SMALL, saved_graph

COMPILER = ("torch._dynamo", "torch._inductor", "sympy")
STATISTICS = ("sklearn", "scipy.stats", "scipy.sparse")
WATCHED = ("torch", "numba", "pyarrow", "pandas", "matplotlib", *COMPILER, *STATISTICS)

PROGRAM = """
import atexit, sys
from chronospike.cli import main

@atexit.register
def tell():
    print("loaded", *(name for name in {watched!r} if sys.modules.get(name) is not None), file=sys.stderr)

main()
"""


def loaded_by(*arguments: object) -> set[str]:
    """Which of the watched packages a command has imported at its end, in a process of its own."""
    program = [sys.executable, "-c", PROGRAM.format(watched=WATCHED), *map(str, arguments)]
    done = subprocess.run(program, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return set(done.stderr.splitlines()[-1].split()[1:])


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved_graph(tmp_path_factory.mktemp("start_up") / "graph")


@pytest.fixture(scope="module")
def trained(graph: Path) -> Path:
    assert run(["train", str(graph), "-o", str(graph.parent / "run"), "--device", "cpu", *small()]) == 0
    return graph.parent / "run"


def small() -> list[str]:
    return [part for name, value in SMALL.items() for part in ("--set", f"{name}={value}")]


def test_help_loads_nothing() -> None:
    assert loaded_by("--help") == set()


def test_what_trains_a_network_loads_neither_a_compiler_of_kernels_nor_statistics() -> None:
    code = "import sys, chronospike.methods.chronospike.learner; print(sorted({'numba', 'sklearn'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("command", ["predict", "embed"])
def test_using_a_run_needs_no_compiler_and_no_statistics(command: str, trained: Path, tmp_path: Path) -> None:
    loaded = loaded_by(command, trained, "-o", tmp_path / "out.csv", "--device", "cpu")
    assert loaded == {"torch", "numba", "pyarrow"}


def test_training_needs_no_compiler(graph: Path, tmp_path: Path) -> None:
    loaded = loaded_by("train", graph, "-o", tmp_path / "run", "--device", "cpu", *small())
    assert not loaded & {"pandas", "matplotlib", *COMPILER}


def test_resuming_a_finished_run_needs_no_compiler_and_no_statistics(trained: Path) -> None:
    assert not loaded_by("train", "--resume", "-o", trained, "--device", "cpu") & {*COMPILER, *STATISTICS}


def test_an_estimate_needs_no_compiler(graph: Path) -> None:
    assert not loaded_by("train", graph, "--dry-run", "--device", "cpu") & {"pandas", *COMPILER}


def test_pandas_is_hidden_from_pyarrow_and_from_nobody_else() -> None:
    program = "import sys; from chronospike.cli import _WithoutPandas; sys.meta_path.insert(0, _WithoutPandas())"
    # What this package calls of pyarrow must not import pandas; torch's compiler, and whoever wants it, may.
    program += "\nimport chronospike.data.ids as ids; ids.NodeIds.of(['a', 'b']).take([0])"
    program += "\nprint('pandas' in sys.modules)\nimport torch._dynamo\nimport pandas\nprint('pandas' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert found.stdout.split() == ["False", "True"], found.stderr


def test_names_of_features_are_known_without_compiled_code() -> None:
    program = "import sys; import chronospike.features.make; print('numba' in sys.modules, 'torch' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["False", "False"]
