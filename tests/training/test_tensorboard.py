from __future__ import annotations

from pathlib import Path

import pytest

from chronospike.errors import MissingPackageError
from chronospike.training.loop import EpochReport
from chronospike.training.tensorboard import TensorBoard

REPORT = EpochReport(3, 1.5, 1.0, 5.0, 0.7, 0.75, 0.005, 2.0, True)


def test_a_missing_package_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chronospike.training.tensorboard.find_spec", lambda name: None)
    with pytest.raises(MissingPackageError, match=r"chronospike\[tensorboard\]"):
        TensorBoard(tmp_path)


def test_an_epoch_can_be_read_back(tmp_path: Path) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    board = TensorBoard(tmp_path)
    board.on_epoch(REPORT)
    board.close()
    events = accumulator.EventAccumulator(str(tmp_path))
    events.Reload()
    (point,) = events.Scalars("validation_macro_f1")
    assert point.step == 3
    assert point.value == pytest.approx(0.7)
