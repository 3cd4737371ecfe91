"""`chronospike settings`: every setting with its value and meaning."""

from __future__ import annotations

from typing import Annotated

import typer

from chronospike.cli.common import print_json, print_table, say


def settings(
    preset: Annotated[str | None, typer.Option(help="With this preset's values, marked where they differ.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")] = False,
) -> None:
    """The settings that 'train --set key=value' takes, with their values, and the presets."""
    from chronospike.config import Settings, make_settings, preset_names, read_preset

    plain = Settings().model_dump(mode="json")
    chosen = make_settings(read_preset(preset)).model_dump(mode="json") if preset else plain
    if as_json:
        print_json(chosen)
        return
    rows = []
    for name, value in chosen.items():
        mark = "" if value == plain[name] else f"  (default: {plain[name]})"
        meaning = Settings.model_fields[name].description
        rows.append((name, f"{value}{mark}" + (f"  {meaning}" if meaning else "")))
    print_table(rows)
    say(f"presets: {', '.join(preset_names())}")
