"""What src/ imports, and what pyproject.toml says of it, are the same packages."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
# Where the package to install has another name than the one to import.
IMPORTED_AS = {"scikit-learn": "sklearn", "pyyaml": "yaml"}


def imported() -> set[str]:
    """Packages of others that a file in src/ imports, wherever in the file."""
    found: set[str] = set()
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                found |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module is not None and not node.level:
                found.add(node.module.split(".")[0])
    return found - set(sys.stdlib_module_names) - {"chronospike"}


def named(requirements: list[str]) -> set[str]:
    names = {re.split(r"[^\w-]", text, maxsplit=1)[0].lower() for text in requirements}
    return {IMPORTED_AS.get(name, name) for name in names}


def project() -> dict[str, object]:
    found: dict[str, object] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return found


def test_every_package_that_is_imported_is_required() -> None:
    required, extras = project()["dependencies"], project()["optional-dependencies"]
    assert isinstance(required, list)
    assert isinstance(extras, dict)
    optional = named(extras["gpu"]) | named(extras["tensorboard"])
    assert imported() <= named(required) | optional


def test_every_package_that_is_required_is_imported() -> None:
    required = project()["dependencies"]
    assert isinstance(required, list)
    assert named(required) <= imported()


def test_every_package_that_is_required_has_a_tested_version() -> None:
    required = project()["dependencies"]
    assert isinstance(required, list)
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    assert named(required) <= named([line for line in lines if not line.startswith("#")])
