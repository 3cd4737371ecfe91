"""The imports between the packages of src/chronospike, layer by layer; exit code 1 on a cycle or an upward edge.

    python benchmarks/layers.py

Every import statement counts, those inside functions too. Those for type checkers alone (`if TYPE_CHECKING:`) are
counted apart and follow the same order. No package outside the standard library is needed.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

SOURCE = Path(__file__).parents[1] / "src" / "chronospike"

# From the bottom up. A package imports from itself and from those before it. `root` is every module that lies beside
# the packages and is not named here; `entry` is __init__.py, which loads the public names when they are first used,
# and __main__.py.
LAYERS = (
    "root", "config", "data", "features", "sampling", "nn", "training", "methods", "experiments", "analysis",
    "estimator", "bench", "cli", "entry",
)  # fmt: skip


class Edge(NamedTuple):
    """An import of one package from another.

    Attributes:
        file: which imports, below src/chronospike.
        for_types: only where types are checked.
    """

    source: str
    target: str
    file: str
    line: int
    for_types: bool


def edges(folder: Path = SOURCE) -> list[Edge]:
    """Every import between two packages."""
    found = []
    for path in sorted(folder.rglob("*.py")):
        name = path.relative_to(folder).as_posix()
        for module, line, for_types in _imports(ast.parse(path.read_text(encoding="utf-8")), folder.name):
            edge = Edge(package(name), package(module), name, line, for_types)
            found += [edge] if edge.source != edge.target else []
    return found


def package(path: str) -> str:
    """The layer of a file (`data/graph.py`) or of what is imported (`data/graph`), below src/chronospike."""
    first, _, rest = path.partition("/")
    first = first.removesuffix(".py")
    if first in ("", "__init__", "__main__"):
        return "entry"
    if rest and first not in LAYERS:
        raise ValueError(f"{path}: the package '{first}' has no place in LAYERS")
    return first if first in LAYERS else "root"


def _imports(tree: ast.AST, name: str, for_types: bool = False) -> Iterator[tuple[str, int, bool]]:
    """Modules of the package `name` that are imported, as paths, with the line and whether for types alone."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            for inner in node.body:
                yield from _imports(ast.Module([inner], []), name, for_types=True)
            continue
        if isinstance(node, ast.ImportFrom) and node.module == name:
            modules = [f"{name}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            modules = [node.module or ""]
        elif isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        else:
            yield from _imports(node, name, for_types)
            continue
        for module in modules:
            if module.split(".")[0] == name:
                yield "/".join(module.split(".")[1:]), node.lineno, for_types


def upward(found: list[Edge]) -> list[Edge]:
    """The edges from a layer to one above it. Where there is none there is no cycle between packages either."""
    return [edge for edge in found if LAYERS.index(edge.target) > LAYERS.index(edge.source)]


def table(found: list[Edge]) -> list[str]:
    """A line for each package: what it imports, and how often."""
    counts = Counter((edge.source, edge.target, edge.for_types) for edge in found)
    rows = []
    for source in LAYERS:
        parts = []
        for target in LAYERS:
            used, typed = counts[source, target, False], counts[source, target, True]
            parts += [f"{target} {used}" + (f" (types {typed})" if typed else "")] if used + typed else []
        rows.append(f"{source:12} -> {', '.join(parts) or '-'}")
    return rows


def main() -> int:
    found = edges()
    print("\n".join(table(found)))
    wrong = upward(found)
    for edge in wrong:
        print(f"upward: {edge.file}:{edge.line} imports {edge.target}", file=sys.stderr)
    print(f"{len(found)} imports between packages, {len(wrong)} upward")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
