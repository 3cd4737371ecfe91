"""Networks without storage, for their shapes and the number of their parameters."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

# What fills a parameter with numbers: of `nn.init`, and of tensors.
_FILLS = ("normal_", "uniform_", "trunc_normal_", "kaiming_uniform_", "kaiming_normal_")


@contextmanager
def meta_device() -> Iterator[None]:
    """Modules made in the block have parameters with a shape and no storage.

    They are not initialised either: there is nothing to fill, and on the meta device random numbers make torch load
    its compiler, which takes seconds.
    """
    with torch.device("meta"), _NoInitialisation():
        yield


class _NoInitialisation(TorchFunctionMode):
    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if getattr(func, "__name__", "") in _FILLS:
            return kwargs["tensor"] if "tensor" in kwargs else args[0]
        return func(*args, **kwargs)
