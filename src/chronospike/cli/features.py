"""`chronospike features`: deepwalk, fastrp, list."""

from __future__ import annotations

import time as clock
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from chronospike.cli.common import print_json, print_table, progress, say

if TYPE_CHECKING:
    from chronospike.data.graph import DynamicGraph

app = typer.Typer(help="Make node features for every step.", no_args_is_help=True, rich_markup_mode=None)

Folder = Annotated[Path, typer.Argument(help="A graph folder.")]
