"""Features that do not fit the GPU: every command of a run's life with them in host memory."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from chronospike.methods.chronospike import tree_inputs
from tests.small_runs import assignments, saved_graph, worked

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("precision", ["single", "half"])
@pytest.mark.parametrize("label_inputs", [False, True])
def test_a_run_with_features_in_host_memory_is_trained_scored_and_used(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    precision: str,
    label_inputs: bool,
) -> None:
    monkeypatch.setattr(tree_inputs, "_GPU_SHARE", 0.0)
    graph, run = saved_graph(tmp_path / "g"), tmp_path / "run"
    values = assignments(precision=precision, label_inputs=label_inputs, epochs=3)
    said = worked(capsys, "train", graph, "-o", run, "--device", "cuda", "--smooth", *values)
    assert "stay in host memory" in said
    metrics = json.loads((run / "metrics.json").read_text())
    again = json.loads(worked(capsys, "evaluate", run, "--device", "cuda", "--smooth", "--json"))
    assert again["test"] == metrics["test"]
    worked(capsys, "predict", run, "--device", "cuda", "-o", tmp_path / "out.csv")
    worked(capsys, "embed", run, "--device", "cuda", "-o", tmp_path / "z.npy")
    monkeypatch.undo()
    worked(capsys, "embed", run, "--device", "cuda", "-o", tmp_path / "resident.npy")
    np.testing.assert_allclose(np.load(tmp_path / "z.npy"), np.load(tmp_path / "resident.npy"), atol=0.05)
