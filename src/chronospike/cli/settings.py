"""`chronospike settings`: every setting with its value, its allowed values and its meaning."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin

import typer

from chronospike.cli.common import print_json, print_table, say
from chronospike.cli.options import PRESET_METAVAR, PRESETS, AsJson

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo


def settings(
    method: Annotated[
        str, typer.Option(metavar="NAME", help="Method; see 'chronospike compare --list'.")
    ] = "chronospike",
    preset: Annotated[
        str | None, typer.Option(metavar=PRESET_METAVAR, help=f"Show the values of {PRESETS} or a file.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List a method's settings: values, allowed values, meaning."""
    from chronospike.config import preset_names
    from chronospike.methods.registry import owned_preset, settings_for, settings_type

    kind = settings_type(method)
    plain = kind().model_dump(mode="json")
    chosen = settings_for(method, owned_preset(preset), {}).model_dump(mode="json") if preset else plain
    if as_json:
        print_json(chosen)
        return
    paper = settings_for(method, owned_preset("paper"), {}).model_dump(mode="json")
    if preset:
        say(f"Settings of the preset {preset}: value (value without the preset, if it differs) [allowed] meaning.")
    else:
        say("Settings without a preset: value [allowed] meaning.")
    named = "" if method == "chronospike" else f" --method {method}"
    say(f"Change one with: chronospike train GRAPH -o RUN{named} --set NAME=VALUE")
    rows = []
    for name, value in chosen.items():
        field = kind.model_fields[name]
        parts = [_written(value)]
        if value != plain[name]:
            whose = "paper" if plain[name] == paper[name] else "without preset"
            parts.append(f"({whose}: {_written(plain[name])})")
        parts += [f"[{rule}]" for rule in [allowed(field)] if rule]
        parts += [field.description] if field.description else []
        rows.append((name, "  ".join(parts)))
    print_table(rows)
    say(f"Presets: {', '.join(preset_names())}. 'train' takes the one named like the dataset, else default")


def allowed(field: FieldInfo) -> str:
    """The values a setting may have, such as `attention, mean or sum` or `integer >= 1`; empty for any text."""
    return _allowed(field.annotation, list(field.metadata))


def _allowed(kind: Any, bounds: list[Any]) -> str:
    if get_origin(kind) is Annotated:
        kind, *more = get_args(kind)
        return _allowed(kind, [bound for one in more for bound in one.metadata])
    if get_origin(kind) is Literal:
        *others, last = (str(value) for value in get_args(kind))
        return f"{', '.join(others)} or {last}"
    if get_origin(kind) is tuple:
        return f"list, each {_allowed(get_args(kind)[0], [])}"
    if kind is bool:
        return "true or false"
    if kind is int:
        return f"integer {_range(bounds)}".rstrip()
    return f"number {_range(bounds)}".rstrip() if kind is float else ""


def _range(bounds: list[Any]) -> str:
    """`>= 1` or `0 <= x < 1`, from the bounds as pydantic keeps them."""
    limits = {key: getattr(bound, key) for bound in bounds for key in ("ge", "gt", "le", "lt") if hasattr(bound, key)}
    # What a computer's integers hold is no limit that anybody needs to be told.
    limits = {key: value for key, value in limits.items() if value < 2**31}
    low = [f"{limits[key]} {sign} x" for key, sign in (("ge", "<="), ("gt", "<")) if key in limits]
    high = [f"{sign} {limits[key]}" for key, sign in (("le", "<="), ("lt", "<")) if key in limits]
    if low and high:
        return f"{low[0]} {high[0]}"
    only = [f"{sign} {limits[key]}" for key, sign in (("ge", ">="), ("gt", ">")) if key in limits]
    return "".join(only or high)


def _written(value: Any) -> str:
    """As `--set` takes it."""
    return str(value).lower() if isinstance(value, bool) else str(value)
