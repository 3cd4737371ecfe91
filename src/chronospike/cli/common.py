"""What the commands share: one-line errors, JSON, and a progress display that is quiet off a terminal."""

from __future__ import annotations

import json
import shutil
import sys
import textwrap
import time as clock
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any, Protocol

import typer

from chronospike.errors import ChronoSpikeError, OutOfSpaceError


class Interrupted(ChronoSpikeError):
    """The user stopped a command that can be resumed; the message says how."""

    exit_code = 130


@contextmanager
def resumable(advice: str) -> Iterator[None]:
    """Answer an interrupt with how to resume what is done in the block."""
    try:
        yield
    except KeyboardInterrupt:
        raise Interrupted(f"interrupted. {advice}") from None


@contextmanager
def kept_work(advice: str) -> Iterator[None]:
    """Say how to resume what is done in the block also where the disk is full, or nobody reads the output any more."""
    try:
        yield
    except OutOfSpaceError as error:
        raise OutOfSpaceError(f"{error}. {advice}") from error
    except BrokenPipeError:
        raise Interrupted(f"stopped, because nothing reads the output any more. {advice}") from None


def command_errors() -> type[Any]:
    """The base class of typer's own usage errors (typer has carried its own copy of click since 0.2x)."""
    return next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException")


def report_error(message: str) -> None:
    """One line on standard error, whatever the message holds."""
    typer.echo(f"chronospike: {' '.join(message.split())}", err=True)


def say(message: str, unless: bool = False) -> None:
    """A line for the person at the terminal, `unless` the output is for a program."""
    if not unless:
        typer.echo(message)


def output_place(context: typer.Context, output: Path) -> Path:
    """Where `-o` leads: `-` is standard output, beside which the command's messages go to standard error."""
    from chronospike.streams import STDOUT, descriptor_of

    place = STDOUT if str(output) == "-" else output
    if descriptor_of(place) == descriptor_of(STDOUT):
        context.with_resource(redirect_stdout(sys.stderr))
    return place


def tell(message: str) -> None:
    """A progress line on standard error, apart from the output."""
    typer.echo(message, err=True)


def print_json(content: Any) -> None:
    typer.echo(json.dumps(content, indent=2, ensure_ascii=False, default=str))


def print_table(rows: list[tuple[str, str]]) -> None:
    """Two aligned columns; on a terminal, the second is wrapped to its width."""
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        line = f"  {name:<{width}}  {value}"
        say("\n".join(_wrapped(line, width + 4)) if sys.stdout.isatty() else line)


def _wrapped(line: str, indent: int) -> list[str]:
    columns = max(shutil.get_terminal_size().columns, indent + 20)
    return textwrap.wrap(line, columns, subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False)


def print_plan(plan: dict[str, Any]) -> None:
    """A `KernelPlan` as a dict: what each operation takes, and why."""
    rows = [(name, f"{choice['implementation']} ({choice['why']})") for name, choice in plan.items() if name != "half"]
    print_table([*rows, ("products", "half precision" if plan["half"] else "single precision")])


class Show(Protocol):
    """Moves a progress bar: what is being done, how much of it (None where nobody knows), and in which unit if not
    the bar's own."""

    def __call__(self, description: str, done: int, total: int | None, unit: str | None = None) -> None: ...


@contextmanager
def progress(unit: str, timed: bool = True) -> Iterator[Show]:
    """A live bar with rate and time left on standard error; nothing when that is not a terminal.

    The rate counts what was done since this part of the work began, so that neither a resumed run nor another unit
    makes it look faster than it is. Where not `timed`, whoever moves the bar knows the time left better.
    """
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    console = Console(file=sys.stderr)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        *((TextColumn("{task.fields[rate]}"), TimeRemainingColumn()) if timed else ()),
    )
    own_unit = unit
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as bar:
        task = bar.add_task("", total=None, rate="")
        part, first, began = "", 0, clock.perf_counter()

        def show(description: str, done: int, total: int | None, unit: str | None = None) -> None:
            nonlocal part, first, began
            counted = unit or own_unit
            if counted != part:
                part, first, began = counted, done, clock.perf_counter()
                bar.reset(task, total=total, rate="")
            rate = (done - first) / max(1e-9, clock.perf_counter() - began)
            shown = f"{human_count(rate)} {counted}/s" if done > first else ""
            if total is None:
                # For `update` that would mean the total so far.
                bar.tasks[0].total = None
            bar.update(task, description=description, completed=done, total=total, rate=shown)

        yield show


def human_seconds(count: float) -> str:
    """3.2 s, 45 s, 12 min, 3.5 h."""
    if count < 120:
        return f"{count:.1f} s" if count < 10 else f"{count:.0f} s"
    return f"{count / 60:.0f} min" if count < 7200 else f"{count / 3600:.1f} h"


def human_count(count: float) -> str:
    """12, 3.4 k, 5.6 M …"""
    for unit in ("", " k", " M"):
        if count < 1000:
            return f"{count:.1f}{unit}" if unit else f"{count:.3g}"
        count /= 1000
    return f"{count:.1f} G"


def human_bytes(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"
