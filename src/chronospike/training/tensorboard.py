"""The epochs of a run as TensorBoard curves; the package is an extra."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from chronospike.errors import MissingPackageError
from chronospike.training.loop import EpochReport


def require_tensorboard() -> None:
    """Say how to get the package where it is missing."""
    if find_spec("tensorboard") is None:
        raise MissingPackageError("tensorboard", "--tensorboard", extra="tensorboard")


@contextmanager
def epoch_curves(folder: Path) -> Iterator[Callable[[EpochReport], None]]:
    """What writes a report per epoch into `folder`; read it with `tensorboard --logdir`."""
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(str(folder)) as writer:

        def write(report: EpochReport) -> None:
            values = report.as_dict()
            epoch = values.pop("epoch")
            for name, value in values.items():
                writer.add_scalar(name, float(value), epoch)
            writer.flush()

        yield write
