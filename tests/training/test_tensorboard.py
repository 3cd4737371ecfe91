from __future__ import annotations

import threading
from pathlib import Path

import pytest

from chronospike.errors import MissingPackageError
from chronospike.training.loop import EpochReport
from chronospike.training.tensorboard import epoch_curves, require_tensorboard

REPORT = EpochReport(3, 1.5, 0.7, 0.75, 0.005, 2.0, True, {"contrastive_loss": 5.0})


def test_a_missing_package_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chronospike.training.tensorboard.find_spec", lambda name: None)
    with pytest.raises(MissingPackageError, match=r"chronospike\[tensorboard\]"):
        require_tensorboard()


def test_an_epoch_can_be_read_back(tmp_path: Path) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    with epoch_curves(tmp_path) as write:
        write(REPORT)
    events = accumulator.EventAccumulator(str(tmp_path))
    events.Reload()
    (point,) = events.Scalars("validation_macro_f1")
    assert point.step == 3
    assert point.value == pytest.approx(0.7)


def test_the_writer_is_closed_when_training_fails(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    before = set(threading.enumerate())
    with pytest.raises(RuntimeError), epoch_curves(tmp_path):
        (writer,) = set(threading.enumerate()) - before
        raise RuntimeError
    assert not writer.is_alive()
