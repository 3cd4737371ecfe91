from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from chronospike import __version__, cli
from chronospike.errors import ChronoSpikeError
from tests.small_runs import command, refused, worked

HEAVY = ("torch", "numba", "numpy", "pyarrow", "scipy", "sklearn", "matplotlib", "pandas", "triton")


def loaded_by(*arguments: str) -> tuple[int, list[str], str]:
    """Exit code of a command in a process of its own, the heavy packages it imported, and what it printed."""
    program = (
        "import sys\n"
        "from chronospike.cli import run\n"
        f"code = run({list(arguments)!r})\n"
        f"print(*(name for name in {HEAVY!r} if name in sys.modules), file=sys.stderr)\n"
        "sys.exit(code)\n"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    return found.returncode, found.stderr.splitlines()[-1].split(), found.stdout + found.stderr


@pytest.mark.parametrize("arguments", [["--help"], ["train", "--help"], ["data", "import", "--help"]])
def test_help_imports_nothing_heavy(arguments: list[str]) -> None:
    code, loaded, said = loaded_by(*arguments)
    assert (code, loaded) == (0, [])
    assert "Usage:" in said


@pytest.mark.parametrize(
    "arguments",
    [
        ["trian"],
        ["train", "pubmed", "--sett", "p=1"],
        ["train", "pubmed"],
        ["train", "pubmed", "-o", "run", "--set", "epoch=3"],
        ["train", "pubmed", "-o", "run", "--preset", "papre"],
        ["train", "pubmed", "-o", "run", "--device", "gpu"],
        ["train", "--resume", "-o", "nowhere"],
        ["features", "deepwalk"],
        ["features", "fastrp", "g", "--name", "own"],
        ["bench", "--like", "dbpl"],
        ["settings", "--preset", "papre"],
    ],
)
def test_a_usage_error_imports_nothing_heavy(arguments: list[str]) -> None:
    code, loaded, said = loaded_by(*arguments)
    assert (code, loaded) == (2, []), said


@pytest.mark.parametrize("path", [[], ["train"], ["data"], ["data", "get"], ["features", "deepwalk"], ["doctor"]])
def test_h_is_short_for_help(capsys: pytest.CaptureFixture[str], path: list[str]) -> None:
    said = worked(capsys, *path, "-h")
    assert said == worked(capsys, *path, "--help")
    assert said.startswith(f"Usage: {' '.join(['chronospike', *path])} ")


@pytest.mark.parametrize("group", [[], ["data"], ["features"]])
def test_the_summary_of_no_command_is_cut(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, group: list[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    commands = worked(capsys, *group, "--help").partition("Commands:")[2].splitlines()
    assert len(commands) > 1
    assert [line for line in commands if line.endswith("...")] == []


def test_the_package_can_be_run_as_a_module() -> None:
    program = [sys.executable, "-m", "chronospike", "--version"]
    found = subprocess.run(program, capture_output=True, text=True, timeout=60, check=True)
    assert found.stdout == f"chronospike {__version__}\n"


def test_a_group_without_a_command_is_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert worked(capsys, "data").rstrip() == worked(capsys, "data", "--help").rstrip()


def test_the_package_imports_nothing_heavy() -> None:
    program = f"import sys, chronospike; print([name for name in {HEAVY!r} if name in sys.modules])"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert found.stdout.strip() == "[]"


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert worked(capsys, "--version") == f"chronospike {__version__}\n"


def test_without_a_command_there_is_help(capsys: pytest.CaptureFixture[str]) -> None:
    said = worked(capsys)
    for name in ("data", "features", "train", "evaluate", "predict", "embed", "report", "demo", "doctor"):
        assert f"  {name} " in said


def test_an_unknown_command_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert "trian" in refused(capsys, "trian")
    assert "--colour" in refused(capsys, "data", "list", "--colour")
    assert "-o" in refused(capsys, "train", "pubmed")


def test_a_mistyped_command_or_option_gets_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert "No such command 'trian'. Did you mean 'train'?" in refused(capsys, "trian")
    assert "No such option: --epocs. Did you mean '--epochs'?" in refused(capsys, "train", "--epocs", "3")


def with_outcome(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def fail(**_: object) -> None:
        raise error

    monkeypatch.setattr(cli, "app", fail)


def test_a_failure_is_exit_code_one_and_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with_outcome(monkeypatch, ChronoSpikeError("the loss\nis not finite"))
    result = command(capsys, "train")
    assert (result.code, result.err) == (1, "chronospike: the loss is not finite\n")


@pytest.mark.parametrize("error", [MemoryError("9 TiB"), RuntimeError("DefaultCPUAllocator: can't allocate memory")])
def test_a_machine_out_of_memory_is_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    with_outcome(monkeypatch, error)
    result = command(capsys, "predict")
    assert (result.code, result.err) == (1, f"chronospike: this machine is out of memory ({error})\n")


def test_an_error_of_our_own_making_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    with_outcome(monkeypatch, RuntimeError("sizes differ"))
    with pytest.raises(RuntimeError, match="sizes differ"):
        cli.run(["train"])


def test_a_name_that_is_too_long_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert refused(capsys, "data", "info", 300 * "x").endswith("x…: the name is too long\n")


@pytest.mark.parametrize("error", [KeyboardInterrupt(), typer.Abort()])
def test_an_interrupt_is_exit_code_130(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    with_outcome(monkeypatch, error)
    result = command(capsys, "train")
    assert (result.code, result.err) == (130, "chronospike: interrupted\n")


def test_a_command_that_is_interrupted_says_so(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli.data, "print_table", interrupt)
    result = command(capsys, "data", "list")
    assert (result.code, result.err) == (130, "chronospike: interrupted\n")


def test_a_reader_that_goes_away_is_no_failure() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    program = [sys.executable, "-c", "from chronospike.cli import main; main()", "data", "list"]
    found = subprocess.run(program, stdout=writer, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    os.close(writer)
    assert (found.returncode, found.stderr) == (0, "")


def test_whatever_is_to_be_done_at_the_end_is_done() -> None:
    program = "import atexit, chronospike.cli as cli; atexit.register(print, 'cleaned up'); cli.main()"
    done = subprocess.run([sys.executable, "-c", program, "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"chronospike {__version__}\ncleaned up\n"


def test_a_profiler_still_gets_to_say_what_it_saw() -> None:
    arguments = ["-m", "cProfile", "-m", "chronospike", "--version"]
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False)
    assert "function calls" in done.stdout


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_output_that_cannot_be_written_is_an_error() -> None:
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "chronospike", "--version"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1
    assert "No space left" in done.stderr
    assert "Traceback" not in done.stderr


def test_closed_standard_streams_are_no_failure(tmp_path: Path) -> None:
    shell = '"$0" -m chronospike data get synthetic -o g --nodes 50 >&- 2>&- <&-'
    done = subprocess.run(["sh", "-c", shell, sys.executable], cwd=tmp_path, check=False)
    assert done.returncode == 0
    assert (tmp_path / "g" / "meta.json").is_file()
