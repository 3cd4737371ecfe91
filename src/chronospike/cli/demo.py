"""`chronospike demo`: the whole workflow on a bundled graph, from import to report."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from chronospike.cli.common import say
from chronospike.cli.options import Device
from chronospike.cli.train import train


def demo(
    output: Annotated[Path, typer.Option("-o", "--output", help="The run folder.")] = Path("build/demo"),
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an earlier demo.")] = False,
    device: Device = "auto",
) -> None:
    """Train on PubMed, from import to report, in a few minutes.

    PubMed is 19,717 papers about diabetes and their citations over 44 years.
    """
    say("PubMed: which of three kinds of diabetes is a paper about? (80 % of the labels, 12 steps)")
    train(output=output, graph="pubmed", preset="pubmed", overwrite=overwrite, device=device)
    say(f"open {output / 'report.html'} in a browser")
