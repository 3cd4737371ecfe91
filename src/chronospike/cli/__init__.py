"""The command line. Nothing heavy is imported until a command runs."""

from __future__ import annotations

import atexit
import errno
import os
import signal
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from pathlib import Path
from types import FrameType
from typing import Annotated, NoReturn

import typer

from chronospike._version import __version__
from chronospike.cli import (
    bench,
    compare,
    data,
    demo,
    distil,
    doctor,
    features,
    inference,
    leaderboard,
    settings,
    train,
)
from chronospike.cli.common import command_errors, report_error
from chronospike.cli.options import usage_message
from chronospike.errors import ChronoSpikeError
from chronospike.threads import wait_quietly

INTERRUPTED = 130

app = typer.Typer(
    name="chronospike",
    help="Classify and embed the nodes of a graph that changes over time.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    # Every command below inherits it.
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(data.app, name="data")
app.add_typer(features.app, name="features")
app.command("train")(train.train)
app.command("distil")(distil.distil)
app.command("evaluate")(inference.evaluate)
app.command("predict")(inference.predict)
app.command("embed")(inference.embed)
app.command("report")(inference.report)
app.command("leaderboard")(leaderboard.leaderboard)
app.command("compare")(compare.compare)
app.command("settings")(settings.settings)
app.command("bench")(bench.bench)
app.command("demo")(demo.demo)
app.command("doctor")(doctor.doctor)


@app.callback(invoke_without_command=True)
def root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False,
) -> None:
    if version:
        typer.echo(f"chronospike {__version__}")
        raise typer.Exit()
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: 0, 1 for a failure, 2 for bad input, 130 when interrupted."""
    # Before a command loads torch.
    wait_quietly()
    try:
        arguments = sys.argv[1:] if arguments is None else list(arguments)
        result = app(args=arguments, prog_name="chronospike", standalone_mode=False)
    except ChronoSpikeError as error:
        report_error(str(error))
        return error.exit_code
    except command_errors() as error:
        # `chronospike data` alone asks what there is, as `chronospike` alone does.
        if type(error).__name__ == "NoArgsIsHelpError":
            typer.echo(error.format_message())
            return 0
        report_error(usage_message(error))
        return 2
    except (KeyboardInterrupt, typer.Abort):
        report_error("interrupted")
        return INTERRUPTED
    except (MemoryError, RuntimeError) as error:
        # torch has no exception of its own for a CPU out of memory.
        if isinstance(error, RuntimeError) and "can't allocate memory" not in str(error):
            raise
        report_error(f"this machine is out of memory ({error})")
        return 1
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            report_error(f"{str(error.filename)[:60]}…: the name is too long")
            return 2
        # Whoever writes a file of ours says which; this is the output itself.
        if error.errno != errno.ENOSPC:
            raise
        report_error(f"the output could not be written ({error.strerror})")
        return 1
    except SystemExit as error:
        # How typer ends when the reader of the output (head, less) went away, which is no failure of ours.
        if isinstance(error.__context__, BrokenPipeError):
            return 0
        raise
    if result == INTERRUPTED:  # typer makes this of a KeyboardInterrupt, and says nothing
        report_error("interrupted")
    return result if isinstance(result, int) else 0


def main() -> None:
    _replace_closed_streams()
    signal.signal(signal.SIGTERM, _interrupt)
    sys.meta_path.insert(0, _WithoutPandas())
    _leave(run())


def _replace_closed_streams() -> None:
    """Say nothing where a scheduler has closed standard output or error, and let no file of ours have their numbers."""
    # Only to be read: what is written to such a number is an error, as it was.
    while (number := os.open(os.devnull, os.O_RDONLY)) <= 2:
        pass
    os.close(number)
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115


def _leave(code: int) -> NoReturn:
    """End the process without the half second that Python needs to free what the system frees anyway."""
    is_watched = sys.flags.interactive or sys.getprofile() is not None or sys.gettrace() is not None
    if is_watched:
        sys.exit(code)
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except BrokenPipeError:
        # The reader has seen enough.
        pass
    except OSError as error:
        report_error(f"the output could not be written ({error.strerror})")
        code = code or 1
    os._exit(code)


class _WithoutPandas(MetaPathFinder):
    """pyarrow imports pandas where it is installed, to know its tables. A command is given none, and starts sooner.

    pyarrow is compiled, so the nearest frame is its own or that of whoever called it. Others get pandas if they ask.
    """

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> None:
        if fullname != "pandas":
            return
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and frame.f_globals.get("__name__", "").startswith("importlib"):
            frame = frame.f_back
        if frame is not None and frame.f_globals.get("__name__", "").startswith(("pyarrow", "chronospike.")):
            raise ModuleNotFoundError("pyarrow does without pandas here", name=fullname)


def _interrupt(number: int, frame: FrameType | None) -> None:
    """SIGTERM, from a scheduler or `kill`, is an interrupt: what was done is kept."""
    raise KeyboardInterrupt
