"""The benchmark's DBLP files, imported as a user would."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.small_runs import worked


def test_dblp_has_the_counts_that_are_published(
    capsys: pytest.CaptureFixture[str], data_root: Path, tmp_path: Path
) -> None:
    edges, labels = data_root / "dblp" / "dblp.txt", data_root / "dblp" / "node2label.txt"
    worked(capsys, "data", "import", edges, "--labels", labels, "-o", tmp_path / "dblp")
    found = json.loads(worked(capsys, "data", "info", tmp_path / "dblp", "--json"))
    expected = {
        "nodes": 28_085, "steps": 27, "classes": 10, "rows": 235_379, "snapshot_edges": 207_194,
        "union_edges": 150_568,
    }  # fmt: skip
    assert {name: found[name] for name in expected} == expected
    assert "checksums and contents are valid" in worked(capsys, "data", "validate", tmp_path / "dblp")
