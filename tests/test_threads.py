from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from chronospike.threads import default_threads, in_background, run_chunks


@pytest.mark.parametrize("threads", [1, 2, 3, 7, None])
@pytest.mark.parametrize("total", [0, 1, 2, 10, 101])
def test_chunks_cover_the_range_once(total: int, threads: int | None) -> None:
    seen = [0] * total

    def work(start: int, stop: int) -> None:
        for i in range(start, stop):
            seen[i] += 1

    run_chunks(work, total, threads)
    assert seen == [1] * total


@pytest.mark.parametrize("failing", [0, 9])
def test_an_exception_in_any_chunk_is_raised(failing: int) -> None:
    def work(start: int, stop: int) -> None:
        if start <= failing < stop:
            raise ValueError("boom")

    with pytest.raises(ValueError, match="boom"):
        run_chunks(work, 10, 3)


def test_what_runs_in_the_background_is_there_when_asked_for() -> None:
    assert in_background(lambda: 7).result() == 7


def test_what_fails_in_the_background_fails_where_it_is_asked_for() -> None:
    failing = in_background(lambda: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        failing.result()


def test_there_is_at_least_one_thread() -> None:
    assert default_threads() >= 1


WAITING = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")
QUIET = {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "0", "KMP_BLOCKTIME": "0"}


def waiting_in(program: str, **environment: str) -> dict[str, str]:
    """How threads wait by the environment of a new process, at the moment torch is loaded."""
    watch = f"""
import json, os, sys

class Watch:
    def find_spec(self, name, *rest):
        if name == "torch":
            print(json.dumps({{name: os.environ[name] for name in {WAITING!r} if name in os.environ}}))
            sys.stdout.flush()
            os._exit(0)

sys.meta_path.insert(0, Watch())
"""
    clean = {name: value for name, value in os.environ.items() if name not in WAITING}
    found = subprocess.run(
        [sys.executable, "-c", watch + program], env={**clean, **environment}, stdout=subprocess.PIPE, check=True
    )
    result: dict[str, str] = json.loads(found.stdout)
    return result


COMMAND = "from chronospike.cli import run; run(['doctor'])"
PACKAGE = "from chronospike import ChronoSpikeClassifier"


@pytest.mark.parametrize("program", [COMMAND, PACKAGE], ids=["command", "package"])
def test_threads_wait_without_spinning_from_the_moment_torch_is_loaded(program: str) -> None:
    assert waiting_in(program) == QUIET


@pytest.mark.parametrize("name", WAITING)
def test_how_the_user_lets_threads_wait_is_kept(name: str) -> None:
    assert waiting_in(PACKAGE, **{name: "7"}) == {name: "7"}


@pytest.mark.parametrize("program", ["import torch", "import chronospike, torch"], ids=["nothing", "import"])
def test_importing_the_package_alone_changes_no_environment(program: str) -> None:
    assert waiting_in(program) == {}


def test_nothing_is_changed_when_torch_is_there_already() -> None:
    program = "import os, sys; sys.modules['torch'] = os; from chronospike import threads; threads.wait_quietly()"
    shown = f"{program}; print(sorted(os.environ.keys() & {set(WAITING)!r}))"
    clean = {name: value for name, value in os.environ.items() if name not in WAITING}
    found = subprocess.run([sys.executable, "-c", shown], env=clean, capture_output=True, text=True, check=True)
    assert found.stdout == "[]\n"
