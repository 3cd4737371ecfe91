"""The command line. Nothing heavy is imported until a command runs."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from chronospike._version import __version__
from chronospike.cli import bench, data, demo, doctor, features, settings, train, use
from chronospike.cli.common import command_errors, report_error
from chronospike.errors import ChronoSpikeError
from chronospike.threads import wait_quietly

app = typer.Typer(
    name="chronospike",
    help="Classify and embed the nodes of a graph that changes over time.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.add_typer(data.app, name="data")
app.add_typer(features.app, name="features")
app.command("train")(train.train)
app.command("evaluate")(use.evaluate)
app.command("predict")(use.predict)
app.command("embed")(use.embed)
app.command("report")(use.report)
app.command("settings")(settings.settings)
app.command("bench")(bench.bench)
app.command("demo")(demo.demo)
app.command("doctor")(doctor.doctor)


@app.callback(invoke_without_command=True)
def root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False,
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
        result = app(args=None if arguments is None else list(arguments), standalone_mode=False)
    except ChronoSpikeError as error:
        report_error(str(error))
        return error.exit_code
    except command_errors() as error:
        report_error(error.format_message())
        return 2
    except (KeyboardInterrupt, typer.Abort):
        report_error("interrupted")
        return 130
    except SystemExit as error:
        # How typer ends when the reader of the output (head, less) went away, which is no failure of ours.
        if isinstance(error.__context__, BrokenPipeError):
            return 0
        raise
    return result if isinstance(result, int) else 0


def main() -> None:
    sys.exit(run())
