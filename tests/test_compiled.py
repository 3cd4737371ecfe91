"""Kernels of a package of two files, called in processes of their own."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from numba.core.caching import FunctionCache

from chronospike import compiled

CALL = "from two_files.kernel import answer; print(answer({}), *answer.stats.cache_hits.values())"


@pytest.fixture
def package(tmp_path: Path) -> Path:
    folder = tmp_path / "two_files"
    folder.mkdir()
    shutil.copy(compiled.__file__, folder / "compiled.py")
    (folder / "helper.py").write_text(helper("2 * x"))
    (folder / "kernel.py").write_text(
        "from .compiled import njit\nfrom .helper import helped\n\n@njit\ndef answer(x): return 1 + helped(x)\n"
    )
    return folder


def helper(expression: str) -> str:
    return f"from .compiled import njit\n\n@njit\ndef helped(x): return {expression}\n"


def called(package: Path, argument: str = "20", first: str = "") -> str:
    """What the kernel returns in a new process that does `first`, and a 1 if it was found in the cache."""
    here = {name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"}
    done = subprocess.run(
        [sys.executable, "-c", first + CALL.format(argument)],
        cwd=package.parent,
        env=here,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def code_of(package: Path) -> list[Path]:
    return sorted((package / "__pycache__").glob("kernel.answer-*"))


def test_a_kernel_is_compiled_once(package: Path) -> None:
    assert called(package) == "41"
    assert called(package) == "41 1"


def test_a_change_of_a_helper_in_another_file_reaches_the_kernel(package: Path) -> None:
    assert called(package) == "41"
    before = code_of(package)
    (package / "helper.py").write_text(helper("3 * x"))
    assert called(package) == "61"
    assert called(package) == "61 1"
    # What nobody can use any more is gone.
    assert len(before) == len(code_of(package)) == 1
    assert before != code_of(package)


def test_a_change_of_a_file_without_kernels_compiles_nothing(package: Path) -> None:
    called(package)
    (package / "other.py").write_text("print('never imported')\n")
    assert called(package) == "41 1"


def test_types_have_files_of_their_own_that_no_other_process_overwrites(package: Path) -> None:
    assert [called(package), called(package, "0.25")] == ["41", "1.5"]
    assert len(code_of(package)) == 2
    assert [called(package), called(package, "0.25")] == ["41 1", "1.5 1"]


def test_a_damaged_file_is_compiled_again(package: Path) -> None:
    called(package)
    (file,) = code_of(package)
    for damaged in (b"", file.read_bytes()[:100]):
        file.write_bytes(damaged)
        assert called(package) == "41"
    assert called(package) == "41 1"


def test_where_nothing_can_be_written_a_kernel_still_compiles(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_folder(*_: Any) -> None:
        raise RuntimeError("cannot cache function: no locator available")

    monkeypatch.setattr(FunctionCache, "__init__", no_folder)
    assert compiled.njit(lambda x: x + 1)(2) == 3


def test_where_the_disk_is_full_a_kernel_still_compiles_and_leaves_nothing(package: Path) -> None:
    full = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000)); "
    assert called(package, first=full) == "41"
    assert code_of(package) == []
    assert called(package) == "41"
    assert called(package) == "41 1"


def test_kernels_read_names_of_modules_with_kernels_only() -> None:
    """A change elsewhere would go unnoticed."""
    noticed = {path.relative_to(Path(compiled.__file__).parent) for path in compiled.kernel_sources()}
    for path, source in compiled.kernel_sources().items():
        tree = ast.parse(source)
        home = {
            name.asname or name.name: Path(*node.module.split(".")[1:]).with_suffix(".py")
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("chronospike")
            for name in node.names
        }
        for kernel in ast.walk(tree):
            if isinstance(kernel, ast.FunctionDef) and any("njit" in ast.dump(mark) for mark in kernel.decorator_list):
                for name in ast.walk(kernel):
                    if isinstance(name, ast.Name) and name.id in home:
                        assert home[name.id] in noticed, f"{path.name}: {kernel.name} reads {name.id}"
