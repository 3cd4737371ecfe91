from __future__ import annotations

import json
from pathlib import Path

import pytest

from chronospike.bench import roofline
from chronospike.data.storage import save_graph
from tests.small_runs import command, small_graph, worked


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(roofline, "_COPY_BYTES", {"cpu": 1 << 16})
    monkeypatch.setattr(roofline, "_PRODUCT_SIZE", {"cpu": 64})
    return save_graph(small_graph(), tmp_path / "graph")


SMALL = ("--device", "cpu", "--epochs", "1", "--set", "fanouts=[2, 2]", "--set", "feature_dimension=8")


def test_bench_of_a_folder_as_json(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    found = json.loads(worked(capsys, "bench", "--like", folder, "--json", *SMALL))
    assert {"seed", "training", "inference", "peak_memory_bytes", "stages", "floor", "machine", "device"} <= set(found)
    assert found["settings"]["fanouts"] == [2, 2]


def test_bench_prints_a_table_of_stages(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    said = worked(capsys, "bench", "--like", folder, *SMALL)
    for word in (
        "seed 0",
        "s an epoch",
        "peak memory",
        "sample",
        "attend",
        "neurons",
        "backward",
        "optimiser",
        "ratio",
    ):
        assert word in said


def test_an_unknown_likeness_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    result = command(capsys, "bench", "--like", "dbpl")
    assert result.code == 2
    assert result.err.count("\n") == 1
    assert "Did you mean 'dblp'?" in result.err
