"""Options shared by several commands, and messages about wrong ones."""

from __future__ import annotations

import re
from typing import Annotated, Any

import typer

from chronospike.errors import InputError, nearest

# The names of `config.preset_names`, written out so that help does not wait for the settings to be imported.
PRESETS = "dblp, default, network, paper, patent, pubmed, tmall"
PRESET_METAVAR = "NAME|FILE.yaml"

_DEVICES = ("auto", "cpu", "cuda", "cuda:0")


def check_device(name: str) -> str:
    """Refuse what cannot be a device before anything heavy is imported; whether it is there is known later."""
    if not re.fullmatch(r"auto|cpu|cuda(:\d+)?", name):
        raise InputError(f"device '{name}' is not known.{nearest(name, _DEVICES)} Use auto, cpu, cuda or cuda:N")
    return name


Device = Annotated[
    str,
    typer.Option(
        metavar="auto|cpu|cuda|cuda:N", help="Device to use; auto takes a GPU if there is one.", callback=check_device
    ),
]
Assignments = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="Change a setting; may be repeated. See 'chronospike settings'."),
]
Preset = Annotated[
    str | None,
    typer.Option(metavar=PRESET_METAVAR, help=f"{PRESETS} or a file. Default: the dataset's own, else default."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")]


def seconds_of(text: str | None) -> float | None:
    """`90s`, `15m` or `2h` in seconds."""
    if text is None:
        return None
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smh])", text.strip())
    if found is None or float(found[1]) == 0:
        raise InputError(f"a time of '{text}' cannot be read. Write it as 90s, 15m or 2h")
    return float(found[1]) * {"s": 1, "m": 60, "h": 3600}[found[2]]


def usage_message(error: Any) -> str:
    """What typer says about a wrong command line, with the nearest name where there is one."""
    message = str(error.format_message()).replace("Value error, ", "")
    if getattr(error, "possibilities", None):
        return f"{error.message}.{nearest(error.option_name, error.possibilities)}"
    wrong = re.search(r"'([^']*)' is not one of ('.*')", message)
    if wrong is None:
        return message
    choices = re.findall(r"'([^']*)'", wrong[2])
    return f"{message.rstrip('.')}.{nearest(wrong[1], choices)}"
