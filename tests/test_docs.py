"""What the documentation shows works as it stands there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from chronospike.methods.registry import METHODS
from tests.small_runs import saved_graph, worked

DOCS = Path(__file__).parents[1] / "docs"


@pytest.mark.parametrize(("name", "learner"), [("neighbours", "Neighbours"), ("mlp", "MLP")])
def test_the_methods_of_the_architecture_page_train_and_predict(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, learner: str
) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (DOCS / "architecture.md").read_text(encoding="utf-8"), re.DOTALL)
    (shown,) = [block for block in blocks if f"class {learner}(" in block]
    (tmp_path / f"shown_{name}.py").write_text(shown, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(METHODS, name, f"shown_{name}:{learner}")
    run, graph = tmp_path / "run", saved_graph(tmp_path / "graph")
    worked(capsys, "train", graph, "--method", name, "-o", run, "--device", "cpu")
    worked(capsys, "predict", run, "-o", tmp_path / "classes.csv", "--device", "cpu")


@pytest.mark.parametrize("page", [*DOCS.glob("*.md"), DOCS.parent / "README.md"], ids=lambda page: page.name)
def test_files_that_a_page_names_are_there(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    roots = (page.parent, DOCS.parent, DOCS.parent / "src" / "chronospike", DOCS.parent / "tests")
    named = set(re.findall(r"\]\(([\w./-]+)(?:#[\w-]+)?\)|`((?:[a-z_]+/)+[a-z_]+\.(?:py|j2|yaml))`", text))
    missing = [name for pair in named for name in pair if name and not any((root / name).exists() for root in roots)]
    assert [name for name in missing if name not in ("methods/neighbours.py", "methods/mlp.py")] == []
