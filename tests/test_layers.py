"""Packages import from those below them alone, so that there is no cycle between them."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.layers import edges, package, upward


def tree(folder: Path, **files: str) -> Path:
    """A package with one file a name; `__` stands for a slash."""
    root = folder / "chronospike"
    for name, text in files.items():
        path = root / f"{name.replace('__', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return root


def test_no_package_imports_from_one_above_it() -> None:
    assert upward(edges()) == []


def test_an_import_inside_a_function_counts(tmp_path: Path) -> None:
    root = tree(tmp_path, data__graph="def f():\n    import chronospike.cli.train\n", cli__train="")
    assert [(edge.file, edge.line, edge.target) for edge in upward(edges(root))] == [("data/graph.py", 2, "cli")]


def test_an_import_for_types_counts_apart(tmp_path: Path) -> None:
    text = "if TYPE_CHECKING:\n    from chronospike.nn.lif import LIF\nfrom chronospike import errors\n"
    found = edges(tree(tmp_path, training__loop=text))
    assert [(edge.target, edge.for_types) for edge in found] == [("nn", True), ("root", False)]


def test_imports_within_a_package_and_of_others_do_not_count(tmp_path: Path) -> None:
    assert edges(tree(tmp_path, nn__lif="import torch\nfrom chronospike.nn.surrogate import fast\n")) == []


def test_a_package_without_a_place_is_an_error() -> None:
    with pytest.raises(ValueError, match="'plots' has no place"):
        package("plots/curves.py")
