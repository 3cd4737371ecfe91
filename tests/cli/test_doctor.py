from __future__ import annotations

import json

import pytest

from chronospike.cli import doctor
from tests.small_runs import worked


def test_doctor_says_versions_and_devices(capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(worked(capsys, "doctor", "--json"))
    assert set(found) == {"system", "packages", "extras", "devices", "kernels"}
    assert all(found["packages"].values())
    assert found["devices"][0]["name"] == "cpu"
    assert found["kernels"]["cpu"]["attention"]["implementation"] == "numba"
    said = worked(capsys, "doctor")
    assert found["packages"]["torch"] in said
    assert "attention  numba (compiled for the CPU)" in said


def test_what_is_missing_comes_with_the_way_to_get_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "_version", lambda name: None if name in ("triton", "numba") else "1.0")
    said = worked(capsys, "doctor")
    assert "not installed; for DeepWalk and fast kernels on a GPU: pip install 'chronospike[gpu]'" in said
    assert "MISSING: pip install chronospike" in said
