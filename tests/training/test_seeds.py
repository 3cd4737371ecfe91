from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from chronospike.errors import StorageError
from chronospike.training.seeds import refuse_several, seeds_of, summary


def metrics(macro: float, micro: float, smoothed: float | None = None) -> dict[str, Any]:
    return {
        "test": {"macro_f1": macro, "micro_f1": micro, "nodes": 9},
        "smoothed": None if smoothed is None else {"macro_f1": smoothed, "micro_f1": smoothed, "strengths": {}},
        "baselines": {"label propagation": {"macro_f1": 0.5, "micro_f1": 0.25}},
    }


def test_the_deviation_is_that_of_a_sample() -> None:
    found = summary({3: metrics(0.1, 0.5), 4: metrics(0.2, 0.5), 5: metrics(0.3, 0.5)})
    assert [run["folder"] for run in found["runs"]] == ["seed-3", "seed-4", "seed-5"]
    assert found["runs"][1]["test"] == {"macro_f1": 0.2, "micro_f1": 0.5}
    assert found["summary"]["test"]["macro_f1"] == pytest.approx({"mean": 0.2, "std": 0.1})
    assert found["summary"]["test"]["micro_f1"] == {"mean": 0.5, "std": 0.0}
    assert found["summary"]["label propagation"]["micro_f1"] == {"mean": 0.25, "std": 0.0}


def test_smoothed_scores_are_summed_up_if_every_run_has_them() -> None:
    assert "smoothed" not in summary({0: metrics(0.1, 0.1, 0.2), 1: metrics(0.1, 0.1)})["summary"]
    found = summary({0: metrics(0.1, 0.1, 0.2), 1: metrics(0.1, 0.1, 0.4)})
    assert found["summary"]["smoothed"]["macro_f1"]["mean"] == pytest.approx(0.3)


def test_there_is_no_summary_before_all_have_finished() -> None:
    found = summary({0: metrics(0.1, 0.2), 1: None})
    assert found["summary"] is None
    assert found["runs"][1] == {"seed": 1, "folder": "seed-1"}


def test_a_folder_of_several_says_which_there_are(tmp_path: Path) -> None:
    refuse_several(tmp_path)
    (tmp_path / "seeds.json").write_text(json.dumps(summary({0: None, 1: None})))
    with pytest.raises(StorageError, match="holds 2 runs: seed-0, seed-1. Give one of them, for example .*seed-0"):
        refuse_several(tmp_path)


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"runs": []}', '{"runs": [{"seed": "../../x"}]}', '{"runs": [1]}'])
def test_a_damaged_list_of_seeds_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "seeds.json").write_text(text)
    with pytest.raises(StorageError, match="seeds.json is damaged"):
        seeds_of(tmp_path)
