"""A maker of features from a function of the step, without any state."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray


@dataclass
class MadeBy:
    make_step: Callable[[int], NDArray[Any]]

    def save_state(self) -> dict[str, NDArray[Any]]:
        return {}

    def load_state(self, state: dict[str, NDArray[Any]]) -> None:
        assert not state
