"""Runs cells, each in its own process, so that one can run out of time or memory and the others continue."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chronospike.experiments.cells import EMBEDDINGS, LOG, RESULT, SPEC, Cell, folder_of, is_settled, read_result
from chronospike.files import write_json
from chronospike.memory import available_bytes
from chronospike.methods.registry import learner_type
from chronospike.methods.simple import SimpleLearner

# Simple methods take seconds, most of them for the start of Python: several at a time are several times quicker.
MOST_AT_A_TIME = 8
# Of a process with torch before it reads anything; known better once a cell of the method has ended.
_LEAST_BYTES = 1_000_000_000
_POLL_SECONDS = 0.05

OnStart = Callable[[Sequence[Cell]], None]
OnEnd = Callable[[Cell, Mapping[str, Any], float], None]


@dataclass(frozen=True)
class Slots:
    """How the CPUs are shared out: `groups` of them, of which a cell takes one or all.

    Attributes:
        alone: methods whose cells take all groups, and so run with nothing beside them.
    """

    groups: tuple[tuple[int, ...], ...]
    alone: frozenset[str] = frozenset()


@dataclass
class _Running:
    cell: Cell
    process: subprocess.Popen[bytes]
    began: float
    groups: set[int]


def share_cpus(cpus: Sequence[int], methods: Collection[str], jobs: int | None) -> Slots:
    """`jobs` cells at a time with the CPUs shared out; by default several simple methods, but one of any other.

    What is trained by gradient uses all CPUs, or the GPU, and how long its epochs take is to be compared.
    """
    count = jobs or min(len(cpus), MOST_AT_A_TIME)
    size = max(1, len(cpus) // count)
    groups = tuple(tuple(cpus[(i * size + k) % len(cpus)] for k in range(size)) for i in range(count))
    slow = () if jobs else (name for name in methods if not issubclass(learner_type(name), SimpleLearner))
    return Slots(groups, frozenset(slow))


def run_cells(
    cells: Sequence[Cell],
    output: Path,
    slots: Slots,
    budget: float | None = None,
    on_start: OnStart | None = None,
    on_end: OnEnd | None = None,
) -> None:
    """Fit the cells that are not settled and leave a result in the folder of each.

    Args:
        budget: seconds that a cell may take.
        on_start: called with the running cells whenever one has started.
        on_end: called with each cell that has ended, its result, and its seconds.
    """
    # The quick ones first; several cells of the grid may be one.
    found = {one.id: read_result(output, one) for one in cells}
    waiting = list({one.id: one for one in cells if not is_settled(found[one.id], budget)}.values())
    waiting.sort(key=lambda cell: cell.method in slots.alone)
    not_done = {one.id: one for one in cells if (found[one.id] or {}).get("status") != "done"}
    _remove_embeddings(output, cells, not_done.values())
    running: list[_Running] = []
    peaks: dict[str, int] = {}
    try:
        while waiting or running:
            while (cell := _next(waiting, running)) is not None and (groups := _room(cell, running, slots, peaks)):
                waiting.remove(cell)
                running.append(_start(cell, output, slots, groups))
                if on_start is not None:
                    on_start([one.cell for one in running])
            for one in list(running):
                if (result := _ended(one, output, budget)) is None:
                    continue
                running.remove(one)
                ended = [(one.cell, result, time.monotonic() - one.began)]
                if result["status"] == "time":
                    # Whoever waits for the same embeddings would run out of it, too.
                    late = _same(one.cell, waiting)
                    ended += [(other, _record(output, other, result), 0.0) for other in late]
                    waiting = [other for other in waiting if other not in late]
                if result["status"] == "done":
                    not_done.pop(one.cell.id)
                    _remove_embeddings(output, [one.cell], not_done.values())
                peaks[one.cell.method] = max(peaks.get(one.cell.method, 0), result.get("peak_memory_bytes") or 0)
                if on_end is not None:
                    for each in ended:
                        on_end(*each)
            time.sleep(_POLL_SECONDS)
    finally:
        for one in running:
            _kill(one)


def _next(waiting: Sequence[Cell], running: Sequence[_Running]) -> Cell | None:
    """The first cell whose embeddings nobody is learning."""
    taken = {one.cell.embeddings for one in running} - {None}
    return next((cell for cell in waiting if cell.embeddings not in taken), None)


def _same(cell: Cell, others: Iterable[Cell]) -> list[Cell]:
    """The `others` that need the embeddings of `cell`, and so as much time."""
    return [other for other in others if other.embeddings is not None and other.embeddings == cell.embeddings]


def _remove_embeddings(output: Path, cells: Iterable[Cell], not_done: Collection[Cell]) -> None:
    """Take away the embeddings of `cells` that no cell needs any more."""
    for cell in cells:
        if cell.embeddings is not None and not _same(cell, not_done):
            shutil.rmtree(output / EMBEDDINGS / cell.embeddings, ignore_errors=True)
            with suppress(OSError):
                # Not while others are there.
                (output / EMBEDDINGS).rmdir()


def _room(cell: Cell, running: Sequence[_Running], slots: Slots, peaks: Mapping[str, int]) -> set[int]:
    """The groups of CPUs that the cell can have now; none where it has to wait for them, or for memory."""
    everything = set(range(len(slots.groups)))
    free = everything.difference(*(one.groups for one in running))
    if not running:
        return everything if cell.method in slots.alone else {0}
    if not free or cell.method in slots.alone:
        return set()
    # Those that run may not have taken their memory yet.
    needed = sum(max(_LEAST_BYTES, peaks.get(one.method, 0)) for one in (cell, *(one.cell for one in running)))
    return {min(free)} if needed <= available_bytes() else set()


def _start(cell: Cell, output: Path, slots: Slots, groups: set[int]) -> _Running:
    folder = folder_of(output, cell)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / RESULT).unlink(missing_ok=True)
    write_json(folder / SPEC, cell.spec())
    cpus = sorted({cpu for group in groups for cpu in slots.groups[group]})
    command = [sys.executable, "-m", "chronospike.experiments.cell", str(folder), ",".join(map(str, cpus))]
    with (folder / LOG).open("wb") as log:
        # A session of its own, to be ended with whatever it starts; its standard input tells it when we are gone.
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )
    return _Running(cell, process, time.monotonic(), groups)


def _ended(one: _Running, output: Path, budget: float | None) -> dict[str, Any] | None:
    """How a cell ended; None while it runs."""
    late = budget is not None and time.monotonic() - one.began > budget
    # Left unreaped until all of it is killed, lest its number goes to a stranger.
    flags = os.WEXITED | os.WNOHANG | os.WNOWAIT
    if not late and os.waitid(os.P_PID, one.process.pid, flags) is None:
        return None
    _kill(one)
    result = read_result(output, one.cell)
    if result is None:
        ended = _died(one.process.returncode)
        if late:
            ended = {"status": "time", "reason": f"took longer than the budget of {budget:g} s", "budget": budget}
        result = _record(output, one.cell, ended)
    return result


def _record(output: Path, cell: Cell, ended: Mapping[str, Any]) -> dict[str, Any]:
    """Write down how a cell ended that has not done so itself."""
    kept = {name: ended[name] for name in ("status", "reason", "budget") if name in ended}
    folder = folder_of(output, cell)
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / RESULT, kept)
    return {**kept, **cell.facts()}


def _died(code: int) -> dict[str, Any]:
    if code == -signal.SIGKILL:
        reason = "killed, most likely by the system because memory ran out"
    elif code < 0:
        reason = f"ended by signal {signal.Signals(-code).name}"
    else:
        reason = f"ended with exit code {code} and no result"
    return {"status": "failed", "reason": f"{reason}; {LOG} has what it printed"}


def _kill(one: _Running) -> None:
    """End the process and whatever it has started, if any of it still runs."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(one.process.pid, signal.SIGKILL)
    one.process.wait()
    if one.process.stdin is not None:
        one.process.stdin.close()


def seconds_left(cells: Sequence[Cell], took: Mapping[str, Sequence[float]], spent: float) -> float | None:
    """How long the `cells` that are left will take, by what those of the same method took; None if none has ended.

    Args:
        took: seconds of each cell that has ended, by method.
        spent: seconds since the first began; less than the sum of `took` where several ran at a time.
    """
    every = [seconds for one in took.values() for seconds in one]
    if not every:
        return None
    usual = {method: sum(one) / len(one) for method, one in took.items()}
    mean = sum(every) / len(every)
    return sum(usual.get(cell.method, mean) for cell in cells) * spent / max(1e-9, sum(every))
