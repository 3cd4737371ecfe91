"""The epochs of a run as TensorBoard curves; the package is an extra."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Self

from chronospike.errors import MissingPackageError
from chronospike.training.loop import EpochReport


def require_tensorboard() -> None:
    """Say how to get the package where it is missing."""
    if find_spec("tensorboard") is None:
        raise MissingPackageError("tensorboard", "--tensorboard", extra="tensorboard")


class TensorBoard:
    """Writes a report per epoch into `folder` until it is left; read it with `tensorboard --logdir`."""

    def __init__(self, folder: Path) -> None:
        require_tensorboard()
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(folder))

    def on_epoch(self, report: EpochReport) -> None:
        values = report.as_dict()
        epoch = values.pop("epoch")
        for name, value in values.items():
            self._writer.add_scalar(name, float(value), epoch)
        self._writer.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._writer.close()
