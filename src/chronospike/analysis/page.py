"""What the pages share: one HTML file that opens from disk, with the style sheet in it and every text escaped."""

from __future__ import annotations

from jinja2 import Environment, PackageLoader, StrictUndefined, Template

from chronospike._version import __version__
from chronospike.analysis.charts import bar
from chronospike.analysis.wording import LONGEST_NAME, count, counted, percent, shorten, visible


def page_template(name: str) -> Template:
    """The template of a page that extends page.html.j2."""
    environment = Environment(
        loader=PackageLoader("chronospike", "analysis"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(percent=percent, count=count, counted=counted, shorten=shorten, visible=visible)
    environment.globals.update(bar=bar, longest_name=LONGEST_NAME, version=__version__)
    return environment.get_template(name)
